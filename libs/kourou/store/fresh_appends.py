"""What was appended a moment ago and is not projected yet, still at hand.

State: soft. Whatever is not here, or does not follow what was projected last, is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kourou.protocol.record_batch import RecordColumns, scan
from kourou.store.disk import Buffer

_PIECES_MAX = 1_024
_JOINED_BYTES_MAX = 1 << 20
"""So much is copied into one piece: a projection costs more than that copy."""


class Piece(NamedTuple):
    """Records in one piece; nothing else lies between them and the log position `start`.

    `end` is the position behind the last one.
    """

    start: int
    records: RecordColumns
    data: Buffer
    end: int


class FreshAppends:
    """Pieces in log order. One thread."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def note(
        self, start: int, pieces: Sequence[tuple[int, Buffer]], records: RecordColumns | None
    ) -> None:
        """These pieces are being written at the log's end, which was `start`.

        `records` are those of the one piece, where they are known as columns.
        """
        if len(pieces) == 1 and len(self._pieces) < _PIECES_MAX:
            position, data = pieces[0]
            self._pieces.append(Piece(start, records or scan(data), data, position + len(data)))

    def take(self) -> Iterator[Piece]:
        """All of them, each once; those that follow one another are joined to few."""
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
    """Pieces that follow one another as one."""
    if len(pieces) == 1:
        return pieces[0]
    data = b"".join([piece.data for piece in pieces])
    return Piece(pieces[0].start, scan(data), data, pieces[-1].end)
