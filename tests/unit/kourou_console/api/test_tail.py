"""A topic is followed by events, and resumed where a reader stood."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import NoPermission, Unavailable
from kourou.model.topic import MessageQueue
from kourou.testing.cluster import Cluster
from kourou_console.api.tail import READ_AHEAD_BYTES, READ_COUNT, Gap, Tail
from kourou_console.messages.pages import decode_cursor
from kourou_rigs.console import ConsoleHere
from kourou_rigs.queues_read import QueuesRead


@pytest.fixture
def cluster(suite: Any) -> Cluster:
    """Its cluster."""
    return suite.cluster


@pytest.fixture
def console(suite: Any) -> ConsoleHere:
    """Its console."""
    return suite.console


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(queues=2)


def test_a_topic_is_followed_and_resumed(cluster, console, topic):
    path = f"/v1/topics/{topic}/tail"
    with cluster.client() as mq:
        mq.send(topic, "before")
        with console.events(path, query={"tag": ["a", "b"]}) as stream:
            mq.send(topic, "1", tag="a")
            mq.send(topic, "no", tag="c")
            mq.send(topic, "2", tag="b")
            events = iter(stream)
            seen = [next(events), next(events)]
        assert sorted(one.json["body"] for one in seen) == ["1", "2"]
        mq.send(topic, "3", tag="a")
        headers = {"Last-Event-ID": seen[-1].id}
        with console.events(path, query={"tag": ["a", "b"]}, headers=headers) as stream:
            assert next(iter(stream)).json["body"] == "3"
        with console.events(path, query={"from": "begin", "sql": "TAGS = 'c'"}) as stream:
            assert next(iter(stream)).json["body"] == "no"
    assert console.get(path, query={"from": "yesterday"}).status == 400
    assert console.get(path, headers={"Last-Event-ID": "x"}).status == 400


def test_there_is_no_head_of_what_does_not_end(console, topic):
    assert console.request("HEAD", f"/v1/topics/{topic}/tail").status == 405


def test_a_stream_ends_in_words_and_whole_when_the_gateway_ends(cluster, topic):
    with ConsoleHere(cluster) as console, console.dial() as link:
        link.sendall(b"GET /v1/topics/%b/tail HTTP/1.1\r\nHost: localhost\r\n\r\n" % topic.encode())
        found = link.recv(65_536)
        console.run(console.service.drain())
        while more := link.recv(65_536):
            found += more
    assert found.startswith(b"HTTP/1.1 200")
    assert found.count(b"HTTP/1.1") == 1, "no other answer is in it"
    assert b"event: error\ndata: " in found
    assert b"the gateway is shutting down" in found
    assert found.endswith(b"\r\n0\r\n\r\n"), "the last chunk"


# -- following a topic: what comes, what cannot be shown, where the reader stands ------------------


LONG_S = 30.0


@pytest.fixture
def queues() -> QueuesRead:
    return QueuesRead("t", 1)


@pytest.fixture
def queue(queues: QueuesRead) -> MessageQueue:
    return next(iter(queues.messages))


@pytest.fixture
async def tail(queues: QueuesRead, queue: MessageQueue) -> AsyncIterator[Tail]:
    one = Tail(queues.face(), "t", {queue: 0}, "*", 0)
    yield one
    one.close()


async def body_of(tail: Tail) -> bytes:
    found = await tail.next(LONG_S)
    assert isinstance(found, ReceivedMessage), found
    return found.raw_body


async def test_it_stands_behind_what_was_taken(queues, queue, tail):
    for number in range(3):
        queues.put(queue, body=b"%d" % number, stored_ms=number)
    tail.start()
    assert await body_of(tail) == b"0"
    assert await body_of(tail) == b"1"
    result = decode_cursor(tail.place, [queue])
    assert (result.offsets, result.time_ms) == ({queue: 2}, 1)


async def test_what_is_damaged_is_a_gap(queues, queue, tail):
    queues.put(queue, body=b"bad")
    queues.put(queue, body=b"good")
    queues.failing[queue] = [UnreadableMessages("broken", 1)]
    tail.start()
    gap = await tail.next(LONG_S)
    assert isinstance(gap, Gap)
    assert (gap.from_offset, gap.to_offset) == (0, 1)
    assert await body_of(tail) == b"good"


async def test_what_was_deleted_is_a_gap(queues, queue, tail):
    for number in range(3):
        queues.put(queue, body=b"%d" % number)
    queues.low[queue] = 2
    tail.start()
    gap = await tail.next(LONG_S)
    assert isinstance(gap, Gap)
    assert (gap.from_offset, gap.to_offset) == (0, 2)
    assert await body_of(tail) == b"2"


async def test_a_broker_that_is_away_is_said_once_and_waited_for(
    queues, queue, tail, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kourou_console.api.tail.AGAIN_S", 0)
    queues.failing[queue] = [Unavailable("away")] * 3
    queues.put(queue, body=b"late")
    tail.start()
    gap = await tail.next(LONG_S)
    assert isinstance(gap, Gap)
    assert (gap.to_offset, gap.why) == (None, "away")
    assert await body_of(tail) == b"late"


async def test_a_refusal_ends_it(queues, queue, tail):
    queues.failing[queue] = [NoPermission("not readable")]
    tail.start()
    with pytest.raises(NoPermission):
        await tail.next(LONG_S)


async def test_it_reads_a_little_ahead_and_no_more(queues, queue, tail):
    for number in range(500):
        queues.put(queue, body=b"%d" % number)
    tail.start()
    for number in range(500):
        assert await body_of(tail) == b"%d" % number
        assert queues.reads <= number // READ_COUNT + 4


async def test_large_messages_are_not_read_ahead(queues, queue, tail):
    """What one look may keep in memory is bounded in bytes, too."""
    for number in range(8):
        queues.put(queue, body=b"%d" % number)
    for message in queues.messages[queue]:
        message.size = READ_AHEAD_BYTES
    tail.start()
    for number in range(8):
        assert await body_of(tail) == b"%d" % number
        assert tail._items.qsize() <= 1
