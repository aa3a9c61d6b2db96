"""One Raft member by hand: what is said to it, what it says, at times that a test chooses.

    kit = MemberKit(members=3)
    kit.at(2_000)                       # nobody is heard: it asks whether it would win
    assert kit.sent(AskVote)

Its disk is done at once, unless `disk` is False.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from kourou.protocol.messages.replication import ChunkAck, LogChunk, Vote
from kourou.replication.epochs import Epochs
from kourou.replication.raft import effects as wants
from kourou.replication.raft import inputs as happened
from kourou.replication.raft.effects import Effect, Role, Send
from kourou.replication.raft.inputs import Input, Message
from kourou.replication.raft.member import Boot, Member
from kourou.replication.raft.settings import RaftSettings

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
    """Chance that always chooses the highest number."""

    def randint(self, a: int, b: int) -> int:
        assert a <= b
        return b


class MemberKit:
    """Member n0 of a group; its timeouts are 750 to 1,500 ms, heartbeats 150 ms, lease 675 ms."""

    def __init__(self, *, members: int = 3, disk: bool = True, boot: Boot | None = None) -> None:
        names = tuple(f"n{number}" for number in range(members))
        self.source = _Source()
        self.settings = RaftSettings(GROUP, "n0", names, chunk_bytes=64, window_bytes=128)
        self.member = Member(
            self.settings,
            boot or Boot(Epochs()),
            chance=_Longest(),
            source=self.source,
            now_ms=0,
        )
        self.disk = disk
        self.now = 0
        #: What the last call brought.
        self.effects: list[Effect] = []

    def at(self, now_ms: int, *inputs: Input) -> MemberKit:
        """This happened, at that time."""
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
            case wants.SaveVote():
                return [happened.VoteSaved()]
            case wants.CutLog():
                return [happened.LogCut()]
            case wants.BeginLog(position, epoch):
                return [happened.LogBegun()] if self.member.may_begin(position, epoch) else []
            case wants.FlushLog():
                return [happened.Flushed(self.member.log.end)]
            case wants.RoleChanged(Role.LEADER, epoch, _, start):
                return [happened.Appended(epoch, start + 10), happened.Flushed(start + 10)]
        return []

    def hears(self, message: Message, body: bytes = b"") -> MemberKit:
        """Another member says this, now."""
        return self.at(self.now, happened.Received(message, body))

    # -- what it wants ---------------------------------------------------------------------------

    def wanted(self, kind: type[_Effect]) -> list[_Effect]:
        """The effects of one kind."""
        return [each for each in self.effects if isinstance(each, kind)]

    def sent(self, kind: type[_Message]) -> list[_Message]:
        """The messages of one kind."""
        found = [each.message for each in self.wanted(Send)]
        return [each for each in found if isinstance(each, kind)]

    # -- what others say -------------------------------------------------------------------------

    def wins(self, now_ms: int = 2_000) -> MemberKit:
        """It stands, and n1 votes for it: it leads the next epoch, with a record of 10 bytes."""
        epoch = self.member.epoch + 1
        self.at(now_ms).hears(vote(epoch, pre=True))
        return self.hears(vote(epoch))

    def acks(self, member: str, end: int, *, flushed: int | None = None, at: int = 0) -> MemberKit:
        """A follower has this leader's log up to `end`, and answers its last round."""
        ack = ChunkAck(
            group=GROUP,
            epoch=self.member.epoch,
            member=member,
            accepted=True,
            written=end,
            flushed=end if flushed is None else flushed,
            round=self.member.round_heard,
        )
        # The first one answers the leader's probe, and bytes are sent after it alone.
        self.at(max(at, self.now), happened.Received(ack))
        before = self.effects
        self.hears(ack)
        self.effects = before + self.effects
        return self


def vote(epoch: int, member: str = "n1", *, granted: bool = True, pre: bool = False) -> Vote:
    """What n1 says to a candidate."""
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
    """What a leader says; its bytes are of its own epoch, unless `data` says otherwise."""
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
