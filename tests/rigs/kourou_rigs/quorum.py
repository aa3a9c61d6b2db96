"""A Raft group as a broker's core sees it, by the word of a test.

    quorum = GivenQuorum(leader="n0")                    # this member is n0, of n0, n1 and n2
    engine = Engine(role=QuorumLeaderRole(7, quorum))
    quorum.confirm(engine)                               # a majority has all that was appended

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
    """What a test says of a group; implements the port."""

    group: str = "broker-a"
    member: str = "n0"
    state: str = "follower"
    epoch: int = 1
    epochs: Epochs = field(default_factory=Epochs)
    leader: str = ""
    leader_address: str = ""
    leader_end: int = 0
    leader_heard_ms_ago: int | None = None
    confirmed: int = 0
    sure: bool = True
    """May the leader acknowledge?"""
    handing_over: bool = False
    """Does it let another member lead?"""
    others: list[QuorumMember] = field(default_factory=list)

    def may_acknowledge(self) -> bool:
        """Whether the test lets it."""
        return self.sure

    def may_append(self) -> bool:
        """Not while it lets another member lead."""
        return not self.handing_over

    def followers(self) -> Sequence[QuorumMember]:
        """Whom the test has put there."""
        return self.others

    def confirm(self, engine: Engine, position: int | None = None) -> None:
        """A majority holds everything up to `position`, all that there is if None."""
        self.confirmed = engine.store.end if position is None else position
        engine.handle(Confirmed(self.confirmed))
