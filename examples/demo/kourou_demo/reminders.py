"""Second act: delayed messages arrive after their delay, never earlier.

State: soft.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kourou.client.consumer.received import ReceivedMessage
from kourou.model.message import Message
from kourou_demo.flights import Flight
from kourou_demo.stage import Stage
from kourou_demo.terms import DELAYS_S, REMINDERS_GROUP, REMINDERS_TOPIC


class Reminder(msgspec.Struct):
    """A reminder to go to the gate, with a delay level; `row` is the row number of the flight."""

    row: int
    level: int


class Phones:
    """How late reminders arrived compared with their delay, in ms, by row number."""

    def __init__(self) -> None:
        self.lateness_ms: dict[int, int] = {}
        self.twice = 0

    @property
    def early(self) -> int:
        """Number of reminders that arrived before their delay was over."""
        return sum(late_ms < 0 for late_ms in self.lateness_ms.values())

    @property
    def latest_ms(self) -> int:
        """The greatest lateness, in ms."""
        return max(self.lateness_ms.values(), default=0)

    def ring(self, reminder: Reminder, waited_ms: int) -> None:
        """Record a reminder that arrived `waited_ms` after it was sent."""
        if reminder.row in self.lateness_ms:
            self.twice += 1
            return
        self.lateness_ms[reminder.row] = waited_ms - DELAYS_S[reminder.level - 1] * 1000


async def remind(stage: Stage) -> None:
    """Run this part and record the counts."""
    reminders = plan(stage.departed)
    levels = [sum(one.level == level for one in reminders) for level in range(1, len(DELAYS_S) + 1)]
    stage.view.chapter(f"delayed messages: {len(reminders):,} reminders for passengers")
    await stage.create_topic(REMINDERS_TOPIC)
    encode = msgspec.json.encode
    phones = Phones()

    async def ring(message: ReceivedMessage) -> None:
        phones.ring(message.body, stage.clock.now_ms() - message.born_timestamp)

    async with (
        stage.member(REMINDERS_GROUP) as member,
        member.listen(REMINDERS_TOPIC, ring, body_type=Reminder),
    ):
        await stage.client.send_many(
            [
                Message(REMINDERS_TOPIC, encode(one), delay_level=one.level, keys=(str(one.row),))
                for one in reminders
            ]
        )
        stage.view.note(
            ", ".join(
                f"{count} delayed by {delay_s} s"
                for count, delay_s in zip(levels, DELAYS_S, strict=True)
            )
        )
        await stage.waits.wait(
            "reminding",
            lambda: len(phones.lateness_ms),
            lambda: len(phones.lateness_ms) >= len(reminders),
        )
    numbers = stage.numbers.worst_day
    numbers.reminders, numbers.reminders_expected = len(phones.lateness_ms), len(reminders)
    numbers.early = phones.early
    stage.view.note(
        f"{len(phones.lateness_ms):,} delivered, {phones.early} early, {phones.twice} twice, "
        f"at most {phones.latest_ms} ms late"
    )


def plan(flights: Sequence[Flight]) -> list[Reminder]:
    """A reminder for each flight; the later the departure, the higher the level."""
    return [Reminder(flight.row, _level(flight.departure_delay or 0)) for flight in flights]


def _level(delay_min: int) -> int:
    return 1 if delay_min <= 0 else 2 if delay_min <= 60 else 3
