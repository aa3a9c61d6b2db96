"""Do the demo's numbers agree?

Lives here: the numbers, and the one place that judges them. May not live here: counting.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field


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
        return [text for good, text in checks if not good] + self.faults

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
                "ok": not self.disagreements(),
            }
        )
