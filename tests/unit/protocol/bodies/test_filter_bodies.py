"""The JSON bodies of filters."""

from __future__ import annotations

import json

import pytest

from kourou.errors import DecodeError
from kourou.model.filter import FilterPolicy, FilterState, FilterVersion
from kourou.protocol.bodies.filter_bodies import (
    FilterFigures,
    FilterTrial,
    TriedMessage,
    decode_filter_servers,
    decode_filter_statistics,
    decode_filter_trial,
    decode_filters,
    encode_filter_statistics,
    encode_filter_trial,
    encode_filters,
)

LATE = FilterState(
    "till",
    "late",
    (
        FilterVersion(1, "aa", "ann", "first", 1_000, 7),
        FilterVersion(2, "bb", "bob", "“two”", 2_000, 9, "def…", 2_001),
    ),
    active=2,
    before_active=1,
    policy=FilterPolicy.SKIP,
    quarantined={1: "it died"},
    skipped=3,
    next_version=3,
)
FILTERS = (
    b'{"filters":[{"group":"till","name":"late","versions":[{"version":1,"sha256":"aa","author":'
    b'"ann","note":"first","uploadedMs":1000,"sizeBytes":7},{"version":2,"sha256":"bb","author":'
    b'"bob","note":"\xe2\x80\x9ctwo\xe2\x80\x9d","uploadedMs":2000,"sizeBytes":9,"source":'
    b'"def\xe2\x80\xa6","enabledMs":2001}],"active":2,"beforeActive":1,"policy":"skip",'
    b'"quarantined":{"1":"it died"},"skipped":3,"nextVersion":3}],"servers":["h:1","h:2"]}'
)
TRIAL = FilterTrial(
    topic="flights",
    version=2,
    messages=[
        TriedMessage(queue_id=0, offset=7, message_id="id", tag="t", keys="k", passed=True),
        TriedMessage(queue_id=1, offset=8, reason="KeyError: 'delay'"),
    ],
    seen=2,
    passed=1,
    failed=1,
    micros=31,
    start_micros=6_000,
    failure="raised",
    reason="KeyError",
)
FIGURES = FilterFigures(
    group="till", name="late", version=2, seen=100, passed=1, micros=400, failed_at_ms=5, failures=1
)


def test_filters_are_these_bytes_and_come_back() -> None:
    assert encode_filters([LATE], ["h:1", "h:2"]) == FILTERS
    assert decode_filters(FILTERS) == [LATE]
    assert decode_filter_servers(memoryview(FILTERS)) == ["h:1", "h:2"]
    assert encode_filters([]) == b'{"filters":[]}'
    assert decode_filters(b'{"filters":[]}') == []
    assert decode_filter_servers(b'{"filters":[]}') == []


def test_what_is_left_out_has_its_default_and_what_is_unknown_is_passed_over() -> None:
    body = b'{"filters":[{"group":"g","name":"f","new":1,"versions":[{"version":1,"sha256":""}]}]}'
    [one] = decode_filters(body)
    assert one == FilterState("g", "f", (FilterVersion(1, "", "", "", 0, 0),))


def test_a_trial_and_figures_come_back() -> None:
    assert decode_filter_trial(encode_filter_trial(TRIAL)) == TRIAL
    assert json.loads(encode_filter_trial(TRIAL))["startMicros"] == 6_000
    assert decode_filter_statistics(encode_filter_statistics([FIGURES])) == [FIGURES]
    assert decode_filter_statistics(encode_filter_statistics([])) == []


WHOLE = [
    (decode_filters, FILTERS),
    (decode_filter_servers, FILTERS),
    (decode_filter_trial, encode_filter_trial(TRIAL)),
    (decode_filter_statistics, encode_filter_statistics([FIGURES])),
]


@pytest.mark.parametrize(("decode", "whole"), WHOLE)
def test_foreign_bytes_raise_decode_error_only(decode, whole: bytes) -> None:
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            decode(whole[:end])
    for at in range(len(whole)):
        for byte in (0, 0x22, 0x7B, 0xFF):
            try:
                decode(whole[:at] + bytes([byte]) + whole[at + 1 :])
            except DecodeError:
                continue


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"filters":[{}]}',
        b'{"filters":[{"group":"g","name":"f","policy":"drop"}]}',
        b'{"filters":[{"group":"g","name":"f","active":0}]}',
        b'{"filters":[{"group":"g","name":"f","quarantined":{"x":""}}]}',
        b'{"filters":[{"group":"g","name":"f","skipped":-1}]}',
        b"[" * 100_000,
    ],
)
def test_wrong_filters_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError, match="not a valid list of filters"):
        decode_filters(body)
