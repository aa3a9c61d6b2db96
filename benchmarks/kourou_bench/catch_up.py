"""`kourou bench catch-up`: how fast a stopped follower catches up, compared with a plain `cp`.

The follower is stopped, messages are stored without it, and it is started again. The timer runs
from the first time that the follower reports the end of its log until that end equals the leader's;
it is polled every few milliseconds. The start of the process is not included, unless the follower
has caught up before the first poll; such small amounts are not meaningful. Directly afterwards, in
the same round, `cp` copies the leader's segments that contain those bytes. Neither waits for the
disk; the data is written to it later.

A leader sends its log to a static follower; a member of a Raft group fetches from another follower.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kourou.client.client import Client
from kourou.errors import ConfigError, KourouError, TimedOut, Unavailable
from kourou.service.local_cluster import LocalCluster
from kourou.service.os_processes import CpuReading
from kourou.service.processes import Child
from kourou_bench.comparison import turns
from kourou_bench.driving import DriverOptions
from kourou_bench.figures import Figure
from kourou_bench.replicated import (
    cluster_settings,
    leader_of,
    until_following,
    until_level,
)
from kourou_bench.replication import SETUPS, Setup
from kourou_bench.rows import RECORD_OVERHEAD_BYTES
from kourou_bench.session import ready_driver
from kourou_bench.systems import Kourou

WAYS: Mapping[str, Setup] = {
    "static": next(one for one in SETUPS if one.name == "async"),
    "raft": next(one for one in SETUPS if one.name == "raft"),
}
SEGMENT_BYTES = 128 * 1024 * 1024
"""Smaller than the default, so that the segments contain little except the missing bytes."""

GIGABYTE = 1_000_000_000
MEGABYTE = 1_000_000
NS_IN_MS = 1_000_000
NS_IN_S = 1_000_000_000
LOOK_S = 0.005
STUCK_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class CatchUpBench:
    """The parameters; printed with every result.

    A follower misses `gigabytes` of log, in messages of `size` bytes. `only` selects setups; empty
    selects all.
    """

    gigabytes: float = 0.5
    size: int = 1_024
    rounds: int = 2
    segment_bytes: int = SEGMENT_BYTES
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError for unknown setups."""
        wrong = [name for name in self.only if name not in WAYS]
        if wrong:
            raise ConfigError(f"--only {','.join(wrong)}: use {' or '.join(WAYS)}")

    @property
    def messages(self) -> int:
        """The number of messages that are stored while the follower is stopped."""
        return max(1, int(self.gigabytes * GIGABYTE / (self.size + RECORD_OVERHEAD_BYTES)))


@dataclass(frozen=True, slots=True)
class Caught:
    """The result of one round: the bytes of log that were missing, and how long the catch-up took.

    `cpu_ns` is the CPU time of all servers during the catch-up, `copied_bytes` the length of the
    files that `cp` copied.
    """

    missing_bytes: int
    took_ns: int
    cpu_ns: int
    copied_bytes: int
    copy_ns: int

    @property
    def rate(self) -> float:
        """Catch-up rate of the follower in MB/s."""
        return self.missing_bytes * 1_000 / self.took_ns

    @property
    def copy_rate(self) -> float:
        """Rate of `cp` in MB/s."""
        return self.copied_bytes * 1_000 / self.copy_ns

    @property
    def cpu_ms(self) -> float:
        """CPU time of all servers per megabyte, in ms."""
        return self.cpu_ns / NS_IN_MS / (self.missing_bytes / MEGABYTE)


def catch_up_figures(way: str, rounds: Sequence[Caught]) -> Iterator[Figure]:
    """Medians of the rounds, and medians of their ratios."""
    if not rounds:
        return
    yield Figure(f"{way}, catching up", "MB/s", statistics.median(one.rate for one in rounds))
    yield Figure(f"{way}, cp", "MB/s", statistics.median(one.copy_rate for one in rounds))
    ratio = statistics.median(one.rate / one.copy_rate for one in rounds)
    yield Figure(f"{way}, catching up / cp", "×", ratio)
    yield Figure(f"{way}, CPU of servers", "ms/MB", statistics.median(one.cpu_ms for one in rounds))


def run_catch_up_bench(settings: CatchUpBench, *, as_json: bool) -> int:
    """Measure and print; returns 0 unless a measurement failed."""
    view = {"kind": "catch-up", **asdict(settings), "messages": settings.messages}
    if not as_json:
        print(heading(settings), flush=True)
    ways = [way for way in WAYS if not settings.only or way in settings.only]
    found: dict[str, list[Caught]] = {way: [] for way in ways}
    failed = False
    for number in range(settings.rounds):
        for way in turns(ways, number):
            where = f"round {number + 1}/{settings.rounds}  {way:<6}"
            try:
                caught = _measure(WAYS[way], settings)
            except KourouError as error:
                # A failed setup is reported; the other one is still measured.
                print(f"{where} FAILED: {error}", file=sys.stderr, flush=True)
                failed = True
            else:
                line = f"{where} {caught.rate:,.0f} MB/s, cp {caught.copy_rate:,.0f} MB/s"
                print(line, file=sys.stderr, flush=True)
                found[way].append(caught)
    for way, rounds in found.items():
        for figure in catch_up_figures(way, rounds):
            print(figure.as_json(view) if as_json else figure.as_text(), flush=True)
    return int(failed)


def heading(settings: CatchUpBench) -> str:
    """A line that describes what is measured."""
    return (
        f"catch-up: a follower misses {settings.gigabytes:g} GB, {settings.messages:,} messages of "
        f"{settings.size:,} bytes in segments of {settings.segment_bytes >> 20} MiB; "
        f"{settings.rounds} rounds"
    )


def _measure(setup: Setup, settings: CatchUpBench) -> Caught:
    """Measure one round of one setup."""
    more = {"mapedFileSizeCommitLog": str(settings.segment_bytes)}
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as name:
        folder = Path(name)
        with LocalCluster(folder / "servers", cluster_settings(setup, more)) as cluster:
            asyncio.run(until_following(cluster.address, setup))
            leader, away = _roles(cluster)
            start = asyncio.run(_end(cluster.address))
            _part(cluster, away).stop()
            _load(cluster, settings)
            end = asyncio.run(_end(cluster.address))
            os.sync()  # pending writes must not slow down the measurement
            servers = [*cluster.brokers, *cluster.replicas, *cluster.members]
            before = [CpuReading.of(one.pid) for one in servers if one.running]
            began_ns = time.perf_counter_ns()
            again = cluster.start_member(0, away) if setup.raft else _replica(cluster)
            before.append(CpuReading.of(again.pid))
            follower = str(again.ready["zmq"])
            got, took_ns = asyncio.run(_watched(cluster.address, follower, end))
            if not got:
                got, took_ns = end - start, time.perf_counter_ns() - began_ns
            asyncio.run(until_level(cluster.address))
            spent = sum(one.spent_ns() for one in before)
            segments = _segments(leader, start, end, settings.segment_bytes)
            copied, copy_ns = _copied(segments, folder / "copy")
    return Caught(got, took_ns, spent, copied, copy_ns)


def _roles(cluster: LocalCluster) -> tuple[Path, int]:
    """The leader's store, and the index of a follower."""
    if not cluster.members:
        return cluster.store_folder(0), 0
    leader = cluster.members.index(cluster.leader_of())
    return cluster.member_folder(0, leader), (leader + 1) % len(cluster.members)


def _part(cluster: LocalCluster, index: int) -> Child:
    return cluster.members[index] if cluster.members else cluster.replicas[index]


def _replica(cluster: LocalCluster) -> Child:
    return cluster.start_replica_of(0, 0)


def _load(cluster: LocalCluster, settings: CatchUpBench) -> None:
    """Store the messages, from a separate process."""
    options = DriverOptions(
        address=cluster.address, work="load", messages=settings.messages, size=settings.size
    )
    ready_driver(cluster.children, "driver", Kourou().driver(options)).measure()


async def _end(address: str) -> int:
    """The end of the leader's log."""
    async with Client(address) as client:
        view = await leader_of(client)
    if view is None:
        raise Unavailable("no leader is registered")
    return view.end


async def _watched(address: str, follower: str, end: int) -> tuple[int, int]:
    """Bytes that the follower received while its log was polled, up to `end`, and the time in ns.

    The bytes are 0 if the follower has caught up before the first poll.
    """
    clock = time.perf_counter_ns
    async with Client(address) as client:
        first = at = await _known(client, follower)
        began_ns = moved_ns = clock()
        while at < end:
            await asyncio.sleep(LOOK_S)
            was, at = at, await _known(client, follower)
            if at > was:
                moved_ns = clock()
            elif clock() - moved_ns > STUCK_AFTER_S * NS_IN_S:
                raise TimedOut(f"the follower stopped catching up at {at}; expected {end}")
        took_ns = clock() - began_ns
    return max(0, end - first), took_ns


async def _known(client: Client, follower: str) -> int:
    """The end of the follower's log, as it reports it once a name server knows its address."""
    address = follower.removeprefix("tcp://")
    until = time.monotonic() + STUCK_AFTER_S
    while time.monotonic() < until:
        members = await client.admin.replicas.of()
        view = next((one.view for one in members if one.address == address), None)
        if view is not None:
            return view.end
        await asyncio.sleep(LOOK_S)
    raise TimedOut(f"the follower at {address} is not registered or does not reply")


def _segments(store: Path, start: int, end: int, size: int) -> list[Path]:
    """The segment files that contain the bytes from `start` to `end`."""
    files = sorted((store / "commitlog").iterdir())
    return [one for one in files if int(one.name) < end and int(one.name) + size > start]


def _copied(files: Sequence[Path], to: Path) -> tuple[int, int]:
    """The bytes that `cp` copied, and the time in ns."""
    to.mkdir()
    command = shutil.which("cp")
    if command is None:
        raise ConfigError("there is no cp on this machine")
    os.sync()
    began_ns = time.perf_counter_ns()
    plain = ("--sparse=never", "--reflink=never")
    subprocess.run([command, *plain, *map(str, files), str(to)], check=True)
    took_ns = time.perf_counter_ns() - began_ns
    return sum(one.stat().st_size for one in files), took_ns
