"""What was appended a moment ago and is not projected yet, still at hand.

Lives here: which pieces of the log need not be read again for their projection.
May not live here: projecting them (kourou.store.dispatch).

State: soft. Whatever is not here, or does not follow what was projected last, is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kourou.protocol.record_batch import RecordColumns, scan
from kourou.store.disk import Buffer

_PIECES_MAX = 1_024


class Piece(NamedTuple):
    """Records in one piece; nothing else lies between them and the log position `start`."""

    start: int
    records: RecordColumns


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
            self._pieces.append(Piece(start, records or scan(pieces[0][1])))

    def take(self) -> Iterator[Piece]:
        """All of them, each once."""
        pieces, self._pieces = self._pieces, []
        return iter(pieces)
