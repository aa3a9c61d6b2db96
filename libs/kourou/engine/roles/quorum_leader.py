"""A Raft leader: it opens its epoch, and reports the lag of the other replicas.

State: soft, except EpochOpened, which is recorded (engine.replicas).

The record that opens the epoch comes before all others: until a majority has it, nothing of older
epochs may be committed (kourou.replication.raft).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kourou.engine.effects import Effect
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import Quorum, QuorumMember
from kourou.engine.roles.leader import SYNC_MASTER
from kourou.engine.roles.promotion import quorum_leader_name
from kourou.engine.roles.quorum_roles import QuorumLeaderRole
from kourou.engine.sends.appends import Appends
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.sends.recorder import Recorder
from kourou.events.control_events import Cause, EpochOpened
from kourou.protocol.request import Request
from kourou.replication.progress import Lag
from kourou.runtime.core import Peer, Received


class QuorumLeading:
    """Leads one log for a group. Replicas do not attach here: the Raft node serves them."""

    active = False
    broker_role = SYNC_MASTER

    def __init__(
        self,
        role: QuorumLeaderRole,
        policy: BrokerPolicy,
        appends: Appends,
        confirmations: Confirmations,
        recorder: Recorder,
    ) -> None:
        self._role = role
        self._policy = policy
        self._appends = appends
        self._confirmations = confirmations
        self._recorder = recorder
        self._lags: dict[int, Lag] = {}
        self._opened = self._paused = False

    def handlers(self) -> Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return no handlers: replicas talk to the owner of the Raft node, not to this core."""
        return {}

    @property
    def quorum(self) -> Quorum:
        """The group."""
        return self._role.quorum

    @property
    def opened(self) -> bool:
        """Whether the epoch is open, so that other events may be recorded."""
        return self._opened

    @property
    def paused(self) -> bool:
        """Whether writes are paused, because leadership is being transferred."""
        return self._paused

    # -- the epoch --------------------------------------------------------------------------------

    def start(self, wall_ms: int) -> None:
        """Open the epoch at the end of the log; its event is the first record of this leader.

        Raises as recording does; then this replica must not continue to lead.
        """
        leader = quorum_leader_name(self._policy.broker_name, self.quorum.member)
        opened = EpochOpened(self._role.epoch, self._appends.end, leader, self.broker_role)
        self._recorder.record([opened], Cause("broker", "was elected"), wall_ms)
        self._opened = True

    def look(self) -> None:
        """Before a batch: pause writes while leadership is transferred, resume if that fails.

        Under load, the new leader would otherwise never have the whole log.
        """
        paused = not self.quorum.may_append()
        if paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._appends.pause(f"{self.quorum.member} is transferring leadership")
        else:
            self._appends.go_on()

    def lost(self, reason: str) -> list[Effect]:
        """Handle the loss of leadership: refuse writes; all pending outcomes are unknown."""
        self._appends.refuse(reason, hint="send the request to the leader")
        return self._confirmations.fail(reason)

    def outdone(self, _epoch: int) -> list[Effect]:
        """Ignore a name server's report of another leader: the group knows better who leads."""
        return []

    # -- followers --------------------------------------------------------------------------------

    def lag_ms(self, now_ms: int, one: QuorumMember) -> int | None:
        """Return how long ago a replica had the whole log; None if never in this epoch."""
        if one.written >= self._appends.end:
            return 0
        lag = self._lags.get(one.broker_id)
        return None if lag is None else lag.ms(now_ms)

    def tick(self, now_ms: int, _wall_ms: int) -> None:
        """Note how far each replica lags, several times a second."""
        for one in self.quorum.followers():
            lag = self._lags.setdefault(one.broker_id, Lag())
            lag.noted(now_ms, one.written, self._appends.end)

    def turn(self, _now_ms: int) -> list[Effect]:
        """Do nothing at the end of a batch: the owner of the Raft node ships."""
        return []

    def drop_peer(self, peer: Peer) -> None:
        """Do nothing: no replica follows over a connection of this core."""
