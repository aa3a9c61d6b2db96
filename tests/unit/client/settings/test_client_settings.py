"""Settings carry the seeds' defaults and RocketMQ's names."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest

import kourou.client
from kourou import sync
from kourou.client.settings.client_settings import (
    ClientSettings,
    CompressionKind,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.errors import ConfigError
from kourou.model.subscription import ConsumeFromWhere, MessageModel

DEFAULTS = [
    pytest.param(kind, name, value, marks=pytest.mark.feature(number))
    for kind, number, name, value in [
        (ClientSettings, "F283", "namesrvAddr", ""),
        (ClientSettings, "F284", "clientIP", ""),
        (ClientSettings, "F285", "instanceName", "DEFAULT"),
        (ClientSettings, "F286", "clientCallbackExecutorThreads", 4),
        (ClientSettings, "F287", "pollNameServerInterval", 30_000),
        (ClientSettings, "F288", "heartbeatBrokerInterval", 30_000),
        (ClientSettings, "F289", "persistConsumerOffsetInterval", 5_000),
        (ProducerSettings, "F290", "producerGroup", "DEFAULT_PRODUCER"),
        (ProducerSettings, "F291", "createTopicKey", "TBW102"),
        (ProducerSettings, "F292", "defaultTopicQueueNums", 4),
        (ProducerSettings, "F293", "sendMsgTimeout", 10_000),
        (ProducerSettings, "F294", "compressMsgBodyOverHowmuch", 4096),
        (ProducerSettings, "F295", "retryAnotherBrokerWhenNotStoreOK", False),
        (ProducerSettings, "F296", "maxMessageSize", 4 * 1024 * 1024),
        (ConsumerSettings, "F301", "consumerGroup", "DEFAULT_CONSUMER"),
        (ConsumerSettings, "F302", "messageModel", MessageModel.CLUSTERING),
        (
            ConsumerSettings,
            "F303",
            "consumeFromWhere",
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ),
        (ConsumerSettings, "F308", "consumeThreadMin", 10),
        (ConsumerSettings, "F309", "consumeThreadMax", 20),
        (ConsumerSettings, "F310", "consumeConcurrentlyMaxSpan", 2000),
        (ConsumerSettings, "F311", "pullThresholdForQueue", 1000),
        (ConsumerSettings, "F312", "pullInterval", 0),
        (ConsumerSettings, "F313", "consumeMessageBatchMaxSize", 1),
        (ConsumerSettings, "F314", "pullBatchSize", 0),
        (PullConsumerSettings, "F316", "consumerGroup", "DEFAULT_CONSUMER"),
        (PullConsumerSettings, "F317", "brokerSuspendMaxTimeMillis", 20_000),
        (PullConsumerSettings, "F318", "consumerTimeoutMillisWhenSuspend", 30_000),
        (PullConsumerSettings, "F319", "consumerPullTimeoutMillis", 10_000),
        (PullConsumerSettings, "F320", "messageModel", MessageModel.BROADCASTING),
    ]
]


@pytest.mark.parametrize(("kind", "name", "value"), DEFAULTS)
def test_defaults_under_their_rocketmq_names(kind, name, value):
    row = next(row for row in kind.describe() if row["rocketmq"] == name)
    assert row["default"] == value
    assert getattr(kind(), row["name"]) == value


@pytest.mark.feature("F304", "F324")
def test_the_default_allocation_is_averagely():
    assert ConsumerSettings().allocation.name == "AVG"
    assert PullConsumerSettings().allocation.name == "AVG"


@pytest.mark.parametrize(
    "kind", [ClientSettings, ProducerSettings, ConsumerSettings, PullConsumerSettings]
)
def test_every_setting_has_a_sentence_and_an_own_name(kind):
    rows = kind.describe()
    assert all(row["doc"].endswith(".") for row in rows)
    names = [row["rocketmq"] for row in rows if row["rocketmq"]]
    assert len(names) == len(set(names))


def test_rocketmq_names_and_texts_are_accepted():
    settings = ProducerSettings.from_rocketmq(
        producerGroup="g",
        sendMsgTimeout="3000",
        retryAnotherBrokerWhenNotStoreOK="TRUE",
        compressType="ZSTD",
    )
    assert settings.producer_group == "g"
    assert settings.send_timeout_ms == 3000
    assert settings.retry_another_broker_when_not_store_ok is True
    assert settings.compression is CompressionKind.ZSTD


KINDS = [ClientSettings, ProducerSettings, ConsumerSettings, PullConsumerSettings]
ROWS = [(kind, row) for kind in KINDS for row in kind.describe()]
NUMBERS = [
    (kind, row)
    for kind, row in ROWS
    if isinstance(row["default"], (int, float)) and not isinstance(row["default"], bool)
]


def title(value):
    return value["name"] if isinstance(value, dict) else getattr(value, "__name__", None)


@pytest.mark.parametrize(("kind", "row"), NUMBERS, ids=title)
def test_every_number_has_a_range_and_its_refusal_says_it_with_name_and_unit(kind, row):
    low, high, unit = row["minimum"], row["maximum"], row["unit"]
    assert low <= row["default"] <= high
    for value in (low - 1, high + 1, "soon", None, True):
        with pytest.raises(ConfigError) as refusal:
            kind(**{row["name"]: value})
        told = str(refusal.value)
        key = next(key for key, item in kind.by_key().items() if item.name == row["name"])
        assert told.startswith(f"{row['name']} ({key}) is ")
        assert f"between {low} and {high}{' ' + unit if unit else ''}" in told


@pytest.mark.parametrize(("kind", "row"), NUMBERS, ids=title)
def test_units_are_told_where_names_have_them(kind, row):
    ends = {"_ms": "ms", "_bytes": "bytes", "_mib": "MiB", "_bytes_max": "bytes"}
    told = {unit for end, unit in ends.items() if row["name"].endswith(end)}
    told |= {"ms"} if "_ms_" in row["name"] else set()
    assert not told or told == {row["unit"]}


@pytest.mark.parametrize(("kind", "row"), ROWS, ids=title)
def test_no_setting_takes_just_anything(kind, row):
    with pytest.raises(ConfigError, match=row["name"]):
        kind(**{row["name"]: object()})


@pytest.mark.parametrize(("kind", "row"), ROWS, ids=title)
def test_every_setting_takes_its_default_by_its_key(kind, row):
    key = next(key for key, item in kind.by_key().items() if item.name == row["name"])
    assert key == row["rocketmq"] or not row["rocketmq"]
    assert getattr(kind.from_rocketmq(**{key: row["default"]}), row["name"]) == row["default"]


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        (ConsumerSettings, {"consume_threads_min": 30}, "at most consume_threads_max"),
        (
            ConsumerSettings,
            {"consumer_timeout_ms_when_suspend": 15_999},
            "at least 1000 ms more than broker_suspend_max_time_ms",
        ),
        (
            PullConsumerSettings,
            {"broker_suspend_max_time_ms": 30_000},
            "at least 1000 ms more than broker_suspend_max_time_ms",
        ),
        (ConsumerSettings, {"pull_threshold_for_topic": 0}, "must be -1, or at least 1"),
        (ConsumerSettings, {"pull_threshold_size_for_topic_mib": 0}, "must be -1, or at least 1"),
        (ProducerSettings, {"compression_level": 10}, "for ZLIB it must be between 0 and 9"),
    ],
)
def test_settings_that_do_not_fit_together(kind, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        kind(**settings)


def test_settings_that_fit_together():
    ProducerSettings(compression=CompressionKind.ZSTD, compression_level=22)
    ConsumerSettings(consume_threads_max=1)  # the least is then no more than that
    ConsumerSettings(broker_suspend_max_time_ms=0, consumer_timeout_ms_when_suspend=1_000)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (ProducerSettings, {"sendMsgTimeout": "soon"}),
        (ProducerSettings, {"retryAnotherBrokerWhenNotStoreOK": "perhaps"}),
        (ConsumerSettings, {"messageModel": "SHOUTING"}),
        (ConsumerSettings, {"consumeThreadMax": 0}),
        (ConsumerSettings, {"pullThresholdForQueue": 70_000}),
        (ProducerSettings, {"maxMessageSize": 5 * 1024 * 1024}),
        (ClientSettings, {"clientIP": "my host"}),
        (ClientSettings, {"instanceName": "a\nb"}),
        (ClientSettings, {"traceSampleRatio": "nan"}),
        (ClientSettings, {"namesrvListUrl": "ftp://host"}),
        (ConsumerSettings, {"consumeTimestamp": "yesterday"}),
        (ConsumerSettings, {"allocateMessageQueueStrategy": "BEST"}),
        (ConsumerSettings, {"offsetStore": "redis"}),
        (ConsumerSettings, {"messageListener": "com.example.Listener"}),
        (ConsumerSettings, {"subscription": {"T": None}}),
        (PullConsumerSettings, {"registerTopics": 7}),
    ],
)
def test_bad_values_are_refused(kind, settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        kind.from_rocketmq(**settings)


def attributes_read() -> set[str]:
    """The name of every attribute that some module of the client reads for more than a check."""
    (folder,) = kourou.client.__path__
    return {
        node.attr
        for path in (*Path(folder).rglob("*.py"), Path(sync.__file__))
        for node in ast.walk(without_checks(ast.parse(path.read_text(encoding="utf-8"))))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def without_checks(tree: ast.Module) -> ast.Module:
    """The module without the functions that only look whether settings fit together."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.body = [one for one in node.body if getattr(one, "name", "") != "__post_init__"]
    return tree


@pytest.mark.parametrize(
    "kind", [ClientSettings, ProducerSettings, ConsumerSettings, PullConsumerSettings]
)
def test_a_setting_is_read_or_is_said_to_have_no_effect(kind):
    read = attributes_read()
    rows = kind.describe()
    silent = {row["name"] for row in rows if row["without_effect"]}
    assert silent == {row["name"] for row in rows} - read


def test_the_level_of_lines_about_messages():
    assert ClientSettings().message_log_level == logging.DEBUG
    assert ClientSettings(log_messages=True).message_log_level == logging.INFO
