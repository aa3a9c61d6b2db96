"""The log of a Raft group's member, as its core reads it while it leads.

Lives here: the answers to kourou.replication.raft.ports.PieceSource.
May not live here: what is shipped to whom (kourou.replication.raft.leader), what a piece is
(kourou.store.chunks), which damage all members have (kourou.serving.repairs).

State: none.
"""

from __future__ import annotations

from collections.abc import Callable

from kourou.serving.repairs import Repairs
from kourou.serving.upkeep import Upkeep
from kourou.store.chunks import Chunk


class RaftSource:
    """`upkeep` has the store that is open; whoever leads has one. Used on the running loop."""

    def __init__(self, upkeep: Callable[[], Upkeep | None], repairs: Repairs) -> None:
        self._upkeep = upkeep
        self._repairs = repairs

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Chunk:
        """Whole records of the log; see kourou.store.copies."""
        upkeep = self._upkeep()
        assert upkeep is not None
        return upkeep.store.read_chunk(position, limit, max_bytes)

    def lost_end(self, position: int) -> int:
        """Up to where no member can read what is damaged from `position` on."""
        return self._repairs.lost_end(position)
