"""What all roles of a member have in common: what may come to each, and what none of them takes."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar

from kourou.replication.raft.effects import Role

if TYPE_CHECKING:
    from kourou.protocol.messages.replication import ChunkAck, LogChunk, StandNow, Vote
    from kourou.replication.raft.inputs import Buffer, Fetched
    from kourou.replication.raft.member import Member


class Cause(Enum):
    """Why a role changes."""

    TIMEOUT = auto()
    STAND_NOW = auto()
    WOULD_WIN = auto()
    WON = auto()
    HIGHER_EPOCH = auto()
    LEADER_HEARD = auto()
    FAULT = auto()


class Part:
    """One member in one role, from the moment it takes the role until it leaves it.

    A method may change the member's role; then this object is done and gets nothing more.
    """

    role: ClassVar[Role]

    __slots__ = ("deadline_ms", "member")

    def __init__(self, member: Member) -> None:
        self.member = member
        #: When something is to be done although nothing comes.
        self.deadline_ms = 0

    def begin(self) -> None:
        """The role is taken."""

    def tick(self) -> None:
        """The deadline is over."""

    def settle(self) -> None:
        """All inputs of this batch are taken: say what is to be said once a batch."""

    def chunk(self, chunk: LogChunk, body: Buffer) -> None:
        """From the leader of this member's epoch."""

    def ack(self, ack: ChunkAck) -> None:
        """Of this member's epoch."""

    def vote(self, vote: Vote) -> None:
        """Granted for whatever epoch, or refused in an epoch that is no higher."""

    def stand_now(self, order: StandNow) -> None:
        """From the leader of this member's epoch."""

    def vote_saved(self) -> None:
        """The ballot is on disk."""

    def appended(self, end: int) -> None:
        """The member's own engine has appended, in this epoch."""

    def flushed(self) -> None:
        """More of the log is on disk."""

    def log_changed(self) -> None:
        """A cut or a new beginning of the log is done."""

    def write_failed(self) -> None:
        """What was last to be written is not there."""

    def fetched(self, item: Fetched) -> None:
        """Bytes that were asked for."""

    def fetch_failed(self, serial: int) -> None:
        """They will not come."""

    def hand_over(self, target: str) -> None:
        """An operator wants another leader."""

    def leads(self, now_ms: int) -> bool:
        """Whether this is the one member that may acknowledge now."""
        return False


class Stopped(Part):
    """Takes part in nothing: its disk failed, or it was told what cannot be."""

    role = Role.STOPPED
    __slots__ = ()

    def begin(self) -> None:
        """For ever."""
        self.deadline_ms = 1 << 62
