"""Replies are handed to the client that waits, and stored whether or not it is there."""

import pytest

from kourou.engine.effects import Append
from kourou.errors import Code
from kourou.protocol.bodies.heartbeat_body import HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.broker_admin import UpdateBrokerConfig
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.sends import SendReplyMessage
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.properties import decode_properties, encode_properties
from kourou.runtime.core import AskClient, ClientAnswered
from kourou.settings.declaration import Setting
from kourou_rigs.engine import Engine

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {
    "MSG_TYPE": "reply",
    "CORRELATION_ID": "6ac7a35c",
    "REPLY_TO_CLIENT": "192.0.2.2@1",
    "TTL": "3000",
    "WAIT": "true",
}
REPLIER = 2


def sending(named: dict[str, str] = PROPERTIES, **fields: object) -> SendReplyMessage:
    return SendReplyMessage(
        **{
            "producer_group": "p",
            "topic": TOPIC,
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp": 5,
            "flag": 0,
            "properties": encode_properties(named).decode(),
            **fields,
        }
    )


def asked(engine: Engine) -> list[AskClient]:
    return [effect for effect in engine.effects if isinstance(effect, AskClient)]


@pytest.fixture
def waiting(engine) -> Engine:
    """A client waits for replies over connection 1."""
    wait(engine)
    return engine


def wait(engine: Engine) -> None:
    body = encode_heartbeat(HeartbeatBody("192.0.2.2@1", producer_groups=("p",)))
    assert engine.ask(HeartBeat(), body).code == Code.SUCCESS


def test_a_reply_is_handed_over_and_stored(waiting) -> None:
    name = waiting.send(sending(sys_flag=1), b"pong", peer=REPLIER)
    (question,) = asked(waiting)
    assert question.peer.id == 1
    assert question.timeout_ms == 10_000
    pushed = question.request
    assert (pushed.topic, pushed.queue_id, pushed.sys_flag) == (TOPIC, 0, 1)
    assert (pushed.born_host, pushed.store_host) == ("127.0.0.1:40002", "127.0.0.1:10911")
    assert pushed.store_timestamp == waiting.wall_ms
    told = decode_properties(pushed.properties.encode())
    assert told == {**PROPERTIES, "PUSH_REPLY_TIME": str(waiting.wall_ms)}
    assert b"".join(question.body) == b"pong"
    assert name not in waiting.replies, "the replier waits for the one who asked"
    waiting.handle(ClientAnswered(question.token, question.peer))
    reply = waiting.replies[name]
    assert reply.code == Code.SUCCESS
    (stored,) = waiting.stored(TOPIC)
    assert reply.header.msg_id == encode_offset_id(("127.0.0.1", 10911), stored.position)
    assert (reply.header.queue_id, reply.header.queue_offset) == (0, 0)
    assert stored.body == b"pong"
    assert stored.properties == PROPERTIES, "no CLUSTER, no PUSH_REPLY_TIME"
    assert stored.sys_flag == 0
    assert stored.born_timestamp == 5


def test_what_is_stored_is_written_before_the_client_is_asked(waiting) -> None:
    _, received = waiting.received(sending(), b"pong", peer=REPLIER)
    kinds = [type(effect) for effect in waiting.core.handle(waiting.now_ms, [received])]
    assert kinds == [Append, AskClient]


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({"MSG_TYPE": "reply"}, "reply message properties[REPLY_TO_CLIENT] is null"),
        (
            {**PROPERTIES, "REPLY_TO_CLIENT": "gone"},
            "push reply message fail, channel of <gone> not found.",
        ),
    ],
)
def test_without_anybody_who_waits_it_is_stored_and_the_replier_is_reported(
    waiting, properties, remark
) -> None:
    reply = waiting.ask(sending(properties), b"pong", peer=REPLIER)
    assert (reply.code, reply.remark) == (Code.SYSTEM_ERROR, remark)
    assert reply.header.msg_id == encode_offset_id(
        ("127.0.0.1", 10911), waiting.stored(TOPIC)[0].position
    )
    assert asked(waiting) == []


def test_silence_and_refusal_are_reported_to_the_replier(waiting) -> None:
    silent = waiting.send(sending(), b"1", peer=REPLIER)
    waiting.advance(10_000)
    assert waiting.replies[silent].code == Code.SYSTEM_ERROR
    assert "push reply message to 192.0.2.2@1 fail." in waiting.replies[silent].remark
    refused = waiting.send(sending(), b"2", peer=REPLIER)
    question = asked(waiting)[-1]
    waiting.handle(ClientAnswered(question.token, question.peer, code=1, remark="no"))
    assert waiting.replies[refused].remark.endswith("fail. response: no")
    assert len(waiting.stored(TOPIC)) == 2


def test_the_replier_is_answered_when_its_reply_is_safe() -> None:
    engine = Engine(sync_flush=True)
    wait(engine)
    name = engine.send(sending(), b"pong", peer=REPLIER)
    (question,) = asked(engine)
    engine.handle(ClientAnswered(question.token, question.peer))
    assert name not in engine.replies
    engine.flush()
    assert engine.replies[name].code == Code.SUCCESS


def test_replies_need_not_be_stored() -> None:
    engine = Engine(specs=(Setting("storeReplyMessageEnable", True, dynamic=True),))
    wait(engine)
    change = UpdateBrokerConfig()
    assert engine.ask(change, b"storeReplyMessageEnable=false\n").code == Code.SUCCESS
    name = engine.send(sending(), b"pong", peer=REPLIER)
    (question,) = asked(engine)
    engine.handle(ClientAnswered(question.token, question.peer))
    assert engine.replies[name].header.msg_id == "0"
    assert engine.stored(TOPIC) == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.NO_PERMISSION),
        ({"topic": "no topic!"}, Code.SYSTEM_ERROR),
        ({"queue_id": 99}, Code.SYSTEM_ERROR),
        ({"properties": "x" * 40_000}, Code.MESSAGE_ILLEGAL),
    ],
)
def test_what_a_send_may_not_do_a_reply_may_not_either(waiting, fields, code) -> None:
    reply = waiting.ask(sending(**fields), b"pong", peer=REPLIER)
    assert reply.code == code
    assert reply.header.region_id == "DefaultRegion", "Java's client needs it even here"
    assert asked(waiting) == []
    assert waiting.stored(TOPIC) == []


def test_a_body_above_the_limit_is_refused(waiting) -> None:
    waiting.core.parts.policy.change(body_size_max=3)
    assert waiting.ask(sending(), b"pong", peer=REPLIER).code == Code.MESSAGE_ILLEGAL


def test_any_queue_will_do(waiting) -> None:
    waiting.ask(sending({"A": "1"}, queue_id=-1), b"pong", peer=REPLIER)
    assert len(waiting.stored(TOPIC, 0)) == 1
