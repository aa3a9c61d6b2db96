"""Settings carry the seeds' defaults and RocketMQ's names."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import kourou.client
from kourou import load_settings, sync
from kourou.client.consumer.allocation import AveragelyByCircle, ConsistentHash
from kourou.client.settings.client_settings import (
    KINDS,
    ClientSettings,
    CompressionKind,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
    consume_timestamp_ms,
)
from kourou.errors import ConfigError
from kourou.model.subscription import ConsumeFromWhere, MessageModel
from kourou.settings.declaration import environment_name

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


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_has_a_sentence_and_names_of_its_own(kind):
    rows, keys = kind.describe(), kind.by_key().keys()
    assert all(row["doc"].endswith(".") for row in rows)
    for names in (
        [row["rocketmq"] for row in rows if row["rocketmq"]],
        [environment_name(key) for key in keys],
        [*keys, *kind.inert_keys],
    ):
        assert len(names) == len(set(names))


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


@cache
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_is_read_or_is_said_to_have_no_effect(kind):
    read = attributes_read()
    rows = kind.describe()
    silent = {row["name"] for row in rows if row["without_effect"]}
    assert silent == {row["name"] for row in rows} - read


# -- RocketMQ's keys that do nothing here ----------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_their_usual_values_are_taken_in_silence(kind, caplog, monkeypatch):
    monkeypatch.setattr("kourou.settings.declaration._warned", set())
    usual = {name: inert.usual for name, inert in kind.inert_keys.items()}
    assert kind.from_rocketmq(**usual) == kind()
    assert not caplog.records


@pytest.mark.parametrize("name", ["useTLS", "tls.enable"])
def test_what_promises_safety_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name}=True is refused: Kourou does not use TLS"):
        ClientSettings.from_rocketmq(**{name: True})
    assert ClientSettings.from_rocketmq(**{name: "false"}) == ClientSettings()


def test_what_would_do_harm_is_refused():
    with pytest.raises(ConfigError, match=r"namespace is .*, which this version does not support"):
        ClientSettings.from_rocketmq(namespace="ns")


# -- sources ---------------------------------------------------------------------------------------


FILE = """
# what an application of RocketMQ brings along
namesrvAddr = 10.0.0.1:9876;10.0.0.2:9876
producerGroup: billing
consumerGroup = billing
sendMsgTimeout = 3000
brokerSuspendMaxTimeMillis=5000
vipChannelEnabled=false
logMessages=true
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    return path


@pytest.mark.feature("F383")
def test_one_file_serves_all_kinds(file):
    assert load_settings(ClientSettings, file=file) == ClientSettings(
        namesrv_addr="10.0.0.1:9876;10.0.0.2:9876", log_messages=True
    )
    assert load_settings(ProducerSettings, file=str(file)) == ProducerSettings(
        producer_group="billing", send_timeout_ms=3_000
    )
    for kind in (ConsumerSettings, PullConsumerSettings):
        assert load_settings(kind, file=file) == kind(
            consumer_group="billing", broker_suspend_max_time_ms=5_000
        )


@pytest.mark.feature("F383")
def test_precedence(file):
    environment = {"KOUROU_SEND_MSG_TIMEOUT": "4000", "KOUROU_PRODUCER_GROUP": "env", "OTHER": "x"}
    made = load_settings(
        ProducerSettings, {"sendMsgTimeout": 5_000}, file=file, environment=environment
    )
    assert (made.send_timeout_ms, made.producer_group) == (5_000, "env")
    assert load_settings(ProducerSettings) == ProducerSettings(), "nothing is read unasked"


def test_a_key_that_nobody_knows_is_refused_with_source_and_nearest(file, tmp_path):
    with pytest.raises(ConfigError, match=r"given values.*'pullBatchSise'.*pullBatchSize"):
        load_settings(ProducerSettings, {"pullBatchSise": 1})
    file.write_text("sendMsgTimeot=1")
    with pytest.raises(ConfigError, match=r"client.properties.*did you mean sendMsgTimeout"):
        load_settings(ConsumerSettings, file=file)


def test_a_bad_value_is_refused_from_wherever_it_comes(file):
    sentence = "sendMsgTimeout.* is 'soon'; it must be a whole number between 1 and 120000 ms"
    for sources in (
        {"values": {"sendMsgTimeout": "soon"}},
        {"environment": {"KOUROU_SEND_MSG_TIMEOUT": "soon"}},
    ):
        with pytest.raises(ConfigError, match=sentence):
            load_settings(ProducerSettings, **sources)
    load_settings(ConsumerSettings, {"sendMsgTimeout": "soon"})  # not this kind's affair


# -- values that are no numbers --------------------------------------------------------------------


def test_consume_timestamp():
    assert consume_timestamp_ms("", 1_800_000_000_000) == 1_800_000_000_000 - 1_800_000
    assert consume_timestamp_ms("20260102030405", 0) % 1000 == 0
    earlier, later = (
        consume_timestamp_ms(text, 0) for text in ("20260102030405", "20260102030406")
    )
    assert later - earlier == 1000


@pytest.mark.parametrize(
    "text", ["yesterday", "2026010203040", "202601020304050", "20261302030405", "00000102030405"]
)
def test_what_is_no_time_is_refused_when_it_is_set(text):
    with pytest.raises(ConfigError):
        consume_timestamp_ms(text, 0)
    with pytest.raises(ConfigError, match="a local time yyyyMMddHHmmss"):
        ConsumerSettings(consume_timestamp=text)


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("AVG_BY_CIRCLE", AveragelyByCircle()),
        ("AllocateMessageQueueConsistentHash", ConsistentHash()),
        (
            "org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle",
            AveragelyByCircle(),
        ),
    ],
)
def test_strategies_by_name_and_by_class(text, strategy):
    made = ConsumerSettings.from_rocketmq(allocateMessageQueueStrategy=text)
    assert made.allocation == strategy


def test_subscriptions():
    made = ConsumerSettings.from_rocketmq(subscription=" T = a || b ;U; V=* ;")
    assert made.subscription == {"T": "a || b", "U": "*", "V": "*"}
    assert ConsumerSettings.from_rocketmq(subscription="").subscription == {}


def test_spellings_that_rocketmq_gave_up():
    made = ConsumerSettings.from_rocketmq(consumeFromWhere="CONSUME_FROM_MIN_OFFSET")
    assert made.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "fe80::1"])
def test_addresses(address):
    assert ClientSettings(client_ip=address).client_ip == address


def test_an_object_without_a_text_may_be_left_empty():
    assert ConsumerSettings.from_rocketmq(messageListener="").message_listener is None
