"""Heartbeats and queue locks; what clients do step by step is in tests/golden/transcripts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.errors import Code
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.lists_body import LockBatch, decode_locked_queues, encode_lock_batch
from kourou.protocol.messages.access import SetAccessMode
from kourou.protocol.messages.groups import (
    HeartBeat,
    LockBatchMq,
    UnlockBatchMq,
    UnregisterClient,
)
from kourou.runtime import Disconnected
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender

QUEUE = MessageQueue("orders", "broker-a", 0)
BEAT = encode_heartbeat(
    HeartbeatBody("c1", ("p",), (ConsumerData("g", subscriptions=(Subscription("orders"),)),))
)
LOCK = encode_lock_batch(LockBatch("g", "c1", (QUEUE,)))
AS_C1 = [
    (HeartBeat(), BEAT),
    (UnregisterClient(client_id="c1", producer_group="p", consumer_group="g"), b""),
    (LockBatchMq(), LOCK),
    (UnlockBatchMq(), LOCK),
]
REFUSED = "another user is connected with the client ID c1"


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b'{"clientId":"","consumerGroup":"g","mqSet":[]}',
        b'{"clientId":"a","consumerGroup":"g g","mqSet":[]}',
        b'{"clientId":"a","consumerGroup":"g","mqSet":[{"brokerName":"broker-a","queueId":0,'
        b'"topic":"no topic"}]}',
    ],
)
def test_what_is_no_lock_is_refused(engine, said) -> None:
    before = len(engine.events())
    assert engine.ask(LockBatchMq(), said).code != Code.SUCCESS
    assert engine.ask(UnlockBatchMq(), said).code != Code.SUCCESS
    assert len(engine.events()) == before


# -- client IDs of other users --------------------------------------------------------------------


@pytest.fixture
def till(broker: SecuredBroker, root: Sender) -> Sender:
    return broker.create(root, "till", "writer")


@pytest.fixture
def rival(broker: SecuredBroker, root: Sender) -> Sender:
    """Another user with the same rights. Without credentials one has them, too."""
    for resource in ("Topic:orders", "Group:g"):
        assert broker.allow(root, "anonymous", resource, "Sub").code == Code.SUCCESS
    return broker.create(root, "rival", "writer")


@pytest.mark.parametrize("client", ["User:ops", "broker", "x" * 255])
def test_a_client_id_is_not_taken_for_a_user_in_the_history(engine, client: str) -> None:
    beat = HeartbeatBody(client, (), (ConsumerData("g", subscriptions=(Subscription("orders"),)),))
    lock = encode_lock_batch(LockBatch("g", client, (QUEUE,)))
    assert engine.ask(HeartBeat(), encode_heartbeat(beat)).code == Code.SUCCESS
    for request in (LockBatchMq(), UnlockBatchMq()):
        assert engine.ask(request, lock).code == Code.SUCCESS
    actors = {one.actor for one in SecuredBroker(engine).events()}
    assert actors == {"broker", f"client {client}"[:256]}


def test_the_history_names_the_user_of_a_heartbeat_and_of_a_lock(
    broker: SecuredBroker, till: Sender
) -> None:
    before = len(broker.events())
    for request, body in (AS_C1[0], AS_C1[2], AS_C1[3]):
        assert broker.ask(till, request, body).code == Code.SUCCESS
    assert {one.actor for one in broker.events()[before:]} == {"User:till"}
    assert {one.event.type for one in broker.events()[before:]} >= {"GroupPut", "QueueLocksChanged"}


def test_the_client_id_of_another_user_is_refused_and_nothing_changes(
    broker: SecuredBroker, till: Sender, rival: Sender
) -> None:
    beat = broker.received(till, HeartBeat(), BEAT)
    broker.give(beat)
    peer = beat.to.peer
    assert broker.ask(till, LockBatchMq(), LOCK, over=peer).code == Code.SUCCESS
    parts, events = broker.engine.core.parts, len(broker.engine.events())
    refused, members = parts.access_gate.refused, parts.membership.statistics()
    broker.engine.notices.clear()
    for other in (rival, ANYBODY):
        for request, body in AS_C1:
            reply = broker.ask(other, request, body)
            assert (reply.code, reply.remark) == (Code.NO_PERMISSION, REFUSED)
    older = broker.ask(replace(rival, protocol="tcp"), HeartBeat(), BEAT)
    assert (older.code, "AclException" in older.remark) == (Code.SYSTEM_ERROR, True)
    assert parts.access_gate.refused == refused + 2 * len(AS_C1) + 1
    assert parts.membership.statistics() == members
    assert [one.peer for one in parts.membership.consumers("g")] == [peer]
    assert (broker.engine.notices, len(broker.engine.events())) == ([], events)
    locked = broker.ask(till, LockBatchMq(), LOCK, over=peer)
    assert decode_locked_queues(b"".join(locked.body)) == (QUEUE,)


def test_a_client_id_is_free_as_soon_as_its_connection_is_closed(
    broker: SecuredBroker, till: Sender, rival: Sender
) -> None:
    beat = broker.received(till, HeartBeat(), BEAT)
    broker.give(beat)
    again = broker.received(till, HeartBeat(), BEAT)  # the same client, before the old one is gone
    assert broker.give(again)[0].code == Code.SUCCESS
    for connection in (beat, again):
        assert broker.ask(rival, HeartBeat(), BEAT).code == Code.NO_PERMISSION
        broker.engine.handle(Disconnected(connection.to.peer))
    assert broker.ask(rival, HeartBeat(), BEAT).code == Code.SUCCESS
    assert broker.ask(till, HeartBeat(), BEAT).code == Code.NO_PERMISSION


def test_of_two_users_in_one_batch_the_first_has_the_client_id(
    broker: SecuredBroker, till: Sender, rival: Sender
) -> None:
    given = [broker.received(sender, HeartBeat(), BEAT) for sender in (till, rival)]
    replies = broker.give(*given)
    assert [one and one.code for one in replies] == [Code.SUCCESS, Code.NO_PERMISSION]


def test_while_refusals_are_observed_a_client_id_may_have_two_users(
    broker: SecuredBroker, root: Sender, till: Sender, rival: Sender
) -> None:
    by_key = replace(root, secret="")
    assert broker.ask(by_key, SetAccessMode(mode="observe")).code == Code.SUCCESS
    peers = []
    for sender in (till, rival):
        beat = broker.received(sender, HeartBeat(), BEAT)
        assert broker.give(beat)[0].code == Code.SUCCESS
        peers.append(beat.to.peer)
        broker.engine.advance(10)
    observed = broker.engine.core.parts.access_gate.refusals()[0]
    assert (observed.user, observed.by, observed.handled) == ("rival", REFUSED, True)
    assert broker.ask(by_key, SetAccessMode(mode="enforce")).code == Code.SUCCESS
    codes = [
        broker.ask(sender, HeartBeat(), BEAT, over=peer).code
        for sender, peer in zip((rival, till), reversed(peers), strict=True)
    ]
    assert codes == [Code.NO_PERMISSION, Code.SUCCESS]


def test_without_users_a_client_id_is_of_everyone(broker: SecuredBroker) -> None:
    for _ in range(2):
        for request, body in AS_C1:
            assert broker.ask(ANYBODY, request, body).code == Code.SUCCESS
