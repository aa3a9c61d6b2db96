"""Measure how Kourou scales: many queues, a second broker on the machine, a log beyond the memory.

    .venv/bin/python benchmarks/scale.py queues [--topics 50] [--queues 1000]
    .venv/bin/python benchmarks/scale.py brokers
    .venv/bin/python benchmarks/scale.py cold [--messages 2000000]

queues   creates the topics, sends to all queues in turn with 64 in flight, and prints how long the
         creation took, the rate compared with one topic of 4 queues, the broker's memory, and the
         time from its start to the next acknowledged send after SIGTERM and after SIGKILL
brokers  sends to one topic on one broker and on two, in turns: 64 and 1,000 in flight, batches
cold     reads a backlog as `consume-batch` does, from memory and after the files of the store were
         dropped from the page cache; prints both rates and the bytes that the broker read from disk

Servers and driver are those of `kourou bench --peers`, on free ports and in a temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from kourou.client.client import Client
from kourou.protocol import kernel
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.os_processes import resident_bytes
from kourou.service.processes import Children, free_port
from kourou_bench.measure import Scale, warmed
from kourou_bench.rows import Work
from kourou_bench.session import Driver, ready_driver
from kourou_bench.systems import Kourou, RunningKourou

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Bench:
    """Running servers, and where drivers are started."""

    running: RunningKourou
    children: Children
    store: Path
    address: str

    def driver(self, work: Work, scale: Scale, *, kind: str | None = None) -> Driver:
        """Start a driver and wait until it is prepared for a workload."""
        command = Kourou().driver(scale.options(work, self.address, kind=kind))
        return ready_driver(self.children, f"driver-{time.monotonic_ns()}", command)

    @property
    def broker_pid(self) -> int:
        return self.running.cluster.brokers[0].pid


@contextmanager
def serving(brokers: int = 1) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as name, Children(Path(name)) as own:
        folder, port = Path(name), free_port()
        settings = ClusterSettings(brokers=brokers, namesrv={"zmqPort": str(port)})
        with LocalCluster(folder / "servers", settings) as cluster:
            address = Kourou().address(port)
            yield Bench(RunningKourou(cluster), own, folder / "servers", address)


def warm(driver: Driver, scale: Scale) -> None:
    """Warm up; prints a note if the driver does not become steady."""
    unsteady = warmed(lambda: driver.measure(scale.window_seconds), scale.warm_seconds, 120)
    if unsteady:
        print(unsteady)


def rates(driver: Driver, scale: Scale) -> list[float]:
    """The rates of ROUNDS rounds, after a warm-up."""
    warm(driver, scale)
    return [driver.measure(scale.seconds).values["rate"] for _ in range(ROUNDS)]


# -- many queues ----------------------------------------------------------------------------------
def queues(topics: int, each: int, scale: Scale) -> None:
    few, many = Work("send", in_flight=64), Work("send", in_flight=64, topics=topics, queues=each)
    with serving() as bench:
        few_rates = rates(bench.driver(few, scale), scale)
        before = resident_bytes(bench.broker_pid)
        began = time.monotonic()
        driver = bench.driver(many, scale)
        print(f"{topics} topics of {each} queues created in {time.monotonic() - began:.1f} s")
        many_rates = rates(driver, scale)
        ratio = median(many_rates) / median(few_rates)
        print(f"send, 64 in flight, to all queues: {median(many_rates):,.0f} msg/s")
        print(f"to 4 queues: {median(few_rates):,.0f} msg/s; ratio {ratio:.2f}")
        growth = resident_bytes(bench.broker_pid) - before
        per_queue = growth / (topics * each)
        print(f"memory: {growth / 1e6:,.0f} MB more than before, {per_queue:,.0f} bytes a queue")
        for how in ("SIGTERM", "SIGKILL"):
            print(f"start after {how} to the next acknowledged send: {restart(bench, how):.2f} s")
        used = resident_bytes(bench.broker_pid) / 1e6
        print(f"memory after the last start: {used:,.0f} MB")
        print(f"stored in all queues: {asyncio.run(stored(bench.address, topics)):,} messages")


def restart(bench: Bench, how: str) -> float:
    cluster = bench.running.cluster
    sender = bench.driver(Work("send"), Scale(), kind="first-send")
    if how == "SIGKILL":
        cluster.brokers[0].kill()
    else:
        cluster.brokers[0].stop()
    began_ns = time.monotonic_ns()
    cluster.start_broker(0)
    acked_ns = sender.measure().values["acked_at_ns"]
    return (acked_ns - began_ns) / 1e9


async def stored(address: str, topics: int) -> int:
    found = 0
    async with Client(address) as client:
        for number in range(topics):
            stats = await client.admin.topics.stats(f"bench-send-{number}")
            found += sum(one.max_offset - one.min_offset for one in stats.values())
    return found


# -- a second broker ------------------------------------------------------------------------------
def brokers(scale: Scale) -> None:
    works = {
        "64 in flight": Work("send", in_flight=64),
        "1,000 in flight": Work("send", in_flight=1_000),
        "batches of 32, 8 in flight": Work("send", in_flight=8, batch=32),
    }
    for name, work in works.items():
        with serving(1) as one, serving(2) as two:
            drivers = [bench.driver(work, scale) for bench in (one, two)]
            found: list[list[float]] = [[], []]
            for driver in drivers:
                warm(driver, scale)
            for _ in range(ROUNDS):
                for driver, each in zip(drivers, found, strict=True):
                    os.sync()
                    each.append(driver.measure(scale.seconds).values["rate"])
        alone, both = map(median, found)
        print(f"{name}: one broker {alone:,.0f} msg/s, two {both:,.0f}; ratio {both / alone:.2f}")


# -- cold reads -----------------------------------------------------------------------------------
def cold(messages: int, scale: Scale) -> None:
    work = Work("consume", messages=messages, handler="batch")
    with serving() as bench:
        driver = bench.driver(work, scale)
        driver.measure()
        warm_rates, cold_rates, read = [], [], []
        for _ in range(ROUNDS):
            warm_rates.append(driver.measure().values["rate"])
            drop_from_memory(bench.store)
            before = read_from_disk(bench.broker_pid)
            cold_rates.append(driver.measure().values["rate"])
            read.append((read_from_disk(bench.broker_pid) - before) / 1e6)
        print(f"{messages:,} messages of {scale.size} bytes, from memory: ", end="")
        print(f"{median(warm_rates):,.0f} msg/s; from the disk: {median(cold_rates):,.0f} msg/s; ")
        print(f"ratio {median(cold_rates) / median(warm_rates):.2f}; ", end="")
        print(f"the broker read {median(read):,.0f} MB from the disk")


def drop_from_memory(folder: Path) -> None:
    """Drop every file of a folder from the page cache, except pages mapped by a process."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def read_from_disk(pid: int) -> int:
    """Bytes that a process has caused to be read from the disk so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def main() -> None:
    """Parse the arguments and measure."""
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("queues", "brokers", "cold"))
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    print(f"record kernel: {kernel.NAME}")
    scale = Scale(seconds=chosen.seconds, warm_seconds=chosen.warm_seconds)
    if chosen.what == "queues":
        queues(chosen.topics, chosen.queues, scale)
    elif chosen.what == "brokers":
        brokers(scale)
    else:
        cold(chosen.messages, scale)


if __name__ == "__main__":
    main()
