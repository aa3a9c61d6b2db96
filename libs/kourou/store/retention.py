"""Retention: the age of each log segment, and the deletion of old segments.

Deletion of old log segments, with the queue and index files that belong to them.

State: none while no deletion runs; `queue-ends.json` is a projection of deleted records.

The order ensures that readers never miss promised data, and that a crash at any point leaves a
store that opens:

    1  minimum offsets rise              readers of deleted data get OFFSET_MOVED; all still exists
    2  log, queues, index detach the segments and files to be deleted
    3  a checkpoint                      so that the next start does not report them missing
    4  queue-ends.json                   so that an empty queue keeps its next offset in a rebuild
    5  segments, oldest first, each with its directory synced; then queue and index files

A crash before step 5 leaves everything for the next deletion. A crash during step 5 leaves a log
that starts later, and perhaps files that refer only to deleted records; the next deletion removes
them.

The writing thread runs steps 1 and 2 in slices, because ten thousand queues take longer than a
producer should wait; any thread may run steps 3 to 5. Views of a deleted segment stay readable: the
file loses its name, and the mapping is freed with its last view.

The age of each log segment since its last write, independent of wall clock steps.

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

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from kourou.engine.inputs import ClosedSegment
from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.store.disk import FULL, Disk, File, read_whole, write_atomically
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog, Segment
from kourou.store.log.quarantine import Quarantine
from kourou.store.open_files import PooledFile
from kourou.store.paths import StorePaths
from kourou.store.queues.consume_queue import ConsumeQueue
from kourou.store.queues.queue_table import ConsumeQueues

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


SLICE_QUEUES = 64
"""Queues processed before producers get their turn: mostly a millisecond or less."""

RESERVE_SHARE = 64
"""The reserve takes at most one part in this many of the disk."""


QueueEnds = dict[str, dict[int, int]]


class Deletion:
    """The deletion of everything in a store that is entirely below a position."""

    def __init__(
        self,
        disk: Disk,
        paths: StorePaths,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        quarantine: Quarantine,
        position: int,
    ) -> None:
        self._disk = disk
        self._paths = paths
        self._log = log
        self._queues = queues
        self._index = index
        self._quarantine = quarantine
        self._start = max(log.start, position - position % log.segment_size)
        self._segments: list[Segment] = []
        self._queue_files: list[PooledFile] = []
        self._index_files: list[PooledFile] = []
        self._ends: QueueEnds = {}

    def forget(self) -> Iterator[None]:
        """Steps 1 and 2, in slices: the caller continues when the event loop has time again."""
        if self._start > self._log.start:
            for slice_ in self._slices():
                for queue in slice_:
                    queue.correct_min_offset(self._start)
                yield
            self._segments = self._log.detach_before(self._start)
        for slice_ in self._slices():
            for queue in slice_:
                self._queue_files += queue.detach_before(self._start)
                if queue.max_offset:
                    self._ends.setdefault(queue.topic, {})[queue.queue_id] = queue.max_offset
            yield
        if self._index is not None:
            self._index_files = self._index.detach_before(self._start)
        self._quarantine.forget_below(self._start)

    def _slices(self) -> Iterator[list[ConsumeQueue]]:
        queues = iter(list(self._queues))
        while slice_ := list(islice(queues, SLICE_QUEUES)):
            yield slice_

    @property
    def found(self) -> bool:
        """After `forget`: True if there is anything to remove."""
        return bool(self._segments or self._queue_files or self._index_files)

    def remove(self) -> int:
        """Steps 4 and 5; returns how many segments were removed. Raises OSError."""
        if self._segments:
            save_queue_ends(self._disk, self._paths, self._ends)
        for segment in self._segments:
            self._log.remove_detached(segment)
        for file in self._queue_files:
            self._queues.remove_detached(file)
        for file in self._index_files:
            assert self._index is not None
            self._index.remove_detached(file)
        return len(self._segments)


# -- queue ends -----------------------------------------------------------------------------------


def save_queue_ends(disk: Disk, paths: StorePaths, ends: QueueEnds) -> None:
    """Save the ends of the queues. Raises OSError.

    A full disk must not prevent the deletion: these offsets matter only if the queues are lost too.
    """
    try:
        write_atomically(disk, paths.queue_ends, msgspec.json.encode(ends) + b"\n")
    except OSError as error:
        if error.errno not in FULL:
            raise


def load_queue_ends(disk: Disk, paths: StorePaths) -> QueueEnds:
    """The ends of the queues at the last deletion; empty if unknown. Raises OSError."""
    data = read_whole(disk, paths.queue_ends, OWN_FILE_BYTES_MAX)
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=QueueEnds)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}  # writes are atomic, so not Kourou's; without it RocketMQ's rule applies


def keep_queue_ends(queues: ConsumeQueues, ends: QueueEnds) -> int:
    """Extend rebuilt queues to their previous ends; returns how many were shorter.

    Raises OSError if the disk fails.
    """
    count = 0
    for topic, by_id in ends.items():
        for queue_id, end in by_id.items():
            known = queues.range_of(topic, queue_id)
            if known is None or known[1] < end:
                queues.get_or_create(topic, queue_id).keep_offset(end - 1)
                count += 1
    return count


# -- the reserve ----------------------------------------------------------------------------------


class Reserve:
    """Disk space reserved in advance for offsets and checkpoints on a full disk."""

    def __init__(self, disk: Disk, paths: StorePaths, size_bytes: int) -> None:
        self._disk = disk
        self._paths = paths
        self._size_bytes = size_bytes

    @property
    def held(self) -> bool:
        """True if the space is reserved."""
        return self._disk.exists(self._paths.reserve)

    def take(self) -> None:
        """Reserve the space if it is not reserved; does nothing if there is no room. Raises
        OSError.

        On a small disk the reserve is limited to a fixed share of the disk.
        """
        total, _ = self._disk.usage(self._paths.kourou)
        size = min(self._size_bytes, total // RESERVE_SHARE)
        if not size or self.held:
            return
        try:
            file: File = self._disk.open(self._paths.reserve, create_size=size, allocate=True)
        except OSError as error:
            if error.errno not in FULL:
                raise
        else:
            file.close()

    def release(self) -> None:
        """Free the space. Raises OSError."""
        self._disk.unlink(self._paths.reserve)
