"""Files of refused requests and allowed changes: one JSON object a line, in `kourou/audit`.

Refusals never enter the replicated log, so they cannot fill it. What an allowed change did is an
event of the control log; here is who was allowed to request it, from where, and by which right.

Allowed changes and refusals have files and limits of their own, so a flood of refusals neither
hides nor deletes a change. In each series a new file begins at AUDIT_FILE_BYTES_MAX, and the oldest
of AUDIT_FILES_MAX files is deleted. Those of changes have the names that all files had before, when
they contained refusals, too.

Of each kind (user, source, request, need) the first lines of a minute are written whole, then one
line with the exact `count` of the rest, with shortened names. Beyond ACCESS_REFUSALS_MAX kinds,
refusals are counted together. Changes are counted by user and request then, because there are as
many users as administrators made. One user has few lines and kinds a minute of its own, so it does
not take those of others.

A line contains no bodies and no secrets; JSON escapes control characters. While a file cannot be
written, requests are counted; the counts are written as soon as it can, once a minute.

State: soft: the counts of the current minute. `close` writes them.
"""

from __future__ import annotations

import errno
import heapq
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import msgspec

from kourou.access.api_token import owner_of
from kourou.authorization.audit import AccessDecided, AuditFound, AuditPlace, AuditQuestion
from kourou.model.limits import (
    ACCESS_REFUSALS_MAX,
    AUDIT_FILE_BYTES_MAX,
    AUDIT_FILES_MAX,
    AUDIT_LINES_MAX,
    AUDIT_NAME_BYTES_MAX,
    AUDIT_READ_BYTES_MAX,
    AUDIT_USER_KINDS_MAX,
    AUDIT_USER_LINES_MAX,
)
from kourou.model.units import MINUTE_MS
from kourou.protocol.bodies.access_bodies import AuditDecision, AuditLine

_log = logging.getLogger("kourou.broker")
_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder(AuditLine).decode

WHOLE_LINES = 10
"""Lines of a kind in a minute before they are only counted."""

CHANGES, REFUSALS = "", "refused-"
"""What the names of the files of a series begin with."""

_ESCAPED_BYTES = 6
"""What a character has in JSON at most, as \\u0000; others have 4 bytes."""

_Key = tuple[str, str, str, str]
_OTHERS: _Key = ("others", "", "", "")


class AuditLog:
    """Appends to the newest files of a folder. All calls on one thread."""

    def __init__(self, folder: Path) -> None:
        self._minute = 0
        self._refused = _Series(_Files(folder, REFUSALS))
        self._allowed = _ChangeSeries(_Files(folder, CHANGES))

    def record(self, decided: AccessDecided) -> None:
        """Write or count one request; the first refusal of a kind in a minute is also logged."""
        minute = decided.wall_ms // MINUTE_MS
        if minute != self._minute:
            self._summarize()
            self._minute = minute
        (self._allowed if decided.allowed else self._refused).record(decided)

    def close(self) -> None:
        """Write the counts of this minute, and close the files."""
        self._summarize()
        self._allowed.close()
        self._refused.close()

    def _summarize(self) -> None:
        self._allowed.summarize()
        self._refused.summarize()


# -- a minute -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Kind:
    """What happened in this minute: lines of its own, requests without one, the last of those."""

    lines: int = 0
    rest: int = 0
    last: AccessDecided | None = None


@dataclass(slots=True)
class _Share:
    """What one user has of a minute."""

    lines: int = 0
    kinds: int = 0


class _Series:
    """What was decided one way in this minute, and its files."""

    def __init__(self, files: _Files) -> None:
        self._files = files
        self._lines = 0
        self._kinds: dict[_Key, _Kind] = {}

    def record(self, decided: AccessDecided) -> None:
        """Write or count one request."""
        key = (decided.user, decided.source, decided.request, decided.need)
        if key not in self._kinds and not self._takes(decided):
            key = self._rest_of(decided)
            self._count(self._kinds.setdefault(key, _Kind()), decided)
            return
        kind = self._kinds.setdefault(key, _Kind())
        if kind.lines >= WHOLE_LINES or not self._has_line_for(decided):
            self._count(kind, decided)
            return
        if not kind.lines and not decided.allowed:
            verb = "would be refused" if decided.handled else "refused"
            _log.warning(
                "access-refused: access %(outcome)s: user=%(user)r source=%(source)s "
                "request=%(request)s need=%(need)r by=%(by)r",
                {
                    "outcome": verb,
                    "user": decided.user,
                    "source": decided.source,
                    "request": decided.request,
                    "need": decided.need,
                    "by": decided.by,
                },
            )
        kind.lines += 1
        self._lines += 1
        if not self._files.write(_encoder.encode(_line(decided, key, decided.count)) + b"\n"):
            self._count(kind, decided)
            self._lines = AUDIT_LINES_MAX  # the rest of the minute is only counted

    def summarize(self) -> None:
        """Write the counts at once; if they cannot be written, keep them for the next minute."""
        lines = [
            _line(kind.last, key, kind.rest, _shortened)
            for key, kind in self._kinds.items()
            if kind.last is not None
        ]
        if not lines or self._files.write(_encoder.encode_lines(lines)):
            self._kinds.clear()
            self._lines = 0
            return
        self._kinds = {
            key: _Kind(rest=kind.rest, last=kind.last)
            for key, kind in self._kinds.items()
            if kind.last is not None
        }
        self._lines = AUDIT_LINES_MAX

    def close(self) -> None:
        """Close the file."""
        self._files.close()

    @staticmethod
    def _count(kind: _Kind, decided: AccessDecided) -> None:
        """Count a request that has no line of its own, or several that were reported together."""
        kind.rest += decided.count
        kind.last = decided

    def _takes(self, decided: AccessDecided) -> bool:
        """Return whether a new kind is counted by itself."""
        return len(self._kinds) < ACCESS_REFUSALS_MAX

    def _rest_of(self, decided: AccessDecided) -> _Key:
        """Return under which name it is counted if its kind is not."""
        return _OTHERS

    def _has_line_for(self, decided: AccessDecided) -> bool:
        """Return whether a request may have a line of its own."""
        return self._lines < AUDIT_LINES_MAX


class _ChangeSeries(_Series):
    """Allowed changes: of each user a few, so no user takes the lines and kinds of others."""

    def __init__(self, files: _Files) -> None:
        super().__init__(files)
        self._shares: dict[str, _Share] = {}

    def summarize(self) -> None:
        """Write the counts as those of refusals; the counts of each user begin at zero."""
        super().summarize()
        self._shares.clear()

    def _takes(self, decided: AccessDecided) -> bool:
        share = self._share(decided)
        if share.kinds >= AUDIT_USER_KINDS_MAX or not super()._takes(decided):
            return False
        share.kinds += 1
        return True

    def _rest_of(self, decided: AccessDecided) -> _Key:
        return (decided.user, "", decided.request, "")

    def _has_line_for(self, decided: AccessDecided) -> bool:
        share = self._share(decided)
        if share.lines >= AUDIT_USER_LINES_MAX or not super()._has_line_for(decided):
            return False
        share.lines += 1
        return True

    def _share(self, decided: AccessDecided) -> _Share:
        """Return the share of a user, which its tokens use as well."""
        return self._shares.setdefault(owner_of(decided.user), _Share())


def _shortened(text: str) -> str:
    """Return a text, or its beginning, that has AUDIT_NAME_BYTES_MAX bytes of JSON at most."""
    for most in (AUDIT_NAME_BYTES_MAX, AUDIT_NAME_BYTES_MAX // _ESCAPED_BYTES):
        text = text[:most]
        if len(_encoder.encode(text)) <= AUDIT_NAME_BYTES_MAX + len('""'):
            break
    return text


def _line(
    decided: AccessDecided, key: _Key, count: int, shown: Callable[[str], str] = str
) -> AuditLine:
    user, source, request, need = key
    return AuditLine(
        at_ms=decided.wall_ms,
        user=shown(user),
        source=source,
        request=request,
        need=shown(need),
        by=shown(decided.by),
        count=count,
        handled=decided.handled,
        console=decided.console,
        decision=AuditDecision.ALLOWED if decided.allowed else AuditDecision.REFUSED,
        door=decided.door,
    )


# -- files ----------------------------------------------------------------------------------------


class _Files:
    """Appends to the newest file of a series."""

    def __init__(self, folder: Path, series: str) -> None:
        self._folder = folder
        self._series = series
        self._file: FileIO | None = None

    def write(self, lines: bytes) -> bool:
        """Write lines whole or not at all; False if they cannot be written."""
        try:
            self._append(lines)
        except OSError as error:
            _log.error(
                "audit-write-failed: the audit file cannot be written: %(error)s", {"error": error}
            )
            self.close()
            return False
        return True

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # every line was written already
                file.close()

    def _append(self, data: bytes) -> None:
        file = self._opened()
        end = file.tell()
        if file.write(data) != len(data):  # e.g. the disk is full
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _opened(self) -> FileIO:
        if self._file is not None and self._file.tell() < AUDIT_FILE_BYTES_MAX:
            return self._file
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        numbers = _numbers(self._folder, self._series)
        newest = numbers[-1] if numbers else 0
        path = _path(self._folder, self._series, max(newest, 1))
        if path.exists() and path.stat().st_size >= AUDIT_FILE_BYTES_MAX:
            path = _path(self._folder, self._series, newest + 1)
            numbers.append(newest + 1)
        for old in numbers[:-AUDIT_FILES_MAX]:
            _path(self._folder, self._series, old).unlink()
        self._file = FileIO(path, "ab")
        path.chmod(0o600)
        return self._file


def _numbers(folder: Path, series: str) -> list[int]:
    """Return the numbers of the files of a series, the oldest first."""
    names = (one.stem.removeprefix(series) for one in folder.glob(f"{series}*.jsonl"))
    return sorted(int(name) for name in names if name.isdigit())


def _path(folder: Path, series: str, number: int) -> Path:
    return folder / f"{series}{number:08d}.jsonl"


# -- searches -------------------------------------------------------------------------------------

_CHUNK_BYTES = 1 << 18
_NOWHERE: AuditPlace = (0, 0)
"""The place after all lines: the numbers of files begin at 1."""


class _Found(NamedTuple):
    """A line of a series (0, changes, or 1) where it is; `line` is None if it is damaged."""

    at_ms: int
    series: int
    place: AuditPlace
    raw: bytes
    line: AuditLine | None


def search(folder: Path, question: AuditQuestion) -> AuditFound:
    """Return the newest lines that match; may be called on any thread. Raises OSError.

    The lines of both series are merged by time. Reads at most about AUDIT_READ_BYTES_MAX; what is
    older is for the next search. Lines that are not complete are left out.
    """
    both = (CHANGES, REFUSALS)
    places = list(question.before or (_end(folder, series) for series in both))
    if question.decision is AuditDecision.ALLOWED:
        places[1] = _NOWHERE
    newest_first = heapq.merge(
        *(_before(folder, number, places[number]) for number in range(len(both))),
        key=lambda one: one.at_ms,
        reverse=True,
    )
    found: list[bytes] = []
    left = AUDIT_READ_BYTES_MAX
    for one in newest_first:
        places[one.series] = one.place
        left -= len(one.raw) + 1
        if one.line is not None and _matches(one.line, question):
            found.append(one.raw)
        if len(found) == question.limit or left <= 0:
            return AuditFound(_array(found), (places[0], places[1]))
    return AuditFound(_array(found), None)


def _end(folder: Path, series: str) -> AuditPlace:
    """Return the place before all lines of a series."""
    numbers = _numbers(folder, series)
    if not numbers:
        return _NOWHERE
    return numbers[-1], _path(folder, series, numbers[-1]).stat().st_size


def _before(folder: Path, number: int, place: AuditPlace) -> Iterator[_Found]:
    """Yield the lines of a series before a place, the newest first."""
    series = (CHANGES, REFUSALS)[number]
    newest, end = place
    at_ms = 0
    for file in reversed(_numbers(folder, series)):
        if file > newest:
            continue
        path = _path(folder, series, file)
        with suppress(FileNotFoundError):  # it was the oldest, and is deleted by now
            for offset, raw in _lines_of(path, end if file == newest else None):
                line = _decoded(raw)
                at_ms = at_ms if line is None else line.at_ms
                yield _Found(at_ms, number, (file, offset), raw, line)


def _lines_of(path: Path, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a file before an offset, the last first, with their offsets."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = size if end is None else min(end, size)
        chunk, rest = _CHUNK_BYTES, b""
        while start:
            after, start = start, max(0, start - chunk)
            file.seek(start)
            data = file.read(after - start) + rest
            cut = (data.find(b"\n") + 1 or len(data)) if start else 0  # it may begin within a line
            rest, data = data[:cut], data[cut:]
            chunk = _CHUNK_BYTES if data else 2 * chunk
            lines, at = [], start + cut
            for line in data.split(b"\n")[:-1]:  # what follows the last one is not complete
                lines.append((at, line))
                at += len(line) + 1
            yield from reversed(lines)


def _decoded(raw: bytes) -> AuditLine | None:
    try:
        return _decode(raw)
    except msgspec.MsgspecError:
        return None


def _matches(one: AuditLine, question: AuditQuestion) -> bool:
    return (
        question.user in ("", one.user)
        and question.request in ("", one.request)
        and question.decision in (None, one.decision)
        and (question.since_ms is None or one.at_ms >= question.since_ms)
        and (question.until_ms is None or one.at_ms < question.until_ms)
    )


def _array(lines: list[bytes]) -> bytes:
    return b"[" + b",".join(lines) + b"]"
