"""Pre-candidates and candidates: a replica that asks whether it would win, then asks for votes.

A request or a reply may be lost, so replicas that have not answered are asked again at every
heartbeat interval until the campaign is over. Later replies do not count: a voter may have lost its
disk, and voted again since (joining.py).

A pre-candidate changes nothing anywhere. Pre-votes are a separate kind of reply and never count as
votes. A candidate enters a new epoch and votes for itself; its vote counts, and its requests are
sent, once the ballot is on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kourou.protocol.messages.replication import AskVote, Vote
from kourou.replication.raft.effects import Role
from kourou.replication.raft.part import Cause, Part

if TYPE_CHECKING:
    from kourou.replication.raft.member import Member


class _Campaign(Part):
    """The common part of both."""

    __slots__ = ("_answered", "_over_ms", "_voters")

    pre: ClassVar[bool]

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self._voters: set[str] = set()
        self._answered: set[str] = set()
        self._over_ms = 0

    def begin(self) -> None:
        self._over_ms = self.member.now + self.member.election_timeout_ms()

    def tick(self) -> None:
        """Ask again; when the time is over without a majority, start a new pre-vote."""
        if self._is_over():
            self.member.become(Cause.TIMEOUT)
        else:
            self._ask()

    def vote(self, vote: Vote) -> None:
        """Count replies that grant the requested epoch."""
        if vote.pre != self.pre or self._is_over():
            return
        if not vote.granted:
            self._answered.add(vote.member)
        elif vote.epoch == self._epoch() and self._count(vote.member):
            self._won()

    def _is_over(self) -> bool:
        return self.member.now >= self._over_ms and len(self.member.settings.members) > 1

    def _epoch(self) -> int:
        """The epoch that it wants to lead."""
        raise AssertionError(self)

    def _won(self) -> None:
        raise AssertionError(self)

    def _ask(self) -> None:
        member = self.member
        self.deadline_ms = min(self._over_ms, member.now + member.settings.heartbeat_ms)
        for peer in member.settings.peers:
            if peer in self._answered:
                continue
            member.send(
                peer,
                AskVote(
                    group=member.settings.group,
                    epoch=self._epoch(),
                    candidate=member.settings.member,
                    last_epoch=member.log.epochs.last,
                    end=member.log.end,
                    pre=self.pre,
                    transfer=member.transfer,
                ),
            )

    def _count(self, name: str) -> bool:
        """Add a vote; True for a majority."""
        self._answered.add(name)
        self._voters.add(name)
        return len(self._voters) >= self.member.settings.majority


class PreCandidate(_Campaign):
    """Asks whether it would win."""

    role = Role.PRE_CANDIDATE
    pre = True
    __slots__ = ()

    def begin(self) -> None:
        """Ask; nothing of this replica changes."""
        super().begin()
        self.member.leader = ""
        self.member.transfer = 0
        self._ask()
        if self._count(self.member.settings.member):
            self._won()

    def _epoch(self) -> int:
        return self.member.epoch + 1

    def _won(self) -> None:
        self.member.become(Cause.WOULD_WIN)


class Candidate(_Campaign):
    """Asks for votes."""

    role = Role.CANDIDATE
    pre = False
    __slots__ = ()

    def begin(self) -> None:
        """Enter a new epoch with a vote for itself."""
        super().begin()
        member = self.member
        transfer = member.transfer
        member.enter(member.epoch + 1, member.settings.member)
        member.transfer = transfer
        self._ask()

    def vote_saved(self) -> None:
        """Its own vote counts now."""
        if not self._is_over() and self._count(self.member.settings.member):
            self._won()

    def _epoch(self) -> int:
        return self.member.epoch

    def _won(self) -> None:
        self.member.become(Cause.WON)
