"""What was appended a moment ago and is not projected yet, still at hand.

Lives here: which pieces of the log need not be read again for their projection.
May not live here: projecting them (kourou.store.dispatch).

State: soft. Whatever is not here, or does not follow what was projected last, is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kourou.protocol.record_batch import RecordColumns
from kourou.store.disk import Buffer

_PIECES_MAX = 1_024
_SPLIT_MAX = 6
"""So many records are projected one by one, and no more: numpy has fixed costs."""


class Piece(NamedTuple):
    """Records in one piece at `position`; nothing else lies between them and `start`.

    `records` None: they are not known as columns; then there is one.
    """

    start: int
    position: int
    data: Buffer
    records: RecordColumns | None


class FreshAppends:
    """Pieces in log order. One thread."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def note(
        self, start: int, pieces: Sequence[tuple[int, Buffer]], records: RecordColumns | None
    ) -> None:
        """These pieces are being written at the log's end, which was `start`."""
        if len(pieces) != 1 or len(self._pieces) >= _PIECES_MAX:
            return
        position, data = pieces[0]
        if records is not None or int.from_bytes(data[:4], "big") == len(data):
            self._pieces.append(Piece(start, position, data, records))
        else:
            self._pieces += _one_by_one(start, position, data)

    def take(self) -> Iterator[Piece]:
        """All of them, each once."""
        pieces, self._pieces = self._pieces, []
        return iter(pieces)


def _one_by_one(start: int, position: int, data: Buffer) -> list[Piece]:
    """The records of a piece that has a few; none if it has more, or they do not tile it."""
    view, at = memoryview(data), 0
    found: list[Piece] = []
    while at < len(view):
        end = at + int.from_bytes(view[at : at + 4], "big")
        if not at < end <= len(view) or len(found) == _SPLIT_MAX:
            return []
        found.append(Piece(start, position + at, view[at:end], None))
        start, at = position + end, end
    return found
