"""Both filters mean what the data set says; without a jail the act says so and ends well."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from kourou.client.client import Client
from kourou.clock import SystemClock
from kourou.model.message import Message
from kourou.testing.cluster import Cluster
from kourou_demo.flights import Flight, LateRows, as_event
from kourou_demo.late_arrivals import Counter, filter_arrivals, past_midnight
from kourou_demo.progress_waits import ProgressWaits
from kourou_demo.stage import Stage
from kourou_demo.terms import TOPIC
from kourou_demo.verdict import Numbers


def flight(row: int, delay: int | None, due: str) -> Flight:
    return Flight(
        row,
        "2013-02-08T10:00:00Z",
        "2013-02-08",
        "UA",
        1,
        "EWR",
        "IAH",
        1_400,
        None,
        None,
        delay,
        None,
        due,
    )


@dataclass
class Seen:
    """What the filter looks at of a message."""

    json: Any


@pytest.mark.parametrize(
    ("delay", "due", "passes"),
    [
        (None, "23:00", False),
        (121, "21:59", True),
        (121, "21:58", False),
        (120, "23:00", False),
        (-30, "00:10", False),
        (300, "01:15", False),
        (180, "21:00", True),
    ],
)
def test_past_midnight_is_computed_from_the_body(delay: int | None, due: str, passes: bool) -> None:
    body = msgspec.json.decode(msgspec.json.encode(flight(1, delay, due)))
    assert past_midnight(Seen(body)) is passes


def test_a_desk_counts_flights_once_and_names_what_is_wrong() -> None:
    counter = Counter()
    for row in (1, 2, 2):
        counter.take(flight(row, 130, "23:00"), 10)
    assert counter.complaint(frozenset({1, 2})) == ""
    wrong = "a filter missed 2 flights and passed 1 wrong ones"
    assert counter.complaint(frozenset({1, 3, 4})) == wrong


@dataclass
class KeptView:
    """A view that remembers what it was told."""

    view: list[str] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        self.view.append(title)

    def note(self, text: str) -> None:
        self.view.append(text)


async def test_without_a_jail_properties_filter_and_the_rest_is_left_out(
    kourou_broker: Cluster, tmp_path: Any
) -> None:
    flights = [flight(1, 121, "23:00"), flight(2, 120, "23:00"), flight(3, None, "10:00")]
    events = [as_event(one, msgspec.json.encode(one)) for one in flights]
    view, numbers, clock = KeptView(), Numbers(events=3), SystemClock()

    def kill() -> None:
        raise AssertionError("there is no filter server to kill")

    async with Client(kourou_broker.address, group="tower") as client:
        waits = ProgressWaits(clock, numbers.faults)
        stage: Any = Stage(
            kourou_broker.address,
            tmp_path,
            None,  # type: ignore[arg-type]  # this act starts no process
            client,
            view,  # type: ignore[arg-type]  # as far as it is used here
            clock,
            waits,
            numbers,
            [],
            [],
        )
        await stage.create_topic(TOPIC)
        await client.send_many(
            [Message(TOPIC, one.body, one.tag, one.keys, one.properties) for one in events]
        )
        due = LateRows(frozenset({1}), frozenset({1}))
        await filter_arrivals(stage, events, due, "Landlock (ABI 0)", kill)
    assert numbers.faults == []
    assert numbers.late_arrivals.disagreements() == []
    assert (numbers.late_arrivals.late, numbers.late_arrivals.late_bytes) == (
        1,
        len(events[0].body),
    )
    assert view.view[-1].endswith("cannot run on this machine; missing: Landlock (ABI 0)")
