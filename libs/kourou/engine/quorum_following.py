"""A member of a Raft group that does not lead: it copies, and passes on what only a leader does.

State: none of its own.

A request is passed on once: whoever gets it from another member and does not lead either says so,
so that two members which each believe in the other do not play with it. What hangs on the client's
own connection is not passed on: locks, whose holders are members that the leader must hear itself,
and answers, which go to whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kourou.engine.appends import Appends
from kourou.engine.copied_log import CopiedLog
from kourou.engine.effects import Effect, Forward
from kourou.engine.following import REFUSED
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import Quorum
from kourou.errors import NotLeader
from kourou.protocol.messages import locks, reply
from kourou.protocol.messages.replicas import TransferLeader
from kourou.protocol.messages.sending import SendRecords
from kourou.protocol.request import Request
from kourou.replication.lag import Lag
from kourou.runtime.inputs import Received
from kourou.runtime.peer import MEMBERS, Peer

KEPT: frozenset[type[Request]] = frozenset(
    {locks.LockBatchMq, locks.UnlockBatchMq, reply.SendReplyMessage}
)
"""What a leader does only for those who are connected to it."""


class QuorumFollowing:
    """Follows whoever the group has elected."""

    active = False

    def __init__(
        self, quorum: Quorum, policy: BrokerPolicy, appends: Appends, log: CopiedLog
    ) -> None:
        self._quorum = quorum
        self._policy = policy
        self._appends = appends
        self._log = log
        self._lag = Lag()
        appends.refuse(
            f"this replica of {policy.broker_name} is not the leader and does not accept messages",
            hint="send to the leader",
        )

    @property
    def quorum(self) -> Quorum:
        """The group."""
        return self._quorum

    @property
    def leader_address(self) -> str:
        """Where clients find the leader; "" while that is not known."""
        return self._quorum.leader_address

    def handlers(self) -> Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """What is not for a follower to do."""
        return {**dict.fromkeys(REFUSED, self._pass_on), TransferLeader: self._pass_on}

    def _pass_on(self, _now_ms: int, received: Received, request: Request) -> list[Effect]:
        leader = self._quorum.leader
        own = type(request) in KEPT or received.to.peer.listener == MEMBERS
        if not leader or leader == self._quorum.member or own:
            raise NotLeader(
                self._refusal(leader), hint="send the request to the leader" if leader else "retry"
            )
        if isinstance(request, SendRecords) and request.attempt == 1:
            # This member may have slept while its sender went elsewhere, and whoever led then may
            # be gone with the memory of it: the leader is to look for a copy.
            request = msgspec.structs.replace(request, attempt=0)
        return [Forward(leader, received.to, request, received.body, received.deadline_ms)]

    def _refusal(self, leader: str) -> str:
        quorum, name = self._quorum, self._policy.broker_name
        if not leader or leader == quorum.member:
            return f"broker {name} has no leader; an election is in progress"
        at = f" at {quorum.leader_address}" if quorum.leader_address else ""
        return f"the leader of {name} is {leader}{at}; this replica, {quorum.member}, is a follower"

    # -- the copy ---------------------------------------------------------------------------------

    def copied(self, end: int) -> None:
        """The store has the leader's bytes up to `end`."""
        self._log.copied(end)

    def grown(self, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        """Queues have grown."""
        return self._log.grown(queues)

    def confirmed(self) -> list[Effect]:
        """More is confirmed."""
        return self._log.deletions()

    # -- turns ------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Effect]:
        """Note how far this copy is, several times a second."""
        if self._quorum.leader:
            self._lag.noted(now_ms, self._appends.end, self._quorum.leader_end)
        return []

    def lag_ms(self, now_ms: int) -> int | None:
        """So long ago all that the leader had was here; None if never, as far as is known."""
        quorum = self._quorum
        if quorum.leader and self._appends.end >= quorum.leader_end:
            return 0
        return self._lag.ms(now_ms)

    def turn(self, _now_ms: int) -> list[Effect]:
        """At the end of a turn: whoever owns the member speaks to the leader."""
        return []

    def drop_peer(self, peer: Peer) -> None:
        """No connection of this core's is the leader's."""
