"""Operators ask members through the broker; each of them is answered exactly once."""

import pytest

from kourou.errors import Code
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.status_bodies import (
    ConsumerStatus,
    decode_consumer_status,
    encode_consumer_status,
)
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
    HeartBeat,
    InvokeBrokerToGetConsumerStatus,
)
from kourou.protocol.record.message_id import encode_offset_id
from kourou.runtime.core import AskClient, ClientAnswered, Disconnected
from kourou_rigs.engine import Engine

RUNNING = GetConsumerRunningInfo(consumer_group="g", client_id="c1", jstack_enable=True)
STATUS = InvokeBrokerToGetConsumerStatus(topic="orders", group="g")
QUEUE = MessageQueue("orders", "broker-a", 0)
OPERATOR = 9


def join(engine: Engine, client: str, peer: int) -> None:
    wanted = (Subscription("orders", "*", version=1),)
    body = encode_heartbeat(
        HeartbeatBody(client, consumers=(ConsumerData("g", subscriptions=wanted),))
    )
    assert engine.ask(HeartBeat(), body, peer=peer).code == Code.SUCCESS


def asked(engine: Engine) -> list[AskClient]:
    return [effect for effect in engine.effects if isinstance(effect, AskClient)]


@pytest.fixture
def consuming(engine) -> Engine:
    join(engine, "c1", 1)
    join(engine, "c2", 2)
    return engine


def test_a_members_own_words_come_back(consuming) -> None:
    name = consuming.send(RUNNING, peer=OPERATOR)
    (question,) = asked(consuming)
    assert (question.peer.id, question.request, question.timeout_ms) == (1, RUNNING, 10_000)
    assert name not in consuming.replies
    consuming.handle(ClientAnswered(question.token, question.peer, body=(b"{", b"}")))
    reply = consuming.replies[name]
    assert (reply.code, b"".join(reply.body)) == (Code.SUCCESS, b"{}")


def test_who_is_not_there_cannot_be_asked(consuming) -> None:
    away = GetConsumerRunningInfo(consumer_group="g", client_id="c3")
    reply = consuming.ask(away)
    assert reply.code == Code.CONSUMER_NOT_ONLINE
    assert "<g> <c3> not online" in reply.remark
    nobody = ConsumeMessageDirectly(consumer_group="h", msg_id=encode_offset_id(("1.2.3.4", 5), 0))
    assert consuming.ask(nobody).code == Code.CONSUMER_NOT_ONLINE
    assert asked(consuming) == []


def test_silence_and_a_lost_connection_have_codes_of_their_own(consuming) -> None:
    late = consuming.send(RUNNING, peer=OPERATOR)
    consuming.advance(9_999)
    assert late not in consuming.replies
    consuming.advance(1)
    assert consuming.replies[late].code == Code.CONSUME_MSG_TIMEOUT
    lost = consuming.send(RUNNING, peer=OPERATOR)
    consuming.handle(Disconnected(consuming.peer(1)))
    assert consuming.replies[lost].code == Code.SYSTEM_ERROR


def test_a_question_waits_no_longer_than_whoever_asks(consuming) -> None:
    consuming.send(RUNNING, peer=OPERATOR, deadline_ms=consuming.now_ms + 300)
    assert asked(consuming)[0].timeout_ms == 300


def test_a_member_that_refuses_is_quoted(consuming) -> None:
    name = consuming.send(RUNNING, peer=OPERATOR)
    (question,) = asked(consuming)
    refusal = ClientAnswered(question.token, question.peer, code=3, remark="not supported")
    consuming.handle(refusal)
    reply = consuming.replies[name]
    assert (reply.code, reply.remark) == (Code.SYSTEM_ERROR, "not supported")


def test_a_stored_message_is_put_before_one_member(consuming, draft, records) -> None:
    consuming.ask(*records([draft(body=b"a"), draft(body=b"b")]))
    position = consuming.store.queues["orders", 0][1]
    request = ConsumeMessageDirectly(
        consumer_group="g",
        client_id="c2",
        msg_id=encode_offset_id(("127.0.0.1", 10911), position),
    )
    name = consuming.send(request, peer=OPERATOR)
    (question,) = asked(consuming)
    assert question.peer.id == 2
    assert question.request.broker_name == "broker-a"
    assert b"".join(question.body) == consuming.store.records[position]
    consuming.handle(ClientAnswered(question.token, question.peer, body=(b'{"order":false}',)))
    assert b"".join(consuming.replies[name].body) == b'{"order":false}'


def test_without_a_client_id_the_last_one_heard_consumes(consuming, draft, records) -> None:
    consuming.ask(*records([draft()]))
    consuming.advance(1_000)
    join(consuming, "c1", 1)
    position = consuming.store.queues["orders", 0][0]
    message_id = encode_offset_id(("127.0.0.1", 10911), position)
    consuming.send(ConsumeMessageDirectly(consumer_group="g", msg_id=message_id), peer=OPERATOR)
    assert asked(consuming)[0].peer.id == 1


@pytest.mark.parametrize("position", [1 << 40, 7])
def test_what_is_not_there_cannot_be_consumed(consuming, position) -> None:
    message_id = encode_offset_id(("127.0.0.1", 10911), position)
    for wrong in (message_id, "rubbish", None):
        request = ConsumeMessageDirectly(consumer_group="g", client_id="c1", msg_id=wrong)
        assert consuming.ask(request).code == Code.SYSTEM_ERROR
    assert asked(consuming) == []


def test_every_member_says_where_it_stands(consuming) -> None:
    name = consuming.send(STATUS, peer=OPERATOR)
    first, second = asked(consuming)
    assert first.request == GetConsumerStatusFromClient(topic="orders", group="g")
    for question, offset in ((first, 5), (second, 9)):
        assert name not in consuming.replies
        body = encode_consumer_status(ConsumerStatus({QUEUE: offset}))
        consuming.handle(ClientAnswered(question.token, question.peer, body=(body,)))
    reply = consuming.replies[name]
    assert reply.code == Code.SUCCESS
    found = decode_consumer_status(b"".join(reply.body)).members
    assert found == {"c1": {QUEUE: 5}, "c2": {QUEUE: 9}}


def test_one_member_only_where_it_is_named(consuming) -> None:
    only = InvokeBrokerToGetConsumerStatus(topic="orders", group="g", client_addr="c2")
    consuming.send(only, peer=OPERATOR)
    assert [question.peer.id for question in asked(consuming)] == [2]


def test_silent_members_are_named_and_do_not_hide_the_others(consuming) -> None:
    name = consuming.send(STATUS, peer=OPERATOR)
    first, second = asked(consuming)
    body = encode_consumer_status(ConsumerStatus({QUEUE: 5}))
    consuming.handle(ClientAnswered(first.token, first.peer, body=(body,)))
    consuming.advance(5_000)
    reply = consuming.replies[name]
    assert reply.code == Code.SUCCESS
    assert set(decode_consumer_status(b"".join(reply.body)).members) == {"c1"}
    assert reply.remark.startswith("c2: ")
    assert second.token != first.token


def test_nobody_answers(consuming) -> None:
    name = consuming.send(STATUS, peer=OPERATOR)
    first, second = asked(consuming)
    consuming.handle(ClientAnswered(first.token, first.peer, code=3, remark="no"))
    consuming.handle(ClientAnswered(second.token, second.peer, body=(b"[rubbish",)))
    reply = consuming.replies[name]
    assert reply.code == Code.CONSUME_MSG_TIMEOUT
    assert "c1: no" in reply.remark
    assert "c2: " in reply.remark
    alone = consuming.ask(InvokeBrokerToGetConsumerStatus(topic="orders", group="h"))
    assert alone.code == Code.CONSUMER_NOT_ONLINE


def test_too_many_questions_are_said_to_be_so(consuming, monkeypatch) -> None:
    monkeypatch.setattr("kourou.engine.groups.client_requests.CLIENT_QUESTIONS_MAX", 1)
    name = consuming.send(STATUS, peer=OPERATOR)
    (question,) = asked(consuming)
    body = encode_consumer_status(ConsumerStatus({QUEUE: 5}))
    consuming.handle(ClientAnswered(question.token, question.peer, body=(body,)))
    assert "requests to clients are in progress" in consuming.replies[name].remark
