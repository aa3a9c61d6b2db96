"""Many records are moved as each would be by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.moved_batch import head_bytes, moved_drafts
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import encode_draft, encode_host, stamp
from kourou.protocol.record_columns import scan
from kourou.protocol.record_layout import CRC_PLACEHOLDER, parts_of
from kourou.protocol.record_moves import moved_draft

V4, V6 = encode_host(("10.1.2.3", 9)), encode_host(("fd00::1", 9))
HOSTS = st.sampled_from([(V4, False), (V4, True), (V6, False), (V6, True)])
ROWS = st.lists(
    st.tuples(
        st.binary(max_size=40),
        st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from(["x", "yy"]), max_size=2),
        st.sampled_from(["orders", "o", "bills"]),
        st.integers(0, 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
    ),
    min_size=1,
    max_size=14,
)


def stored(body: bytes, host: bytes, wide: bool, at: int, flag: int) -> bytes:
    draft = encode_draft(
        topic=b"from",
        queue_id=2,
        body=body,
        properties=b"UNIQ_KEY\x01U",
        flag=flag,
        sys_flag=1,
        born_timestamp=17,
        born_host=host,
        store_host_v6=wide,
        reconsume_times=3,
    )
    record = bytearray(draft)
    stamp(record, 0, queue_offset=5, position=at, store_timestamp=99, store_host=V4)
    return bytes(record)


@pytest.mark.feature("F243")
@given(ROWS, HOSTS)
def test_many_are_moved_as_one_by_one(rows, hosts) -> None:
    records = [stored(body, *hosts, 100 + at, flag) for at, (body, *_, flag) in enumerate(rows)]
    found = scan(b"".join(records))
    moved = moved_drafts(
        found,
        [
            encode_properties(named) + (b"\x02" if named else b"") + CRC_PLACEHOLDER
            for _, named, *_ in rows
        ],
        [topic.encode() for _, _, topic, *_ in rows],
        queue_ids=np.asarray([queue_id for *_, queue_id, _ in rows]),
        sys_flags=found.sys_flags | 8,
        prepared=found.positions,
    )
    for draft, record, (_, named, topic, queue_id, _) in zip(moved, records, rows, strict=True):
        parts = parts_of(record, 0, len(record))
        assert draft == moved_draft(
            record,
            parts,
            (topic, queue_id),
            named,
            sys_flag=parts.sys_flag | 8,
            prepared=parts.position,
        )


@pytest.mark.parametrize("others", [(V6, False), (V4, True)])
def test_hosts_of_mixed_width_have_no_common_place(others) -> None:
    one, other = stored(b"x", V4, False, 1, 0), stored(b"x", *others, 2, 0)
    assert head_bytes(scan(one * 12)) == 88
    assert head_bytes(scan(other * 12)) == 100
    assert head_bytes(scan(one * 12 + other)) is None
