"""Headers of asking a broker about its copies, and of having another one of them lead.

They come in on the listeners for clients; what members of a log say to one another is
kourou.protocol.messages.replication.
"""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.messages.replication import Epoch, MemberName, Position
from kourou.protocol.request import Request, Response


class GetReplicas(Request, kw_only=True, frozen=True):
    """GET_REPLICAS (30050): who leads, who follows how far, in which epoch; the body of the answer.

    Every broker answers, of what it knows itself: a leader of all that follow it, a follower of
    itself and its leader.
    """

    code: ClassVar[int] = 30050


class PromoteReplica(Request, kw_only=True, frozen=True):
    """PROMOTE_REPLICA (30051): the follower that is asked is to lead from now on.

    `force`: although the old leader is alive, or another follower may have more.
    """

    code: ClassVar[int] = 30051
    broker_name: str
    force: bool = False


class PromoteReplicaResponse(Response, kw_only=True, frozen=True):
    """It will open `epoch` at `position`, where its log ends; the old leader had `behind` more."""

    epoch: Epoch
    position: Position
    behind: Position


class TransferLeader(Request, kw_only=True, frozen=True):
    """TRANSFER_LEADER (30052): the leader of a Raft group is to let another member lead.

    `target`: that member's name or brokerId, "" for whoever has most of the log.
    """

    code: ClassVar[int] = 30052
    broker_name: str
    target: MemberName = ""


class TransferLeaderResponse(Response, kw_only=True, frozen=True):
    """It has begun: `target` ("" for whoever has most) is to follow `leader`, that led `epoch`."""

    leader: MemberName
    epoch: Epoch
    target: MemberName = ""
