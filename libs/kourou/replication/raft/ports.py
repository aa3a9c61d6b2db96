"""What a replica reads while it decides: random numbers, and log bytes to send."""

from __future__ import annotations

from typing import Protocol


class Chance(Protocol):
    """A source of random numbers, seeded by the caller (`random.Random`)."""

    def randint(self, a: int, b: int) -> int:
        """An integer from `a` to `b`, both included."""
        ...


class Piece(Protocol):
    """Bytes of the log that are sent together, as `kourou.store.replica.chunks.StoredChunk`."""

    @property
    def data(self) -> bytes | memoryview:
        """Whole records and fillers, as they are in the log."""
        ...

    @property
    def end(self) -> int:
        """The position after them: beyond the last byte if a filler closes a segment."""
        ...

    @property
    def damage(self) -> str:
        """Why these bytes may not be sent; "" for good ones."""
        ...


class PieceSource(Protocol):
    """The log as a leader reads it."""

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Piece:
        """Whole records from `position`, a record boundary, up to `limit`, at most `max_bytes`.

        One record is returned whatever its size. An empty piece has `position` as its end.
        """
        ...
