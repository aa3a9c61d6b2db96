"""Joining replicas, as their leader sees them: they do not count until they are admitted.

    heard     a replica reports that it is joining, with the number of its start
    sure      voting replicas, a majority with this leader, have acknowledged a later round: so no
              other leader had been elected at that time, with or without the joining replica
    told      each chunk tells it the end of this log at the time of its report
    joined    it acknowledges such a chunk without that number: it can vote, and has all its data

Acknowledgements of a joining replica keep chunks coming to it, and count for nothing else: no
commitment, no lease, no election. One from before its loss is recognized by its older round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import ChunkAck

if TYPE_CHECKING:
    from kourou.replication.raft.leader import Leader


@dataclass(slots=True)
class _Joiner:
    """`start` is its number; `end` the end of the log when it reported, before round `needed`."""

    start: int
    end: int
    needed: int
    told_in: int | None = None


class Admission:
    """The joining replicas in one leader's epoch."""

    __slots__ = ("_joiners", "_leader")

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._joiners: dict[str, _Joiner] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._joiners

    def hear(self, ack: ChunkAck) -> bool:
        """Handle an acknowledgement; False if it is from before the replica's loss."""
        known = self._joiners.get(ack.member)
        if ack.joining:
            if known is None or known.start != ack.joining:
                leader = self._leader
                end, needed = leader.member.log.end, leader.lease.round + 1
                self._joiners[ack.member] = _Joiner(ack.joining, end, needed)
            return True
        if known is None:
            return True
        if known.told_in is None or ack.round < known.told_in:
            return False
        del self._joiners[ack.member]
        return True

    def settle(self) -> None:
        """From here on, chunks admit each joining replica for which it is certain."""
        leader = self._leader
        for each in self._joiners.values():
            if each.told_in is None:
                answered = sum(
                    progress.round >= each.needed
                    for name, progress in leader.peers.items()
                    if name not in self._joiners
                )
                if answered + 1 >= leader.member.settings.majority:
                    each.told_in = leader.lease.round

    def word(self, name: str) -> tuple[int, int]:
        """The admission in a chunk: (number of its start, position); (0, 0) for none."""
        known = self._joiners.get(name)
        if known is None or known.told_in is None:
            return 0, 0
        return known.start, known.end
