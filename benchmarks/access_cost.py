"""Measure what users, signatures and TLS cost a broker, in CPU time per message sent.

    .venv/bin/python benchmarks/access_cost.py [--seconds 5] [--rounds 3] [--json]

Starts two brokers for RocketMQ's protocol: one without users that also accepts TLS, and one with an
administrator and a user who has a role and a policy. The same sends of 1 KiB go to both: without
credentials, signed by the user, and without credentials over TLS. Situations alternate in each
round, and each is first in turn. CPU time is that of the broker's process alone. Prints medians,
and the median of the ratios to `open` of the same round. The script asserts nothing about them; a
send that is refused ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kourou.service.os_processes import CpuReading
from kourou.service.processes import Child, Children
from kourou_bench.remoting_driver import (
    ADMINISTRATOR,
    SECRETS,
    USER,
    Sending,
    create_user,
    send_frame,
)
from kourou_rigs.certificates import Authority
from kourou_rigs.key_folder import first_user

BODY = b"x" * 1024
CONNECTIONS, WINDOW = 8, 16
WARM_UP_S = 2.0


@dataclass
class Situation:
    """Where sends go and how; what each round measured."""

    name: str
    broker: Child
    user: str = ""
    context: ssl.SSLContext | None = None
    cpu_us: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)

    @property
    def sending(self) -> Sending:
        """The same send, again and again."""
        address, frame = str(self.broker.ready["tcp"]), send_frame(BODY, self.user)
        return Sending(address, [frame], CONNECTIONS, WINDOW, self.context)


async def measure(situation: Situation, seconds: float) -> None:
    """One round of one situation."""
    reading = CpuReading.of(situation.broker.pid)
    messages, took_s = await situation.sending.run(seconds)
    situation.cpu_us.append(reading.spent_ns() / 1_000 / messages)
    situation.per_s.append(messages / took_s)


async def run(situations: list[Situation], seconds: float, rounds: int) -> None:
    """Create the user, warm up, and measure all situations in turns."""
    await create_user(str(situations[1].broker.ready["tcp"]))
    for one in situations:
        await one.sending.run(WARM_UP_S)
    for number in range(rounds):
        at = number % len(situations)
        for one in situations[at:] + situations[:at]:
            await measure(one, seconds)


def start(children: Children, folder: Path, name: str, keys: Mapping[str, object]) -> Child:
    """Start a broker with its store in a folder of its own."""
    conf = folder / f"{name}.conf"
    usual = {
        "listenPort": 0,
        "adminEnable": "false",
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": folder / name,
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in {**usual, **keys}.items()))
    child = children.start_module(name, "kourou_broker", "-c", str(conf))
    child.wait_for_ready()
    return child


def all_situations(children: Children, folder: Path) -> list[Situation]:
    """Start both brokers; `open` is the first situation."""
    authority = Authority(folder / "tls", "benchmark")
    certificate, key = authority.pair("server")
    tls = {
        "tls.server.mode": "permissive",
        "tls.server.certPath": certificate,
        "tls.server.keyPath": key,
    }
    plain = start(children, folder, "open", tls)
    secured = start(
        children,
        folder,
        "secured",
        first_user(folder, f"{ADMINISTRATOR}:{SECRETS[ADMINISTRATOR]}"),
    )
    context = ssl.create_default_context(cafile=str(authority.path))
    return [
        Situation("open", plain),
        Situation("signed by a user", secured, USER),
        Situation("open, over TLS", plain, context=context),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as text:
        folder = Path(text)
        with Children(folder) as children:
            situations = all_situations(children, folder)
            asyncio.run(run(situations, given.seconds, given.rounds))
    base = situations[0]
    for one in situations:
        ratio = statistics.median(
            mine / other for mine, other in zip(one.cpu_us, base.cpu_us, strict=True)
        )
        cpu_us, per_s = statistics.median(one.cpu_us), statistics.median(one.per_s)
        if given.json:
            row = {"name": one.name, "cpu_us": cpu_us, "per_s": per_s, "ratio": ratio}
            print(json.dumps(row))
        else:
            print(
                f"  {one.name:<18} {cpu_us:>7.2f} µs of CPU a message  {ratio:>5.2f} × open"
                f"  {per_s:>8.0f} messages/s"
            )


if __name__ == "__main__":
    main()
