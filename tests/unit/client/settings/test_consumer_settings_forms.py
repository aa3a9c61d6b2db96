"""What settings accept that are no numbers, and how texts say it."""

from __future__ import annotations

import pytest

from kourou.client.consumer.allocation import AveragelyByCircle, ConsistentHash
from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    consume_timestamp_ms,
)
from kourou.errors import ConfigError
from kourou.model.subscription import ConsumeFromWhere


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
