""""""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt, DecodeError
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, TopicConfig
from kourou.store.config import config_files
from kourou.store.config.config_files import (
    GROUPS,
    OFFSETS,
    OURS,
    TOPICS,
    ConfigFiles,
    GroupTable,
    TopicTable,
    decode_delays,
    decode_groups,
    decode_offsets,
    decode_topics,
    encode_delays,
    encode_groups,
    encode_offsets,
    encode_topics,
    progress_key,
    split_progress_key,
)
from kourou.store.paths import StorePaths
from kourou.testing.disk import SimDisk

GOLDEN = Path(__file__).parents[3] / "golden" / "rocketmq-4.9.8"
CODECS = {
    "topics.json": (decode_topics, encode_topics),
    "subscriptionGroup.json": (decode_groups, encode_groups),
    "consumerOffset.json": (decode_offsets, encode_offsets),
    "delayOffset.json": (decode_delays, encode_delays),
}


@pytest.mark.feature("F061", "F071")
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("suffix", ["", ".bak"])
@pytest.mark.parametrize("store", ["store-clean", "store-live-abort"])
def test_rocketmq_files_come_back_byte_for_byte(store, name, suffix):
    data = (GOLDEN / store / "config" / (name + suffix)).read_bytes()
    decode, encode = CODECS[name]
    assert encode(decode(data)) == data


def test_values_of_the_golden_files():
    config = GOLDEN / "store-clean" / "config"
    topics = decode_topics((config / "topics.json").read_bytes())
    assert topics.version == DataVersion(1_795_228_849_207, 8)
    assert topics.topics["TBW102"] == TopicConfig("TBW102", 8, 8, 7)
    groups = decode_groups((config / "subscriptionGroup.json").read_bytes())
    assert groups.groups["CG1"] == GroupConfig("CG1")
    offsets = decode_offsets((config / "consumerOffset.json").read_bytes())
    assert offsets["TopicA@CG1"] == {0: 4, 1: 3, 2: 2, 3: 3}
    assert decode_delays((config / "delayOffset.json").read_bytes()) == {1: 1, 3: 1}


def test_tables_may_be_empty():
    assert encode_offsets({}) == b'{\n\t"offsetTable":{}\n}'
    assert encode_offsets({"T@g": {}}) == b'{\n\t"offsetTable":{\n\t\t"T@g":{}\n\t}\n}'
    for decode in (decode_topics, decode_groups, decode_offsets, decode_delays):
        decode(b"{}")


def test_strict_and_sloppy_json_is_read_too():
    assert decode_offsets(b'{"offsetTable":{"T@g":{"0":"5","1":6}}}') == {"T@g": {0: 5, 1: 6}}
    assert decode_offsets(b"{offsetTable:{'T@g':{0:5,},},}") == {"T@g": {0: 5}}
    table = decode_topics(
        b'{"topicConfigTable":{"T":{"perm":4,"attributes":{},"topicName":"T"}},"later":1}'
    )
    assert table.topics == {"T": TopicConfig("T", 16, 16, 4)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"offsetTable":5}',
        b'{"offsetTable":{"a":{"x":1}}}',
        b'{"offsetTable":{"a":{"0":{}}}}',
        b"\xff\xfe",
        b'{"topicConfigTable":[],"subscriptionGroupTable":[],"offsetTable":[]}',
    ],
)
def test_what_is_no_table_is_a_decode_error(data):
    for decode in (decode_topics, decode_groups, decode_offsets, decode_delays):
        try:
            decode(data)
        except DecodeError:
            continue
        assert b"offsetTable" in data  # a table that the two others do not look at
        assert decode in (decode_topics, decode_groups)


@pytest.mark.fuzz
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data):
    for decode in (decode_topics, decode_groups, decode_offsets, decode_delays):
        try:
            decode(data)
        except DecodeError:
            continue


names = st.text("ab%|_-", min_size=1, max_size=8)
numbers = st.integers(0, 2**31 - 1)


@given(
    st.dictionaries(
        names, st.tuples(numbers, numbers, st.integers(0, 7), st.booleans()), max_size=5
    ),
    st.tuples(numbers, numbers),
)
def test_topics_and_groups_survive_the_way_there_and_back(drawn, version):
    topics = {
        name: TopicConfig(name, read, write, perm, order=order)
        for name, (read, write, perm, order) in drawn.items()
    }
    table = TopicTable(topics, DataVersion(*version))
    assert decode_topics(encode_topics(table)) == table
    groups = {
        name: GroupConfig(name, consume_enable=order, retry_max_times=read, broker_id=perm)
        for name, (read, _, perm, order) in drawn.items()
    }
    group_table = GroupTable(groups, DataVersion(*version))
    assert decode_groups(encode_groups(group_table)) == group_table


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.dictionaries(numbers, numbers)))
def test_offsets_survive_the_way_there_and_back(drawn):
    assert decode_offsets(encode_offsets(drawn)) == drawn


def test_keys_of_progress():
    assert progress_key("%RETRY%g", "g") == "%RETRY%g@g"
    assert split_progress_key("%RETRY%g@g") == ("%RETRY%g", "g")
    for key in ("", "T", "@g", "T@", "T@g@h"):
        assert split_progress_key(key) is None


PATHS = StorePaths.under(Path("/s"))
FILE = PATHS.config / "consumerOffset.json"


def new_disk(seed: int = 0, **options: int) -> SimDisk:
    disk = SimDisk(seed, **options)
    for directory in PATHS.directories:
        disk.make_dirs(directory)
        disk.sync_dir(directory.parent)
    return disk


def progress(number: int) -> dict[str, dict[int, int]]:
    return {"TopicA@g": {0: number, 1: number * 7}}


def write(disk: SimDisk, name: str, data: bytes) -> None:
    path = PATHS.config / name
    disk.unlink(path)
    disk.open(path, create_size=0).pwrite(data, 0)


@pytest.mark.feature("F061", "F071", "F083")
def test_tables_are_written_with_a_copy_of_the_one_before():
    disk = new_disk()
    files = ConfigFiles(disk, PATHS)
    assert files.load_offsets() is None
    assert files.save_offsets(progress(1))
    assert files.save_offsets(progress(2))
    assert disk.read(FILE) == encode_offsets(progress(2))
    assert disk.read(PATHS.config / (OFFSETS + ".bak")) == encode_offsets(progress(1))
    files.save_topics(TopicTable({"T": TopicConfig("T")}, DataVersion(5, 6)))
    files.save_groups(GroupTable({"g": GroupConfig("g")}))
    files.save_delays({1: 2})
    again = ConfigFiles(disk, PATHS)
    assert again.load_offsets().value == progress(2)
    assert again.load_topics().value == TopicTable({"T": TopicConfig("T")}, DataVersion(5, 6))
    assert again.load_groups().value.groups == {"g": GroupConfig("g")}
    assert again.load_delays().value == {1: 2}
    assert set(OURS) <= set(disk.list_dir(PATHS.config))


def test_what_stands_there_already_is_not_written_again():
    disk = new_disk()
    files = ConfigFiles(disk, PATHS)
    files.save_offsets(progress(1))
    syncs = disk.syncs
    assert not files.save_offsets(progress(1))
    assert disk.syncs == syncs


@pytest.mark.parametrize("damage", [b"", b"  \n", b'{"offsetTable":{"a":', b"\0" * 40])
def test_an_unreadable_file_is_replaced_by_its_copy_and_that_is_logged(damage):
    disk = new_disk()
    files = ConfigFiles(disk, PATHS)
    files.save_offsets(progress(1))
    files.save_offsets(progress(2))
    write(disk, OFFSETS, damage)
    loaded = files.load_offsets()
    assert loaded.value == progress(1)
    assert OFFSETS in loaded.note
    disk.unlink(FILE)
    assert files.load_offsets().value == progress(1)


def test_if_both_are_unreadable_an_operator_must_look():
    disk = new_disk()
    files = ConfigFiles(disk, PATHS)
    write(disk, OFFSETS, b"{broken")
    with pytest.raises(Corrupt, match=OFFSETS):
        files.load_offsets()
    write(disk, OFFSETS + ".bak", b"[1]")
    with pytest.raises(Corrupt, match="bak"):
        files.load_offsets()
    write(disk, OFFSETS, b"")
    with pytest.raises(Corrupt):
        files.load_offsets()


def test_empty_files_are_as_good_as_none():
    disk = new_disk()
    write(disk, OFFSETS, b"")
    assert ConfigFiles(disk, PATHS).load_offsets() is None


@pytest.mark.parametrize("damage", [b"{broken", b" \n"])
def test_damaged_bytes_do_not_push_out_the_last_whole_copy(damage):
    disk = new_disk()
    files = ConfigFiles(disk, PATHS)
    files.save_offsets(progress(1))
    files.save_offsets(progress(2))
    write(disk, OFFSETS, damage)
    files.save_offsets(progress(3))
    assert disk.read(PATHS.config / (OFFSETS + ".bak")) == encode_offsets(progress(1))
    assert files.load_offsets().value == progress(3)


def test_a_file_that_is_too_long_is_not_read(monkeypatch):
    monkeypatch.setattr(config_files, "CONFIG_FILE_BYTES_MAX", 1_000)
    disk = new_disk()
    write(disk, OFFSETS, bytes(1_001))
    with pytest.raises(OSError, match="at most 1000"):
        ConfigFiles(disk, PATHS).load_offsets()


def test_what_somebody_else_wrote_is_noticed():
    disk = new_disk()
    files = ConfigFiles(disk, PATHS)
    assert files.external_changes() == []
    files.save_offsets(progress(1))
    files.save_groups(GroupTable())
    assert files.external_changes() == []
    assert ConfigFiles(disk, PATHS).external_changes() == []
    write(disk, OFFSETS, encode_offsets(progress(9)))
    write(disk, TOPICS, b"{}")
    disk.unlink(PATHS.config / GROUPS)
    write(disk, "consumerFilter.json", b"{}")  # never ours
    again = ConfigFiles(disk, PATHS)
    assert again.external_changes() == [TOPICS, GROUPS, OFFSETS]
    again.save_offsets(progress(10))
    assert again.external_changes() == [TOPICS, GROUPS], "written by us again"


def test_without_known_hashes_everything_is_foreign():
    disk = new_disk()
    ConfigFiles(disk, PATHS).save_offsets(progress(1))
    disk.overwrite(PATHS.kourou / "config_hashes.json", b"#", 0)
    assert ConfigFiles(disk, PATHS).external_changes() == [OFFSETS]
    disk.unlink(PATHS.kourou / "config_hashes.json")
    assert ConfigFiles(disk, PATHS).external_changes() == [OFFSETS]


def test_a_full_disk_leaves_the_old_table():
    disk = new_disk()
    files = ConfigFiles(disk, PATHS)
    files.save_offsets(progress(1))
    disk.capacity_bytes = 0
    with pytest.raises(OSError, match="No space"):
        files.save_offsets(progress(2))
    assert files.load_offsets().value == progress(1)
    disk.capacity_bytes = 1 << 20
    files.save_offsets(progress(3))
    assert files.load_offsets().value == progress(3)


@pytest.mark.fault
@pytest.mark.feature("F061")
def test_a_power_loss_at_any_sync_leaves_a_whole_table_that_is_ours(rounds):
    for seed in range(rounds(1_000)):
        disk = new_disk(seed)
        files = ConfigFiles(disk, PATHS)
        written = 0
        disk.fail_sync(1 + seed % 40)
        try:
            for number in range(1, 8):
                written = number
                files.save_offsets(progress(number))
        except OSError:
            written -= 1
        after = ConfigFiles(disk.crash(), PATHS)
        loaded = after.load_offsets()
        if loaded is None:
            assert written == 0, seed
        else:
            assert loaded.value in (progress(written), progress(written + 1)), seed
            assert loaded.note == "", seed
            assert after.external_changes() == [], seed
