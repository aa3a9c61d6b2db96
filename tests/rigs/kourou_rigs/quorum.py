"""A Raft group as a broker's core sees it, controlled by a test.

    quorum = GivenQuorum(leader="n0")                    # this member is n0, of n0, n1 and n2
    engine = Engine(role=QuorumLeaderRole(7, quorum))
    quorum.confirm(engine)                               # commit everything that was appended

State: soft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kourou.engine.inputs import Confirmed
from kourou.engine.ports import QuorumMember
from kourou.replication.epochs import Epochs

if TYPE_CHECKING:
    from kourou_rigs.engine import Engine


@dataclass
class GivenQuorum:
    """A Raft group whose state is set by a test; implements the engine's port."""

    group: str = "broker-a"
    member: str = "n0"
    state: str = "follower"
    epoch: int = 1
    epochs: Epochs = field(default_factory=Epochs)
    leader: str = ""
    leader_address: str = ""
    leader_end: int = 0
    confirmed: int = 0
    sure: bool = True
    """Whether the leader may acknowledge."""
    handing_over: bool = False
    """Whether a leadership transfer is in progress."""
    others: list[QuorumMember] = field(default_factory=list)

    def may_acknowledge(self) -> bool:
        """Returns what the test has set."""
        return self.sure

    def may_append(self) -> bool:
        """False during a leadership transfer."""
        return not self.handing_over

    def followers(self) -> Sequence[QuorumMember]:
        """The followers that the test has set."""
        return self.others

    def confirm(self, engine: Engine, position: int | None = None) -> None:
        """Commit everything up to `position`; None means everything appended."""
        self.confirmed = engine.store.end if position is None else position
        engine.handle(Confirmed(self.confirmed))
