"""The demo's third act: two groups read only the late flights of the year, through filters.

One filter is SQL92 on a property, evaluated by the broker. The other one is a Python program that
inspects the body: this process uploads it, and a filter server runs it in its sandbox. Half-way one
of the two filter servers is killed; the group continues with the other one.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.client.filters.python_filter import Filter
from kourou.client.settings.client_settings import ClientSettings, ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou_demo.flights import Event, Flight, LateRows
from kourou_demo.stage import Stage
from kourou_demo.terms import COMMIT_INTERVAL_MS, LATE_GROUP, OVERNIGHT_GROUP, TOPIC

FLIGHTS_SHOWN = 5
LATE = Sql("arrival_delay > 120")

Kill = Callable[[], object]


@Filter.define("past-midnight", note="over two hours late, and past midnight")
def past_midnight(message: Any, context: Any) -> bool:
    """True for arrivals over two hours late and on the day after the scheduled one."""
    flight = message.json
    late_min = flight.get("arrival_delay", 0)
    if late_min <= 120:
        return False
    hours, minutes = flight["arrival_due"].split(":")
    due_min = 60 * int(hours) + int(minutes)
    return bool(due_min + late_min >= 24 * 60)


class Counter:
    """The flights that one group received, without duplicates."""

    def __init__(self) -> None:
        self.flights: dict[int, Flight] = {}
        self.body_bytes = 0

    def take(self, flight: Flight, body_bytes: int) -> None:
        """Record a received flight."""
        self.flights[flight.row] = flight
        self.body_bytes += body_bytes

    def complaint(self, due: frozenset[int]) -> str:
        """A description of the differences from the expected flights; empty if there are none."""
        came = self.flights.keys()
        if came == due:
            return ""
        return f"a filter missed {len(due - came)} flights and passed {len(came - due)} wrong ones"


async def filter_arrivals(
    stage: Stage, events: Sequence[Event], due: LateRows, lacking: str, kill: Kill
) -> None:
    """Run this act and record the counts; `kill` kills one of the filter servers.

    `lacking` lists what this machine lacks to run filter servers.
    """
    numbers, view = stage.numbers.late_arrivals, stage.view
    numbers.late_expected, numbers.overnight_expected = len(due.late), len(due.overnight)
    numbers.bytes_in_all = sum(len(event.body) for event in events)
    numbers.lacking = lacking
    view.chapter(f"act 3, filters: of {len(events):,} flights those over two hours late")
    late = await _arrive(stage, LATE_GROUP, LATE, due.late)
    numbers.late, numbers.late_bytes = len(late.flights), late.body_bytes
    view.note(f"SQL92 filter at the broker: {LATE.expression}")
    view.note(_summary(stage, late))
    view.chapter("act 3, filters: those past midnight, by a Python filter over the body")
    if lacking:
        view.note(f"skipped: filter servers cannot run on this machine; missing: {lacking}")
        return
    overnight = await _arrive(stage, OVERNIGHT_GROUP, past_midnight, due.overnight, kill)
    numbers.overnight, numbers.overnight_bytes = len(overnight.flights), overnight.body_bytes
    view.note(_summary(stage, overnight))
    await _tell_figures(stage)
    _show(stage, overnight)


async def _arrive(
    stage: Stage, group: str, wanted: Sql | Filter, due: frozenset[int], kill: Kill | None = None
) -> Counter:
    """Read the year through a filter until all expected flights and the ends of the queues are
    reached.
    """
    counter = Counter()
    to_kill = kill

    async def take(message: ReceivedMessage) -> None:
        counter.take(message.body, len(message.raw_body))

    def moved() -> int:
        nonlocal to_kill
        if to_kill is not None and counter.flights:
            to_kill()
            to_kill = None
            stage.view.note(
                f"killed one of two filter servers (SIGKILL) after {len(counter.flights):,} flights"
            )
        return len(counter.flights)

    async def caught_up() -> int:
        return -await stage.client.admin.offsets.lag(group, TOPIC)

    often = ClientSettings(persist_consumer_offset_interval_ms=COMMIT_INTERVAL_MS)
    first = ConsumerSettings(
        consumer_group=group, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    async with (
        Client(stage.address, settings=often, consumer=first) as member,
        member.listen(TOPIC, take, wanted, body_type=Flight),
    ):
        await stage.waits.wait(group, moved, lambda: len(counter.flights) >= len(due))
        await stage.waits.reach(f"offset commit of {group}", caught_up, 0)
    if complaint := counter.complaint(due):
        stage.numbers.faults.append(f"{group}: {complaint}")
    return counter


def _summary(stage: Stage, counter: Counter) -> str:
    numbers = stage.numbers.late_arrivals
    sent, in_all = counter.body_bytes, numbers.bytes_in_all
    return (
        f"{len(counter.flights):,} flights received, {sent:,} of {in_all:,} bytes; "
        f"{numbers.saved(sent):.1f} % of the bytes saved"
    )


async def _tell_figures(stage: Stage) -> None:
    """Report the cost of the filter according to the remaining filter servers."""
    found = await stage.client.admin.filters.statistics(OVERNIGHT_GROUP, past_midnight.name)
    for address, figures in found.items():
        for one in figures:
            if one.seen:
                stage.view.note(
                    f"filter server {address}: {one.passed:,} of {one.seen:,} messages passed, "
                    f"{one.micros / one.seen:.1f} µs each, version {one.version}"
                )


def _show(stage: Stage, counter: Counter) -> None:
    latest = sorted(counter.flights.values(), key=lambda one: -(one.arrival_delay or 0))
    stage.view.table(
        "the latest arrivals",
        ("date", "flight", "from", "to", "due", "late"),
        [
            (
                flight.date,
                flight.name,
                flight.origin,
                flight.dest,
                flight.arrival_due or "",
                f"{flight.arrival_delay or 0} min",
            )
            for flight in latest[:FLIGHTS_SHOWN]
        ],
    )
