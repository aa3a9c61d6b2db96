"""Observations of producers and consumers during a run, one row each, and recovery times.

    history.sent("p1", "p1-7", 12.5, 14.0, Outcome.OK, "broker-a/0", 41)
    history.read("g", 15.0, "broker-a/0", 41, "p1-7")
    history.struck(20.0, "kill -9 n1", leader=True)
    history.save(path)                 one JSON object per line; `load` reads it

Values are unique within a run. Times are milliseconds of one monotonic clock. An operation that is
not known to have failed may have happened: a timeout, a lost connection, "stored, but not committed
by a majority yet".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Self

SILENCE_BEGINS_MS = 500.0
"""Replies to retries of messages that were committed before the leader's death may arrive so long
after it.
"""


class Outcome(StrEnum):
    """The outcome of a send: OK is stored for good, FAIL is not stored and never will be."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SendRow:
    """One send; `queue` and `offset` are known only for OK."""

    producer: str
    value: str
    invoked_ms: float
    returned_ms: float
    outcome: Outcome
    queue: str = ""
    offset: int = -1


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A message that a consumer of `group` received."""

    group: str
    read_ms: float
    queue: str
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault; `leader`: it affected the leader."""

    struck_ms: float
    what: str
    leader: bool = False


@dataclass(slots=True)
class History:
    """All rows of a run in the order in which they were recorded."""

    sends: list[SendRow] = field(default_factory=list)
    reads: list[ReadRow] = field(default_factory=list)
    faults: list[FaultRow] = field(default_factory=list)

    def sent(
        self,
        producer: str,
        value: str,
        invoked_ms: float,
        returned_ms: float,
        outcome: Outcome,
        queue: str = "",
        offset: int = -1,
    ) -> None:
        """Record a completed send."""
        row = SendRow(producer, value, invoked_ms, returned_ms, outcome, queue, offset)
        self.sends.append(row)

    def read(self, group: str, read_ms: float, queue: str, offset: int, value: str) -> None:
        """Record a received message."""
        self.reads.append(ReadRow(group, read_ms, queue, offset, value))

    def struck(self, struck_ms: float, what: str, *, leader: bool = False) -> None:
        """Record the start of a fault."""
        self.faults.append(FaultRow(struck_ms, what, leader))

    # -- results ---------------------------------------------------------------------------------

    def acknowledged(self) -> list[SendRow]:
        """The sends with the outcome OK."""
        return [row for row in self.sends if row.outcome is Outcome.OK]

    def recoveries_ms(self) -> list[tuple[str, float]]:
        """For each fault of a leader: its description, and the time until sends were acknowledged
        again.

        That is the end of the longest silence that starts soon after the fault or spans it, and
        less for a fault without effect. A fault after which nothing was acknowledged is omitted.
        """
        answered = sorted(row.returned_ms for row in self.acknowledged())
        found = []
        for fault in self.faults:
            if not fault.leader:
                continue
            latest = fault.struck_ms + SILENCE_BEGINS_MS
            silences = [
                (end - max(begin, fault.struck_ms), end)
                for begin, end in pairwise([fault.struck_ms, *_after(answered, fault.struck_ms)])
                if begin <= latest
            ]
            if silences:
                found.append((fault.what, max(silences)[1] - fault.struck_ms))
        return found

    # -- its file --------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write all rows."""
        kinds: Iterable[tuple[str, Iterable[SendRow | ReadRow | FaultRow]]] = (
            ("send", self.sends),
            ("read", self.reads),
            ("fault", self.faults),
        )
        lines = [json.dumps({"row": kind, **asdict(row)}) for kind, rows in kinds for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote."""
        history = cls()
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            match row.pop("row"):
                case "send":
                    row["outcome"] = Outcome(row["outcome"])
                    history.sends.append(SendRow(**row))
                case "read":
                    history.reads.append(ReadRow(**row))
                case _:
                    history.faults.append(FaultRow(**row))
        return history


def _after(times: list[float], moment: float) -> list[float]:
    return [each for each in times if each >= moment]
