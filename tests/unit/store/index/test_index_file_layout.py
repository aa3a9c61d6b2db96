import pytest

from kourou.model.limits import INDEX_ENTRIES, INDEX_SLOTS
from kourou.store.index.index_file import ENTRY, IndexHeader, file_size


@pytest.mark.feature("F075")
def test_a_file_has_the_length_that_rocketmq_maps():
    assert file_size(INDEX_SLOTS, INDEX_ENTRIES) == 420_000_040
    assert file_size(100, 60) == 1_640


@pytest.mark.feature("F076")
def test_the_header_has_six_fields_in_forty_bytes():
    header = IndexHeader(1, 2, 3, 4, 5, 6)
    expected = "".join(f"{n:016x}" for n in (1, 2, 3, 4)) + "0000000500000006"
    assert header.encode().hex() == expected
    assert IndexHeader.decode(header.encode()) == header
    assert IndexHeader.decode(bytes(40)).next_number == 1  # never flushed: no entries


def test_a_new_file_begins_where_the_one_before_ended():
    assert IndexHeader(1, 2, 3, 4, 5, 6).successor() == IndexHeader(2, 2, 4, 4, 0, 1)


@pytest.mark.feature("F077")
def test_an_entry_is_hash_position_seconds_and_previous():
    assert ENTRY.itemsize == 20
    assert [ENTRY.fields[name][1] for name in ENTRY.names] == [0, 4, 12, 16]
