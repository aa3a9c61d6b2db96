"""Messages of four million zeros have four thousand bytes in a log: no answer grows by that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kourou import ProducerSettings, TransactionState
from kourou.client.admin.messages import Reading
from kourou.model.topic import MessageQueue
from kourou.testing.cluster import Cluster, unique_name
from kourou_console.messages.views import PIECE_BYTES
from kourou_rigs.console import ConsoleHere

MIB = 1 << 20
ZEROS = bytes(4_000_000)
MESSAGES = 5
ALL = {"body_max": str(4 * MIB)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("compressed")) as one:
        yield one


@pytest.fixture(scope="module")
def console(cluster: Cluster) -> Iterator[ConsoleHere]:
    with ConsoleHere(cluster) as here:
        yield here


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(queues=1)


def check(console: ConsoleHere, inflated: list[int], path: str, **query: str) -> Any:
    """The answer to all that can be asked for; bounded, and nothing for nothing."""
    inflated.clear()
    answer = console.get(path, query={**query, **ALL})
    assert answer.status == 200, answer.text
    assert len(answer.body) <= 8 * MIB + 16_384
    assert 0 < sum(inflated) <= 16 * MIB + PIECE_BYTES
    assert max(inflated) <= PIECE_BYTES
    inflated.clear()
    none = console.get(path, query={**query, "body_max": "0"}).json
    assert inflated == []
    messages = [one.get("message", one) for one in none["items"]]
    assert [one["body"] for one in messages] == [""] * MESSAGES
    assert {(one["body_truncated"], one["body_bytes"]) for one in messages} == {(True, None)}
    return answer.json


def test_messages_of_a_topic(cluster, console, topic, inflated):
    with cluster.client() as mq:
        sent = [mq.send(topic, ZEROS, keys=["k"]) for _ in range(MESSAGES)]
    for which in ({"latest": "true"}, {"key": "k"}, {"from_ms": "0"}):
        found = check(console, inflated, "/v1/messages", topic=topic, **which)
        assert [bool(one["body"]) for one in found["items"]] == [True] + [False] * 4
        assert all(one["body_truncated"] for one in found["items"])
    one = console.get(f"/v1/messages/{sent[0].message_id}", query={"topic": topic, **ALL})
    assert len(one.body) <= 8 * MIB + 16_384
    whole = console.get(f"/v1/messages/{sent[0].message_id}/body", query={"topic": topic})
    assert whole.body == ZEROS


def test_a_queue_is_paged_when_no_more_can_be_shown(cluster, console, topic, inflated, monkeypatch):
    queue = MessageQueue(topic, "broker-a", 0)
    with cluster.client() as mq:
        for _ in range(MESSAGES):
            mq.send(topic, ZEROS, queue=queue)
    path = f"/v1/topics/{topic}/queues/broker-a/0/messages"
    check(console, inflated, path, offset="0")
    read = Reading.read

    async def one_by_one(self: Reading, *args: Any, **more: Any) -> Any:
        return await read(self, *args, **{**more, "count_max": 1})

    monkeypatch.setattr(Reading, "read", one_by_one)
    inflated.clear()
    found = console.get(path, query={"offset": "0", **ALL}).json
    assert (len(found["items"]), found["next_offset"], found["truncated"]) == (1, 1, True)
    assert sum(inflated) <= 4 * MIB
    found = console.get(path, query={"offset": "1", **ALL}).json
    assert len(found["items"][0]["body"]) > MIB


def test_delayed_messages(cluster, console, topic, inflated):
    with cluster.client() as mq:
        for _ in range(MESSAGES):
            mq.send(topic, ZEROS, delay_level=5)
    check(console, inflated, "/v1/delayed", count="200")


def test_open_transactions(cluster, console, topic, inflated):
    settings = ProducerSettings(producer_group=unique_name("sellers"))
    with (
        cluster.client() as mq,
        mq.transaction_producer(
            settings,
            execute=lambda tx, argument: TransactionState.UNKNOWN,
            check=lambda message: TransactionState.UNKNOWN,
        ) as producer,
    ):
        for _ in range(MESSAGES):
            producer.send_in_transaction(topic, ZEROS, None)
        check(console, inflated, "/v1/transactions", group=settings.producer_group)


def test_dead_letters(cluster, console, topic, inflated):
    group = unique_name("group")
    with cluster.client(group) as mq, mq.subscribe(topic) as messages:
        for _ in range(MESSAGES):
            mq.send(topic, ZEROS)
        for _, message in zip(range(MESSAGES), messages, strict=False):
            message.dead_letter("broken")
    check(console, inflated, "/v1/dead-letters", group=group)
    inflated.clear()
    export = console.get("/v1/dead-letters/export", query={"group": group}).body.splitlines()
    assert [len(line) > 24_000_000 for line in export] == [True] * MESSAGES + [False]
    assert max(inflated) <= PIECE_BYTES
