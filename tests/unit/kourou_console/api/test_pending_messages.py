"""Delayed messages and open transactions are shown while they wait, and no longer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kourou import ProducerSettings, TransactionState
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.errors import TopicNotFound, Unavailable
from kourou.model.names import HALF_TOPIC, OP_TOPIC
from kourou.model.topic import MessageQueue
from kourou_console.api.pending_messages import open_half_messages, read_range, still_open
from kourou_console.gateway import Gateway
from kourou_rigs.queues_read import QueuesRead, message_at


@pytest.mark.feature("F247", "F248")
def test_delayed_messages_until_they_are_due(cluster, console):
    topic, other = cluster.create_topic(), cluster.create_topic()
    with cluster.client() as mq:
        later = mq.send(topic, "later", delay_level=5)
        mq.send(topic, "soon", delay_level=3)
        mq.send(other, "elsewhere", delay_level=3)
    found = console.get("/v1/delayed").json
    assert [one["message"]["body"] for one in found["items"]] == ["soon", "elsewhere", "later"]
    last = found["items"][2]
    assert (last["topic"], last["level"]) == (topic, 5)
    assert last["message"]["id"] == later.message_id
    assert last["due_ms"] == last["message"]["stored_ms"] + 60_000
    assert sum(level["waiting"] for level in found["levels"]) == found["total"] == 3
    of_topic = console.get("/v1/delayed", query={"topic": other}).json
    assert [one["message"]["body"] for one in of_topic["items"]] == ["elsewhere"]
    assert (of_topic["total"], of_topic["truncated"]) == (1, False)
    few = console.get("/v1/delayed", query={"count": "1"}).json
    assert (len(few["items"]), few["truncated"]) == (1, True)
    cluster.clock.advance(seconds=11)
    found = console.get("/v1/delayed").json
    assert [one["message"]["body"] for one in found["items"]] == ["later"]
    cluster.clock.advance(seconds=60)
    found = console.get("/v1/delayed").json
    assert (found["items"], found["levels"], found["missing"]) == ([], [], [])


def test_transactions_until_they_end(cluster, console):
    assert console.get("/v1/transactions").json["items"] == []
    topic = cluster.create_topic()
    group = f"{topic}-sellers"
    states = {
        "a": TransactionState.UNKNOWN,
        "b": TransactionState.COMMIT,
        "c": TransactionState.ROLLBACK,
        "d": TransactionState.UNKNOWN,
    }
    known: dict[bytes, TransactionState] = {}
    with (
        cluster.client() as mq,
        mq.transaction_producer(
            ProducerSettings(producer_group=group),
            execute=lambda tx, name: states[name],
            check=lambda message: known.get(message.body, TransactionState.UNKNOWN),
        ) as producer,
    ):
        for name in states:
            producer.send_in_transaction(topic, name, name)
            if name == "a":  # the other broker has never seen a transaction: nothing is missing
                assert console.get("/v1/transactions").json["missing"] == []
        found = console.get("/v1/transactions", query={"group": group}).json
        assert [one["message"]["body"] for one in found["items"]] == ["a", "d"]
        first = found["items"][0]
        assert (first["topic"], first["producer_group"], first["checks"]) == (topic, group, 0)
        assert first["transaction_id"] == first["message"]["id"]
        assert (found["total"], found["truncated"]) == (2, False)
        assert console.get("/v1/transactions", query={"group": "others"}).json["items"] == []
        known[b"d"] = TransactionState.COMMIT
        cluster.clock.advance(minutes=2)
        found = console.get("/v1/transactions").json
        assert [one["message"]["body"] for one in found["items"]] == ["a"]
        assert found["items"][0]["checks"] > 0
        assert found["items"][0]["age_ms"] >= 120_000


# -- which half messages are open: not those an op record names, and of copies the newest ----------


HALF = MessageQueue(HALF_TOPIC, "broker-a", 0)
OP = MessageQueue(OP_TOPIC, "broker-a", 0)


def half(offset: int, key: str):
    return message_at(HALF, offset, properties={"PGROUP": "g", "UNIQ_KEY": key})


@pytest.mark.feature("F252")
def test_open_ones():
    ops = [
        message_at(OP, 0, body=b"1"),
        message_at(OP, 1, body=b"3,4,"),
        message_at(OP, 2, body=b"x"),
    ]
    found = [half(0, "a"), half(1, "b"), half(2, "a"), half(3, "c"), half(4, "d"), half(5, "e")]
    assert [one.offset for one in still_open(found, ops)] == [2, 5]


async def test_reading_is_bounded_and_says_what_is_left():
    queues = QueuesRead("t", 1, read_max=4)
    queue = next(iter(queues.messages))
    for _ in range(20):
        queues.put(queue)
    queues.failing[queue] = [UnreadableMessages("broken", 6)]
    found = await read_range(queues.face(), queue, 5, 20, 8)
    assert [one.offset for one in found.messages] == list(range(6, 14))
    assert found.left == 6
    assert [one.what for one in found.damaged] == [f"{queue!s}@5"]


class OpenHalfMessages(QueuesRead):
    """Half topics of three brokers by their route; one has none, one does not answer."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, broker, 0) for broker in ("broker-a", "broker-b", "broker-c")]

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        if queue.broker_name == "broker-b":
            raise TopicNotFound(f"the topic {queue.topic} does not exist here")
        if queue.broker_name == "broker-c":
            raise Unavailable("it is away")
        return await super().bounds(queue)

    async def committed(self, _group: str, _queue: MessageQueue) -> int | None:
        return None


async def test_who_has_no_half_topic_has_no_halves_and_is_not_missing():
    queues = OpenHalfMessages(HALF_TOPIC, 1)
    queues.messages[HALF].append(half(0, "a"))
    queues.messages[OP] = []
    admin = SimpleNamespace(reading=queues.face())
    found = await open_half_messages(cast("Gateway", SimpleNamespace(admin=admin)))
    assert [one.offset for one in found.messages] == [0]
    assert [one.what for one in found.missing] == ["broker-c"]


class Passing(OpenHalfMessages):
    """The broker passes a half and its end as soon as the half was looked for."""

    passed = False

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "broker-a", 0)]

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        found = await super().bounds(queue)
        self.passed = self.passed or queue == HALF
        return found

    async def committed(self, _group: str, queue: MessageQueue) -> int | None:
        return 1 if self.passed and queue == OP else 0


async def test_no_half_seems_open_whose_end_the_broker_passes_meanwhile():
    queues = Passing(HALF_TOPIC, 1)
    queues.messages[HALF].append(half(0, "a"))
    queues.messages[OP] = [message_at(OP, 0, body=b"0")]
    admin = SimpleNamespace(reading=queues.face())
    found = await open_half_messages(cast("Gateway", SimpleNamespace(admin=admin)))
    assert (found.messages, found.missing) == ([], [])
