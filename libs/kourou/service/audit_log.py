"""A file of refused requests and allowed changes: one JSON object a line, in `kourou/audit`.

Refusals never enter the replicated log, so they cannot fill it. What an allowed change did is an
event of the control log; here is who was allowed to request it, from where, and by which right.

Of each kind (decision, user, source, request, need) the first lines of a minute are written whole,
then one line with the exact `count` of the rest. Limits hold for each decision by itself, so a
flood of refusals hides no change. A new file begins at AUDIT_FILE_BYTES_MAX; the oldest of
AUDIT_FILES_MAX files is deleted.

A line contains no bodies and no secrets; JSON escapes control characters. While the file cannot be
written, requests are counted; the counts are written as soon as it can, once a minute.

State: soft: the counts of the current minute. `close` writes them.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import msgspec

from kourou.authorization.audit import AccessDecided, AuditFound, AuditQuestion
from kourou.model.limits import (
    ACCESS_REFUSALS_MAX,
    AUDIT_FILE_BYTES_MAX,
    AUDIT_FILES_MAX,
    AUDIT_LINES_MAX,
    AUDIT_READ_BYTES_MAX,
)
from kourou.protocol.bodies.access_bodies import AuditDecision, AuditLine

_log = logging.getLogger("kourou.broker")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditLine).decode

MINUTE_MS = 60_000
WHOLE_LINES = 10
"""Lines of a kind in a minute before they are only counted."""

_Key = tuple[str, str, str, str]
_OTHERS: _Key = ("others", "", "", "")


@dataclass(slots=True)
class _Kind:
    """What happened in this minute: lines of its own, requests without one, the last of those."""

    lines: int = 0
    rest: int = 0
    last: AccessDecided | None = None

    def count(self, decided: AccessDecided) -> None:
        """Count a request that has no line of its own."""
        self.rest += 1
        self.last = decided


@dataclass(slots=True)
class _Minute:
    """What was decided one way in this minute."""

    lines: int = 0
    kinds: dict[_Key, _Kind] = field(default_factory=dict)


class AuditLog:
    """Appends to the newest file of a folder. All calls on one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: FileIO | None = None
        self._minute = 0
        self._refused = _Minute()
        self._allowed = _Minute()

    def record(self, decided: AccessDecided) -> None:
        """Write or count one request; the first refusal of a kind in a minute is also logged."""
        minute = decided.wall_ms // MINUTE_MS
        if minute != self._minute:
            self._summarize()
            self._minute = minute
        alike = self._allowed if decided.allowed else self._refused
        key = (decided.user, decided.source, decided.request, decided.need)
        if key not in alike.kinds and len(alike.kinds) >= ACCESS_REFUSALS_MAX:
            key = _OTHERS
        kind = alike.kinds.setdefault(key, _Kind())
        if key is _OTHERS or kind.lines >= WHOLE_LINES or alike.lines >= AUDIT_LINES_MAX:
            kind.count(decided)
            return
        if not kind.lines and not decided.allowed:
            verb = "would be refused" if decided.handled else "refused"
            _log.warning(
                "access %s: user=%r source=%s request=%s need=%r by=%r",
                *(verb, decided.user, decided.source, decided.request, decided.need, decided.by),
            )
        kind.lines += 1
        alike.lines += 1
        if not self._write(_line(decided, key, 1)):
            kind.count(decided)
            alike.lines = AUDIT_LINES_MAX  # the rest of the minute is only counted

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
        failed = False
        for alike in (self._allowed, self._refused):
            kept: dict[_Key, _Kind] = {}
            for key, kind in alike.kinds.items():
                if kind.last is None:
                    continue
                failed = failed or not self._write(_line(kind.last, key, kind.rest))
                if failed:
                    kept[key] = _Kind(rest=kind.rest, last=kind.last)
            alike.kinds = kept
            alike.lines = AUDIT_LINES_MAX if kept else 0

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
        numbers = _numbers(self._folder)
        newest = numbers[-1] if numbers else 0
        path = _path(self._folder, max(newest, 1))
        if path.exists() and path.stat().st_size >= AUDIT_FILE_BYTES_MAX:
            path = _path(self._folder, newest + 1)
            numbers.append(newest + 1)
        for old in numbers[:-AUDIT_FILES_MAX]:
            _path(self._folder, old).unlink()
        self._file = FileIO(path, "ab")
        path.chmod(0o600)
        return self._file


def _line(decided: AccessDecided, key: _Key, count: int) -> AuditLine:
    user, source, request, need = key
    return AuditLine(
        at_ms=decided.wall_ms,
        user=user,
        source=source,
        request=request,
        need=need,
        by=decided.by,
        count=count,
        handled=decided.handled,
        console=decided.console,
        decision=AuditDecision.ALLOWED if decided.allowed else AuditDecision.REFUSED,
    )


def _numbers(folder: Path) -> list[int]:
    return sorted(int(one.stem) for one in folder.glob("*.jsonl") if one.stem.isdigit())


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.jsonl"


# -- searches -------------------------------------------------------------------------------------


def search(folder: Path, question: AuditQuestion) -> AuditFound:
    """Return the newest lines that match; may be called on any thread. Raises OSError.

    Reads at most AUDIT_READ_BYTES_MAX; what is older is for the next search. Lines that are not
    complete are left out.
    """
    first, end = question.before or (None, None)
    found: list[bytes] = []
    left = AUDIT_READ_BYTES_MAX
    for number in reversed(_numbers(folder)):
        if first is not None and number > first:
            continue
        start, lines = _last_lines(_path(folder, number), end if number == first else None, left)
        for offset, line in reversed(lines):
            if _matches(line, question):
                found.append(line)
            if len(found) == question.limit:
                return AuditFound(_array(found), (number, offset))
        left -= sum(len(line) + 1 for _, line in lines)
        if start or left <= 0:
            return AuditFound(_array(found), (number, start))
    return AuditFound(_array(found), None)


def _last_lines(path: Path, end: int | None, most: int) -> tuple[int, list[tuple[int, bytes]]]:
    """Return where the lines before `end` begin, and each with its offset; about `most` bytes."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        end = size if end is None else min(end, size)
        while True:
            start = file.seek(max(0, end - most))
            data = file.read(end - start)
            cut = data.find(b"\n") + 1 if start else 0  # it may begin within a line
            if not start or cut < len(data):
                break
            most *= 2
    start, data = start + cut, data[cut:]
    lines: list[tuple[int, bytes]] = []
    at = start
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            lines.append((at, line[:-1]))
        at += len(line)
    return start, lines


def _matches(line: bytes, question: AuditQuestion) -> bool:
    try:
        one = _decode(line)
    except msgspec.MsgspecError:
        return False
    return (
        question.user in ("", one.user)
        and question.request in ("", one.request)
        and question.decision in (None, one.decision)
        and (question.since_ms is None or one.at_ms >= question.since_ms)
        and (question.until_ms is None or one.at_ms < question.until_ms)
    )


def _array(lines: list[bytes]) -> bytes:
    return b"[" + b",".join(lines) + b"]"
