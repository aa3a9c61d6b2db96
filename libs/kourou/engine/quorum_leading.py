"""A member of a Raft group that leads: it opens its epoch, and tells how far the others are.

State: soft, but EpochOpened, which is recorded (engine.replicas).

The record that opens the epoch comes before all others: until a majority has it, nothing of older
epochs may be confirmed (kourou.replication.raft).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kourou.engine.appends import Appends
from kourou.engine.confirmations import Confirmations
from kourou.engine.effects import Effect
from kourou.engine.leading import SYNC_MASTER
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import Quorum, QuorumMember
from kourou.engine.promoting import quorum_leader_name
from kourou.engine.quorum import QuorumLeaderRole
from kourou.engine.recording import Recorder
from kourou.events.control_events import Cause
from kourou.events.replication_events import EpochOpened
from kourou.protocol.request import Request
from kourou.replication.lag import Lag
from kourou.runtime.inputs import Received
from kourou.runtime.peer import Peer


class QuorumLeading:
    """Leads one log for a group. Nobody attaches here: members are known, and served elsewhere."""

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
        """Members speak to whoever owns the member, and not to this core."""
        return {}

    @property
    def quorum(self) -> Quorum:
        """The group."""
        return self._role.quorum

    @property
    def opened(self) -> bool:
        """Is the epoch open, so that anything else may be recorded?"""
        return self._opened

    @property
    def paused(self) -> bool:
        """Does it write nothing now, because another member is to lead?"""
        return self._paused

    # -- the epoch --------------------------------------------------------------------------------

    def start(self, wall_ms: int) -> None:
        """Open the epoch at the end of the log; its event is the first record of this leader.

        Raises what recording raises; then this member must not lead on.
        """
        leader = quorum_leader_name(self._policy.broker_name, self.quorum.member)
        opened = EpochOpened(self._role.epoch, self._appends.end, leader, self.broker_role)
        self._recorder.record([opened], Cause("broker", "was elected"), wall_ms)
        self._opened = True

    def look(self) -> None:
        """Before a turn: whoever lets another member lead writes nothing until it does, or fails.

        Under load that member would never have all that there is.
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
        """This member leads no more: write nothing, and tell all who wait that nobody knows."""
        self._appends.refuse(reason, hint="send the request to the leader")
        return self._confirmations.fail(reason)

    def outdone(self, _epoch: int) -> list[Effect]:
        """What a name server says of other leaders: the group knows better who leads."""
        return []

    # -- the others -------------------------------------------------------------------------------

    def lag_ms(self, now_ms: int, one: QuorumMember) -> int | None:
        """So long ago a member had all that there was; None if never in this epoch."""
        if one.written >= self._appends.end:
            return 0
        lag = self._lags.get(one.broker_id)
        return None if lag is None else lag.ms(now_ms)

    def tick(self, now_ms: int, _wall_ms: int) -> None:
        """Note how far everybody is, several times a second."""
        for one in self.quorum.followers():
            lag = self._lags.setdefault(one.broker_id, Lag())
            lag.noted(now_ms, one.written, self._appends.end)

    def turn(self, _now_ms: int) -> list[Effect]:
        """At the end of a turn: whoever owns the member ships."""
        return []

    def drop_peer(self, peer: Peer) -> None:
        """Nobody follows over a connection of this core's."""
