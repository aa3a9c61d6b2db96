"""The cached, unfinished messages of one queue (RocketMQ `ProcessQueue`).

    committed          unfinished (3, 5, 6)          pulled up to
        |                 |                              |
    0 1 2 3 4 5 6 7 8     finished out of order: 4, 7   next_offset = 8

Invariants:

- `commit_offset` is the smallest unfinished offset, or `next_offset` if nothing is unfinished; so a
  crash may repeat messages and never skips one.
- `commit_offset` never decreases, because offsets are added in increasing order and only once.
- `count` and `size_bytes` cover the unfinished messages.
- After `drop()` nothing changes any more: the queue may belong to another consumer.

State: soft. It protects the committed offset at the broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The limits at which pulling of a queue pauses; a limit applies when its value is exceeded."""

    count_max: int = 1000
    size_bytes_max: int = 100 * 1024 * 1024
    span_max: int = 2000


class Limit(Enum):
    """The limit that a window exceeds."""

    COUNT = auto()
    SIZE = auto()
    SPAN = auto()


class Window:
    """One queue's unfinished messages. Not thread-safe: used on the client's I/O thread only."""

    __slots__ = ("_dropped", "_next_offset", "_order", "_size_bytes", "_sizes")

    def __init__(self, start_offset: int) -> None:
        self._order: deque[int] = deque()
        self._sizes: dict[int, int] = {}
        self._size_bytes = 0
        self._next_offset = start_offset
        self._dropped = False

    @property
    def next_offset(self) -> int:
        """The offset at which the next pull starts."""
        return self._next_offset

    @property
    def commit_offset(self) -> int:
        """The offset that the group may commit: everything below it is finished."""
        return self._order[0] if self._order else self._next_offset

    @property
    def count(self) -> int:
        """The number of unfinished messages."""
        return len(self._sizes)

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest unfinished offset; (-1, -1) if there is none."""
        return (min(self._sizes), max(self._sizes)) if self._sizes else (-1, -1)

    @property
    def size_bytes(self) -> int:
        """The stored size of the unfinished messages in bytes."""
        return self._size_bytes

    @property
    def span(self) -> int:
        """The distance between the smallest and the largest unfinished offset."""
        return self._order[-1] - self._order[0] if self._order else 0

    @property
    def dropped(self) -> bool:
        """Whether the queue was released; its messages may still be in handlers."""
        return self._dropped

    def put(self, offsets: Sequence[int], sizes: Sequence[int], next_offset: int) -> None:
        """Add one pull's messages in increasing order; `next_offset` also covers filtered ones."""
        assert not self._dropped, "a dropped window takes no messages"
        if offsets:
            assert offsets[0] >= self._next_offset, (offsets[0], self._next_offset)
            assert offsets[-1] < next_offset, (offsets[-1], next_offset)
            self._order.extend(offsets)
            self._sizes.update(zip(offsets, sizes, strict=True))
            self._size_bytes += sum(sizes)
        self.skip_to(next_offset)

    def skip_to(self, next_offset: int) -> None:
        """Advance to `next_offset`: no more messages below it will be added."""
        assert next_offset >= self._next_offset, (next_offset, self._next_offset)
        self._next_offset = next_offset

    def finish(self, offsets: Iterable[int]) -> None:
        """Finish these messages; unknown offsets (of a dropped window) have no effect."""
        sizes = self._sizes
        released_bytes = 0
        for offset in offsets:
            released_bytes += sizes.pop(offset, 0)
        self._size_bytes -= released_bytes
        order = self._order
        while order and order[0] not in sizes:
            order.popleft()

    def holds(self, offset: int) -> bool:
        """Return whether this message is cached and unfinished."""
        return offset in self._sizes

    def drop(self) -> int:
        """Release the queue; returns the last offset to commit."""
        commit_offset = self.commit_offset
        self._dropped = True
        self._next_offset = commit_offset
        self._order.clear()
        self._sizes.clear()
        self._size_bytes = 0
        return commit_offset

    def exceeded(self, limits: WindowLimits) -> Limit | None:
        """Return the limit that is exceeded, or None if pulling may continue."""
        if len(self._sizes) > limits.count_max:
            return Limit.COUNT
        if self._size_bytes > limits.size_bytes_max:
            return Limit.SIZE
        if self.span > limits.span_max:
            return Limit.SPAN
        return None

    def over(self, limits: WindowLimits) -> str:
        """Return a description of the exceeded limit; empty if pulling may continue."""
        match self.exceeded(limits):
            case Limit.COUNT:
                return f"{len(self._sizes)} messages cached, limit {limits.count_max}"
            case Limit.SIZE:
                return f"{self._size_bytes} bytes cached, limit {limits.size_bytes_max}"
            case Limit.SPAN:
                return f"offsets span {self.span}, limit {limits.span_max}"
            case None:
                return ""
