"""The JSON body of GET_REPLICAS: one broker's view of the replicas of a log.

{"cluster":"DefaultCluster","brokerName":"broker-a","brokerId":0,"brokerRole":"SYNC_MASTER",
 "leads":true,"epoch":64,"leader":"broker-a/0","first":0,"end":4096,"flushed":4096,
 "confirmed":4096,"inSync":[1],"epochs":[[64,1024]],
 "followers":[{"brokerId":1,"address":"127.0.0.1:40212","state":"REPLICATE","written":4096,
               "flushed":4096,"lagBytes":0,"lagMs":0,"inSync":true}]}
"""

from __future__ import annotations

import msgspec

from kourou.protocol.request import Int64
from kourou.protocol.wire.json_bodies import Buffer, malformed


class FollowerView(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One follower, as its leader sees it. Positions and lags in bytes.

    `lag_ms`: time since it had everything the leader had; None if never since it attached. `member`
    is its name in a Raft group, "" outside of one; `in_sync` is False in a Raft group, where
    majorities count.
    """

    broker_id: Int64
    address: str
    state: str
    written: Int64
    flushed: Int64
    lag_bytes: Int64
    lag_ms: Int64 | None
    in_sync: bool
    member: str = ""


class ReplicasView(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One broker's view. `broker_role` is that of the leader.

    `leads` with `epoch` 0: the log never had a follower. `fenced`: the epoch of another leader,
    because of which this broker stores nothing more; 0 if there is none. `state`, `reason`,
    `lag_bytes` and `lag_ms` describe a follower's own replica; a leader's are empty. `member` is
    this broker's name in a Raft group, "" outside of one; there `state` is its role, and `leader`
    is "" while no leader is known.
    """

    cluster: str
    broker_name: str
    broker_id: Int64
    broker_role: str
    leads: bool
    epoch: Int64
    leader: str
    first: Int64
    end: Int64
    flushed: Int64
    confirmed: Int64
    in_sync: tuple[Int64, ...] = ()
    epochs: tuple[tuple[Int64, Int64], ...] = ()
    followers: tuple[FollowerView, ...] = ()
    fenced: Int64 = 0
    leader_address: str = ""
    state: str = ""
    reason: str = ""
    lag_bytes: Int64 | None = None
    lag_ms: Int64 | None = None
    member: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ReplicasView).decode


def encode_replicas(told: ReplicasView) -> bytes:
    """The body of a reply."""
    return _encode(told)


def decode_replicas(body: Buffer) -> ReplicasView:
    """A broker's reply. Raises DecodeError."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed("view of a log's members", error) from error
