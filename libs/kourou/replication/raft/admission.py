"""Members that have no vote yet, as their leader sees them: who does not count, and until when.

    heard     a member says that it is joining, and the number of its start
    sure      members with a vote, a majority with this leader, have answered a later round: so no
              other leader had been elected when it was heard, with its help or without it
    told      each chunk tells it where this log ended when it was heard
    joined    it answers such a chunk without that number: it has a vote, and all that it ever had

What a joining member answers keeps its bytes coming, and counts for nothing else: no confirmation,
no lease, no election. An answer of before its loss is known by its older round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import ChunkAck

if TYPE_CHECKING:
    from kourou.replication.raft.leader import Leader


@dataclass(slots=True)
class _Joiner:
    """`start` is its number; `end` where the log ended when it was heard, before round `needed`."""

    start: int
    end: int
    needed: int
    told_in: int | None = None


class Admission:
    """The joining members of one leader's epoch."""

    __slots__ = ("_joiners", "_leader")

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._joiners: dict[str, _Joiner] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._joiners

    def hear(self, ack: ChunkAck) -> bool:
        """Learn from an answer; False if it is one of before its member's loss."""
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
        """Whoever may be told by now is told in what is sent from here on."""
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
        """What a chunk tells it: (number of its start, position); (0, 0) for nothing."""
        known = self._joiners.get(name)
        if known is None or known.told_in is None:
            return 0, 0
        return known.start, known.end
