"""`kourou demo`: starts the processes, runs all acts, and returns the exit code.

State: soft; the folder is removed unless the caller keeps it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from kourou.cli.up import layers_lacking, trace_from_here
from kourou.client.client import Client
from kourou.clock import Clock, SystemClock
from kourou.errors import ConfigError
from kourou.service.lifecycle import new_event_loop
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou_demo.flights import Event, find_data, load_events, load_late
from kourou_demo.followed import Followed, Traced, collected
from kourou_demo.group_of_three import group_of_three
from kourou_demo.late_arrivals import filter_arrivals
from kourou_demo.ledger import Ledger
from kourou_demo.lost_leader import lose_the_leader
from kourou_demo.progress_waits import ProgressWaits
from kourou_demo.spark_act import tell_tables
from kourou_demo.spark_service import SparkService, why_not
from kourou_demo.spark_watch import SparkWatch
from kourou_demo.stage import Stage
from kourou_demo.story import Member, Story
from kourou_demo.terms import BROKER_SETTINGS, QUEUES, TOPIC
from kourou_demo.tickets import COUNTER
from kourou_demo.verdict import Numbers
from kourou_demo.view import View, open_view
from kourou_demo.worst_day import cancelled, departed, play, worst_day

MEMBERS = ("member-1", "member-2")
FILTER_SERVERS = 2

TRACED_SHARE = 0.01
"""Share of the demo's messages that are traced, if there is a collector."""

NOTE_WIDTH = 90
"""Width of a list in a note: with its indent it fits a terminal of 100 columns."""


def run_demo(
    *,
    plain: bool,
    as_json: bool,
    events_max: int | None,
    keep: Path | None,
    trace: bool = False,
    spark: bool | None = None,
    called_as: str = "kourou",
) -> int:
    """Run the whole tour; returns 0 only if all counts agree.

    `spark`: include the last act; None: if this machine has what Spark needs. Raises
    MissingPackages before anything is started.
    """
    find_data()
    no_spark = why_not(wanted=spark, called_as=called_as)
    collector = trace_from_here(os.environ, asked=trace, ratio=TRACED_SHARE)
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    view = open_view(plain=plain or as_json)
    if collector:
        view.note(f"traces one message in {1 / TRACED_SHARE:.0f}; spans go to {collector}")
    try:
        with _folder(keep) as folder, collected(collector, os.environ) as trace_of:
            numbers = _run(folder, view, events_max, no_spark, trace_of.followed)
            numbers.traced = trace_of.traced()
            for line in lines_of(numbers.traced):
                view.note(line)
    finally:
        view.close()
    view.verdict(numbers, (clock.monotonic_ms() - began_ms) / 1000)
    if as_json:
        print(numbers.as_json(), flush=True)
    else:
        if no_spark and spark is None:
            view.note(f"act 5 (Spark) was skipped: {no_spark}")
        view.note(f"to watch flights in the web console: {called_as} up --flights")
    return int(bool(numbers.disagreements()))


def lines_of(traced: Traced) -> list[str]:
    """Lines about the trace, if it was collected here: its ID and its services."""
    if not traced.services:
        return []
    services = textwrap.wrap("by " + ", ".join(traced.services), NOTE_WIDTH, break_on_hyphens=False)
    return [
        f"trace {traced.trace_id} follows a few flights through all acts: {traced.spans:,} spans",
        *services,
    ]


def _run(
    folder: Path, view: View, events_max: int | None, no_spark: str, followed: Followed
) -> Numbers:
    view.chapter("start name server, broker and filter servers, one process each")
    lacking = ", ".join(layers_lacking())
    settings = ClusterSettings(
        broker=BROKER_SETTINGS, filter_servers=0 if lacking else FILTER_SERVERS
    )
    with LocalCluster(folder, settings) as cluster:
        view.note(f"name server {cluster.address}, pid {cluster.namesrv.pid}")
        view.note(f"{cluster.brokers[0].name}, pid {cluster.brokers[0].pid}")
        for child in cluster.filter_servers:
            view.note(f"{child.name}, pid {child.pid}")
        view.note(f"store {cluster.store_folder(0)}")
        with (
            asyncio.Runner(loop_factory=new_event_loop) as runner,
            _spark(runner, cluster, wanted=not no_spark) as spark,
        ):
            if spark is None:
                view.note(f"without Spark: {no_spark}")
            else:
                view.note(f"spark-etl, pid {spark.pid}; starting Java takes some seconds")
            events = load_events(events_max)
            if shortage := too_few(len(events), events_max):
                view.note(shortage)
            numbers = runner.run(_tell(cluster, events, view, lacking, spark, followed))
        numbers.spark.left_out = no_spark
        codes = cluster.stop()
    killed = {MEMBERS[-1], COUNTER, *(child.name for child in cluster.filter_servers[-1:])}
    bad = {name: code for name, code in codes.items() if code and name not in killed}
    if bad:
        numbers.faults.append(f"processes with a wrong exit code: {bad}")
    return numbers


@contextmanager
def _spark(
    runner: asyncio.Runner, cluster: LocalCluster, *, wanted: bool
) -> Iterator[SparkService | None]:
    """Create the flights' topic and, if `wanted`, start the Spark service for it."""
    runner.run(_create_topic(cluster.address))
    if not wanted:
        yield None
        return
    with SparkService.start(cluster) as service:
        yield service


async def _create_topic(address: str) -> None:
    async with Client(address, group="tower") as client:
        await client.admin.topics.create(TOPIC, queues=QUEUES)


def too_few(found: int, wanted: int | None) -> str:
    """A note if more flights were requested than exist; else empty."""
    if wanted is None or found >= wanted:
        return ""
    return f"the data set has only {found:,} flights; using all of them"


async def _tell(
    cluster: LocalCluster,
    events: Sequence[Event],
    view: View,
    lacking: str,
    spark: SparkService | None,
    followed: Followed,
) -> Numbers:
    date, flights = worst_day(events)
    followed.choose(departed(flights))
    clock = SystemClock()
    async with Client(cluster.address, group="tower") as client, _watched(spark, clock) as watch:
        members = [_start_member(cluster, name) for name in MEMBERS]
        story = Story(client, events, members, view, clock, watch, followed)
        if watch:
            seconds = await watch.wait_until_runs(ProgressWaits(clock, story.numbers.faults))
            view.note(
                watch.service.ended
                if seconds is None
                else f"Spark is running after {seconds:.0f} s more"
            )
        numbers = await story.tell()
        stage = Stage(
            cluster.address,
            cluster.folder,
            cluster.children,
            client,
            view,
            clock,
            ProgressWaits(clock, numbers.faults),
            numbers,
            departed(flights),
            cancelled(flights),
            followed,
        )
        async with group_of_three(cluster.folder, numbers.faults) as group:
            await play(stage, date)
            due = load_late().among(event.row for event in events)
            await filter_arrivals(
                stage, events, due, lacking, lambda: cluster.filter_servers[-1].kill()
            )
            await lose_the_leader(stage, group)
        if watch:
            await tell_tables(stage, watch, events, story.sent)
        return numbers


@asynccontextmanager
async def _watched(service: SparkService | None, clock: Clock) -> AsyncIterator[SparkWatch | None]:
    """Poll Spark's progress during the block; None without Spark."""
    if service is None:
        yield None
        return
    watch = SparkWatch(service, clock)
    try:
        yield watch
    finally:
        watch.close()


def _start_member(cluster: LocalCluster, name: str) -> Member:
    path = cluster.folder / f"{name}.ledger"
    child = cluster.children.start_module(name, "kourou_demo.member", cluster.address, str(path))
    child.wait_for_ready()
    return Member(name, Ledger(path), child.kill)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="kourou-demo-") as name:
            yield Path(name)
        return
    if keep.exists() and any(keep.iterdir()):
        raise ConfigError(f"{keep} is not empty; name a new folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()
