"""Bodies of Kourou's own requests to brokers: settings, control events, replicas, batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kourou.errors import DecodeError
from kourou.protocol.bodies.broker_bodies import (
    BatchDecision,
    EventView,
    FollowerView,
    ReplicasView,
    SettingView,
    decode_attempts,
    decode_decision,
    decode_event_views,
    decode_replicas,
    decode_setting_views,
    decode_state_view,
    encode_attempts,
    encode_decision,
    encode_event_views,
    encode_replicas,
    encode_setting_views,
)

EVENT = b'{"type":"New","n":1.50}'
SETTING = SettingView(
    name="fileReservedTime", value="100", configured="72", kind="integer", about="hours",
    changeable=True, minimum=1, choices=("1", "100"),
)  # fmt: skip
FOLLOWER = FollowerView(
    broker_id=1, address="f:1", state="REPLICATE", written=90, flushed=80, lag_bytes=10,
    lag_ms=None, in_sync=False,
)  # fmt: skip
REPLICAS = ReplicasView(
    cluster="C", broker_name="broker-a", broker_id=0, broker_role="SYNC_MASTER", leads=True,
    epoch=64, leader="broker-a/0", first=0, end=100, flushed=100, confirmed=90,
    epochs=((64, 20),), followers=(FOLLOWER,),
)  # fmt: skip


def event(offset: int, undoes: int | None = None, text: bytes = EVENT) -> EventView:
    return EventView(
        offset=offset, at_ms=1_000, actor="ann", reason="", trace_id="", aggregate="new/x",
        event=msgspec.Raw(text), undoes=undoes,
    )  # fmt: skip


def test_events_come_back_as_they_were_and_an_unknown_one_byte_for_byte() -> None:
    body = encode_event_views([event(7), event(8, undoes=7)])
    assert EVENT in body
    first, second = decode_event_views(body)
    assert (first.offset, first.undoes, bytes(first.event)) == (7, None, EVENT)
    assert (second.offset, second.undoes, second.fields) == (8, 7, {"type": "New", "n": 1.5})
    assert body.count(b"undoes") == 1
    assert decode_event_views(b"[]") == []


def test_an_event_that_is_no_object_is_refused() -> None:
    (one,) = decode_event_views(encode_event_views([event(7, text=b"[1]")]))
    with pytest.raises(DecodeError, match="list of control events"):
        _ = one.fields


def test_a_state_is_any_json() -> None:
    assert decode_state_view(b"null") is None
    assert decode_state_view(memoryview(b'{"a":[1]}')) == {"a": [1]}


@pytest.mark.parametrize(
    ("encoded", "decode", "value"),
    [
        (encode_setting_views([SETTING]), decode_setting_views, [SETTING]),
        (encode_replicas(REPLICAS), decode_replicas, REPLICAS),
        (encode_attempts({0: ("a", 5)}), decode_attempts, {0: ("a", 5)}),
        (encode_decision({0: "a"}, {"b": 5}), decode_decision, BatchDecision({0: "a"}, {"b": 5})),
    ],
)
def test_it_comes_back_as_it_was(encoded: bytes, decode: Callable[..., Any], value: object) -> None:
    assert decode(encoded) == value


def test_names_are_those_of_other_bodies() -> None:
    assert json.loads(encode_setting_views([SETTING]))["settings"][0]["whyNot"] == ""
    read = json.loads(encode_replicas(REPLICAS))
    assert (read["brokerName"], read["inSync"], read["epochs"]) == ("broker-a", [], [[64, 20]])
    assert read["followers"][0]["lagMs"] is None


WRONG = [b"{", b"\xff", b"[" * 100_000, b"[1]", b'[{"offset":"x"}]']
WRONG += [b'{"cluster":1}', b'{"settings":[{"name":1}]}', b'{"winners":{"x":"a"}}']


@pytest.mark.parametrize(
    ("decode", "name", "valid"),
    [
        (decode_event_views, "list of control events", []),
        (decode_state_view, "state of the control plane", WRONG[3:]),
        (decode_setting_views, "description of settings", []),
        (decode_replicas, "view of a log's members", []),
        (decode_attempts, "list of attempts", []),
        (decode_decision, "decision about a batch", WRONG[5:7]),
    ],
)
def test_what_is_no_such_body_is_a_decode_error_that_names_it(
    decode: Callable[..., Any], name: str, valid: list[bytes]
) -> None:
    for body in WRONG:
        if body not in valid:
            with pytest.raises(DecodeError, match=f"not a valid {name}"):
                decode(body)
