"""Counts that do not add up, lost order and short bodies make figures void."""

from __future__ import annotations

import asyncio

import pytest

from kourou.errors import Unavailable
from kourou_bench.driving import (
    Drain,
    DriverOptions,
    Outcome,
    Pings,
    flooding,
)


@pytest.mark.parametrize(
    ("stored", "handed", "due", "complaint"),
    [
        (2, None, None, "2 messages are stored, 3 were sent"),
        (4, None, None, "4 messages are stored, 3 were sent"),
        (3, 4, None, "4 messages were handed out, 3 were sent"),
        (3, 2, None, "2 messages were handed out, 3 were sent"),
        (3, 3, 6, "3 messages were handed out, 6 were due"),
        (3, 1, 0, "1 messages were handed out, 0 were due"),
    ],
)
def test_counts_that_differ_make_figures_void(
    stored: int, handed: int | None, due: int | None, complaint: str
) -> None:
    with pytest.raises(Unavailable, match=complaint):
        Outcome(work="send", values={}, sent=3, stored=stored, handed=handed, due=due).check()
    Outcome(work="consume", values={}, sent=3, stored=3, handed=3).check()
    Outcome(work="broadcast", values={}, sent=3, stored=3, handed=6, due=6).check()


async def test_a_flood_counts_what_it_sent_and_asks_what_is_stored() -> None:
    stored = {"before": 7}

    async def send(number: int) -> None:
        stored[str(number)] = 4
        await asyncio.sleep(0)

    async def count() -> int:
        return sum(stored.values())

    options = DriverOptions(address="", work="send", in_flight=3, batch=4)
    measure = flooding(options, send, count)
    for _ in range(2):
        before = sum(stored.values())
        outcome = await measure(0.01)
        stored = {"before": sum(stored.values())}
        outcome.check()
        assert outcome.sent == outcome.messages == stored["before"] - before > 0
        assert outcome.seconds >= 0.01
    assert set(outcome.values) == {"rate", "p50_ms", "p99_ms"}


async def test_a_drain_waits_for_all_and_looks_at_bodies() -> None:
    drain = Drain(3, size=2)
    drain.take_one(b"ab")
    drain.take([b"ab", b"ab"])
    await drain.wait()
    drain.outcome(stored=3).check()
    short = Drain(1, size=2)
    short.take_one(b"a")
    with pytest.raises(Unavailable, match="too short"):
        await short.wait()


@pytest.mark.parametrize("offsets", [[0, 2, 1], [1, 2, 3], [0, 1, 1]])
async def test_a_drain_minds_the_order_of_each_queue(offsets: list[int]) -> None:
    drain, right = Drain(3, size=1), Drain(4, size=1)
    for offset in offsets:
        drain.take_next(("b", 0), offset, b"a")
    with pytest.raises(Unavailable, match="came instead of"):
        await drain.wait()
    for queue, offset in ((0, 0), (1, 0), (0, 1), (1, 1)):
        right.take_next(("b", queue), offset, b"a")
    await right.wait()


async def test_pings_time_their_own_message_only() -> None:
    sent: list[bytes] = []

    async def send(body: bytes) -> None:
        if sent:
            pings.arrive(sent[-1])  # one that was heard of already
        sent.append(body)
        pings.arrive(body)

    async def stored() -> int:
        return len(sent)

    pings = Pings(DriverOptions(address="", work="latency", size=40, queues=1), send)
    await pings.listening()
    assert len(sent) == 4
    outcome = await pings.measuring(stored)(0.01)
    outcome.check()
    assert outcome.sent == len(sent) - 4
    assert {len(body) for body in sent} == {40}
    assert set(outcome.values) == {"p50_ms", "p99_ms"}
