"""Topics, groups and progress as bodies."""

import msgspec
import pytest

from kourou.errors import DecodeError
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.bodies.config_bodies import (
    decode_consumer_offsets,
    decode_data_version,
    decode_delay_offsets,
    decode_group_config,
    decode_group_configs,
    decode_topic_configs,
    encode_consumer_offsets,
    encode_data_version,
    encode_delay_offsets,
    encode_group_config,
    encode_group_configs,
    encode_topic_configs,
)

VERSION = DataVersion(1795228849207, 8)
TOPIC = TopicConfig("T", 3, 5, 4, "MULTI_TAG", 2, order=True)
GROUP = GroupConfig("G", False, False, False, 2, 3, 1, 2, False)


def test_versions():
    assert encode_data_version(VERSION) == b'{"counter":8,"timestamp":1795228849207}'
    assert decode_data_version(encode_data_version(VERSION)) == VERSION
    later = b'{"counter":"8","stateVersion":0,"timestamp":1795228849207}'
    assert decode_data_version(later) == VERSION


def test_topic_tables():
    body = encode_topic_configs([TOPIC, TopicConfig("U")], VERSION)
    assert decode_topic_configs(body) == ([TOPIC, TopicConfig("U")], VERSION)
    assert msgspec.json.decode(body)["topicConfigTable"]["T"] == {
        "order": True, "perm": 4, "readQueueNums": 3, "topicFilterType": "MULTI_TAG",
        "topicName": "T", "topicSysFlag": 2, "writeQueueNums": 5,
    }  # fmt: skip
    assert decode_topic_configs(b"{}") == ([], DataVersion())


def test_a_topic_table_of_a_later_broker():
    body = (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"topicConfigTable":{"T":{'
        b'"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"T","topicSysFlag":0,"writeQueueNums":4}},"topicQueueMappingInfoMap":{}}'
    )
    assert decode_topic_configs(body) == ([TopicConfig("T")], DataVersion(2, 1))


def test_group_configurations():
    assert decode_group_config(encode_group_config(GROUP)) == GROUP
    assert decode_group_config(b'{"groupName":"G"}') == GroupConfig("G")
    assert decode_group_config(
        b'{"groupName":"G","consumeEnable":"false","retryMaxTimes":"3","groupSysFlag":0}'
    ) == GroupConfig("G", consume_enable=False, retry_max_times=3)
    with pytest.raises(DecodeError, match="groupName"):
        decode_group_config(b"{}")
    with pytest.raises(DecodeError, match="retryMaxTimes"):
        decode_group_config(b'{"groupName":"G","retryMaxTimes":2147483648}')


def test_group_tables():
    body = encode_group_configs([GROUP], VERSION)
    assert decode_group_configs(body) == ([GROUP], VERSION)


def test_progress():
    entries = [("G", "T", {0: 5, 1: 6}), ("H", "%RETRY%H", {0: 1})]
    body = encode_consumer_offsets(entries)
    assert body == b'{"offsetTable":{"T@G":{"0":5,"1":6},"%RETRY%H@H":{"0":1}}}'
    assert decode_consumer_offsets(body) == entries
    assert decode_consumer_offsets(b'{"offsetTable":{"T@G":{0:5,1:6}}}') == entries[:1]


@pytest.mark.parametrize("name", ["T", "@G", "T@", ""])
def test_progress_names_a_topic_and_a_group(name):
    with pytest.raises(DecodeError, match="topic@group"):
        decode_consumer_offsets(b'{"offsetTable":{"' + name.encode() + b'":{"0":1}}}')


def test_delay_offsets():
    assert decode_delay_offsets(b'{"offsetTable":{1:1,3:7}}') == {1: 1, 3: 7}
    assert encode_delay_offsets({1: 1, 3: 7}) == b'{"offsetTable":{"1":1,"3":7}}'
    assert decode_delay_offsets(encode_delay_offsets({18: 4})) == {18: 4}
    with pytest.raises(DecodeError):
        decode_delay_offsets(b'{"offsetTable":{"x":1}}')
