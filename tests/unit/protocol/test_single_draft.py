"""The test of one draft agrees with the test of many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import MessageIllegal
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import encode_draft
from kourou.protocol.record_batch import check_drafts
from kourou.protocol.single_draft import check_draft


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
    assert not check_draft(draft(), b"T", 3, 100)
    assert not check_draft(memoryview(draft(b"")), b"T", 3, 100)
    full = encode_properties({"k": "v" * 32_765})
    assert not check_draft(draft(properties=full), b"T", 3, 100)


@pytest.mark.parametrize(
    ("changed", "asked", "told"),
    [
        ({}, {"topic": b"X"}, "topic"),
        ({}, {"queue_id": 4}, "queue id"),
        ({"body": bytes(101)}, {}, "maxMessageSize is 100"),
        ({"with_crc": False}, {}, "checksum"),
        ({"sys_flag": 4}, {}, "a phase of a transaction"),
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
    ("properties", "elsewhere"),
    [
        (b"UNIQ_KEY\x01U", False),
        (b"k\x01DELAY\x02", False),
        (b"DELAY\x013", True),
        (b"a\x01b\x02TRAN_MSG\x01true\x02", True),
    ],
)
def test_what_may_have_to_wait_in_another_topic_is_told(properties: bytes, elsewhere: bool) -> None:
    body = b"DELAY\x013\x02TRAN_MSG\x01true"
    assert check_draft(draft(body, properties=properties), b"T", 3, 100) is elsewhere
    for count in (1, 40):
        drafts = [
            draft(body, properties=properties if n == count - 1 else b"") for n in range(count)
        ]
        sizes = np.asarray([len(one) for one in drafts])
        found = check_drafts(b"".join(drafts), sizes, 100)
        assert list(found.elsewhere) == ([count - 1] if elsewhere else [])


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
