"""The replicas of a log, as a broker reports them, and operators' requests to change the leader.

State: none of its own; that a promotion began is soft. Its result is the EpochOpened of the core
that comes after this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kourou.engine.context import BrokerContext
from kourou.engine.effects import ChangeRole, Effect, HandOver
from kourou.engine.ports import JOINING, Quorum, QuorumMember
from kourou.engine.roles.follower import StaticFollower
from kourou.engine.roles.leader import StaticLeader
from kourou.engine.roles.quorum import QuorumFollower, QuorumLeader
from kourou.engine.roles.replicas import check_promotion
from kourou.errors import BadRequest, Rejected
from kourou.protocol.bodies.broker_bodies import ReplicasView, encode_replicas
from kourou.protocol.messages.replication import (
    GetReplicas,
    PromoteReplica,
    PromoteReplicaResponse,
    TransferLeader,
    TransferLeaderResponse,
)
from kourou.protocol.request import Request
from kourou.replication.epochs import next_epoch
from kourou.runtime.core import LogWarning, Received, Reply


class ReplicaHandler:
    """Handles operators' requests about the replicas of one log."""

    def __init__(
        self,
        context: BrokerContext,
        leading: StaticLeader | QuorumLeader | None,
        following: StaticFollower | QuorumFollower | None,
    ) -> None:
        self._policy = context.policy
        self._control = context.control
        self._view = context.view
        self._confirmations = context.confirmations
        self._leading = leading
        self._following = following
        self._promoting = False

    def handlers(self) -> Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            GetReplicas: self.replicas,
            PromoteReplica: self.promote,
            TransferLeader: self.transfer,
        }

    # -- status -----------------------------------------------------------------------------------

    def replicas(self, now_ms: int, received: Received, _request: GetReplicas) -> list[Effect]:
        """Reply with the leader, and how far the followers are (30050)."""
        return [Reply(received.to, body=(encode_replicas(self.status(now_ms)),))]

    def status(self, now_ms: int) -> ReplicasView:
        """Return what this broker knows of the replicas of its log."""
        policy, known = self._policy, self._control.replicas
        first, end = self._view.log_range()
        leading, following = self._leading, self._following
        view = ReplicasView(
            cluster=policy.cluster_name,
            broker_name=policy.broker_name,
            broker_id=policy.broker_id,
            broker_role=leading.broker_role if leading is not None else known.role,
            leads=following is None,
            epoch=known.epoch,
            leader=known.leader,
            first=first,
            end=end,
            flushed=self._confirmations.flushed,
            confirmed=self._confirmations.confirmed,
            in_sync=known.in_sync,
            epochs=tuple(known.epochs),
        )
        role = leading or following
        return view if role is None else role.describe(view, now_ms)

    # -- promotion --------------------------------------------------------------------------------

    def promote(self, now_ms: int, received: Received, request: PromoteReplica) -> list[Effect]:
        """Promote this broker to leader (30051); the reply is sent before it leads."""
        policy = self._policy
        if request.broker_name != policy.broker_name:
            raise BadRequest(f"this is {policy.broker_name}, not {request.broker_name}")
        if self._promoting:
            raise Rejected("this broker is being promoted already")
        following = self._following
        if isinstance(self._leading, QuorumLeader) or isinstance(following, QuorumFollower):
            raise Rejected(
                "this broker is a Raft group, which elects its leader",
                hint="to transfer leadership: kourou admin transfer-leader",
            )
        heard = (
            self._heard_by_leader(request)
            if following is None
            else self._check(following, now_ms, request)
        )
        end = self._view.log_range()[1]
        epoch = next_epoch(
            max(heard, self._control.replicas.epoch), policy.broker_id, promoted=True
        )
        behind = 0 if following is None else following.copying.lag_bytes
        self._promoting = True
        answer = PromoteReplicaResponse(epoch=epoch, position=end, behind=behind)
        warning = LogWarning(
            "promotion-started: %(peer)s promotes this broker: it becomes the leader at position "
            "%(position)d, in epoch %(epoch)d; the previous leader had %(lag_bytes)d bytes more",
            {"peer": received.to.peer, "position": end, "epoch": epoch, "lag_bytes": behind},
        )
        outdone = [] if following is None else following.outdo(epoch)
        reply = Reply(received.to, header=answer)
        return [reply, warning, *outdone, ChangeRole(True, epoch)]

    def _check(self, following: StaticFollower, now_ms: int, request: PromoteReplica) -> int:
        if not request.force:
            check_promotion(
                self._control.replicas,
                self._policy.broker_id,
                leader=following.leader_address,
                silent_ms=following.copying.silent_ms(now_ms),
            )
        return following.heard

    def _heard_by_leader(self, request: PromoteReplica) -> int:
        """Return the epoch to exceed, for a leader that was replaced and is to lead again.

        Its own records then become the log.
        """
        leading = self._leading
        if not isinstance(leading, StaticLeader):
            raise Rejected(
                "this broker cannot be promoted: it has no replicas",
                hint="set replicationEnable=true to allow followers",
            )
        if not leading.fenced:
            raise Rejected(
                f"this broker is the leader already, in epoch {self._control.replicas.epoch}"
            )
        if not request.force:
            raise Rejected(
                f"another broker is the leader of this log, in epoch {leading.fenced}",
                hint="force replaces it, and messages that it stored since are lost",
            )
        return leading.fenced

    # -- a Raft group -----------------------------------------------------------------------------

    def transfer(self, _now_ms: int, received: Received, request: TransferLeader) -> list[Effect]:
        """Transfer leadership to another replica (30052); the reply is sent when that begins."""
        policy, leading = self._policy, self._leading
        if request.broker_name != policy.broker_name:
            raise BadRequest(f"this is {policy.broker_name}, not {request.broker_name}")
        if not isinstance(leading, QuorumLeader):
            raise Rejected(
                f"broker {policy.broker_name} is not a Raft group",
                hint="stop its leader, then promote a follower",
            )
        quorum = leading.quorum
        target = _heir(quorum, request.target)
        answer = TransferLeaderResponse(leader=quorum.member, epoch=quorum.epoch, target=target)
        warning = LogWarning(
            "leadership-transfer-requested: %(peer)s requests a transfer of leadership from "
            "%(leader)s to %(target)s",
            {
                "peer": received.to.peer,
                "leader": quorum.member,
                "target": target or "the most up-to-date replica",
            },
        )
        return [Reply(received.to, header=answer), warning, HandOver(target)]


def _heir(quorum: Quorum, wanted: str) -> str:
    """Return the replica that is to lead, "" for the most up-to-date one.

    Raises Rejected if leadership cannot be transferred now, or not to that replica.
    """
    others = quorum.followers()
    heir = _member_named(others, wanted) if wanted else ""
    voters = [one.member for one in others if one.state != JOINING.upper()]
    if heir and heir not in voters:
        raise Rejected(
            f"replica {heir} has no vote yet: it is catching up",
            hint="retry when it is no longer JOINING: kourou admin replicas",
        )
    if not voters:
        raise Rejected(
            "no other replica has a vote", hint="check the replicas: kourou admin replicas"
        )
    if not quorum.may_append():
        raise Rejected(
            f"replica {quorum.member} is transferring leadership already",
            hint="check which replica is the leader, and retry there: kourou admin replicas",
        )
    return heir


def _member_named(others: Sequence[QuorumMember], target: str) -> str:
    """Return the replica with this name or brokerId."""
    for one in others:
        if target in {one.member, str(one.broker_id)}:
            return one.member
    known = ", ".join(f"{one.member} (brokerId {one.broker_id})" for one in others) or "none"
    raise BadRequest(
        f"{target} is not another replica of this group", hint=f"other replicas: {known}"
    )
