"""How long ago was each log segment written to last? Not what a wall clock says.

State: soft, with a file that lets it survive a restart. Lost, ages begin with the files' times of
modification, as RocketMQ takes them. Format: docs/formats/retention.md.

A segment is *closed* when the log goes on behind it; from then on it ages.

Invariants:  while the process runs an age grows by monotonic time and by nothing else: a step of
                 the wall clock, forwards or backwards, changes no age
             across a restart on a machine that was not restarted (same boot id), too: there the
                 monotonic clock went on
             across a restart of the machine, or on another one, an age grows by the difference of
                 the wall clocks, at least 0 and at most UNWATCHED_MS_MAX: so far may a wrong clock
                 bring a deletion forward; a machine that was off longer deletes later by that
             an age is never negative, and an older segment is never younger than a newer one

The file is written when a segment was closed or deleted, and every SAVE_INTERVAL_MS. What was
closed after the last writing is as old as its time of modification says, but no older than that
writing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kourou.engine.inputs import ClosedSegment
from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.store.disk import Disk, read_whole, write_atomically
from kourou.store.paths import StorePaths
from kourou.store.segment import Segment

UNWATCHED_MS_MAX = 3_600_000
"""Time that only wall clocks measured counts up to an hour: restarting a machine takes less."""

SAVE_INTERVAL_MS = 600_000
STEP_MS = 1_000
"""Wall time that runs ahead of or behind monotonic time by more, between two looks, was set."""


class Now(msgspec.Struct, frozen=True):
    """One look at both clocks. `boot` names the start of the machine since which one counts."""

    monotonic_ms: int
    wall_ms: int
    boot: str = ""


class _File(msgspec.Struct):
    at: Now
    ages_ms: dict[int, int]


class AgeClock:
    """Ages of the closed segments of one log. One thread looks; `save` may run in any."""

    def __init__(self, disk: Disk, paths: StorePaths) -> None:
        self._disk = disk
        self._paths = paths
        self._last: Now | None = None
        self._loaded: _File | None = None
        # When each segment was closed, on this process's monotonic clock; may lie before its start.
        self._closed_ms: dict[int, int] = {}
        self._saved: frozenset[int] | None = None
        self._saved_ms = 0
        self.steps = 0

    def look(self, now: Now, closed: Iterable[Segment]) -> tuple[list[ClosedSegment], int]:
        """The closed segments, oldest first, with their ages; and how far the wall clock was set.

        The latter in ms since the last look, 0 if it was left alone. `closed`: the segments that
        the log has left behind, oldest first. Raises OSError at the first look.
        """
        step_ms = 0
        segments = list(closed)
        if self._last is None:
            self._begin(now, segments)
        else:
            step_ms = _drift(now) - _drift(self._last)
            if abs(step_ms) > STEP_MS:
                self.steps += 1
            else:
                step_ms = 0
            known = self._closed_ms
            self._closed_ms = {
                segment.start: known.get(segment.start, now.monotonic_ms) for segment in segments
            }
        self._last = now
        closed_ms = self._closed_ms
        return [
            ClosedSegment(each.start, each.end, now.monotonic_ms - closed_ms[each.start])
            for each in segments
        ], step_ms

    # -- across restarts --------------------------------------------------------------------------

    def _begin(self, now: Now, segments: list[Segment]) -> None:
        """The first look: ages as they were written down, and what came since."""
        before = self._load()
        elapsed_ms = None if before is None else _elapsed(before.at, now)
        youngest_ms: int | None = None
        for segment in segments:
            modified_ms = segment.modified_ms()
            age_ms = max(0, now.wall_ms - modified_ms) if modified_ms > 0 else 0
            if before is not None and elapsed_ms is not None:
                known_ms = before.ages_ms.get(segment.start)
                age_ms = min(age_ms, elapsed_ms) if known_ms is None else known_ms + elapsed_ms
            if youngest_ms is not None:
                age_ms = min(age_ms, youngest_ms)
            youngest_ms = age_ms
            self._closed_ms[segment.start] = now.monotonic_ms - age_ms
        if before is not None:
            self._saved = frozenset(before.ages_ms)
            self._saved_ms = now.monotonic_ms - SAVE_INTERVAL_MS  # both clocks are new: write soon

    def _load(self) -> _File | None:
        data = read_whole(self._disk, self._paths.ages, OWN_FILE_BYTES_MAX)
        if data is None:
            return None
        try:
            found = msgspec.json.decode(data, type=_File)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None  # ages begin with the files' own times, as without a file
        sound = all(0 <= age_ms < 2**53 for age_ms in found.ages_ms.values())
        return found if sound else None

    def to_save(self) -> bytes | None:
        """What `save` should write now; None if that is not due. After a look, by its thread."""
        now = self._last
        if now is None:
            return None
        same = self._saved is not None and self._saved == self._closed_ms.keys()
        if same and now.monotonic_ms - self._saved_ms < SAVE_INTERVAL_MS:
            return None
        self._saved, self._saved_ms = frozenset(self._closed_ms), now.monotonic_ms
        return self.encoded()

    def encoded(self) -> bytes:
        """The ages as of the last look."""
        assert self._last is not None
        now = self._last
        ages = {start: now.monotonic_ms - at for start, at in self._closed_ms.items()}
        return msgspec.json.encode(_File(now, ages)) + b"\n"

    @property
    def started(self) -> bool:
        """Was there a look yet?"""
        return self._last is not None

    def save(self, data: bytes) -> None:
        """Write what `to_save` or `encoded` gave, durably. Raises OSError."""
        write_atomically(self._disk, self._paths.ages, data)


def _drift(at: Now) -> int:
    """Changes when somebody sets the wall clock, and not otherwise."""
    return at.wall_ms - at.monotonic_ms


def _elapsed(before: Now, now: Now) -> int:
    """Time in ms from one look to another, perhaps in another process or on another machine."""
    if before.boot and before.boot == now.boot and now.monotonic_ms >= before.monotonic_ms:
        return now.monotonic_ms - before.monotonic_ms
    return min(max(0, now.wall_ms - before.wall_ms), UNWATCHED_MS_MAX)
