"""Second act: the calls of each flight arrive in order.

Two consumers, called gates, share the queues; one is closed half-way. Some calls fail at the first
attempt. They are redelivered before the later calls of their flight.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

import msgspec

from kourou.client.consumer.outcomes import Suspend
from kourou.client.consumer.received import ReceivedMessage
from kourou_demo.flights import Flight
from kourou_demo.stage import Stage
from kourou_demo.terms import CALLS_GROUP, CALLS_TOPIC

CALLS = ("check-in", "boarding", "last call", "gate closed")
MISSED = "boarding"
"""The call that fails at the first attempt ..."""

MISSED_EVERY = 10
"""... for one flight in so many."""

SUSPEND_MS = 20
CLOSE_AT = 0.3
"""The second gate closes when this share of all calls has arrived."""


class Call(msgspec.Struct):
    """One call of a flight; `row` is the row number of the flight."""

    row: int
    text: str


class Gates:
    """The calls that all gates received, by the flights' row numbers, in the order of arrival."""

    def __init__(self, noisy: set[int]) -> None:
        self.heard: dict[int, list[str]] = defaultdict(list)
        self.by_gate: dict[str, int] = defaultdict(int)
        self.missed: list[int] = []
        self._noisy = noisy

    @property
    def count(self) -> int:
        """Number of received calls, including duplicates."""
        return sum(self.by_gate.values())

    @property
    def different(self) -> int:
        """Number of received calls, without duplicates."""
        return sum(len(set(calls)) for calls in self.heard.values())

    @property
    def out_of_order(self) -> int:
        """Number of flights whose calls arrived out of order; repeats of a call are in order."""
        return sum(
            tuple(call for call, _ in groupby(calls)) != CALLS[: len(set(calls))]
            for calls in self.heard.values()
        )

    def hear(self, gate: str, call: Call) -> None:
        """Handle a call; raises Suspend for a call that fails at the first attempt."""
        if call.row in self._noisy and call.text == MISSED:
            self._noisy.remove(call.row)
            self.missed.append(call.row)
            raise Suspend(SUSPEND_MS)
        self.heard[call.row].append(call.text)
        self.by_gate[gate] += 1


async def board(stage: Stage) -> None:
    """Run this part and record the counts."""
    flights = stage.departed
    goal = len(flights) * len(CALLS)
    stage.view.chapter(
        f"ordered consumption: {goal:,} boarding calls of {len(flights):,} flights, two consumers"
    )
    await stage.create_topic(CALLS_TOPIC)
    gates = Gates({flight.row for flight in flights[::MISSED_EVERY]})
    async with stage.member(CALLS_GROUP) as one, stage.member(CALLS_GROUP) as two:

        async def hear_one(message: ReceivedMessage) -> None:
            gates.hear("gate 1", message.body)

        async def hear_two(message: ReceivedMessage) -> None:
            gates.hear("gate 2", message.body)

        async with one.listen(CALLS_TOPIC, hear_one, body_type=Call, ordered=True):
            async with two.listen(CALLS_TOPIC, hear_two, body_type=Call, ordered=True):
                await stage.joined(CALLS_GROUP, 2)
                calling = asyncio.create_task(_call(stage, flights))
                await _heard(stage, gates, int(goal * CLOSE_AT))
            stage.view.note(f"gate 2 left the group after {gates.count:,} calls")
            await calling
            await _heard(stage, gates, goal)
    numbers = stage.numbers.worst_day
    numbers.calls, numbers.calls_expected = gates.different, goal
    numbers.out_of_order = gates.out_of_order
    stage.view.note(
        ", ".join(f"{gate} consumed {count:,}" for gate, count in sorted(gates.by_gate.items()))
        + f"; {len(gates.missed)} calls failed once and were redelivered in order"
    )
    stage.view.note(f"{gates.out_of_order} flights out of order")


async def _call(stage: Stage, flights: Sequence[Flight]) -> None:
    """Send the first call of every flight, then the next one; `order_key` selects a queue per
    flight.
    """
    for text in CALLS:
        await asyncio.gather(
            *(
                stage.client.send(
                    CALLS_TOPIC,
                    Call(flight.row, text),
                    keys=[flight.name],
                    order_key=str(flight.row),
                )
                for flight in flights
            )
        )


async def _heard(stage: Stage, gates: Gates, goal: int) -> None:
    await stage.waits.wait(
        "the gates", lambda: gates.count + len(gates.missed), lambda: gates.different >= goal
    )
