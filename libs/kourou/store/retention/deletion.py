"""Deletion of old log segments, with the queue and index files that belong to them.

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
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.store.disk import FULL, Disk, File, read_whole, write_atomically
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine
from kourou.store.log.segment import Segment
from kourou.store.open_files import PooledFile
from kourou.store.paths import StorePaths
from kourou.store.queues.consume_queue import ConsumeQueue
from kourou.store.queues.queue_table import ConsumeQueues

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
