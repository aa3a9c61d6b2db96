"""Files of the rights that requests needed: one a day in `kourou/uses`, a JSON object a line.

A file has one line for each kind of requests of its day (UTC), with their number, so its size does
not depend on how many requests there were: ACCESS_USES_MAX kinds at most, ACCESS_USES_USER_MAX of
them of one user. It is replaced as a whole
when counts arrive, once a minute; what was counted since is lost if the process is killed. Files
are kept for ACCESS_USES_DAYS days. While a file cannot be written, its counts are in memory.

State: soft, the counts of this day; they are read from its file at a start.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kourou.access.api_token import owner_of
from kourou.authorization.access_uses import UseLine, UsesCounted, UsesFound, UsesQuestion, tried
from kourou.model.limits import (
    ACCESS_USES_DAYS,
    ACCESS_USES_MAX,
    ACCESS_USES_RIGHTS_MAX,
    ACCESS_USES_USER_MAX,
)
from kourou.model.units import DAY_MS

_log = logging.getLogger("kourou.broker")
_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder(UseLine).decode


class UseLog:
    """Counts requests of one day in its file. All calls on one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._day = -1
        self._kinds = _Kinds()
        self._is_read = False

    def record(self, counted: UsesCounted) -> None:
        """Add counts to the file of their day."""
        day = counted.wall_ms // DAY_MS
        if day != self._day:
            self._day, self._kinds, self._is_read = day, _Kinds(), False
        self._kinds.add(counted.lines)
        try:
            if not self._is_read:  # counts of before this start are not overwritten
                self._kinds.add(list(_lines_of(_path(self._folder, day))))
                self._is_read = True
            self._write()
        except OSError as error:
            _log.error(
                "uses-write-failed: the counts of requests by right cannot be written: %(error)s",
                {"error": error},
            )

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = _path(self._folder, self._day)
        temporary = path.with_name(path.name + ".tmp")
        with suppress(FileNotFoundError):
            temporary.unlink()  # also a link: what it leads to is not written
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(_encoder.encode_lines(self._kinds.lines))
        temporary.rename(path)
        for old in _days(self._folder):
            if old <= self._day - ACCESS_USES_DAYS:
                _path(self._folder, old).unlink()


class _Kinds:
    """Counts of requests by kind; beyond the maxima, by user only."""

    def __init__(self) -> None:
        self._lines: dict[tuple[object, ...], UseLine] = {}
        self._of_user: Counter[str] = Counter()

    @property
    def lines(self) -> list[UseLine]:
        """A line for each kind."""
        return list(self._lines.values())

    def add(self, lines: Iterable[UseLine]) -> None:
        """Count these requests, too."""
        for line in lines:
            known = self._lines.get(line.kind)
            if known is None and not self._has_room(line):
                line = UseLine(user=owner_of(line.user), count=line.count, last_ms=line.last_ms)
                known = self._lines.get(line.kind)
                if known is None and len(self._lines) >= 2 * ACCESS_USES_MAX:
                    line.user = ""
                    known = self._lines.get(line.kind)
            if known is not None:
                known.add(line)
                continue
            self._lines[line.kind] = line
            self._of_user[owner_of(line.user)] += bool(line.needs)

    def _has_room(self, line: UseLine) -> bool:
        """Whether its kind may be counted by itself."""
        return (
            len(self._lines) < ACCESS_USES_MAX
            and self._of_user[owner_of(line.user)] < ACCESS_USES_USER_MAX
            and len(line.needs) <= ACCESS_USES_RIGHTS_MAX
        )


def try_uses(folder: Path, question: UsesQuestion) -> UsesFound:
    """Try policies on the requests of the last days; may be called on any thread.

    Raises OSError. Lines that cannot be read are left out.
    """
    since_ms = question.since_ms or 0
    kinds = _Kinds()
    first_ms = 0
    for day in _days(folder):
        if (day + 1) * DAY_MS <= since_ms or day > question.wall_ms // DAY_MS:
            continue
        found = [one for one in _lines_of(_path(folder, day)) if one.last_ms >= since_ms]
        if found and not first_ms:
            first_ms = max(day * DAY_MS, since_ms)
        kinds.add(found)
    result = tried(kinds.lines, question.now, question.proposed, question.wall_ms)
    return UsesFound(result, first_ms)


def _days(folder: Path) -> list[int]:
    """Return the days of which there are files, since 1970, the oldest first."""
    found = []
    for path in folder.glob("*.jsonl"):
        with suppress(ValueError):
            day = datetime.strptime(path.stem, "%Y-%m-%d")  # noqa: DTZ007 - the next line says UTC
            found.append(int(day.replace(tzinfo=UTC).timestamp()) * 1_000 // DAY_MS)
    return sorted(found)


def _path(folder: Path, day: int) -> Path:
    date = datetime.fromtimestamp(day * DAY_MS // 1_000, UTC)
    return folder / f"{date:%Y-%m-%d}.jsonl"


def _lines_of(path: Path) -> Iterator[UseLine]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # there is none yet, or it was the oldest, and is deleted by now
        return
    for raw in content.splitlines():
        with suppress(msgspec.MsgspecError):
            yield _decode(raw)
