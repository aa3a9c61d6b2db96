"""What is refused, and the questions about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccessRefused:
    """Note a refused request for the audit. `need` is what its user lacks, `by` what decided.

    `handled`: decisions are only observed, and it was handled nevertheless. `console` is the user
    who sent it on behalf of `user`, from `source`.
    """

    user: str
    source: str
    request: str
    need: str
    by: str
    wall_ms: int
    handled: bool
    console: str = ""


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


@dataclass(frozen=True, slots=True)
class AuditFound:
    """Lines as a body; `before` is where the next search begins, None after the last file."""

    body: bytes
    before: tuple[int, int] | None
