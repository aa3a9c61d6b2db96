"""Second act: failed messages are retried; those that keep failing become dead letters.

Late flights fail once and succeed at the retry. Cancelled flights fail at every attempt and become
dead letters. The handler is then fixed, and the dead letters are sent again.

State: soft.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from kourou.client.admin.dead_letters import StoredDeadLetter
from kourou.client.consumer.outcomes import RetryLater
from kourou.client.consumer.received import ReceivedMessage
from kourou.model.message import Message
from kourou_demo.flights import Flight
from kourou_demo.stage import Stage
from kourou_demo.terms import DEPARTURES_GROUP, DEPARTURES_TOPIC

LATE_MIN = 60
ATTEMPTS = 3
LEVEL = 1
DEAD_LETTERS_SHOWN = 5


class Ramp:
    """The handler of departures; `rebooks` is true once it can handle cancelled flights."""

    def __init__(self) -> None:
        self.departed: set[int] = set()
        self.again: set[int] = set()
        self.rebooked: set[int] = set()
        self.rebooks = False

    def work(self, flight: Flight, attempt: int) -> None:
        """Handle one flight; raises RetryLater if it cannot depart now."""
        if flight.departure_delay is None:
            if not self.rebooks:
                raise RetryLater("the flight is cancelled", delay_level=LEVEL)
            self.rebooked.add(flight.row)
        elif is_late(flight) and attempt == 1:
            raise RetryLater(f"{flight.departure_delay} minutes late", delay_level=LEVEL)
        else:
            self.departed.add(flight.row)
            if attempt > 1:
                self.again.add(flight.row)


def is_late(flight: Flight) -> bool:
    """True if the flight fails at the first attempt."""
    return flight.departure_delay is not None and flight.departure_delay > LATE_MIN


async def depart(stage: Stage) -> None:
    """Run this part and record the counts."""
    flights = [*stage.departed, *stage.cancelled]
    late = [flight for flight in stage.departed if is_late(flight)]
    stage.view.chapter(
        f"retries and dead letters: {len(flights):,} departures, {len(late)} of them late, "
        f"{len(stage.cancelled)} cancelled"
    )
    await stage.create_topic(DEPARTURES_TOPIC)
    encode = msgspec.json.encode
    ramp = Ramp()

    async def work(message: ReceivedMessage) -> None:
        ramp.work(message.body, message.attempt)

    numbers = stage.numbers.worst_day
    async with (
        stage.member(DEPARTURES_GROUP, attempts_max=ATTEMPTS) as member,
        member.listen(DEPARTURES_TOPIC, work, body_type=Flight),
    ):
        await stage.client.send_many(
            [
                Message(DEPARTURES_TOPIC, encode(flight), flight.carrier, (flight.name,))
                for flight in flights
            ]
        )
        await stage.waits.wait(
            "departing",
            lambda: len(ramp.departed),
            lambda: len(ramp.departed) >= len(stage.departed),
        )
        numbers.retried, numbers.retried_expected = len(ramp.again), len(late)
        stage.view.note(f"{len(ramp.departed):,} departed, {len(ramp.again)} of them after a retry")
        dead_letters = await _dead(stage)
        numbers.dead_letters, numbers.dead_letters_expected = (
            len(dead_letters),
            len(stage.cancelled),
        )
        _show(stage, dead_letters)
        ramp.rebooks = True
        outcomes = await stage.client.admin.dead_letters.resend(DEPARTURES_GROUP, dead_letters)
        stage.numbers.faults += [f"not resent: {one}" for one in outcomes.values() if one]
        await stage.client.admin.dead_letters.deal_with(DEPARTURES_GROUP, dead_letters)
        await stage.waits.wait(
            "rebooking",
            lambda: len(ramp.rebooked),
            lambda: len(ramp.rebooked) >= len(dead_letters),
        )
    numbers.resent = len(ramp.rebooked)
    stage.view.note(f"handler fixed; {len(ramp.rebooked)} dead letters redelivered and consumed")


async def _dead(stage: Stage) -> Sequence[StoredDeadLetter]:
    """The group's dead letters, once all expected ones exist."""
    stage.view.note(
        f"{len(stage.cancelled)} cancelled flights fail {ATTEMPTS} attempts, one second apart"
    )
    found: Sequence[StoredDeadLetter] = ()

    async def count() -> int:
        nonlocal found
        found = await stage.client.admin.dead_letters.of(
            DEPARTURES_GROUP, count_max=len(stage.cancelled) + 1
        )
        return len(found)

    await stage.waits.reach("dying", count, len(stage.cancelled))
    return found


def _show(stage: Stage, dead_letters: Sequence[StoredDeadLetter]) -> None:
    decode = msgspec.json.Decoder(Flight).decode
    flights = [decode(dead_letter.message.raw_body) for dead_letter in dead_letters]
    if {flight.row for flight in flights} != {flight.row for flight in stage.cancelled}:
        stage.numbers.faults.append("the dead letters are not the cancelled flights")
    for reason, count in Counter(dead_letter.reason for dead_letter in dead_letters).items():
        stage.view.note(f"{count} dead letters; reason: {reason}")
    stage.view.table(
        f"first dead letters in %DLQ%{DEPARTURES_GROUP}",
        ("flight", "from", "to", "topic", "attempts", "reason"),
        [
            (
                flight.name,
                flight.origin,
                flight.dest,
                dead_letter.topic or "",
                str(dead_letter.attempts),
                dead_letter.reason or "",
            )
            for flight, dead_letter in zip(flights[:DEAD_LETTERS_SHOWN], dead_letters, strict=False)
        ],
    )
