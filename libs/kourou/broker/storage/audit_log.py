"""A file of refused requests: one JSON object a line, in `kourou/audit` of the store.

Refusals never enter the replicated log, so they cannot fill it. Allowed changes are events
of the control log. Of each kind (user, source, request, need) the first lines of a minute are
written whole, then one line with the exact `count` of the rest. A new file begins at
AUDIT_FILE_BYTES_MAX; the oldest of AUDIT_FILES_MAX files is deleted.

A line contains no bodies and no secrets; JSON escapes control characters. While the file cannot be
written, refusals are counted; the counts are written as soon as it can, once a minute.

State: soft: the counts of the current minute. `close` writes them.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import msgspec

from kourou.engine.effects import AccessRefused
from kourou.model.limits import (
    ACCESS_REFUSALS_MAX,
    AUDIT_FILE_BYTES_MAX,
    AUDIT_FILES_MAX,
    AUDIT_LINES_MAX,
)

_log = logging.getLogger("kourou.broker")
_encode = msgspec.json.Encoder().encode

MINUTE_MS = 60_000
WHOLE_LINES = 10
"""Lines of a kind in a minute before they are only counted."""

_OTHERS = ("others", "", "", "")


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: `count` refusals up to `at_ms`. `handled`: decisions were only observed.

    `console` is the user who sent it on behalf of `user`; of several the last.
    """

    at_ms: int
    user: str
    source: str
    request: str
    need: str
    by: str
    count: int = 1
    handled: bool = False
    console: str = ""


@dataclass(slots=True)
class _Kind:
    """What happened in this minute: lines of its own, refusals without one, the last of those."""

    lines: int = 0
    rest: int = 0
    last: AccessRefused | None = None

    def count(self, refused: AccessRefused) -> None:
        """Count a refusal that has no line of its own."""
        self.rest += 1
        self.last = refused


class AuditLog:
    """Appends to the newest file of a folder. All calls on one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: FileIO | None = None
        self._minute = 0
        self._lines = 0
        self._kinds: dict[tuple[str, str, str, str], _Kind] = {}

    def record(self, refused: AccessRefused) -> None:
        """Write or count one refusal; the first of a kind in a minute is also logged."""
        minute = refused.wall_ms // MINUTE_MS
        if minute != self._minute:
            self._summarize()
            self._minute = minute
        key = (refused.user, refused.source, refused.request, refused.need)
        if key not in self._kinds and len(self._kinds) >= ACCESS_REFUSALS_MAX:
            key = _OTHERS
        kind = self._kinds.setdefault(key, _Kind())
        if key is _OTHERS or kind.lines >= WHOLE_LINES or self._lines >= AUDIT_LINES_MAX:
            kind.count(refused)
            return
        if not kind.lines:
            verb = "would be refused" if refused.handled else "refused"
            _log.warning(
                "access %s: user=%r source=%s request=%s need=%r by=%r",
                *(verb, refused.user, refused.source, refused.request, refused.need, refused.by),
            )
        kind.lines += 1
        self._lines += 1
        if not self._write(_line(refused, key, 1)):
            kind.count(refused)
            self._lines = AUDIT_LINES_MAX  # the rest of the minute is only counted

    def close(self) -> None:
        """Write the counts of this minute, and close the file."""
        self._summarize()
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # every line was written already
                file.close()

    def _summarize(self) -> None:
        """Write the counts; those that cannot be written are kept for the next minute."""
        kept: dict[tuple[str, str, str, str], _Kind] = {}
        for key, kind in self._kinds.items():
            if kind.last is None:
                continue
            if kept or not self._write(_line(kind.last, key, kind.rest)):
                kept[key] = _Kind(rest=kind.rest, last=kind.last)
        self._kinds = kept
        self._lines = AUDIT_LINES_MAX if kept else 0

    def _write(self, line: AuditLine) -> bool:
        """Write a line whole or not at all; False if it cannot be written."""
        try:
            self._append(_encode(line) + b"\n")
        except OSError as error:
            _log.error("the audit file cannot be written: %s", error)
            self._close()
            return False
        return True

    def _append(self, data: bytes) -> None:
        file = self._opened()
        end = file.tell()
        if file.write(data) != len(data):  # e.g. the disk is full
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _opened(self) -> FileIO:
        if self._file is not None and self._file.tell() < AUDIT_FILE_BYTES_MAX:
            return self._file
        self._close()
        self._folder.mkdir(parents=True, exist_ok=True)
        numbers = sorted(
            int(one.stem) for one in self._folder.glob("*.jsonl") if one.stem.isdigit()
        )
        newest = numbers[-1] if numbers else 0
        path = self._folder / f"{max(newest, 1):08d}.jsonl"
        if path.exists() and path.stat().st_size >= AUDIT_FILE_BYTES_MAX:
            path = self._folder / f"{newest + 1:08d}.jsonl"
            numbers.append(newest + 1)
        for old in numbers[:-AUDIT_FILES_MAX]:
            (self._folder / f"{old:08d}.jsonl").unlink()
        self._file = FileIO(path, "ab")
        path.chmod(0o600)
        return self._file


def _line(refused: AccessRefused, key: tuple[str, str, str, str], count: int) -> AuditLine:
    user, source, request, need = key
    return AuditLine(
        at_ms=refused.wall_ms,
        user=user,
        source=source,
        request=request,
        need=need,
        by=refused.by,
        count=count,
        handled=refused.handled,
        console=refused.console,
    )
