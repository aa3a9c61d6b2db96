from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import DecodeError
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, TopicConfig
from kourou.store.config.config_json import (
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
