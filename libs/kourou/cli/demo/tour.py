"""`kourou demo`: the processes around the story, and its exit code.

Lives here: folders, processes, the order of their coming and going. May not live here: the story.

State: soft; the folder is removed unless it was asked for.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kourou.cli.demo.flights import Event, load_events
from kourou.cli.demo.ledger import Ledger
from kourou.cli.demo.patience import Patience
from kourou.cli.demo.stage import Stage
from kourou.cli.demo.story import Member, Story
from kourou.cli.demo.terms import BROKER_SETTINGS, QUEUES, TOPIC
from kourou.cli.demo.tickets import DESK
from kourou.cli.demo.verdict import Numbers
from kourou.cli.demo.view import View, open_view
from kourou.cli.demo.worst_day import cancelled, departed, play, worst_day
from kourou.cli.trace_option import trace_from_here
from kourou.client.client import Client
from kourou.clock import SystemClock
from kourou.errors import ConfigError
from kourou.service.lifecycle import new_event_loop
from kourou.service.local_cluster import ClusterSettings, LocalCluster

MEMBERS = ("member-1", "member-2")

TRACED_SHARE = 0.01
"""Of its messages, if there is a collector."""


def run_demo(
    *,
    plain: bool,
    as_json: bool,
    events_max: int | None,
    keep: Path | None,
    trace: bool = False,
) -> int:
    """Run the whole tour; 0 only if all numbers agree."""
    collector = trace_from_here(os.environ, asked=trace, ratio=TRACED_SHARE)
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    view = open_view(plain=plain or as_json)
    if collector:
        view.note(f"one message in {1 / TRACED_SHARE:.0f} is traced, to {collector}")
    try:
        with _folder(keep) as folder:
            numbers = _run(folder, view, events_max)
    finally:
        view.close()
    view.verdict(numbers, (clock.monotonic_ms() - began_ms) / 1000)
    if as_json:
        print(numbers.as_json(), flush=True)
    return int(bool(numbers.disagreements()))


def _run(folder: Path, view: View, events_max: int | None) -> Numbers:
    view.chapter("name server and broker, as processes of their own")
    with LocalCluster(folder, ClusterSettings(broker=BROKER_SETTINGS)) as cluster:
        view.note(f"name server {cluster.address}, pid {cluster.namesrv.pid}")
        view.note(f"{cluster.brokers[0].name}, pid {cluster.brokers[0].pid}")
        view.note(f"store {cluster.store_folder(0)}")
        events = load_events(events_max)
        if shortage := too_few(len(events), events_max):
            view.note(shortage)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            numbers = runner.run(_tell(cluster, events, view))
        codes = cluster.stop()
    killed = {MEMBERS[-1], DESK}
    bad = {name: code for name, code in codes.items() if code and name not in killed}
    if bad:
        numbers.faults.append(f"not everything stopped cleanly: {bad}")
    return numbers


def too_few(found: int, wanted: int | None) -> str:
    """What to say where more flights were asked for than there are; else nothing."""
    if wanted is None or found >= wanted:
        return ""
    return f"there are no more than {found:,} flights; all of them are played"


async def _tell(cluster: LocalCluster, events: Sequence[Event], view: View) -> Numbers:
    async with Client(cluster.address, group="tower") as client:
        await client.admin.topics.create(TOPIC, queues=QUEUES)
        members = [_start_member(cluster, name) for name in MEMBERS]
        clock = SystemClock()
        story = Story(client, events, members, view, clock)
        numbers = await story.tell()
        date, flights = worst_day(events)
        stage = Stage(
            cluster.address,
            cluster.folder,
            cluster.children,
            client,
            view,
            clock,
            Patience(clock, numbers.faults),
            numbers,
            departed(flights),
            cancelled(flights),
        )
        await play(stage, date)
        return numbers


def _start_member(cluster: LocalCluster, name: str) -> Member:
    path = cluster.folder / f"{name}.ledger"
    child = cluster.children.start_module(
        name, "kourou.cli.demo.member", cluster.address, str(path)
    )
    child.wait_for_ready()
    return Member(name, Ledger(path), child.kill)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="kourou-demo-") as name:
            yield Path(name)
        return
    if keep.exists() and any(keep.iterdir()):
        raise ConfigError(f"{keep} is not empty; the demo keeps its store in a new folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()
