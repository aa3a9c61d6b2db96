"""Bodies of control events and states."""

from __future__ import annotations

import msgspec
import pytest

from kourou.errors import DecodeError
from kourou.protocol.bodies.broker_bodies import (
    EventView,
    decode_event_views,
    decode_state_view,
    encode_event_views,
)

EVENT = b'{"type":"New","n":1.50}'


def told(**changes: object) -> EventView:
    given = {
        "offset": 7,
        "at_ms": 1_000,
        "actor": "ann",
        "reason": "",
        "trace_id": "",
        "aggregate": "new/x",
        "event": msgspec.Raw(EVENT),
        **changes,
    }
    return EventView(**given)


def test_events_come_back_as_they_were_and_an_unknown_one_byte_for_byte():
    body = encode_event_views([told(), told(offset=8, undoes=7)])
    assert EVENT in body
    first, second = decode_event_views(body)
    assert (first.offset, first.undoes, bytes(first.event)) == (7, None, EVENT)
    assert (second.offset, second.undoes, second.fields) == (8, 7, {"type": "New", "n": 1.5})
    assert body.count(b"undoes") == 1
    assert decode_event_views(b"[]") == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[1]", b"\xff", b'[{"offset":1}]', b"[" * 100_000, b'[{"offset":"x"}]'],
)
def test_what_is_no_list_of_events_is_refused(body: bytes):
    with pytest.raises(DecodeError, match="list of control events"):
        decode_event_views(body)


def test_an_event_that_is_no_object_is_refused():
    (one,) = decode_event_views(encode_event_views([told(event=msgspec.Raw(b"[1]"))]))
    with pytest.raises(DecodeError, match="list of control events"):
        _ = one.fields


def test_a_state_is_any_json():
    assert decode_state_view(b"null") is None
    assert decode_state_view(memoryview(b'{"a":[1]}')) == {"a": [1]}
    for wrong in (b"", b"{", b"\xff"):
        with pytest.raises(DecodeError, match="state of the control plane"):
            decode_state_view(wrong)
