"""Bytes appended to the log and not yet written to its file (transientStorePoolEnable).

State: log, and the only part of it that is lost when the process is killed. It corresponds to
RocketMQ's transient store pool.

A buffer is anonymous memory: a page of it costs nothing before it is first written to. The buffer
returned last is assigned first, so that a log that is written out in time uses one or two of them,
however large the pool is.

One thread puts bytes; another may concurrently take bytes that were put before.
"""

from __future__ import annotations

import mmap

from kourou.store.disk import Buffer


class Staging:
    """At most `buffers_max` buffers of `segment_size` bytes, each assigned to one segment."""

    __slots__ = ("_buffers", "_filled", "_free", "_segment_size", "_unmade")

    def __init__(self, buffers_max: int, segment_size: int) -> None:
        assert buffers_max >= 1
        self._segment_size = segment_size
        self._unmade = buffers_max
        self._free: list[memoryview] = []
        self._buffers: dict[int, memoryview] = {}
        self._filled: dict[int, int] = {}

    @property
    def free_count(self) -> int:
        """The number of free buffers."""
        return self._unmade + len(self._free)

    @property
    def lent_count(self) -> int:
        """The number of assigned buffers."""
        return len(self._buffers)

    def lend(self, start: int) -> bool:
        """Ensure that the segment at position `start` has a buffer; False if none is free.

        Raises MemoryError or OSError if the machine has no memory for it.
        """
        if start in self._buffers:
            return True
        if self._free:
            buffer = self._free.pop()
        elif self._unmade:
            buffer = memoryview(mmap.mmap(-1, self._segment_size))
            self._unmade -= 1
        else:
            return False
        self._filled[start] = start
        self._buffers[start] = buffer
        return True

    def put(self, data: Buffer, position: int) -> None:
        """Store bytes of a segment that has a buffer."""
        at = position % self._segment_size
        start = position - at
        self._buffers[start][at : at + len(data)] = data
        self._filled[start] = position + len(data)

    def take(self, position: int, end: int) -> memoryview:
        """The bytes put from `position` on, up to `end`, inside one segment; without fillers."""
        at = position % self._segment_size
        start = position - at
        return self._buffers[start][at : min(end, self._filled[start]) - start]

    def give_back(self, position: int) -> None:
        """Free the buffers of segments that end at or below `position`; they are in their files."""
        for start in sorted(self._buffers):
            if start + self._segment_size <= position:
                del self._filled[start]
                self._free.append(self._buffers.pop(start))
