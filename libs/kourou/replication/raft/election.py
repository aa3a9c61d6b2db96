"""Elections: the rules of voting, a replica's ballot, its campaign, and how it gets a vote.

A replica votes by these rules:

    refuse   a vote for an epoch that is over, or that went to another candidate
    refuse   while a leader is heard (or leads here): the candidate is isolated, not needed
    refuse   while it is joining: it has no vote (class Joining)
    refuse   a candidate whose log is behind: (last epoch, end) below one's own
    grant    otherwise

Unflushed data of the voter's own log counts in the comparison; that only makes it more selective.
The second rule also applies after a start, for one election timeout, because a restarted replica
does not remember when it last heard a leader. It does not apply to a transfer that the leader
itself has requested (leader.LeaderLease).

A pre-candidate asks whether it would win, then a candidate asks for votes. A pre-vote follows the
same rules and changes nothing, so that an isolated replica does not disrupt the others with its
high epoch. Pre-votes are a separate kind of reply and never count as votes. A candidate enters a
new epoch and votes for itself; its vote counts, and its requests are sent, once the ballot is on
disk.

A request or a reply may be lost, so replicas that have not answered are asked again at every
heartbeat interval until the campaign is over. Later replies do not count: a voter may have lost its
disk, and voted again since (class Joining).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kourou.model.limits import HELD_MESSAGES_MAX
from kourou.protocol.messages.replication import AskVote, LogChunk, Vote
from kourou.replication.epochs import Epochs
from kourou.replication.raft.effects import Effect, RaftRole, SaveVote, Send
from kourou.replication.raft.role import RoleBehavior, TransitionCause

if TYPE_CHECKING:
    from kourou.replication.raft.node import RaftNode


class Ballot:
    """`voted_for` is "" while this replica has not voted in `epoch`.

    A replica that forgets its vote may vote twice, and then one epoch may have two leaders. So no
    message is sent while a vote is being written: it is held until everything is written.

    The vote is stored with the replica's voting status: `joining` while it may not vote, because
    its earlier promises may be lost (class Joining); `lived` once others may rely on bytes that it
    has.
    """

    __slots__ = ("_held", "_unsaved", "epoch", "joining", "lived", "voted_for")

    def __init__(
        self, epoch: int, voted_for: str, *, joining: bool = False, lived: bool = True
    ) -> None:
        self.epoch = epoch
        self.voted_for = voted_for
        self.joining = joining
        self.lived = lived
        self._unsaved = 0
        self._held: list[Send] = []

    @property
    def saved(self) -> bool:
        """True if all of this is on disk."""
        return self._unsaved == 0

    def write(self, epoch: int, voted_for: str) -> SaveVote:
        """Enter `epoch` (never a lower one) with this vote, which is final within the epoch."""
        assert epoch >= self.epoch, f"epoch {epoch} after {self.epoch}"
        if epoch == self.epoch:
            assert self.voted_for in {"", voted_for}, f"two votes in epoch {epoch}"
        self.epoch = epoch
        self.voted_for = voted_for
        return self._write()

    def joins(self, epoch: int, voted_for: str, *, lived: bool) -> SaveVote:
        """From now on this replica votes, but not in `epoch`, where it may have voted before its
        loss.
        """
        self.joining, self.lived = False, lived
        return self.write(epoch, voted_for)

    def lives(self) -> SaveVote:
        """Others may rely on this replica's data once this is on disk."""
        self.lived = True
        return self._write()

    def lives_no_more(self) -> SaveVote:
        """The whole, never committed log is removed: no other replica may rely on it any more."""
        self.lived = False
        return self._write()

    def _write(self) -> SaveVote:
        self._unsaved += 1
        return SaveVote(self.epoch, self.voted_for, self.joining, self.lived)

    def send(self, message: Send, out: list[Effect]) -> None:
        """Send the message, or hold it while the vote is being written."""
        if self.saved:
            out.append(message)
        elif len(self._held) < HELD_MESSAGES_MAX:
            self._held.append(message)

    def vote_saved(self, out: list[Effect]) -> bool:
        """The oldest write is done; True if it was the last one, and held messages are sent."""
        assert self._unsaved > 0, "a vote was saved that was never written"
        self._unsaved -= 1
        if self._unsaved:
            return False
        out += self._held
        self._held.clear()
        return True


def is_up_to_date(ask: AskVote, epochs: Epochs) -> bool:
    """True if the candidate has everything that a log with these epochs may have committed."""
    return (ask.last_epoch, ask.end) >= (epochs.last, epochs.end)


def hears_a_leader(node: RaftNode, ask: AskVote) -> bool:
    """True if there is a leader that the candidate would disrupt."""
    if ask.transfer and ask.epoch == node.ballot.epoch + 1 and ask.transfer >= node.round_heard:
        return False
    return node.hears_a_leader


def may_judge(node: RaftNode, ask: AskVote) -> bool:
    """True if this replica evaluates the candidate at all."""
    return node.joining is None and ask.epoch >= node.ballot.epoch and not hears_a_leader(node, ask)


def may_vote(node: RaftNode, ask: AskVote) -> bool:
    """True if this replica's vote in `ask.epoch` is free, and the candidate may have it."""
    ballot = node.ballot
    if ask.pre:
        return ask.epoch > ballot.epoch and is_up_to_date(ask, node.log.epochs)
    if ask.epoch != ballot.epoch or ballot.voted_for not in {"", ask.candidate}:
        return False
    return is_up_to_date(ask, node.log.epochs)


class _Campaign(RoleBehavior):
    """The common part of both."""

    __slots__ = ("_answered", "_over_ms", "_voters")

    pre: ClassVar[bool]

    def __init__(self, node: RaftNode) -> None:
        super().__init__(node)
        self._voters: set[str] = set()
        self._answered: set[str] = set()
        self._over_ms = 0

    def begin(self) -> None:
        self._over_ms = self.node.now + self.node.election_timeout_ms()

    def tick(self) -> None:
        """Ask again; when the time is over without a majority, start a new pre-vote."""
        if self._is_over():
            self.node.become(TransitionCause.TIMEOUT)
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
        return self.node.now >= self._over_ms and len(self.node.settings.members) > 1

    def _epoch(self) -> int:
        """The epoch that it wants to lead."""
        raise AssertionError(self)

    def _won(self) -> None:
        raise AssertionError(self)

    def _ask(self) -> None:
        node = self.node
        self.deadline_ms = min(self._over_ms, node.now + node.settings.heartbeat_ms)
        for peer in node.settings.peers:
            if peer in self._answered:
                continue
            node.send(
                peer,
                AskVote(
                    group=node.settings.group,
                    epoch=self._epoch(),
                    candidate=node.settings.member,
                    last_epoch=node.log.epochs.last,
                    end=node.log.end,
                    pre=self.pre,
                    transfer=node.transfer,
                ),
            )

    def _count(self, name: str) -> bool:
        """Add a vote; True for a majority."""
        self._answered.add(name)
        self._voters.add(name)
        return len(self._voters) >= self.node.settings.majority


class PreCandidate(_Campaign):
    """Asks whether it would win."""

    role = RaftRole.PRE_CANDIDATE
    pre = True
    __slots__ = ()

    def begin(self) -> None:
        """Ask; nothing of this replica changes."""
        super().begin()
        self.node.leader = ""
        self.node.transfer = 0
        self._ask()
        if self._count(self.node.settings.member):
            self._won()

    def _epoch(self) -> int:
        return self.node.epoch + 1

    def _won(self) -> None:
        self.node.become(TransitionCause.WOULD_WIN)


class Candidate(_Campaign):
    """Asks for votes."""

    role = RaftRole.CANDIDATE
    pre = False
    __slots__ = ()

    def begin(self) -> None:
        """Enter a new epoch with a vote for itself."""
        super().begin()
        node = self.node
        transfer = node.transfer
        node.enter(node.epoch + 1, node.settings.member)
        node.transfer = transfer
        self._ask()

    def vote_saved(self) -> None:
        """Its own vote counts now."""
        if not self._is_over() and self._count(self.node.settings.member):
            self._won()

    def _epoch(self) -> int:
        return self.node.epoch

    def _won(self) -> None:
        self.node.become(TransitionCause.WON)


HIGHEST_START = (1 << 62) - 1
NOWHERE = -1


def must_join(*, found: bool, joining: bool, lived: bool, end: int, born_anyway: bool) -> bool:
    """True if a replica must join: `found`: whether there was a vote file; `end`: its log's.

    `joining` and `lived` are the values in the vote file.
    """
    return not born_anyway and (not found or joining or (lived and end == 0))


class Joining:
    """One start of a joining replica.

    A replica that has lost its disk has forgotten its vote and what it acknowledged as flushed. Its
    vote could then elect a leader without messages that were acknowledged to producers. So a
    replica without a vote file, or with an empty log and a vote file that has `lived`, is
    *joining*: it does not vote, does not stand, and counts for no majority, until one of two
    conditions holds.

        admitted   a leader that a majority *without this replica* has acknowledged since reports
                   the end that its log had then; this replica has all of that, committed, on
                   disk. And twice the longest election timeout is over, so that no candidate
                   counts an earlier vote (see above).
        born       every other replica reports, to this start of this replica, that its own
                   `lived` is false: no other may rely on any byte it has. Then nothing was ever
                   committed, and the group is a new one. This replica enters the highest epoch
                   that any of them knows, and does not vote in that one.

    Why that is sufficient: a commit or an election with this replica's help also involved all but
    one of a majority of the others. Any majority of the others shares a replica with those, which
    refuses an older leader and has informed a newer one. This holds while fewer replicas have lost
    their disks than would prevent a majority; otherwise an operator must declare that the group
    starts again (`born_anyway`).

    The joining status is written to disk before the replica accepts any byte, because a log with
    some data is indistinguishable from any other.
    """

    __slots__ = ("_epochs", "_node", "_until_ms", "start")

    def __init__(self, node: RaftNode) -> None:
        self._node = node
        #: The number of this start: replies to an earlier start do not count.
        self.start = node.chance.randint(1, HIGHEST_START)
        self._until_ms = node.now + 2 * node.settings.election_timeout_ms_max
        self._epochs: dict[str, int] = {}  # of those with `lived` false

    def ask(self) -> None:
        """Ask the replicas that have not yet reported `lived` as false."""
        node = self._node
        for peer in self.awaited():
            node.send(
                peer,
                AskVote(
                    group=node.settings.group,
                    epoch=node.epoch,
                    candidate=node.settings.member,
                    last_epoch=node.log.epochs.last,
                    end=node.log.end,
                    pre=True,
                    joining=self.start,
                ),
            )

    @property
    def is_marked(self) -> bool:
        """True if the joining status is on disk."""
        return self._node.ballot.saved

    def awaited(self) -> list[str]:
        """The replicas whose report is missing for a new group."""
        return [name for name in self._node.settings.peers if name not in self._epochs]

    def reported(self, vote: Vote) -> None:
        """Handle another replica's report whether others may rely on its data."""
        if vote.joining != self.start:
            return
        if vote.lived:
            self._epochs.pop(vote.member, None)
            return
        self._epochs[vote.member] = vote.epoch
        if not self.awaited():
            self._node.joined(max(self._epochs.values()))

    def check(self, said: LogChunk) -> None:
        """Handle the leader's report `said` of its log's end after this start."""
        node = self._node
        admitted = said.joining == self.start and node.log.confirmed >= said.joining_at
        if admitted and node.now >= self._until_ms:
            node.joined(node.epoch)
