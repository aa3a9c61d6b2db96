"""What a broker tells of its log's members, as bytes."""

from __future__ import annotations

import json

import pytest

from kourou.errors import DecodeError
from kourou.protocol.bodies.broker_bodies import (
    FollowerView,
    ReplicasView,
    decode_replicas,
    encode_replicas,
)

FOLLOWER = FollowerView(
    broker_id=1, address="f:1", state="REPLICATE", written=90, flushed=80, lag_bytes=10,
    lag_ms=None, in_sync=False,
)  # fmt: skip
TOLD = ReplicasView(
    cluster="C", broker_name="broker-a", broker_id=0, broker_role="SYNC_MASTER", leads=True,
    epoch=64, leader="broker-a/0", first=0, end=100, flushed=100, confirmed=90,
    epochs=((64, 20),), followers=(FOLLOWER,),
)  # fmt: skip


def test_it_comes_back_as_it_was() -> None:
    assert decode_replicas(encode_replicas(TOLD)) == TOLD


def test_names_are_those_of_other_bodies() -> None:
    read = json.loads(encode_replicas(TOLD))
    assert (read["brokerName"], read["inSync"], read["epochs"]) == ("broker-a", [], [[64, 20]])
    assert read["followers"][0]["lagMs"] is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"cluster":1}', b"\xff"])
def test_what_is_no_such_body_is_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_replicas(body)
