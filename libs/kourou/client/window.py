"""The messages of one queue that are here and not finished (RocketMQ `ProcessQueue`).

    committed          unfinished (3, 5, 6)          pulled up to
        |                 |                              |
    0 1 2 3 4 5 6 7 8     finished out of order: 4, 7   next_offset = 8

Invariants:
  - `commit_offset` is the smallest unfinished offset, or `next_offset` when nothing is unfinished;
    so a crash may repeat messages and never skips one (F197).
  - `commit_offset` never decreases, for offsets are put in rising order and never put again.
  - `count` and `size_bytes` are those of the unfinished messages.
  - After `drop()` nothing changes any more: the queue belongs to somebody else.

State: soft. What it protects is the committed offset at the broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """When to pause pulling one queue; a limit is reached when its figure is exceeded."""

    count_max: int = 1000
    size_bytes_max: int = 100 * 1024 * 1024
    span_max: int = 2000


class Limit(Enum):
    """What a window may have too much of."""

    COUNT = auto()
    SIZE = auto()
    SPAN = auto()


class Window:
    """One queue's unfinished messages. Not thread-safe: it lives on the client's I/O thread."""

    __slots__ = ("_dropped", "_next_offset", "_order", "_size_bytes", "_sizes")

    def __init__(self, start_offset: int) -> None:
        self._order: deque[int] = deque()
        self._sizes: dict[int, int] = {}
        self._size_bytes = 0
        self._next_offset = start_offset
        self._dropped = False

    @property
    def next_offset(self) -> int:
        """Where the next pull starts."""
        return self._next_offset

    @property
    def commit_offset(self) -> int:
        """What the group may commit: everything below is finished."""
        return self._order[0] if self._order else self._next_offset

    @property
    def count(self) -> int:
        """Unfinished messages."""
        return len(self._sizes)

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest unfinished offset; (-1, -1) when there is none."""
        return (min(self._sizes), max(self._sizes)) if self._sizes else (-1, -1)

    @property
    def size_bytes(self) -> int:
        """Stored bytes of the unfinished messages."""
        return self._size_bytes

    @property
    def span(self) -> int:
        """Distance between the smallest and the largest unfinished offset."""
        return self._order[-1] - self._order[0] if self._order else 0

    @property
    def dropped(self) -> bool:
        """The queue was taken away; its messages may still be running."""
        return self._dropped

    def put(self, offsets: Sequence[int], sizes: Sequence[int], next_offset: int) -> None:
        """Add one pull's messages in rising order; `next_offset` also covers what was filtered."""
        assert not self._dropped, "a dropped window takes no messages"
        if offsets:
            assert offsets[0] >= self._next_offset, (offsets[0], self._next_offset)
            assert offsets[-1] < next_offset, (offsets[-1], next_offset)
            self._order.extend(offsets)
            self._sizes.update(zip(offsets, sizes, strict=True))
            self._size_bytes += sum(sizes)
        self.skip_to(next_offset)

    def skip_to(self, next_offset: int) -> None:
        """Nothing below `next_offset` is still to come."""
        assert next_offset >= self._next_offset, (next_offset, self._next_offset)
        self._next_offset = next_offset

    def finish(self, offsets: Iterable[int]) -> None:
        """These messages are done with; unknown offsets (of a dropped window) change nothing."""
        sizes = self._sizes
        released_bytes = 0
        for offset in offsets:
            released_bytes += sizes.pop(offset, 0)
        self._size_bytes -= released_bytes
        order = self._order
        while order and order[0] not in sizes:
            order.popleft()

    def holds(self, offset: int) -> bool:
        """Is this message here and unfinished?"""
        return offset in self._sizes

    def drop(self) -> int:
        """The queue is somebody else's from now on; returns the offset to commit a last time."""
        commit_offset = self.commit_offset
        self._dropped = True
        self._next_offset = commit_offset
        self._order.clear()
        self._sizes.clear()
        self._size_bytes = 0
        return commit_offset

    def exceeded(self, limits: WindowLimits) -> Limit | None:
        """Which limit is exceeded; None when pulling may go on (F199)."""
        if len(self._sizes) > limits.count_max:
            return Limit.COUNT
        if self._size_bytes > limits.size_bytes_max:
            return Limit.SIZE
        if self.span > limits.span_max:
            return Limit.SPAN
        return None

    def over(self, limits: WindowLimits) -> str:
        """The same in words; empty when pulling may go on."""
        match self.exceeded(limits):
            case Limit.COUNT:
                return f"{len(self._sizes)} messages cached, limit {limits.count_max}"
            case Limit.SIZE:
                return f"{self._size_bytes} bytes cached, limit {limits.size_bytes_max}"
            case Limit.SPAN:
                return f"offsets span {self.span}, limit {limits.span_max}"
            case None:
                return ""
