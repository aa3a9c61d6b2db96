"""Do the demo's numbers agree?

Lives here: the numbers, and the one place that judges them. May not live here: counting.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass(slots=True)
class WorstDay:
    """What was counted in the second act; the `expected` ones come from the data set.

    `calls`: different calls that the gates heard, `out_of_order`: flights that heard theirs in
    another order. `retried`: departures at a second attempt. `dead_letters`: what lay in the
    dead-letter queue, `resent`: those that were consumed after they had been sent again.
    `reminders`: delayed messages that came, `early` ones before their time. `tickets`: what the
    queues hold, `unwanted_tickets` were delivered without being booked. `asked`: transactions of
    the dead producer that the broker asked another one about.
    """

    calls: int = 0
    calls_expected: int = 0
    out_of_order: int = 0
    retried: int = 0
    retried_expected: int = 0
    dead_letters: int = 0
    dead_letters_expected: int = 0
    resent: int = 0
    reminders: int = 0
    reminders_expected: int = 0
    early: int = 0
    tickets: int = 0
    tickets_expected: int = 0
    unwanted_tickets: int = 0
    asked: int = 0
    asked_expected: int = 0

    def disagreements(self) -> list[str]:
        """Every reason why it did not work."""
        dead, asked = self.dead_letters_expected, self.asked_expected
        checks = [
            (
                self.calls == self.calls_expected > 0,
                f"{self.calls} calls were heard, not {self.calls_expected}",
            ),
            (self.out_of_order == 0, f"{self.out_of_order} flights were called out of order"),
            (
                self.retried == self.retried_expected > 0,
                f"{self.retried} departed when they came again, not {self.retried_expected}",
            ),
            (self.dead_letters == dead > 0, f"{self.dead_letters} are dead letters, not {dead}"),
            (self.resent == dead, f"{self.resent} of {dead} dead letters were consumed in the end"),
            (
                self.reminders == self.reminders_expected > 0,
                f"{self.reminders} reminders came, not {self.reminders_expected}",
            ),
            (self.early == 0, f"{self.early} reminders came early"),
            (
                self.tickets == self.tickets_expected > 0,
                f"there are {self.tickets} tickets, not {self.tickets_expected}",
            ),
            (self.unwanted_tickets == 0, f"{self.unwanted_tickets} tickets were never booked"),
            (self.asked == asked > 0, f"the broker asked about {self.asked} tickets, not {asked}"),
        ]
        return [text for good, text in checks if not good]


@dataclass(slots=True)
class Numbers:
    """What was counted, each by another party than the one it is compared with.

    `published`: acknowledged sends. `stored`: what the queues hold. `consumed_unique` and
    `redelivered`: by the members' ledgers. `queried` and `replayed`: what came back; the `expected`
    ones come from the data set and from the queues.
    """

    events: int
    published: int = 0
    stored: int = 0
    consumed_unique: int = 0
    redelivered: int = 0
    queried: int = 0
    queried_expected: int = 0
    replayed: int = 0
    replayed_expected: int = 0
    worst_day: WorstDay = field(default_factory=WorstDay)
    faults: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Acknowledged and never delivered."""
        return self.published - self.consumed_unique

    def disagreements(self) -> list[str]:
        """Every reason why the demo did not work; none when all is well."""
        checks = [
            (self.published == self.events, f"{self.published} of {self.events} were published"),
            (self.stored == self.published, f"{self.stored} are stored, not {self.published}"),
            (self.lost == 0, f"{self.lost} were lost"),
            (
                self.queried == self.queried_expected > 0,
                f"{self.queried} were found by key, not {self.queried_expected}",
            ),
            (
                self.replayed == self.replayed_expected > 0,
                f"{self.replayed} were read again, not {self.replayed_expected}",
            ),
        ]
        first_act = [text for good, text in checks if not good]
        return first_act + self.worst_day.disagreements() + self.faults

    def as_json(self) -> str:
        """The verdict as one line."""
        return json.dumps(
            {
                "published": self.published,
                "stored": self.stored,
                "consumed_unique": self.consumed_unique,
                "redelivered": self.redelivered,
                "lost": self.lost,
                "queried": self.queried,
                "replayed": self.replayed,
                "calls": self.worst_day.calls,
                "out_of_order": self.worst_day.out_of_order,
                "retried": self.worst_day.retried,
                "dead_letters": self.worst_day.dead_letters,
                "resent": self.worst_day.resent,
                "reminders": self.worst_day.reminders,
                "early": self.worst_day.early,
                "tickets": self.worst_day.tickets,
                "unwanted_tickets": self.worst_day.unwanted_tickets,
                "asked": self.worst_day.asked,
                "ok": not self.disagreements(),
            }
        )
