"""A name server's key/value table."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, DecodeError
from kourou.events.control_events import Event, EventLost, KeyValuePut, Recorded
from kourou_namesrv import key_values
from kourou_namesrv.key_values import KEY_VALUES, KeyValues


def apply(state: KeyValues, events: list[Event], at_ms: int = 5) -> KeyValues:
    for event in events:
        KEY_VALUES.evolve(state, Recorded(state.next_offset, -1, at_ms, "", "", "", event))
    return state


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [("", "k", "v"), ("N", "", "v"), ("N", "k", ""), ("N", "k\n", "v"), ("N", "k", "v" * 65_537)],
)
def test_what_is_empty_too_long_or_unprintable_is_refused(namespace: str, key: str, value: str):
    with pytest.raises(BadRequest):
        key_values.decide_put(KeyValues(), namespace, key, value)


def test_a_snapshot_is_the_state():
    state = apply(KeyValues(), [KeyValuePut("N", "k", "1"), EventLost("x")])
    taken = KEY_VALUES.snapshot(state)
    copy = state.copy()
    apply(state, [KeyValuePut("N", "k", "2", "1")])
    assert KEY_VALUES.decode(taken.body) == copy
    assert copy.get("N", "k") == "1"
    assert state.get("N", "k") == "2"


@pytest.mark.parametrize(
    "snapshot", [b"", b"[]", b'{"format":2,"next_offset":0,"at_ms":0,"table":{}}']
)
def test_what_is_no_snapshot_raises_decode_error(snapshot: bytes):
    with pytest.raises(DecodeError):
        KEY_VALUES.decode(snapshot)


@pytest.mark.fuzz
@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from(["format", "next_offset", "nextOffset", "at_ms", "atMs", "table", "x"]),
        st.none()
        | st.integers()
        | st.text(max_size=5)
        | st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=2),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_are_a_snapshot_or_a_decode_error(snapshot: bytes):
    with suppress(DecodeError):
        assert isinstance(KEY_VALUES.decode(snapshot), KeyValues)
