from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt
from kourou.protocol.record.columns import columns
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft, stamp
from kourou.store.log.quarantine import Quarantine, Region
from kourou.store.log.verified import (
    PlacedRecords,
    check_stored,
    properties_are_sound,
    sound,
    verify,
)

V4 = encode_host(("10.0.0.1", 10911))
V6 = encode_host(("fe80::1", 10911))
BASE = 70_000
COUNT = 12


def make(index: int, position: int, **changes: object) -> bytes:
    fields: dict[str, object] = {
        "topic": b"TopicA",
        "queue_id": 3,
        "body": bytes([index]) * (index * 7 % 50),
        "properties": b"KEYS\x01k%d" % index,
        "born_timestamp": 1,
        "born_host": V4,
        **changes,
    }
    offset = fields.pop("offset", 100 + index)
    record = bytearray(encode_draft(**fields))  # type: ignore[arg-type]  # fields by name
    host = V6 if fields.get("store_host_v6") else V4
    stamp(record, 0, queue_offset=offset, position=position, store_timestamp=9, store_host=host)  # type: ignore[arg-type]
    return bytes(record)


class Batch:
    """Records back to back from BASE; `changes` replaces fields of single ones."""

    def __init__(self, changes: dict[int, dict[str, object]] | None = None) -> None:
        self.data = bytearray()
        starts, sizes = [], []
        for index in range(COUNT):
            record = make(index, BASE + len(self.data), **(changes or {}).get(index, {}))
            starts.append(len(self.data))
            sizes.append(len(record))
            self.data += record
        self.starts, self.sizes = np.array(starts), np.array(sizes)

    def good(self, topic: bytes | None = b"TopicA") -> list[bool]:
        """What both checks say, which must be the same."""
        many = verify(self.placed(), topic, 3, 100)
        single = [
            verify(self.placed(slice(index, index + 1)), topic, 3, 100)[0] for index in range(COUNT)
        ]
        assert list(many) == single
        return [result == 1 for result in many]

    def placed(self, rows: slice = slice(None), at: int = BASE) -> PlacedRecords:
        """These records, as units refer to them that begin at position `at`."""
        positions, sizes, indexes = (
            array("q", column.tolist()[rows])
            for column in (self.starts + at, self.sizes, np.arange(COUNT))
        )
        view = memoryview(bytes(self.data))
        return PlacedRecords(view, at, positions, sizes, positions, indexes)


def all_but(*bad: int) -> list[bool]:
    return [index not in bad for index in range(COUNT)]


def test_whole_records_of_the_queue_are_wanted() -> None:
    assert Batch().good() == all_but()


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"TopicB"},
        {"topic": b"TopicAA"},
        {"topic": b"T"},
        {"queue_id": 4},
        {"offset": 99},
    ],
)
def test_a_record_of_another_place_is_not(changes: dict[str, object]) -> None:
    batch = Batch({5: changes})
    assert batch.good() == all_but(5)
    assert batch.good(topic=None) == all_but(), "any queue's records were asked for"


def test_a_record_that_lies_elsewhere_than_it_says_is_not() -> None:
    batch = Batch()
    moved = make(4, BASE + int(batch.starts[4]) + 1)
    batch.data[batch.starts[4] : batch.starts[4] + len(moved)] = moved
    assert batch.good() == all_but(4)


@pytest.mark.feature("F067")
def test_records_without_checksum_or_with_ipv6_hosts_pass_too() -> None:
    assert (
        Batch(
            {
                1: {"with_crc": False},
                2: {"born_host": V6},
                3: {"store_host_v6": True},
                4: {"with_crc": False, "properties": b""},
                5: {"properties": b""},
            }
        ).good()
        == all_but()
    )


def test_a_record_that_lost_its_checksum_property_does_not_pass_as_one_without() -> None:
    record = make(3, 0, body=b"x" * 100)
    assert check_stored(memoryview(record), 0, len(record), 0).queue_offset == 103
    for junk in (bytes(20), b"\xff" * 20, b"ab\x9f\x01" * 5, b"y" * 20):
        for keep in range(20):
            damaged = record[: len(record) - 20 + keep] + junk[keep:]
            with pytest.raises(Corrupt):
                check_stored(memoryview(damaged), 0, len(damaged), 0)
            at = np.zeros(1, np.int64)
            try:
                found = columns(damaged, at, at + len(damaged))
            except Corrupt:
                continue
            assert not sound(found, at).any()


def test_a_filler_is_no_record() -> None:
    data = memoryview((200).to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(192))
    with pytest.raises(Corrupt, match="filler"):
        check_stored(data, 0, 200, 0)


@pytest.mark.parametrize(
    "properties",
    [b"", b"a\x01b", b"a\x01b\x02", b"a\x01b\x02c\x01d", "ключ\x01значение".encode(), b"a\x01"],
)
def test_properties_as_producers_write_them_are_sound(properties: bytes) -> None:
    assert properties_are_sound(properties)


@pytest.mark.parametrize(
    "properties",
    [b"a", b"a\x01b\x02c", b"\x01b", b"a\x01b\0", b"a\x01\xff", b"\x02", b"a\x01b\x02\x02"],
)
def test_what_a_torn_sector_leaves_is_not(properties: bytes) -> None:
    assert not properties_are_sound(properties)


@pytest.mark.fuzz
@given(st.binary(max_size=300))
def test_whatever_the_bytes_are_nothing_else_is_raised(data: bytes) -> None:
    padded = data.ljust(100, b"\0")
    with pytest.raises(Corrupt):
        check_stored(memoryview(padded), 0, len(padded), 0)
    starts = array("q", [0] * 5)
    sizes = array("q", [len(padded)] * 5)
    placed = PlacedRecords(memoryview(padded), 0, starts, sizes, starts, starts)
    assert not any(verify(placed, b"TopicA", 0, 0))


# -- quarantine ------------------------------------------------------------------------------------


def test_a_position_is_in_a_region_or_not() -> None:
    quarantine = Quarantine([Region(10, 20), Region(30, 31)])
    assert [at for at in range(40) if quarantine.at(at)] == [*range(10, 20), 30]
    assert quarantine.next_start(0) == 10
    assert quarantine.next_start(10) == 10
    assert quarantine.next_start(11) == 30
    assert quarantine.next_start(31) is None


def test_overlapping_regions_become_one() -> None:
    quarantine = Quarantine([Region(10, 20, "first")])
    quarantine.add([Region(15, 25, "second"), Region(10, 12, "third")])
    assert quarantine.regions == [Region(10, 25, "first")]
    quarantine.add([Region(25, 30, "behind")])
    assert len(quarantine) == 2


def test_regions_below_the_log_are_forgotten() -> None:
    quarantine = Quarantine([Region(10, 20), Region(30, 40)])
    quarantine.forget_below(20)
    assert quarantine.regions == [Region(30, 40)]
    assert quarantine.at(15) is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12))
def test_it_knows_exactly_the_union(pairs: list[tuple[int, int]]) -> None:
    quarantine = Quarantine([])
    covered: set[int] = set()
    for start, size in pairs:
        quarantine.add([Region(start, start + size)])
        covered |= set(range(start, start + size))
    assert {at for at in range(100) if quarantine.at(at)} == covered
    assert quarantine.regions == sorted(quarantine.regions)
