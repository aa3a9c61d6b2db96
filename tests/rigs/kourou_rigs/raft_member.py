"""One Raft member under a test's control: inputs and times are given, outputs are inspected.

    kit = MemberKit(members=3)
    kit.at(2_000)                       # it heard of no leader, so it requests pre-votes
    assert kit.sent(AskVote)

Its disk operations complete immediately, unless `disk` is False.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from kourou.protocol.messages.replication import ChunkAck, LogChunk, Vote
from kourou.replication.epochs import Epochs, TruncateLog
from kourou.replication.raft import effects as raft_effects
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import Effect, RaftRole, Send
from kourou.replication.raft.inputs import Input, Message
from kourou.replication.raft.node import PersistentState, RaftNode, RaftSettings

GROUP = "group"
LOG_BYTES = 4_096
_Effect = TypeVar("_Effect")
_Message = TypeVar("_Message")


class _Bytes(NamedTuple):
    data: bytes
    end: int
    damage: str


class _Source:
    """A log in which every position is a record's end."""

    damaged_from = LOG_BYTES

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> _Bytes:
        end = min(limit, position + max_bytes)
        return _Bytes(bytes(end - position), end, "bad" if position >= self.damaged_from else "")


class _Longest:
    """A random source that always returns the highest number."""

    def randint(self, a: int, b: int) -> int:
        assert a <= b
        return b


class MemberKit:
    """Member n0 of a group; its timeouts are 750 to 1,500 ms, heartbeats 150 ms, lease 675 ms."""

    def __init__(
        self, *, members: int = 3, disk: bool = True, boot: PersistentState | None = None
    ) -> None:
        names = tuple(f"n{number}" for number in range(members))
        self.source = _Source()
        self.settings = RaftSettings(GROUP, "n0", names, chunk_bytes=64, window_bytes=128)
        self.member = RaftNode(
            self.settings,
            boot or PersistentState(Epochs()),
            chance=_Longest(),
            source=self.source,
            now_ms=0,
        )
        self.disk = disk
        self.now = 0
        #: The effects of the last call.
        self.effects: list[Effect] = []

    def at(self, now_ms: int, *inputs: Input) -> MemberKit:
        """Handle inputs at a time."""
        self.now = now_ms
        self.effects = []
        waiting = list(inputs)
        while True:
            found = self.member.handle(now_ms, waiting)
            self.effects += found
            waiting = [item for each in found for item in self._done(each)] if self.disk else []
            if not waiting:
                return self

    def _done(self, effect: Effect) -> list[Input]:
        match effect:
            case raft_effects.SaveVote():
                return [raft_inputs.VoteSaved()]
            case TruncateLog():
                return [raft_inputs.LogTruncated()]
            case raft_effects.DiscardLog(position, epoch):
                return (
                    [raft_inputs.LogRestarted()] if self.member.may_begin(position, epoch) else []
                )
            case raft_effects.FlushLog():
                return [raft_inputs.LogFlushed(self.member.log.end)]
            case raft_effects.RoleChanged(RaftRole.LEADER, epoch, _, start):
                return [raft_inputs.Appended(epoch, start + 10), raft_inputs.LogFlushed(start + 10)]
        return []

    def hears(self, message: Message, body: bytes = b"") -> MemberKit:
        """Receive a message of another member now."""
        return self.at(self.now, raft_inputs.MessageReceived(message, body))

    # -- outputs ---------------------------------------------------------------------------------

    def wanted(self, kind: type[_Effect]) -> list[_Effect]:
        """The effects of one kind."""
        return [each for each in self.effects if isinstance(each, kind)]

    def sent(self, kind: type[_Message]) -> list[_Message]:
        """The sent messages of one kind."""
        found = [each.message for each in self.wanted(Send)]
        return [each for each in found if isinstance(each, kind)]

    # -- messages of other members ---------------------------------------------------------------

    def wins(self, now_ms: int = 2_000) -> MemberKit:
        """Win an election with n1's vote; the first record of the next epoch has 10 bytes."""
        epoch = self.member.epoch + 1
        self.at(now_ms).hears(vote(epoch, pre=True))
        return self.hears(vote(epoch))

    def acks(self, member: str, end: int, *, flushed: int | None = None, at: int = 0) -> MemberKit:
        """A follower acknowledges this leader's log up to `end` and the last round."""
        ack = ChunkAck(
            group=GROUP,
            epoch=self.member.epoch,
            member=member,
            accepted=True,
            written=end,
            flushed=end if flushed is None else flushed,
            round=self.member.round_heard,
        )
        # The first one acknowledges the leader's probe, after which data is sent.
        self.at(max(at, self.now), raft_inputs.MessageReceived(ack))
        before = self.effects
        self.hears(ack)
        self.effects = before + self.effects
        return self


def vote(epoch: int, member: str = "n1", *, granted: bool = True, pre: bool = False) -> Vote:
    """A vote of n1."""
    return Vote(group=GROUP, epoch=epoch, member=member, granted=granted, pre=pre)


def chunk(
    epoch: int,
    position: int,
    end: int,
    *,
    previous: int = 0,
    data: int | None = None,
    confirmed: int = 0,
    answered: int = 1,
    first: int = 0,
    leader: str = "n1",
    catch_up: bool = False,
) -> LogChunk:
    """A chunk of a leader; its bytes are of the leader's epoch unless `data` is given."""
    own = epoch if end > position else previous
    return LogChunk(
        group=GROUP,
        epoch=epoch,
        leader=leader,
        position=position,
        end=end,
        previous_epoch=previous,
        data_epoch=own if data is None else data,
        confirmed=confirmed,
        leader_end=max(end, confirmed),
        first_position=first,
        round=answered,
        catch_up=catch_up,
    )
