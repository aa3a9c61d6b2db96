"""Options: what they mean, and errors that name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.client.filters.expressions import Sql
from kourou.client.filters.python_filter import Filter
from kourou.errors import BadRequest
from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.offsets import QueueOffsets
from kourou_spark_etl.source.options import (
    AtTime,
    AtTimes,
    Edge,
    ReadOptions,
    for_batch,
    for_stream,
    read_options,
)

NEAR = {"nameserver": "127.0.0.1:9876", "subscribe": "orders"}


def told(**options: str) -> ReadOptions:
    return read_options({**NEAR, **options}, {})


def test_all_options() -> None:
    options = read_options(
        {
            "namesrvAddr": "a:9876;b:9876",
            "assign": '{"orders": {"broker-a": [1, 0]}}',
            "startingOffsets": '{"orders": {"broker-a": {"0": -2, "1": 7}}}',
            "endingTimestamp": "1700000000000",
            "minPartitions": "8",
            "failOnDataLoss": "False",
            "tags": "paid || refunded",
            "group": "lake",
            "pullBatchSize": "500",
            "pullWindow": "4",
            "readTimeoutMs": "1000",
        },
        {},
    )
    zero, one = (MessageQueue("orders", "broker-a", number) for number in range(2))
    assert options == ReadOptions(
        name_servers="a:9876;b:9876",
        assigned=(zero, one),
        starting=QueueOffsets({zero: -2, one: 7}),
        ending=AtTime(1_700_000_000_000),
        min_partitions=8,
        fail_on_data_loss=False,
        wanted="paid || refunded",
        group="lake",
        pull_batch_size=500,
        pull_window=4,
        read_timeout_ms=1_000,
    )
    assert for_batch(options) is options


def test_places() -> None:
    assert told(startingoffsets=" Earliest ").starting is Edge.EARLIEST
    assert told(endingoffsets="latest").ending is Edge.LATEST
    times = told(startingoffsetsbytimestamp='{"orders": {"b": {"0": 5}}}').starting
    assert times == AtTimes(QueueOffsets({MessageQueue("orders", "b", 0): 5}))


def test_filters() -> None:
    assert told(sql="amount > 10").wanted == Sql("amount > 10")
    assert told(filter="late", group="lake").wanted == Filter.named("late")
    assert told(tags=" ").wanted == "*"


def test_several_topics_and_patterns() -> None:
    assert told(subscribe="b, a,b").topics == ("b", "a")
    options = read_options({"nameServer": "a:9876", "subscribePattern": "or.*"}, {})
    assert (options.topics, options.pattern) == ((), "or.*")


def test_name_servers_may_stand_in_the_environment() -> None:
    options = read_options({"subscribe": "orders"}, {"NAMESRV_ADDR": "10.0.0.1:9876"})
    assert options.name_servers == "10.0.0.1:9876"


def test_a_store_directory(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for text in (str(tmp_path), f"file://{tmp_path}"):
        options = read_options({"path": text, "subscribe": "a", "brokerName": "b"}, {})
        assert (options.path, options.broker_name, options.name_servers) == (tmp_path, "b", "")


WRONG = [
    ({"bogus": "1"}, "the option 'bogus' is unknown (reading supports nameServer"),
    ({"namesrvaddr": "a:1"}, "the option 'namesrvAddr' is 'a:1': use this name or 'nameServer'"),
    ({"nameserver": "a:b:c"}, "the option 'nameServer' is 'a:b:c'"),
    ({"subscribe": " ,"}, "the option 'subscribe' is ' ,': it has no topic"),
    ({"subscribe": "a b"}, "the option 'subscribe' is 'a b': the topic"),
    ({"subscribepattern": "a"}, "the options 'subscribe' and 'subscribePattern' exclude"),
    (
        {"startingoffsets": "first"},
        "the option 'startingOffsets' is 'first': it must be earliest, latest",
    ),
    ({"startingoffsets": "{"}, "the option 'startingOffsets' cannot be parsed"),
    ({"startingoffsets": '{"a":{"b":{"0":-3}}}'}, "the option 'startingOffsets' cannot be"),
    ({"startingtimestamp": "yesterday"}, "the option 'startingTimestamp' is 'yesterday'"),
    (
        {"startingtimestamp": "-1"},
        "the option 'startingTimestamp' is '-1': it must be a whole number",
    ),
    (
        {"startingtimestamp": "1", "startingoffsets": "latest"},
        "the options 'startingOffsets' and 'startingTimestamp' exclude each other",
    ),
    ({"endingoffsetsbytimestamp": "[]"}, "the option 'endingOffsetsByTimestamp' cannot be"),
    ({"maxoffsetspertrigger": "0"}, "the option 'maxOffsetsPerTrigger' is '0'"),
    ({"minpartitions": "1e3"}, "the option 'minPartitions' is '1e3'"),
    ({"failondataloss": "yes"}, "the option 'failOnDataLoss' is 'yes': it must be true or false"),
    ({"tags": "a && b"}, "the option 'tags' is 'a && b'"),
    ({"sql": "a >"}, "the option 'sql' is 'a >'"),
    ({"sql": "a > 1", "tags": "b"}, "the options 'tags' and 'sql' exclude each other"),
    ({"filter": "late"}, "the option 'filter' is 'late': it belongs to a group"),
    ({"group": "a b"}, "the option 'group' is 'a b'"),
    ({"pullbatchsize": "16385"}, "the option 'pullBatchSize' is '16385'"),
    ({"pullwindow": "0"}, "the option 'pullWindow' is '0'"),
    ({"readtimeoutms": ""}, "the option 'readTimeoutMs' is ''"),
    ({"brokername": "b"}, "the option 'brokerName' is 'b': it requires a store directory"),
    ({"path": "/nowhere"}, "it is not supported with a store directory (path)"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_errors_name_the_option(options: dict[str, str], text: str) -> None:
    with pytest.raises(BadRequest) as error:
        told(**options)
    assert text in str(error.value)


def test_errors_of_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="the option 'nameServer' is missing"):
        read_options({"subscribe": "orders"}, {})
    with pytest.raises(BadRequest, match="no topic is given"):
        read_options({"nameServer": "a:9876"}, {})
    with pytest.raises(BadRequest, match=r"the option 'path' .* it is not a store"):
        read_options({"path": str(tmp_path), "subscribe": "a"}, {})
    for text in ("[]", '{"a": {"b": ["x"]}}', '{"a": {"b": []}}', '{"a": {"b": [-1]}}'):
        with pytest.raises(BadRequest, match="'assign'"):
            read_options({"nameServer": "a:9876", "assign": text}, {})
    with pytest.raises(BadRequest, match=r"'subscribePattern' .* not a regular expression"):
        read_options({"nameServer": "a:9876", "subscribePattern": "("}, {})


def test_batches_and_streams_refuse_what_is_the_other_s() -> None:
    for wrong in ({"startingoffsets": "latest"}, {"endingoffsets": "earliest"}):
        with pytest.raises(BadRequest, match="the batch would be empty"):
            for_batch(told(**wrong))
    with pytest.raises(BadRequest, match="'maxOffsetsPerTrigger'"):
        for_batch(told(maxoffsetspertrigger="5"))
    with pytest.raises(BadRequest, match="'endingOffsets'"):
        for_stream(told(endingtimestamp="5"))
    assert for_stream(told(startingoffsets="latest"))
