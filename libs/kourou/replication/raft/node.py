"""One replica of a Raft group, without I/O: inputs go in, effects come out.

    effects = node.handle(now_ms, inputs)        monotonic time; call it at `wake_at_ms` at least
    node.may_acknowledge(now_ms)                 called again right before every reply

The log is the commit log: its index is the byte position, its term the epoch. Each epoch opens with
a control record of its leader, which is Raft's no-op. Positions below `confirmed` are committed: a
majority has flushed them, and they include a record of the epoch of the leader that counted them.

    role           cause                                      role
    follower       no leader heard for a while                pre-candidate
    follower       the leader asks it to stand                candidate
    pre-candidate  a majority would vote                      candidate
    pre-candidate  no majority heard for a while              pre-candidate
    candidate      a majority voted                           leader
    candidate      no majority heard for a while              pre-candidate
    leader         no majority heard for a while              follower
    all these      a higher epoch                             follower
    candidates     a leader of their epoch                    follower
    any            the disk failed, or committed data would   stopped
                   be truncated

`TRANSITIONS` is this table; only `become` changes the role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou.model.limits import (
    CATCH_UP_BYTES_MIN,
    CHUNK_BYTES_MAX,
    CHUNK_WINDOW_BYTES_MAX,
    FETCH_BYTES_MAX,
    MEMBERS_MAX,
)
from kourou.protocol.messages.replication import AskVote, ChunkAck, LogChunk, StandNow, Vote
from kourou.replication.epochs import Epochs
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import Effect, FlushLog, Halt, RaftRole, RoleChanged, Send
from kourou.replication.raft.election import (
    Ballot,
    Candidate,
    Joining,
    PreCandidate,
    may_judge,
    may_vote,
)
from kourou.replication.raft.follower import OwnLog, RaftFollower
from kourou.replication.raft.inputs import Buffer, Chance, Input, PieceSource
from kourou.replication.raft.leader import RaftLeader
from kourou.replication.raft.role import RoleBehavior, Stopped, TransitionCause


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Times in monotonic milliseconds, sizes in bytes.

    A replica that hears no leader stands for election after a random time between
    `election_timeout_ms_min` and `_max`; heartbeats are sent several times within the minimum.
    `lease_ms` is how long a leader relies on a majority's last acknowledgement, counted from the
    start of its round: less than the minimum election timeout by as much as two clocks may drift
    apart in it. `address` is where clients reach this replica; it is published while it leads.
    `round_ms` is the minimum duration of a round.
    """

    group: str
    member: str
    members: tuple[str, ...]
    address: str = ""
    heartbeat_ms: int = 150
    election_timeout_ms_min: int = 750
    election_timeout_ms_max: int = 1_500
    lease_ms: int = 675
    round_ms: int = 15
    spread_ms: int = 10
    chunk_bytes: int = CHUNK_BYTES_MAX
    window_bytes: int = CHUNK_WINDOW_BYTES_MAX
    catch_up_bytes: int = CATCH_UP_BYTES_MIN
    fetch_bytes: int = FETCH_BYTES_MAX
    fetch_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        assert self.member in self.members, f"{self.member} is not of {self.members}"
        assert len(set(self.members)) == len(self.members) <= MEMBERS_MAX
        assert self.lease_ms < self.election_timeout_ms_min <= self.election_timeout_ms_max
        assert self.round_ms <= self.heartbeat_ms < self.lease_ms

    @property
    def peers(self) -> tuple[str, ...]:
        """All replicas except this one."""
        return tuple(name for name in self.members if name != self.member)

    @property
    def majority(self) -> int:
        """The number of replicas in a majority: any two majorities share one."""
        return len(self.members) // 2 + 1


TRANSITIONS: dict[tuple[RaftRole, TransitionCause], type[RoleBehavior]] = {
    (RaftRole.FOLLOWER, TransitionCause.TIMEOUT): PreCandidate,
    (RaftRole.FOLLOWER, TransitionCause.STAND_NOW): Candidate,
    (RaftRole.PRE_CANDIDATE, TransitionCause.WOULD_WIN): Candidate,
    (RaftRole.PRE_CANDIDATE, TransitionCause.TIMEOUT): PreCandidate,
    (RaftRole.CANDIDATE, TransitionCause.WON): RaftLeader,
    (RaftRole.CANDIDATE, TransitionCause.TIMEOUT): PreCandidate,
    (RaftRole.LEADER, TransitionCause.TIMEOUT): RaftFollower,
    **{
        (role, TransitionCause.HIGHER_EPOCH): RaftFollower
        for role in RaftRole
        if role is not RaftRole.STOPPED
    },
    (RaftRole.PRE_CANDIDATE, TransitionCause.LEADER_HEARD): RaftFollower,
    (RaftRole.CANDIDATE, TransitionCause.LEADER_HEARD): RaftFollower,
    **{(role, TransitionCause.FAULT): Stopped for role in RaftRole},
}


@dataclass(frozen=True, slots=True)
class PersistentState:
    """The persistent state at startup.

    `epoch` and `voted_for` are from the vote file (0 and "" without one), `confirmed` is the
    position known to be committed (0 if none), `flushed` what was flushed since the store was
    opened: data found in files need not be on disk. `joining`: it has no vote, by `must_join`;
    `lived` is from the vote file, and False without one.
    """

    epochs: Epochs
    epoch: int = 0
    voted_for: str = ""
    first_position: int = 0
    confirmed: int = 0
    flushed: int = 0
    joining: bool = False
    lived: bool = True


class RaftNode:
    """One replica. Its owner calls `handle` and executes the returned effects, in order."""

    def __init__(
        self,
        settings: RaftSettings,
        boot: PersistentState,
        *,
        chance: Chance,
        source: PieceSource,
        now_ms: int,
    ) -> None:
        self.settings = settings
        self.chance = chance
        self.source = source
        self.now = now_ms
        newer = boot.epochs.newest > boot.epoch
        self.ballot = Ballot(
            boot.epochs.newest if newer else boot.epoch,
            "" if newer else boot.voted_for,
            joining=boot.joining and len(settings.members) > 1,
            lived=boot.lived,
        )
        #: How this replica gets a vote; None if it has one.
        self.joining = Joining(self) if self.ballot.joining else None
        self.log = OwnLog(
            boot.epochs.copy(),
            first_position=boot.first_position,
            flushed=boot.flushed,
            confirmed=boot.confirmed,
        )
        #: The leader of this epoch, "" while none is known.
        self.leader = ""
        #: When a leader was last heard; initially the start, because earlier messages are
        #: forgotten.
        self.heard_ms = now_ms
        #: The highest round received from the leader of this epoch.
        self.round_heard = 0
        #: The round of the StandNow that made this replica stand, 0 for none.
        self.transfer = 0
        self.out: list[Effect] = []
        self.behavior: RoleBehavior = RaftFollower(self)
        self._reported = RoleChanged(RaftRole.FOLLOWER, self.ballot.epoch, "")
        self.behavior.begin()
        if len(settings.members) == 1:
            self.behavior.deadline_ms = now_ms
        self._peers = frozenset(settings.peers)
        self._serial = 0
        self._unflushed = self.log.flushed < self.log.end
        self._unmarked = self.joining is not None

    # -- interface --------------------------------------------------------------------------------

    def handle(self, now_ms: int, inputs: Sequence[Input] = ()) -> list[Effect]:
        """Process inputs, in order; return effects, in order."""
        self.now = max(self.now, now_ms)
        self.out = []
        if self._unflushed:
            self._unflushed = False
            self.out.append(FlushLog())
        if self._unmarked:
            self._unmarked = False
            self.out.append(self.ballot.write(self.epoch, self.ballot.voted_for))
        for item in inputs:
            self._take(item)
        if self.now >= self.behavior.deadline_ms:
            self.behavior.tick()
        self.behavior.end_batch()
        self._report_role()
        return self.out

    @property
    def wake_at_ms(self) -> int:
        """When `handle` must be called even without inputs."""
        return self.behavior.deadline_ms

    def may_acknowledge(self, now_ms: int) -> bool:
        """True if this replica leads `epoch` and is certainly the only leader at this moment.

        A process that was stopped between an append and its reply finds out here that its lease has
        expired: then the outcome is unknown, whatever was committed.
        """
        return self.behavior.leads(max(self.now, now_ms))

    def may_begin(self, position: int, epoch: int) -> bool:
        """True if the log is still to restart, at `position`; then it does so from now on.

        The byte before it is of `epoch`. The log accepts nothing until LogRestarted.
        """
        behavior = self.behavior
        if (
            self.log.truncating
            or not isinstance(behavior, RaftFollower)
            or not behavior.wants_to_begin(position)
        ):
            return False
        self.log.begin(position, epoch)
        self.log.truncating = True
        return True

    @property
    def wants_to_begin(self) -> bool:
        """True if it waits for the state that preceded its leader's log."""
        return isinstance(self.behavior, RaftFollower) and self.behavior.wants_to_begin()

    @property
    def role(self) -> RaftRole:
        """The role of this replica."""
        return self.behavior.role

    @property
    def epoch(self) -> int:
        """The epoch this replica is in."""
        return self.ballot.epoch

    # -- inputs ----------------------------------------------------------------------------------

    def _take(self, item: Input) -> None:
        match item:
            case raft_inputs.MessageReceived(message, body):
                self._received(message, body)
            case raft_inputs.LogFlushed(end):
                if not self.log.truncating and self.log.flush(end):
                    self.behavior.flushed()
            case raft_inputs.Appended(epoch, end):
                self._appended(epoch, end)
            case raft_inputs.VoteSaved():
                if self.ballot.vote_saved(self.out):
                    self.behavior.vote_saved()
            case raft_inputs.LogTruncated() | raft_inputs.LogRestarted():
                if isinstance(item, raft_inputs.LogRestarted) and item.position > self.log.end:
                    self.log.begin(item.position, item.epoch)
                self.log.truncating = False
                self.behavior.log_changed()
            case raft_inputs.WriteFailed(position):
                if position < self.log.end:
                    self.log.epochs.truncate(position)
                    self.log.flushed = min(self.log.flushed, position)
                self.behavior.write_failed()
            case raft_inputs.Fetched():
                self.behavior.fetched(item)
            case raft_inputs.FetchFailed(serial):
                self.behavior.fetch_failed(serial)
            case raft_inputs.SegmentsDeleted(first_position):
                self.log.first_position = max(self.log.first_position, first_position)
            case raft_inputs.TransferLeadership(target):
                self.behavior.transfer_leadership(target)
            case raft_inputs.DiskFailed():
                self.become(TransitionCause.FAULT)

    def _appended(self, epoch: int, end: int) -> None:
        assert epoch == self.log.epochs.newest, f"appended in epoch {epoch} to {self.log.epochs!r}"
        self.log.epochs.extend(end)
        if epoch == self.ballot.epoch:
            self.behavior.appended(end)

    # -- messages --------------------------------------------------------------------------------

    def _received(self, message: raft_inputs.Message, body: Buffer) -> None:
        """Handle a message; drop those of other groups and unknown replicas (wrong addresses)."""
        if message.group != self.settings.group or self.role is RaftRole.STOPPED:
            return
        match message:
            case LogChunk():
                if message.leader in self._peers:
                    self._chunk(message, body)
            case ChunkAck():
                if message.member in self._peers and self._is_current(message.epoch):
                    self.behavior.ack(message)
            case AskVote():
                if message.candidate in self._peers:
                    self._asked(message)
            case Vote(joining=joining) if joining:
                if message.member in self._peers and self.joining is not None:
                    self.joining.reported(message)
            case Vote():
                if message.member in self._peers and (
                    message.granted or self._is_current(message.epoch)
                ):
                    self.behavior.vote(message)
            case StandNow():
                if message.epoch == self.epoch and message.leader == self.leader:
                    self.behavior.stand_now(message)

    def _is_current(self, epoch: int) -> bool:
        """True if a reply is of this replica's epoch; a higher epoch is entered."""
        if epoch > self.epoch:
            self.enter(epoch)
            return False
        return epoch == self.epoch or self.role is RaftRole.PRE_CANDIDATE

    def _chunk(self, chunk: LogChunk, body: Buffer) -> None:
        if (
            not chunk.previous_epoch <= chunk.data_epoch <= chunk.epoch
            or chunk.end < chunk.position
        ):
            return  # no correct replica sends this
        if chunk.epoch < self.epoch:
            # Rounds restart in each epoch, and the leader of that one may also lead this one.
            self.send(chunk.leader, self.refusal(0, chunk.position))
            return
        if chunk.epoch > self.epoch:
            self.enter(chunk.epoch)
        if self.role is RaftRole.LEADER or self.leader not in {"", chunk.leader}:
            self.halt(f"{chunk.leader} leads epoch {chunk.epoch} as {self.leader} does")
            return
        self.leader = chunk.leader
        self.heard_ms = self.now
        self.round_heard = max(self.round_heard, chunk.round)
        if self.role is not RaftRole.FOLLOWER:
            self.become(TransitionCause.LEADER_HEARD)
        self.behavior.chunk(chunk, body)

    def _asked(self, ask: AskVote) -> None:
        """Reply to a vote request; election.py has the rules."""
        granted = False
        if not ask.joining and may_judge(self, ask):
            if ask.epoch > self.epoch and not ask.pre:
                self.enter(ask.epoch)
            granted = may_vote(self, ask)
            if granted and not ask.pre:
                self._give_vote(ask.candidate)
        self.send(
            ask.candidate,
            Vote(
                group=self.settings.group,
                epoch=ask.epoch if granted else self.epoch,
                member=self.settings.member,
                granted=granted,
                pre=ask.pre,
                joining=ask.joining,
                lived=ask.joining != 0 and self.ballot.lived,
            ),
        )

    def _give_vote(self, candidate: str) -> None:
        if not self.ballot.voted_for:
            self.out.append(self.ballot.write(self.epoch, candidate))
        self.behavior.deadline_ms = self.now + self.election_timeout_ms()

    # -- for the roles ----------------------------------------------------------------------------

    @property
    def hears_a_leader(self) -> bool:
        """True if a leader is online, as far as this replica knows: its own lease or a recent
        chunk.
        """
        if self.role is RaftRole.LEADER:
            return self.behavior.leads(self.now)
        if len(self.settings.members) == 1:
            return False
        return self.now - self.heard_ms < self.settings.election_timeout_ms_min

    def enter(self, epoch: int, voted_for: str = "") -> None:
        """Enter a higher epoch, whose leader is not known yet."""
        self.out.append(self.ballot.write(epoch, voted_for))
        self.leader = ""
        self.round_heard = 0
        self.transfer = 0
        if not voted_for:
            self.become(TransitionCause.HIGHER_EPOCH)

    def joined(self, epoch: int) -> None:
        """From now on this replica has a vote, in epochs above `epoch` and its own."""
        self.joining = None
        if epoch > self.epoch:
            self.enter(epoch)
        mine = self.ballot.voted_for or self.leader or self.settings.member
        # No other relies on an empty log; if `lived` stayed, the next start would count as a loss.
        lived = self.ballot.lived and self.log.end > 0
        self.out.append(self.ballot.joins(self.epoch, mine, lived=lived))
        self.behavior.deadline_ms = self.now + self.election_timeout_ms()

    def lives(self) -> None:
        """Others are about to rely on bytes that this replica has."""
        if not self.ballot.lived:
            self.out.append(self.ballot.lives())

    def become(self, cause: TransitionCause) -> None:
        """Change the role according to the table."""
        if self.role is RaftRole.LEADER:
            self._leave_epoch()
        self.behavior = TRANSITIONS[self.role, cause](self)
        self.behavior.begin()

    def _leave_epoch(self) -> None:
        """A leader that has not appended anything leaves no trace of its epoch."""
        self.leader = ""
        if self.log.epochs.start_of(self.log.epochs.newest) == self.log.end:
            self.log.epochs.truncate(self.log.end)

    def halt(self, reason: str) -> None:
        """Stop and raise an alarm."""
        self.out.append(Halt(reason))
        self.become(TransitionCause.FAULT)

    def send(self, to: str, message: raft_inputs.Message, body: Buffer = b"") -> None:
        """Send a message once the ballot is on disk."""
        self.ballot.send(Send(to, message, body), self.out)

    def refusal(self, answered: int, position: int) -> ChunkAck:
        """A refusal of a chunk, with the epochs from which the leader finds where both logs
        diverge.
        """
        below = min(position, self.log.end)
        return ChunkAck(
            group=self.settings.group,
            epoch=self.epoch,
            member=self.settings.member,
            accepted=False,
            round=answered,
            epochs=self.log.epochs.summary(below),
            end=below,
            joining=self.joining_start,
        )

    @property
    def joining_start(self) -> int:
        """The number of this start while this replica is joining; 0 if it can vote."""
        return 0 if self.joining is None else self.joining.start

    def next_serial(self) -> int:
        """A request number that this replica has not used before."""
        self._serial += 1
        return self._serial

    def election_timeout_ms(self) -> int:
        """A random time, so that two replicas seldom stand at once."""
        settings = self.settings
        return self.chance.randint(
            settings.election_timeout_ms_min, settings.election_timeout_ms_max
        )

    def _report_role(self) -> None:
        """Report a change of role: before an old leader's effects, after a new leader's earlier
        ones.
        """
        leads = self.role is RaftRole.LEADER
        now = RoleChanged(
            self.role,
            self.epoch,
            self.leader,
            self.behavior.start if isinstance(self.behavior, RaftLeader) else -1,
        )
        if now == self._reported:
            return
        if leads:
            self.out.append(now)
        else:
            self.out.insert(0, now)
        self._reported = now
