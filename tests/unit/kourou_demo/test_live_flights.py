"""Flights to look at: they are sent and consumed until somebody has seen enough."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from kourou.client.consumer.outcomes import RetryLater
from kourou.client.consumer.received import ReceivedMessage
from kourou.protocol.record.message_trace import Consumed, Published
from kourou.testing.cluster import Cluster
from kourou_demo import live_flights
from kourou_demo.flights import Flight, as_event
from kourou_demo.live_flights import BOARDS, GROUPS, TOWER, LiveFlights
from kourou_demo.terms import TOPIC


def flight(row: int, delay: int | None) -> Flight:
    return Flight(
        row, "2013-01-01T10:00:00Z", "2013-01-01", "UA", row, "EWR", "IAH", 1_400,
        departure_delay=delay, arrival_delay=delay,
    )  # fmt: skip


def test_they_are_sent_and_consumed_until_they_land(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = [flight(row, delay) for row, delay in enumerate((0, 90, None))]
    events = [as_event(one, msgspec.json.encode(one)) for one in flights]
    monkeypatch.setattr(live_flights, "load_events", lambda count: events[:count])
    with Cluster(tmp_path) as cluster:
        live = LiveFlights(cluster.address, rate_per_s=400)
        live.start()
        try:
            deadline = time.monotonic() + 30
            while live.shown < 100:
                assert live.failure is None
                assert time.monotonic() < deadline, (live.sent, live.shown)
        finally:
            live.stop()
        assert live.failure is None
        with cluster.client("looks") as mq:
            stats = mq.admin.topics.stats(TOPIC)
            assert sum(one.max_offset for one in stats.values()) >= live.sent >= 100
            known = set(mq.admin.groups.list())
            assert set(GROUPS) <= {getattr(one, "name", one) for one in known}
            (first, *_) = mq.admin.messages.by_key(TOPIC, "UA0")
            records = mq.admin.messages.trace(first.message_id)
        assert {TOWER} == {one.group for one in records if isinstance(one, Published)}
        assert BOARDS in {one.group for one in records if isinstance(one, Consumed)}


@pytest.mark.parametrize(
    ("delay", "attempt", "reason"),
    [(90, 1, "is late"), (None, 1, "is cancelled"), (None, 2, "is cancelled")],
)
async def test_the_ramp_says_why_it_fails(delay: int | None, attempt: int, reason: str) -> None:
    message = SimpleNamespace(body=flight(7, delay), attempt=attempt)
    with pytest.raises(RetryLater) as refused:
        await live_flights._handle(cast("ReceivedMessage", message))
    assert str(refused.value) == f"UA7 of 2013-01-01 {reason}"


async def test_the_ramp_takes_what_is_punctual_and_what_is_late_again() -> None:
    for delay, attempt in ((0, 1), (90, 2)):
        message = SimpleNamespace(body=flight(7, delay), attempt=attempt)
        await live_flights._handle(cast("ReceivedMessage", message))
