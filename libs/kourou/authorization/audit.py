"""What is refused and what may change something, and the questions about it.

State: soft: what a process refused itself, until it has reported that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from kourou.access.model import Door, plain_address
from kourou.model.limits import (
    AUDIT_TEXT_LENGTH_MAX,
    REPORTED_COUNT_MAX,
    REPORTED_REFUSALS_MAX,
)
from kourou.protocol.bodies.access_bodies import AuditDecision, ReportedRefusal

AuditPlace: TypeAlias = tuple[int, int]
"""The number of a file, and the offset in it before which a search goes on; (0, 0) is the end."""


@dataclass(frozen=True, slots=True)
class AccessDecided:
    """Note a request for the audit that was refused, or was `allowed` to change something.

    `need` is what its user lacks, or the right to the change; `by` is what decided. `handled`: its
    handler got it, because it is allowed, or because decisions are only observed. `console` is the
    user who sent it on behalf of `user`, from `source`. `door` is how its client sent it, "" if
    clients have no such door. `count` such requests were refused by the process `console` itself,
    which reported them.
    """

    user: str
    source: str
    request: str
    need: str
    by: str
    wall_ms: int
    handled: bool
    console: str = ""
    allowed: bool = False
    door: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """Lines of the audit, the newest first; see GET_AUDIT."""

    user: str
    request: str
    since_ms: int | None
    until_ms: int | None
    limit: int
    before: tuple[AuditPlace, AuditPlace] | None
    """Where it begins in the files of changes, and in those of refusals; None is at their ends."""
    decision: AuditDecision | None = None


@dataclass(frozen=True, slots=True)
class AuditFound:
    """Lines as a body; `before` is where the next search begins, None after the last line."""

    body: bytes
    before: tuple[AuditPlace, AuditPlace] | None


# -- what a process refuses itself ----------------------------------------------------------------

_OTHERS = ReportedRefusal(user="others", source="", request="others", by="of many kinds")


class OwnRefusals:
    """Counts the requests that a process refuses itself, by kind, until it reports them.

    Bounded: kinds beyond REPORTED_REFUSALS_MAX are counted together.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[ReportedRefusal, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def note(self, user: str, source: str, request: str, by: str, *, door: Door | None) -> None:
        """Count one refused request; long texts are shortened, and `source` is "" if no address."""
        try:
            address = plain_address(source)
        except ValueError:
            address = ""
        kind = ReportedRefusal(
            user=user[:AUDIT_TEXT_LENGTH_MAX],
            source=address,
            request=request,
            by=by[:AUDIT_TEXT_LENGTH_MAX],
            door=door,
        )
        self._add(kind, 1)

    def _add(self, kind: ReportedRefusal, count: int) -> None:
        if kind not in self._counts and len(self._counts) >= REPORTED_REFUSALS_MAX - 1:
            kind = _OTHERS
        self._counts[kind] = min(self._counts.get(kind, 0) + count, REPORTED_COUNT_MAX)

    def take(self) -> list[ReportedRefusal]:
        """Return what was counted, and begin again."""
        taken, self._counts = self._counts, {}
        return [msgspec.structs.replace(kind, count=count) for kind, count in taken.items()]

    def put_back(self, taken: Iterable[ReportedRefusal]) -> None:
        """Count again what could not be reported."""
        for one in taken:
            self._add(msgspec.structs.replace(one, count=1), one.count)
