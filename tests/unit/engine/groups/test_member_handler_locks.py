"""Clients lock the queues that they consume in order."""

import json

import pytest

from kourou.engine.inputs import SpaceChanged
from kourou.errors import Code
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.groups import (
    HeartBeat,
    LockBatchMq,
    NotifyConsumerIdsChanged,
    UnlockBatchMq,
    UnregisterClient,
)
from kourou.runtime.core import Disconnected, LogWarning
from kourou_rigs.engine import Engine

PEERS = {"a": 1, "b": 2}


def body(client: str, *queues: int, broker: str = "broker-a", **more) -> bytes:
    return json.dumps(
        {
            "clientId": client,
            "consumerGroup": "g",
            "mqSet": [{"brokerName": broker, "queueId": n, "topic": "T"} for n in queues],
            **more,
        }
    ).encode()


def lock(engine: Engine, client: str, *queues: int, **more) -> list[int]:
    reply = engine.ask(LockBatchMq(), body(client, *queues, **more), peer=PEERS[client])
    assert reply.code == Code.SUCCESS, reply
    said = json.loads(b"".join(reply.body))
    assert list(said) == ["lockOKMQSet"]
    return [queue["queueId"] for queue in said["lockOKMQSet"]]


def unlock(engine: Engine, client: str, *queues: int) -> None:
    reply = engine.ask(UnlockBatchMq(), body(client, *queues), peer=PEERS[client])
    assert reply.code == Code.SUCCESS


def join(engine: Engine, client: str) -> None:
    beat = encode_heartbeat(HeartbeatBody(client, consumers=(ConsumerData("g"),)))
    engine.ask(HeartBeat(), beat, peer=PEERS[client])


def notified(engine: Engine) -> list[int]:
    """Who was notified to rebalance since the last question."""
    notices, engine.notices[:] = list(engine.notices), []
    assert all(isinstance(each.request, NotifyConsumerIdsChanged) for each in notices)
    return [each.peer.id for each in notices]


def test_locking_and_giving_back(engine) -> None:
    assert lock(engine, "a", 0, 1) == [0, 1]
    assert lock(engine, "b", 0, 1, 2) == [2]
    unlock(engine, "b", 0)
    assert lock(engine, "b", 0) == [], "it was not b's to give"
    unlock(engine, "a", 0)
    assert lock(engine, "b", 0) == [0]


def test_rocketmq_5_says_more_and_means_the_same(engine) -> None:
    assert lock(engine, "a", 0, onlyThisBroker=True) == [0]


def test_bodies_are_those_of_rocketmq(engine) -> None:
    reply = engine.ask(LockBatchMq(), body("a", 3))
    assert b"".join(reply.body) == (
        b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":3,"topic":"T"}]}'
    )


def test_another_brokers_queues_are_not_granted(engine) -> None:
    assert lock(engine, "a", 0, broker="broker-b") == []
    assert lock(engine, "b", 0) == [0]


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


def test_a_client_that_goes_keeps_its_locks_until_they_lapse(engine) -> None:
    """Its handler may still be running (decision 0055)."""
    join(engine, "a")
    join(engine, "b")
    lock(engine, "a", 0)
    assert lock(engine, "b", 0) == []
    engine.ask(UnregisterClient(client_id="a", consumer_group="g"), peer=1)
    engine.handle(Disconnected(engine.peer(1)))
    engine.advance(60_000)
    assert lock(engine, "b", 0) == []
    notified(engine)
    engine.advance(1)
    assert notified(engine) == [2], "who waits is notified that it lapsed"
    assert lock(engine, "b", 0) == [0]


def test_who_was_refused_is_notified_when_the_queue_is_free(engine) -> None:
    join(engine, "a")
    join(engine, "b")
    lock(engine, "a", 0, 1)
    lock(engine, "b", 0)
    notified(engine)
    unlock(engine, "a", 1)
    assert notified(engine) == []
    unlock(engine, "a", 0)
    assert notified(engine) == [2]
    unlock(engine, "a", 0)
    assert notified(engine) == []


def test_holders_are_recorded_and_refreshing_is_not(engine) -> None:
    before = len(engine.events())
    lock(engine, "a", 0, 1)
    lock(engine, "a", 0, 1)
    lock(engine, "b", 0)
    assert [each.tag for each in engine.events()[before:]] == ["QueueLocksChanged"]
    assert engine.control.locks.table == {"g": {"T": {0: "a", 1: "a"}}}
    unlock(engine, "a", 0)
    engine.advance(60_001)
    assert engine.control.locks.table == {}


def test_an_answer_waits_until_the_holder_is_recorded_for_good() -> None:
    engine = Engine(sync_flush=True)
    first = engine.send(LockBatchMq(), body("a", 0))
    assert first not in engine.replies
    engine.flush()
    assert engine.replies[first].code == Code.SUCCESS
    assert lock(engine, "a", 0) == [0], "refreshing waits for nothing"


def test_a_full_disk_does_not_keep_queues_from_their_consumers(engine) -> None:
    allocated = engine.core.parts.appends._allocated_end
    engine.core.parts.appends._allocated_end = engine.store.end
    engine.handle(SpaceChanged(0, full=True))
    assert lock(engine, "a", 0) == [0]
    assert lock(engine, "b", 0) == []
    engine.advance(1_000)
    warnings = [each for each in engine.effects if isinstance(each, LogWarning)]
    assert len([each for each in warnings if "locks" in each.text]) == 1, "said once"
    assert engine.control.locks.table == {}
    engine.handle(SpaceChanged(allocated, full=False))
    engine.advance(100)
    assert engine.control.locks.table == {"g": {"T": {0: "a"}}}
