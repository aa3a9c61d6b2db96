"""What a member asks of the world while it decides: chance, and bytes to ship."""

from __future__ import annotations

from typing import Protocol


class Chance(Protocol):
    """A source of random numbers, seeded by whoever passes it in (`random.Random`)."""

    def randint(self, a: int, b: int) -> int:
        """An integer from `a` to `b`, both included."""
        ...


class Piece(Protocol):
    """Bytes of the log that are sent together; `kourou.store.chunks.Chunk` is one."""

    @property
    def data(self) -> bytes | memoryview:
        """Whole records and blanks, as they lie in the log."""
        ...

    @property
    def end(self) -> int:
        """The position after them: beyond the last byte, where a blank closes a segment."""
        ...

    @property
    def damage(self) -> str:
        """Why these bytes may not be shipped; "" for good ones."""
        ...


class PieceSource(Protocol):
    """The log as a leader reads it."""

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Piece:
        """Whole records from `position`, where one begins, up to `limit`, at most `max_bytes`.

        One record is returned whatever its size. An empty piece has `position` as its end.
        """
        ...
