"""The base class of all roles of a replica, with default handlers that do nothing."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar

from kourou.replication.raft.effects import RaftRole

if TYPE_CHECKING:
    from kourou.protocol.messages.replication import ChunkAck, LogChunk, StandNow, Vote
    from kourou.replication.raft.inputs import Buffer, Fetched
    from kourou.replication.raft.node import RaftNode


class TransitionCause(Enum):
    """Why a role changes."""

    TIMEOUT = auto()
    STAND_NOW = auto()
    WOULD_WIN = auto()
    WON = auto()
    HIGHER_EPOCH = auto()
    LEADER_HEARD = auto()
    FAULT = auto()


class RoleBehavior:
    """One replica in one role, from the moment it takes the role until it leaves it.

    A method may change the replica's role; then this object gets no more calls.
    """

    role: ClassVar[RaftRole]

    __slots__ = ("deadline_ms", "node")

    def __init__(self, node: RaftNode) -> None:
        self.node = node
        #: When `tick` is called even without inputs.
        self.deadline_ms = 0

    def begin(self) -> None:
        """Enter the role."""

    def tick(self) -> None:
        """The deadline has passed."""

    def end_batch(self) -> None:
        """All inputs of this batch are processed: send what is sent once per batch."""

    def chunk(self, chunk: LogChunk, body: Buffer) -> None:
        """A chunk of the leader of this replica's epoch."""

    def ack(self, ack: ChunkAck) -> None:
        """An acknowledgement of this replica's epoch."""

    def vote(self, vote: Vote) -> None:
        """A vote: granted for any epoch, or refused in an epoch that is not higher."""

    def stand_now(self, order: StandNow) -> None:
        """An order of the leader of this replica's epoch."""

    def vote_saved(self) -> None:
        """The ballot is on disk."""

    def appended(self, end: int) -> None:
        """This broker has appended to the log, in this epoch."""

    def flushed(self) -> None:
        """More of the log is on disk."""

    def log_changed(self) -> None:
        """A truncation or a restart of the log is done."""

    def write_failed(self) -> None:
        """The last write failed."""

    def fetched(self, item: Fetched) -> None:
        """Requested bytes have arrived."""

    def fetch_failed(self, serial: int) -> None:
        """Requested bytes will not arrive."""

    def transfer_leadership(self, target: str) -> None:
        """An operator requests another leader."""

    def leads(self, now_ms: int) -> bool:
        """True if this is the only replica that may acknowledge now."""
        return False


class Stopped(RoleBehavior):
    """The final role: its disk failed, or it received an impossible message."""

    role = RaftRole.STOPPED
    __slots__ = ()

    def begin(self) -> None:
        """Never wake up again."""
        self.deadline_ms = 1 << 62
