"""A member without a vote: how it gets one, so that what it may have forgotten does no harm.

A member that has lost its disk has forgotten for whom it voted and what it said to be on disk. Its
vote could then elect a leader without messages that senders were promised. So who finds no vote
file, or an empty log beside a vote file that knows of bytes, is *joining*: it votes for nobody,
does not stand, and counts for no majority, until one of two things is sure.

    admitted   a leader that a majority *without this member* has answered since says where its log
               ended then; this member has all of that, confirmed, on disk. And twice the longest
               election is over: no candidate counts a vote of before (campaign.py).
    born       every other member says, to this start of this member, that nobody may count on any
               byte it has: then nothing was ever confirmed, and the group is a new one. It enters
               the highest epoch that anybody knows, and does not vote in that one.

Why that is enough: what was confirmed, or elected, with this member's help was so with all but one
of a majority of the others. Any majority of the others shares a member with those, which refuses an
older leader and has told a newer one. This holds while fewer members have lost their disks than
make a majority impossible; else an operator must say that the group begins anew (`born_anyway`).

That it is joining is written down before it takes a byte: a log that has some looks like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import AskVote, LogChunk, Vote

if TYPE_CHECKING:
    from kourou.replication.raft.member import Member

HIGHEST_START = (1 << 62) - 1
NOWHERE = -1


def must_join(*, found: bool, joining: bool, lived: bool, end: int, born_anyway: bool) -> bool:
    """Whether a member has to join: `found` says whether there was a vote file, `end` of its log.

    `joining` and `lived` are what stands in it.
    """
    return not born_anyway and (not found or joining or (lived and end == 0))


class Joining:
    """One start of a member that is joining."""

    __slots__ = ("_epochs", "_member", "_until_ms", "start")

    def __init__(self, member: Member) -> None:
        self._member = member
        #: The number of this start: what others say to an earlier one does not count.
        self.start = member.chance.randint(1, HIGHEST_START)
        self._until_ms = member.now + 2 * member.settings.election_timeout_ms_max
        self._epochs: dict[str, int] = {}  # of those on whom nobody counts

    def ask(self) -> None:
        """Ask who has not said yet that nobody counts on it."""
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
        """Whether the next start would know."""
        return self._member.ballot.saved

    def awaited(self) -> list[str]:
        """Whose word is missing for a new group."""
        return [name for name in self._member.settings.peers if name not in self._epochs]

    def told(self, vote: Vote) -> None:
        """Another member says whether anybody may count on it."""
        if vote.joining != self.start:
            return
        if vote.lived:
            self._epochs.pop(vote.member, None)
            return
        self._epochs[vote.member] = vote.epoch
        if not self.awaited():
            self._member.joined(max(self._epochs.values()))

    def check(self, said: LogChunk) -> None:
        """The leader has said where its log ended after this start, in `said`."""
        member = self._member
        admitted = said.joining == self.start and member.log.confirmed >= said.joining_at
        if admitted and member.now >= self._until_ms:
            member.joined(member.epoch)
