"""Measure whether a quota keeps greedy clients from slowing down modest ones.

    .venv/bin/python benchmarks/fairness.py [--seconds 10] [--greedy 100] [--json]

Starts a broker with two topics. Modest clients send 100 messages of 1 KiB a second each, and their
round trips are measured: alone, then with greedy clients in another process, which send to the
other topic without waiting for replies, with and without a quota of that topic. Each client has a
connection of its own. Prints median and 99th percentile of the modest round trips, refused modest
sends, and the rate of the greedy clients. The script asserts nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from kourou.errors import Code, KourouError
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.quotas import RemoveQuota, SetQuota
from kourou.protocol.messages.sends import SendMessage
from kourou.service.processes import Children
from kourou.transport.zmq_client import ZmqConnection

BODY = b"x" * 1024
MODEST, MODEST_PER_S = 10, 100
GREEDY_WINDOW = 16
TIMEOUT_MS = 10_000
QUOTA_PER_S = 2_000
WARM_UP_S = 1.0


@dataclass
class Row:
    """What modest clients saw in one situation; times in ms, rates in messages a second."""

    name: str
    median_ms: float
    p99_ms: float
    refused: int
    greedy_per_s: float


def send_to(topic: str) -> SendMessage:
    """The request that sends one message."""
    return SendMessage(
        producer_group="bench",
        topic=topic,
        default_topic="",
        default_topic_queue_nums=1,
        queue_id=0,
        born_timestamp=time.time_ns() // 1_000_000,
    )


async def modest(address: str, until: float, times_ms: list[float]) -> int:
    """Send at a fixed rate; returns how many sends were refused."""
    connection, refused = ZmqConnection(address), 0
    due = time.perf_counter()
    while due < until:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        reply = await connection.request(send_to("modest"), body=(BODY,), timeout_ms=TIMEOUT_MS)
        times_ms.append(1_000 * (time.perf_counter() - began))
        refused += reply.code != Code.SUCCESS
        due += 1 / MODEST_PER_S
    connection.close()
    return refused


async def greedy(address: str, count: int, seconds: float) -> int:
    """Send as fast as possible; returns how many messages were stored."""
    until, stored = time.perf_counter() + seconds, 0

    async def client(connection: ZmqConnection) -> None:
        nonlocal stored
        while time.perf_counter() < until:
            try:
                reply = await connection.request(
                    send_to("greedy"), body=(BODY,), timeout_ms=TIMEOUT_MS
                )
            except KourouError:
                continue
            stored += reply.code == Code.SUCCESS

    connections = [ZmqConnection(address) for _ in range(count)]
    await asyncio.gather(*(client(one) for one in connections for _ in range(GREEDY_WINDOW)))
    for one in connections:
        one.close()
    return stored


async def situation(name: str, address: str, seconds: float, greedy_count: int) -> Row:
    """Measure modest clients, with so many greedy ones in another process."""
    others = None
    if greedy_count:
        words = ["--as-greedy", address, "--greedy", str(greedy_count)]
        words += ["--seconds", str(seconds + 2 * WARM_UP_S)]
        others = await asyncio.create_subprocess_exec(
            sys.executable, __file__, *words, stdout=subprocess.PIPE
        )
        await asyncio.sleep(WARM_UP_S)
    times_ms: list[float] = []
    until = time.perf_counter() + seconds
    refused = await asyncio.gather(*(modest(address, until, times_ms) for _ in range(MODEST)))
    rate = 0.0
    if others is not None:
        output, _ = await others.communicate()
        rate = int(output) / (seconds + 2 * WARM_UP_S)
    p99_ms = statistics.quantiles(times_ms, n=100)[98]
    return Row(name, statistics.median(times_ms), p99_ms, sum(refused), rate)


async def measure(address: str, seconds: float, greedy_count: int) -> list[Row]:
    """All situations, one after the other."""
    connection = ZmqConnection(address)
    for name in ("modest", "greedy"):
        topic = UpdateAndCreateTopic(topic=name, read_queue_nums=1, write_queue_nums=1, perm=6)
        await connection.request(topic, timeout_ms=TIMEOUT_MS)
    rows = [await situation("alone", address, seconds, 0)]
    quota = SetQuota(kind="topic", name="greedy", publish_messages=QUOTA_PER_S)
    await connection.request(quota, timeout_ms=TIMEOUT_MS)
    rows.append(await situation("greedy, with a quota", address, seconds, greedy_count))
    await connection.request(RemoveQuota(kind="topic", name="greedy"), timeout_ms=TIMEOUT_MS)
    rows.append(await situation("greedy, without", address, seconds, greedy_count))
    connection.close()
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--greedy", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--as-greedy", metavar="ADDRESS", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_greedy:
        print(asyncio.run(greedy(given.as_greedy, given.greedy, given.seconds)))
        return
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        conf = Path(folder) / "broker.conf"
        conf.write_text(
            f"listenPort=0\nadminEnable=false\nbrokerIP1=127.0.0.1\nstorePathRootDir={folder}/store\n"
        )
        with Children(Path(folder)) as children:
            child = children.start_module("broker", "kourou_broker", "-c", str(conf))
            child.wait_for_ready()
            rows = asyncio.run(measure(str(child.ready["zmq"]), given.seconds, given.greedy))
    for row in rows:
        if given.json:
            print(json.dumps(asdict(row)))
        else:
            print(
                f"  {row.name:<24} median {row.median_ms:>7.2f} ms  p99 {row.p99_ms:>8.2f} ms"
                f"  refused {row.refused:>4}  greedy {row.greedy_per_s:>8.0f}/s"
            )


if __name__ == "__main__":
    main()
