"""Requests that no honest client sends: each gets a reply, nothing breaks, no bad name is stored.

An error that is not one of Kourou's own ends a broker, so any request that causes one stops it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kourou.errors import KourouError
from kourou.model.names import check_group, check_topic
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    HeartBeat,
    InvokeBrokerToGetConsumerStatus,
    LockBatchMq,
)
from kourou.protocol.request import Answerer, RequestSpec
from kourou.protocol.table import REQUESTS
from kourou.runtime import AskClient, ClientAnswered
from kourou_rigs.access import send_to
from kourou_rigs.engine import Engine, pull
from kourou_rigs.hostile import hostile_body, hostile_request, hostile_text
from kourou_rigs.pair import Pair

SPECS = [spec for spec in REQUESTS.values() if Answerer.BROKER in spec.answered_by]
OF_REPLICAS = [spec for spec in REQUESTS.values() if spec.answered_by == {Answerer.MEMBER}]
ROUNDS = 300
PEER = 77


@pytest.mark.fault
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec.name))
def test_no_request_breaks_a_broker(spec: RequestSpec, rounds: Callable[[int], int]) -> None:
    chance = Random(spec.code)
    engine = Engine()
    assert engine.ask(send_to("orders"), b"first").code == 0
    deleted: set[object] = set()
    for number in range(rounds(ROUNDS)):
        turn = []
        for _ in range(chance.choice((1, 1, 3))):
            request, body = hostile_request(spec, chance), hostile_body(chance)
            deleted |= {request.topic} if isinstance(request, DeleteTopicInBroker) else set()
            turn.append(engine.received(request, body, peer=PEER + number % 2)[1])
        engine.handle(*turn)
        if number % 10 == 0:
            engine.advance(1_000)
    _check_names(engine)
    assert engine.ask(send_to("orders"), b"last").code == 0
    stored = engine.stored("orders")
    assert stored[0].body == b"first" or "orders" in deleted
    assert stored[-1].body == b"last"
    assert engine.ask(pull(stored[-1].offset)).code == 0


@pytest.mark.fault
@pytest.mark.parametrize("spec", SPECS + OF_REPLICAS, ids=lambda spec: str(spec.name))
def test_no_request_breaks_a_follower_or_its_log(
    spec: RequestSpec, rounds: Callable[[int], int]
) -> None:
    """Who is not the leader adds no byte to a follower's log, and it goes on to copy."""
    chance = Random(spec.code)
    pair = Pair()
    pair.connect()
    pair.settle()
    follower = pair.follower
    end = follower.store.end
    for number in range(rounds(100)):
        request, body = hostile_request(spec, chance), hostile_body(chance)
        follower.handle(follower.received(request, body, peer=PEER + number % 2)[1])
    assert follower.store.end == end
    assert pair.leader.ask(send_to("orders"), b"after").code == 0
    pair.take()
    pair.settle()
    assert [message.body for message in follower.stored("orders")] == [b"after"]


@pytest.mark.fault
@pytest.mark.parametrize("request_type", [HeartBeat, LockBatchMq])
def test_members_with_hostile_names_do_not_break_a_broker(
    request_type: type, rounds: Callable[[int], int]
) -> None:
    chance = Random(5)
    engine = Engine()
    for number in range(rounds(1_000)):
        engine.send(request_type(), hostile_body(chance), peer=PEER + number % 5)
    engine.advance(200_000)
    _check_names(engine)
    assert engine.ask(send_to("orders"), b"last").code == 0


@pytest.mark.fault
def test_no_reply_of_a_client_breaks_a_broker(rounds: Callable[[int], int]) -> None:
    """The broker asks consumers for others, who get the outcome, and nothing else happens."""
    chance = Random(3)
    engine = Engine()
    assert engine.ask(send_to("orders"), b"first").code == 0
    beat = b'{"clientID":"c","consumerDataSet":[{"groupName":"g"}]}'
    message_id = f"7F00000100002A9F{engine.store.queues['orders', 0][0]:016X}"
    for _ in range(rounds(300)):
        engine.send(HeartBeat(), beat, peer=PEER)
        for request in (
            GetConsumerRunningInfo(consumer_group="g", client_id="c"),
            InvokeBrokerToGetConsumerStatus(topic="orders", group="g"),
            ConsumeMessageDirectly(consumer_group="g", client_id="c", msg_id=message_id),
        ):
            asked = engine.send(request)
            question = next(one for one in reversed(engine.effects) if isinstance(one, AskClient))
            answer = ClientAnswered(
                question.token,
                question.peer,
                chance.choice((0, 0, 1, -1, 2**31 - 1)),
                hostile_text(chance),
                {hostile_text(chance): hostile_text(chance)},
                (hostile_body(chance),),
            )
            engine.handle(answer, answer)
            assert asked in engine.replies
    assert engine.ask(send_to("orders"), b"last").code == 0
    assert [message.body for message in engine.stored("orders")] == [b"first", b"last"]


def _check_names(engine: Engine) -> None:
    control = engine.control
    for names, check in ((control.topics.table, check_topic), (control.groups.table, check_group)):
        for name in names:
            try:
                check(name)
            except KourouError as error:
                raise AssertionError(f"{name!r} was stored: {error}") from None
