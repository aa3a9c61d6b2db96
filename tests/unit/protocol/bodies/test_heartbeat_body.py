"""Heartbeats in the spellings of three clients."""

import msgspec
import pytest

from kourou.errors import DecodeError
from kourou.model.limits import (
    CLIENT_GROUPS_MAX,
    GROUP_SUBSCRIPTIONS_MAX,
    HEARTBEAT_BYTES_MAX,
)
from kourou.model.subscription import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    Subscription,
)
from kourou.protocol.bodies.heartbeat_body import (
    ConsumerData,
    HeartbeatBody,
    SubscriptionCheck,
    decode_heartbeat,
    decode_subscription_check,
    encode_heartbeat,
    encode_subscription_check,
)

BEAT = HeartbeatBody(
    "10.0.0.1@7",
    ("P",),
    (
        ConsumerData(
            "G",
            subscriptions=(
                Subscription(
                    "T", "A || B", tags=frozenset("AB"), codes=frozenset({65, 66}), version=5
                ),
                Subscription("S", "x > 1", "SQL92"),
            ),
        ),
    ),
)


@pytest.mark.parametrize("beat", [BEAT, HeartbeatBody("c")])
def test_heartbeats_come_back(beat):
    assert decode_heartbeat(encode_heartbeat(beat)) == beat


def test_enums_are_written_by_name():
    body = msgspec.json.decode(encode_heartbeat(BEAT))
    consumer = body["consumerDataSet"][0]
    assert consumer["consumeType"] == "CONSUME_PASSIVELY"
    assert consumer["messageModel"] == "CLUSTERING"
    assert consumer["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert body["producerDataSet"] == [{"groupName": "P"}]


def test_a_heartbeat_of_a_cpp_client():
    """Enums by number, version as text, no tag sets, a newline at the end."""
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,'
        b'"groupName":"G","messageModel":1,"subscriptionDataSet":[{"subString":"A",'
        b'"subVersion":"1795227678270","topic":"T"}]}]}\n'
    )
    (consumer,) = decode_heartbeat(body).consumers
    assert consumer == ConsumerData(
        "G", subscriptions=(Subscription("T", "A", version=1795227678270),)
    )


def test_a_heartbeat_of_a_javascript_client():
    body = (
        b'{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"G",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"BROADCASTING","unitMode":false,'
        b'"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{'
        b'"classFilterMode":false,"topic":"T","subString":"*","tagsSet":[],"codeSet":[],'
        b'"subVersion":5,"expressionType":null}]}]}'
    )
    (consumer,) = decode_heartbeat(body).consumers
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.subscriptions == (Subscription("T", version=5),)


def consumer_with(**members):
    body = {"clientID": "c", "consumerDataSet": [{"groupName": "G", **members}]}
    return decode_heartbeat(msgspec.json.encode(body)).consumers[0]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        (1, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        (2, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        (3, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        (4, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        (5, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
        ("4", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        (None, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        ("CONSUME_FROM_TIMESTAMP", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
        ("CONSUME_FROM_MIN_OFFSET", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        ("CONSUME_FROM_MAX_OFFSET", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        ("consume_from_max_offset", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        (" Consume_From_First_Offset", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
    ],
)
def test_where_to_begin_in_every_spelling(given, meant):
    assert consumer_with(consumeFromWhere=given).consume_from_where is meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0, ConsumeType.CONSUME_ACTIVELY),
        (1, ConsumeType.CONSUME_PASSIVELY),
        ("CONSUME_ACTIVELY", ConsumeType.CONSUME_ACTIVELY),
        ("CONSUME_POP", ConsumeType.CONSUME_PASSIVELY),
        ("consume_pop", ConsumeType.CONSUME_PASSIVELY),
        ("consume_actively", ConsumeType.CONSUME_ACTIVELY),
        (None, ConsumeType.CONSUME_PASSIVELY),
    ],
)
def test_how_to_consume_in_every_spelling(given, meant):
    assert consumer_with(consumeType=given).consume_type is meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0, MessageModel.BROADCASTING),
        (1, MessageModel.CLUSTERING),
        (None, MessageModel.CLUSTERING),
        ("BROADCASTING", MessageModel.BROADCASTING),
        ("clustering", MessageModel.CLUSTERING),
        ("broadcasting ", MessageModel.BROADCASTING),
    ],
)
def test_message_models_in_every_spelling(given, meant):
    assert consumer_with(messageModel=given).message_model is meant


@pytest.mark.parametrize(
    "members",
    [
        {"consumeType": 2},
        {"consumeType": -1},
        {"messageModel": "ANYCASTING"},
        {"messageModel": ""},
        {"messageModel": "²"},
        {"messageModel": "9" * 5_000},
        {"consumeFromWhere": 6},
        {"consumeFromWhere": []},
        {"subscriptionDataSet": [{}]},
        {"subscriptionDataSet": [{"topic": "T", "codeSet": ["x"]}]},
    ],
)
def test_wrong_members_are_decode_errors(members):
    with pytest.raises(DecodeError, match="heartbeat"):
        consumer_with(**members)


def test_a_heartbeat_names_no_more_than_the_limits_allow():
    producers = [{"groupName": str(number)} for number in range(CLIENT_GROUPS_MAX)]
    body = {"clientID": "c", "producerDataSet": producers}
    assert len(decode_heartbeat(msgspec.json.encode(body)).producer_groups) == CLIENT_GROUPS_MAX
    body["consumerDataSet"] = [{"groupName": "G"}]
    with pytest.raises(DecodeError, match="at most"):
        decode_heartbeat(msgspec.json.encode(body))
    topics = [{"topic": str(number)} for number in range(GROUP_SUBSCRIPTIONS_MAX + 1)]
    with pytest.raises(DecodeError, match="at most"):
        consumer_with(subscriptionDataSet=topics)
    with pytest.raises(DecodeError, match="it has over 1048576 bytes"):
        decode_heartbeat(msgspec.json.encode({"clientID": "c", "x": "y" * HEARTBEAT_BYTES_MAX}))


def test_subscription_checks():
    check = SubscriptionCheck("c", "G", Subscription("T", "x > 1", "SQL92", version=5))
    assert decode_subscription_check(encode_subscription_check(check)) == check
    with pytest.raises(DecodeError, match="subscriptionData"):
        decode_subscription_check(b'{"clientId":"c","group":"G"}')
