"""What is refused and what may change something, and the questions about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kourou.protocol.bodies.access_bodies import AuditDecision

AuditPlace: TypeAlias = tuple[int, int]
"""The number of a file, and the offset in it before which a search goes on; (0, 0) is the end."""


@dataclass(frozen=True, slots=True)
class AccessDecided:
    """Note a request for the audit that was refused, or was `allowed` to change something.

    `need` is what its user lacks, or the right to the change; `by` is what decided. `handled`: its
    handler got it, because it is allowed, or because decisions are only observed. `console` is the
    user who sent it on behalf of `user`, from `source`. `door` is how its client sent it, "" if
    clients have no such door.
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
