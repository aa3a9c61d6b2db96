"""Leadership transfer: a leader lets another replica lead.

started   new writes are refused; the target receives what it lacks
sent      the target has everything: StandNow is sent, and nothing is acknowledged any more
over      the target leads, which this replica learns from a higher epoch; or one election timeout
          has passed, and this replica continues to lead, in a new round (lease.py says why)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.messages.replication import StandNow
from kourou.replication.progress import State
from kourou.replication.raft.effects import HandOverFailed

if TYPE_CHECKING:
    from kourou.replication.raft.leader import Leader


class HandingOver:
    """A leader's state of a transfer; `target` is "" while there is none."""

    __slots__ = ("_leader", "_until_ms", "target")

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._until_ms = 0
        self.target = ""

    def start(self, target: str) -> None:
        """Start a transfer requested by an operator."""
        leader = self._leader
        target = target or max(
            (each.member for each in leader.voters()),
            key=lambda name: leader.peers[name].flushed,
            default="",
        )
        if target not in leader.peers:
            self._fail(target, "is not another replica of this group")
        elif target in leader.admission:
            self._fail(target, "has no vote yet: it catches up first")
        elif self.target:
            self._fail(target, f"has to wait: {self.target} is to lead")
        else:
            self.target = target
            self._until_ms = leader.member.now + leader.member.settings.election_timeout_ms_max

    def go_on(self) -> None:
        """Send StandNow to the target once it has everything."""
        leader = self._leader
        if not self.target or leader.lease.suspended:
            return
        progress = leader.peers[self.target]
        if progress.state is State.REPLICATE and progress.flushed == leader.member.log.end:
            leader.lease.suspend()
            self.remind()

    def remind(self) -> None:
        """Send StandNow, or repeat it."""
        leader = self._leader
        if self.target and leader.lease.suspended:
            member = leader.member
            member.send(
                self.target,
                StandNow(
                    group=member.settings.group,
                    epoch=member.epoch,
                    leader=member.leader,
                    round=leader.lease.round,
                ),
            )

    def check_time(self) -> None:
        """Continue to lead if the target did not take over in time."""
        leader = self._leader
        if self.target and leader.member.now >= self._until_ms:
            if leader.lease.suspended:
                leader.lease.resume(leader.member.now)
            self._fail(self.target, "did not take over in time")
            self.target = ""

    def _fail(self, target: str, reason: str) -> None:
        self._leader.member.out.append(HandOverFailed(target, reason))
