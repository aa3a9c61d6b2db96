"""Records appended a moment ago and not projected yet, kept in memory.

State: soft. Records that are not here, or do not directly follow what was projected last, are read
from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kourou.protocol.record.columns import RecordColumns, scan
from kourou.store.disk import Buffer

_PIECES_MAX = 1_024
_JOINED_BYTES_MAX = 1 << 20
"""Up to this size pieces are copied into one: the copy is cheaper than separate projections."""


class Piece(NamedTuple):
    """Records in one piece, with nothing else between the log position `start` and them.

    `end` is the position after the last one.
    """

    start: int
    records: RecordColumns
    data: Buffer
    end: int


class FreshAppends:
    """Pieces in log order. Used by one thread."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def note(
        self, start: int, pieces: Sequence[tuple[int, Buffer]], records: RecordColumns | None
    ) -> None:
        """These pieces are being written at the log's end, which was `start`.

        `records`: the columns of the single piece, if they are known.
        """
        if len(pieces) == 1 and len(self._pieces) < _PIECES_MAX:
            position, data = pieces[0]
            self._pieces.append(Piece(start, records or scan(data), data, position + len(data)))

    def take(self) -> Iterator[Piece]:
        """Remove and yield all pieces; adjacent ones are joined."""
        pieces, self._pieces = self._pieces, []
        return _in_few(pieces)


def _in_few(pieces: Sequence[Piece]) -> Iterator[Piece]:
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        length = len(piece.data)
        if group and (piece.start != group[-1].end or size + length > _JOINED_BYTES_MAX):
            yield _joined(group)
            group, size = [], 0
        group.append(piece)
        size += length
    if group:
        yield _joined(group)


def _joined(pieces: Sequence[Piece]) -> Piece:
    """Join adjacent pieces into one."""
    if len(pieces) == 1:
        return pieces[0]
    data = b"".join([piece.data for piece in pieces])
    return Piece(pieces[0].start, scan(data), data, pieces[-1].end)
