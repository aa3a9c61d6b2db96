"""What is refused and what may change something, and the questions about it."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.protocol.bodies.access_bodies import AuditDecision


@dataclass(frozen=True, slots=True)
class AccessDecided:
    """Note a request for the audit that was refused, or was `allowed` to change something.

    `need` is what its user lacks, or the right to the change; `by` is what decided. `handled`: its
    handler got it, because it is allowed, or because decisions are only observed. `console` is the
    user who sent it on behalf of `user`, from `source`.
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


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """Lines of the audit, the newest first; see GET_AUDIT."""

    user: str
    request: str
    since_ms: int | None
    until_ms: int | None
    limit: int
    before: tuple[int, int] | None
    """The number of a file, and the offset in it where the search begins."""
    decision: AuditDecision | None = None


@dataclass(frozen=True, slots=True)
class AuditFound:
    """Lines as a body; `before` is where the next search begins, None after the last file."""

    body: bytes
    before: tuple[int, int] | None
