"""The age of each log segment since its last write, independent of wall clock steps.

State: soft, with a file that lets it survive a restart. If it is lost, ages start from the files'
modification times, as in RocketMQ. Format: docs/formats/retention.md.

A segment is *closed* once the log continues after it; its age counts from then.

Invariants:  while the process runs, an age grows with monotonic time only: a step of the wall
               clock, forwards or backwards, changes no age
             this also holds across a restart of the process on the same machine start (same boot
               ID), because the monotonic clock continues
             across a restart of the machine, or on another machine, an age grows by the
               difference of the wall clocks, at least 0 and at most UNWATCHED_MS_MAX: a wrong
               clock can make a deletion earlier by no more; a machine that was off for longer
               deletes later by that time
             an age is never negative, and an older segment is never younger than a newer one

The file is written when a segment was closed or deleted, and every SAVE_INTERVAL_MS. The age of a
segment closed after the last write follows from its modification time, but is at most the time
since that write.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kourou.engine.inputs import ClosedSegment
from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.store.disk import Disk, read_whole, write_atomically
from kourou.store.log.segment import Segment
from kourou.store.paths import StorePaths

UNWATCHED_MS_MAX = 3_600_000
"""Time measured by wall clocks only counts up to an hour; a machine restart takes less."""

SAVE_INTERVAL_MS = 600_000
STEP_MS = 1_000
"""If wall and monotonic time differ by more between two calls of `look`, the clock was set."""


class Now(msgspec.Struct, frozen=True):
    """A reading of both clocks. `boot` identifies the machine start that the monotonic one counts
    from.
    """

    monotonic_ms: int
    wall_ms: int
    boot: str = ""


class _File(msgspec.Struct):
    at: Now
    ages_ms: dict[int, int]


class AgeClock:
    """Ages of the closed segments of one log. One thread calls `look`; any thread may `save`."""

    def __init__(self, disk: Disk, paths: StorePaths) -> None:
        self._disk = disk
        self._paths = paths
        self._last: Now | None = None
        self._loaded: _File | None = None
        # When each segment was closed, by this process's monotonic clock; may precede its start.
        self._closed_ms: dict[int, int] = {}
        self._saved: frozenset[int] | None = None
        self._saved_ms = 0
        self.steps = 0

    def look(self, now: Now, closed: Iterable[Segment]) -> tuple[list[ClosedSegment], int]:
        """The closed segments, oldest first, with their ages, and the step of the wall clock.

        The step is in ms since the last call, 0 if the clock was not set. `closed`: the segments
        that the log has finished, oldest first. Raises OSError on the first call.
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
        """The first call of `look`: start with the saved ages and add the time since then."""
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
            return None  # ages start from the files' own times, as without a file
        sound = all(0 <= age_ms < 2**53 for age_ms in found.ages_ms.values())
        return found if sound else None

    def to_save(self) -> bytes | None:
        """What `save` should write now; None if that is not due. Called after `look`, in its
        thread.
        """
        now = self._last
        if now is None:
            return None
        same = self._saved is not None and self._saved == self._closed_ms.keys()
        if same and now.monotonic_ms - self._saved_ms < SAVE_INTERVAL_MS:
            return None
        self._saved, self._saved_ms = frozenset(self._closed_ms), now.monotonic_ms
        return self.encoded()

    def encoded(self) -> bytes:
        """The ages as of the last call of `look`."""
        assert self._last is not None
        now = self._last
        ages = {start: now.monotonic_ms - at for start, at in self._closed_ms.items()}
        return msgspec.json.encode(_File(now, ages)) + b"\n"

    @property
    def started(self) -> bool:
        """True after the first call of `look`."""
        return self._last is not None

    def save(self, data: bytes) -> None:
        """Write the result of `to_save` or `encoded`, durably. Raises OSError."""
        write_atomically(self._disk, self._paths.ages, data)


def _drift(at: Now) -> int:
    """Changes only if the wall clock is set."""
    return at.wall_ms - at.monotonic_ms


def _elapsed(before: Now, now: Now) -> int:
    """Time in ms between two readings, perhaps from different processes or machines."""
    if before.boot and before.boot == now.boot and now.monotonic_ms >= before.monotonic_ms:
        return now.monotonic_ms - before.monotonic_ms
    return min(max(0, now.wall_ms - before.wall_ms), UNWATCHED_MS_MAX)
