"""Headers of replica administration: status of replicas, promotion, leadership transfer.

These requests arrive on the listeners for clients; kourou.protocol.messages.replication has the
messages between replicas.
"""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.messages.replication import Epoch, MemberName, Position
from kourou.protocol.request import Request, Response


class GetReplicas(Request, kw_only=True, frozen=True):
    """GET_REPLICAS (30050): get leader, epoch and replication progress; the body has them.

    Every broker replies with what it knows: a leader about all its followers, a follower about
    itself and its leader.
    """

    code: ClassVar[int] = 30050


class PromoteReplica(Request, kw_only=True, frozen=True):
    """PROMOTE_REPLICA (30051): make the follower that receives the request the leader.

    `force`: even if the old leader is alive, or another follower may have more of the log.
    """

    code: ClassVar[int] = 30051
    broker_name: str
    force: bool = False


class PromoteReplicaResponse(Response, kw_only=True, frozen=True):
    """It opens `epoch` at `position`, the end of its log; the old leader had `behind` more."""

    epoch: Epoch
    position: Position
    behind: Position


class TransferLeader(Request, kw_only=True, frozen=True):
    """TRANSFER_LEADER (30052): transfer leadership of a Raft group to another replica.

    `target`: name or brokerId of that replica, "" for the most up-to-date one.
    """

    code: ClassVar[int] = 30052
    broker_name: str
    target: MemberName = ""


class TransferLeaderResponse(Response, kw_only=True, frozen=True):
    """The transfer from `leader` of `epoch` to `target` ("": the most up-to-date) has begun."""

    leader: MemberName
    epoch: Epoch
    target: MemberName = ""
