"""`kourou bench replication`: measures all setups in turns and prints the results.

Each measurement starts new servers in an empty folder. The load comes from the drivers of `kourou
bench --peers`, one process each: RocketMQ's Java client sends from 64 threads, Kourou's from 64
coroutines. A measurement is valid only if every send is answered with SEND_OK, the broker's count
agrees, and Kourou's followers have all messages at the end.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kourou import __version__
from kourou.cli.checkout import find_checkout
from kourou.cli.doctor import file_system_of
from kourou.errors import ConfigError, KourouError
from kourou.service.os_processes import CpuReading
from kourou.service.processes import Children
from kourou_bench.comparison import turns
from kourou_bench.driving import DriverOptions, Outcome
from kourou_bench.peers import CACHE_FOLDER
from kourou_bench.replicated import Servers, sampled, serving, until_level
from kourou_bench.replication import Lag, Rounds, Setup, Spent, chosen, lag_values
from kourou_bench.rocketmq import BROKER_HEAP, CLIENT_HEAP, TIMEOUTS, RocketMq
from kourou_bench.rows import Name
from kourou_bench.session import ready_driver


@dataclass(frozen=True, slots=True)
class ReplicationBench:
    """The parameters; printed with every result.

    `warm_seconds` of the same workload precede the measured `seconds`. `only` selects setups; empty
    selects all.
    """

    rounds: int = 2
    seconds: float = 4.0
    warm_seconds: float = 5.0
    size: int = 1_024
    in_flight: int = 64
    only: tuple[str, ...] = ()


def run_replication_bench(settings: ReplicationBench, *, as_json: bool) -> int:
    """Measure and print; returns 0 unless a measurement failed. Raises ConfigError for wrong
    settings.
    """
    setups = chosen(settings.only)
    rocketmq, lacking = _rocketmq() if _wants_rocketmq(setups) else (None, "")
    if lacking:
        _tell(f"NOT MEASURED: RocketMQ: {lacking}")
        setups = [setup for setup in setups if setup.system is not Name.ROCKETMQ]
    record = _record(settings, rocketmq)
    if not as_json:
        print("; ".join(f"{name} {value}" for name, value in record.items()), flush=True)
    rounds, failed = Rounds(setups), False
    for number in range(settings.rounds):
        for setup in turns(setups, number):
            where = f"round {number + 1}/{settings.rounds}  {setup.name:<15}"
            try:
                values = _measure(setup, settings, rocketmq)
            except KourouError as error:
                # A failed setup is reported; the others are still measured.
                _tell(f"{where} FAILED: {error}")
                rounds.add(setup, None)
                failed = True
            else:
                _tell(f"{where} {values['rate']:,.0f} msg/s")
                rounds.add(setup, values)
    if as_json:
        for figure in rounds.figures():
            print(figure.as_json(record), flush=True)
    else:
        for table in rounds.tables("RocketMQ" if rocketmq is None else rocketmq.title()):
            print(f"\n{table}", flush=True)
    return int(failed)


def _measure(
    setup: Setup, settings: ReplicationBench, rocketmq: RocketMq | None
) -> dict[str, float]:
    """The values of one setup; raises KourouError if servers fail or a message is missing."""
    os.sync()  # pending writes of the previous measurement must not slow down this one
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as name:
        folder = Path(name)
        with serving(setup, folder / "servers", rocketmq) as servers:
            leader = CpuReading.of(servers.leader)
            followers = [CpuReading.of(pid) for pid in servers.followers]
            outcome, samples = asyncio.run(_drive(servers, folder, settings))
            spent = Spent(leader.spent_ns(), sum(one.spent_ns() for one in followers))
            outcome.check()
            if servers.watched:
                asyncio.run(until_level(servers.address))
    return {**outcome.values, **spent.values(outcome.sent), **lag_values(samples)}


async def _drive(
    servers: Servers, folder: Path, settings: ReplicationBench
) -> tuple[Outcome, list[Lag]]:
    """Run the driver in a separate process, and sample the lag in that time."""
    options = DriverOptions(
        address=servers.address, work="send", size=settings.size, in_flight=settings.in_flight
    )
    over = asyncio.Event()
    with Children(folder) as children:
        driver = ready_driver(children, "driver", servers.driver(options))
        warm = driver.measure(settings.warm_seconds)
        async with asyncio.TaskGroup() as group:
            watching = None
            if servers.watched:
                watching = group.create_task(sampled(servers.address, over))
            try:
                outcome = await asyncio.to_thread(driver.measure, settings.seconds)
            finally:
                over.set()
        outcome.sent += warm.sent
        outcome.stored += warm.stored
    return outcome, [] if watching is None else watching.result()


# -- requirements ----------------------------------------------------------------------------------
def _wants_rocketmq(setups: Sequence[Setup]) -> bool:
    return any(setup.system is Name.ROCKETMQ for setup in setups)


def _rocketmq() -> tuple[RocketMq | None, str]:
    """RocketMQ, or what is missing for it."""
    try:
        checkout = find_checkout()
    except ConfigError:
        return None, "its driver is only in the source checkout"
    found = RocketMq(checkout / "benchmarks" / "java", checkout / CACHE_FOLDER)
    lacking = found.missing()
    return (None, lacking) if lacking else (found, "")


def _record(settings: ReplicationBench, rocketmq: RocketMq | None) -> dict[str, object]:
    mounts = Path("/proc/mounts")
    text = mounts.read_text(encoding="utf-8") if mounts.exists() else ""
    peer = {}
    if rocketmq is not None:
        heaps = f"heaps {' '.join(BROKER_HEAP)}, client's {' '.join(CLIENT_HEAP)}"
        timeout = ", ".join(f"{key}={value}" for key, value in TIMEOUTS.items())
        peer = {"peer": f"{rocketmq.title()} ({heaps}; {timeout}; otherwise its defaults)"}
    return {
        "kind": "replication",
        "rounds": settings.rounds,
        "seconds": settings.seconds,
        "warm_seconds": settings.warm_seconds,
        "size": settings.size,
        "in_flight": settings.in_flight,
        "queues": DriverOptions(address="", work="").queues,
        "flush": "ASYNC_FLUSH unless a setup says otherwise; Raft: a majority before the reply",
        "kourou": __version__,
        "cpus": os.cpu_count(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file_system": file_system_of(Path(tempfile.gettempdir()).resolve(), text) or "unknown",
        **peer,
    }


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
