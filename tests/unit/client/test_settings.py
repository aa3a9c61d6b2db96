"""Settings carry the seeds' defaults and RocketMQ's names."""

from __future__ import annotations

import ast
import dataclasses
import logging
from pathlib import Path

import pytest

import kourou.client
from kourou import sync
from kourou.client.allocation import AveragelyByCircle
from kourou.client.settings import (
    ClientSettings,
    CompressionKind,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
    consume_timestamp_ms,
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
        (ConsumerSettings, "F314", "pullBatchSize", 32),
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


def test_a_strategy_by_name():
    settings = ConsumerSettings.from_rocketmq(allocateMessageQueueStrategy="AVG_BY_CIRCLE")
    assert settings.allocation == AveragelyByCircle()


def test_an_unknown_name_tells_the_nearest():
    with pytest.raises(ConfigError, match="sendMsgTimeout"):
        ProducerSettings.from_rocketmq(sendMsgTimout=1)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (ProducerSettings, {"sendMsgTimeout": "soon"}),
        (ProducerSettings, {"retryAnotherBrokerWhenNotStoreOK": "perhaps"}),
        (ConsumerSettings, {"messageModel": "SHOUTING"}),
        (ConsumerSettings, {"consumeThreadMax": 0}),
        (ConsumerSettings, {"pullThresholdForQueue": 70_000}),
        (ProducerSettings, {"maxMessageSize": 5 * 1024 * 1024}),
    ],
)
def test_bad_values_are_refused(kind, settings):
    with pytest.raises(ConfigError):
        kind.from_rocketmq(**settings)


def test_settings_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClientSettings().client_ip = "1.2.3.4"


def test_consume_timestamp():
    assert consume_timestamp_ms("", 1_800_000_000_000) == 1_800_000_000_000 - 1_800_000
    assert consume_timestamp_ms("20260102030405", 0) % 1000 == 0
    earlier, later = (
        consume_timestamp_ms(text, 0) for text in ("20260102030405", "20260102030406")
    )
    assert later - earlier == 1000
    with pytest.raises(ConfigError):
        consume_timestamp_ms("yesterday", 0)


def attributes_read() -> set[str]:
    """The name of every attribute that some module of the client reads."""
    (folder,) = kourou.client.__path__
    return {
        node.attr
        for path in (*Path(folder).glob("*.py"), Path(sync.__file__))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


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
