"""Joining: how a replica without a vote gets one, so that anything it forgot does no harm.

A replica that has lost its disk has forgotten its vote and what it acknowledged as flushed. Its
vote could then elect a leader without messages that were acknowledged to producers. So a replica
without a vote file, or with an empty log and a vote file that has `lived`, is *joining*: it does
not vote, does not stand, and counts for no majority, until one of two conditions holds.

    admitted   a leader that a majority *without this replica* has acknowledged since reports the
               end that its log had then; this replica has all of that, committed, on disk. And
               twice the longest election timeout is over, so that no candidate counts an earlier
               vote (campaign.py).
    born       every other replica reports, to this start of this replica, that its own `lived` is
               false: no other may rely on any byte it has. Then nothing was ever committed, and
               the group is a new one. This replica enters the highest epoch that any of them
               knows, and does not vote in that one.

Why that is sufficient: a commit or an election with this replica's help also involved all but one
of a majority of the others. Any majority of the others shares a replica with those, which refuses
an older leader and has informed a newer one. This holds while fewer replicas have lost their disks
than would prevent a majority; otherwise an operator must declare that the group starts again
(`born_anyway`).

The joining status is written to disk before the replica accepts any byte, because a log with some
data is indistinguishable from any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import AskVote, LogChunk, Vote

if TYPE_CHECKING:
    from kourou.replication.raft.member import Member

HIGHEST_START = (1 << 62) - 1
NOWHERE = -1


def must_join(*, found: bool, joining: bool, lived: bool, end: int, born_anyway: bool) -> bool:
    """True if a replica must join: `found`: whether there was a vote file; `end`: its log's.

    `joining` and `lived` are the values in the vote file.
    """
    return not born_anyway and (not found or joining or (lived and end == 0))


class Joining:
    """One start of a joining replica."""

    __slots__ = ("_epochs", "_member", "_until_ms", "start")

    def __init__(self, member: Member) -> None:
        self._member = member
        #: The number of this start: replies to an earlier start do not count.
        self.start = member.chance.randint(1, HIGHEST_START)
        self._until_ms = member.now + 2 * member.settings.election_timeout_ms_max
        self._epochs: dict[str, int] = {}  # of those with `lived` false

    def ask(self) -> None:
        """Ask the replicas that have not yet reported `lived` as false."""
        member = self._member
        for peer in self.awaited():
            member.send(
                peer,
                AskVote(
                    group=member.settings.group,
                    epoch=member.epoch,
                    candidate=member.settings.member,
                    last_epoch=member.log.epochs.last,
                    end=member.log.end,
                    pre=True,
                    joining=self.start,
                ),
            )

    @property
    def is_marked(self) -> bool:
        """True if the joining status is on disk."""
        return self._member.ballot.saved

    def awaited(self) -> list[str]:
        """The replicas whose report is missing for a new group."""
        return [name for name in self._member.settings.peers if name not in self._epochs]

    def told(self, vote: Vote) -> None:
        """Handle another replica's report whether others may rely on its data."""
        if vote.joining != self.start:
            return
        if vote.lived:
            self._epochs.pop(vote.member, None)
            return
        self._epochs[vote.member] = vote.epoch
        if not self.awaited():
            self._member.joined(max(self._epochs.values()))

    def check(self, said: LogChunk) -> None:
        """Handle the leader's report `said` of its log's end after this start."""
        member = self._member
        admitted = said.joining == self.start and member.log.confirmed >= said.joining_at
        if admitted and member.now >= self._until_ms:
            member.joined(member.epoch)
