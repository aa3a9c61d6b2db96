"""The test of one draft agrees with the test of many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import MessageIllegal
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import encode_draft
from kourou.protocol.record_batch import check_drafts
from kourou.protocol.single_draft import check_draft, later_problem, may_be_later


def draft(body: bytes = b"hello", **fields) -> bytes:
    return encode_draft(
        **{
            "topic": b"T",
            "queue_id": 3,
            "body": body,
            "properties": encode_properties({"UNIQ_KEY": "U"}),
            "born_timestamp": 1,
            "born_host": bytes(8),
            **fields,
        }
    )


def test_a_good_draft_passes() -> None:
    check_draft(draft(), b"T", 3, 100)
    check_draft(memoryview(draft(b"")), b"T", 3, 100)
    full = encode_properties({"k": "v" * 32_765})
    check_draft(draft(properties=full), b"T", 3, 100)


@pytest.mark.parametrize(
    ("changed", "asked", "told"),
    [
        ({}, {"topic": b"X"}, "topic"),
        ({}, {"queue_id": 4}, "queue id"),
        ({"body": bytes(101)}, {}, "maxMessageSize is 100"),
        ({"with_crc": False}, {}, "checksum"),
        ({"sys_flag": 4}, {}, "transactional"),
        ({"properties": b"DELAY\x013"}, {}, "delayed messages yet: send .* property DELAY"),
        ({"properties": b"k\x01v\x02TRAN_MSG\x01true"}, {}, "the property TRAN_MSG"),
    ],
)
def test_a_wrong_draft_is_refused_by_name(changed, asked, told) -> None:
    claim = {"topic": b"T", "queue_id": 3, "body_size_max": 100, **asked}
    with pytest.raises(MessageIllegal, match=told):
        check_draft(draft(**changed), **claim)


def test_a_damaged_body_is_refused() -> None:
    raw = bytearray(draft())
    raw[raw.index(b"hello")] ^= 1
    with pytest.raises(MessageIllegal, match=r"its checksum .*BODYCRC.* send it again"):
        check_draft(bytes(raw), b"T", 3, 100)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        (b"", ""),
        (b"UNIQ_KEY\x01U", ""),
        (b"DELAY\x010\x02TRAN_MSG\x01false", ""),
        (b"MY_DELAY\x013", ""),
        (b"k\x01DELAY\x02", ""),
        (b"DELAY\x013\x02DELAY\x010", ""),
        (b"DELAY\x010\x02DELAY\x013", "DELAY"),
        (b"DELAY\x013", "DELAY"),
        (b"a\x01b\x02TRAN_MSG\x01true\x02", "TRAN_MSG"),
    ],
)
def test_which_properties_ask_for_what_is_not_built(properties: bytes, named: str) -> None:
    told = later_problem(properties)
    assert bool(told) == bool(named)
    assert told.endswith(named)
    assert may_be_later(properties) or not told


@given(st.integers(0, 10_000), st.integers(1, 255), st.integers(0, 3))
def test_damage_is_judged_as_in_a_batch(at: int, flip: int, cut: int) -> None:
    raw = bytearray(draft())
    raw[at % len(raw)] ^= flip
    damaged = bytes(raw[: len(raw) - cut])
    sizes = np.asarray([len(damaged)], dtype=np.int64)
    try:
        columns = check_drafts(damaged, sizes, 100)
        fine = int(columns.queue_ids[0]) == 3 and columns.topic(0) == b"T"
    except MessageIllegal:
        fine = False
    try:
        check_draft(damaged, b"T", 3, 100)
    except MessageIllegal:
        assert not fine
    else:
        assert fine
