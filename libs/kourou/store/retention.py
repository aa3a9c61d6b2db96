"""The old end of the log: what is deleted, in which order, and what must not go with it.

State: none while no deletion runs; `queue-ends.json` is a projection of records that are gone.

The order, so that readers never miss what they were promised and a crash anywhere leaves a store
that opens:

    1  minimum offsets rise            readers of what goes are told OFFSET_MOVED; all still there
    2  the log, the queues, the index forget the segments and files that go
    3  a checkpoint                    so that nothing is missed at the next start
    4  queue-ends.json                 a queue without messages that is built again goes on counting
    5  segments, oldest first, each with its directory synced; then files of queues and index

A crash before 5 leaves everything, and the next deletion takes it. A crash in 5 leaves a log that
begins later, and perhaps files that name only what is gone; they are taken by the next deletion.

Steps 1 and 2 belong to the thread that writes, in slices, since ten thousand queues take longer
than a sender should wait; 3 to 5 to any thread. Views of a segment that was handed out stay
readable: the file loses its name, the mapping its last reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.store.commit_log import CommitLog
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.disk import FULL, Disk, File, read_whole, write_atomically
from kourou.store.key_index import KeyIndex
from kourou.store.open_files import PooledFile
from kourou.store.paths import StorePaths
from kourou.store.quarantine import Quarantine
from kourou.store.queue_table import ConsumeQueues
from kourou.store.segment import Segment

SLICE_QUEUES = 64
"""So many queues are looked at before senders get their turn: a millisecond or less, mostly."""

RESERVE_SHARE = 64
"""The reserve takes no more than such a part of the disk."""


QueueEnds = dict[str, dict[int, int]]


class Deletion:
    """Everything of a store that lies wholly below a position, on its way out."""

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
        """Steps 1 and 2, in slices: the caller goes on when the loop has time again."""
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
        """After `forget`: is there anything to remove?"""
        return bool(self._segments or self._queue_files or self._index_files)

    def remove(self) -> int:
        """Steps 4 and 5; returns how many segments went. Raises OSError."""
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


# -- where queues end -----------------------------------------------------------------------------


def save_queue_ends(disk: Disk, paths: StorePaths, ends: QueueEnds) -> None:
    """Remember where queues end. Raises OSError.

    A full disk is no reason to keep the log: these offsets matter only if the queues are lost, too.
    """
    try:
        write_atomically(disk, paths.queue_ends, msgspec.json.encode(ends) + b"\n")
    except OSError as error:
        if error.errno not in FULL:
            raise


def load_queue_ends(disk: Disk, paths: StorePaths) -> QueueEnds:
    """Where queues ended at the last deletion; empty if nothing is known. Raises OSError."""
    data = read_whole(disk, paths.queue_ends, OWN_FILE_BYTES_MAX)
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=QueueEnds)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}  # written atomically: somebody else's; without it RocketMQ's way is ours


def keep_queue_ends(queues: ConsumeQueues, ends: QueueEnds) -> int:
    """Give queues that were built again the ends they had; returns how many were short of it.

    Raises OSError as the disk gives it.
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
    """Space that is taken in good times: offsets and checkpoints use it on a full disk."""

    def __init__(self, disk: Disk, paths: StorePaths, size_bytes: int) -> None:
        self._disk = disk
        self._paths = paths
        self._size_bytes = size_bytes

    @property
    def held(self) -> bool:
        """Is the space taken?"""
        return self._disk.exists(self._paths.reserve)

    def take(self) -> None:
        """Take the space if it is not taken; without room for it nothing happens. Raises OSError.

        A disk so small that the reserve would be felt is left alone.
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
        """Give the space back. Raises OSError."""
        self._disk.unlink(self._paths.reserve)
