"""A leader that keeps its connection and answers nothing is left, once another one leads."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.producer import leader_wait
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic
from kourou.protocol.messages.sends import SendRecords


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a second here."""
    monkeypatch.setattr(leader_wait, "SILENT_MS", 0)
    monkeypatch.setattr(leader_wait, "REFRESH_MS", 20)


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110 - the client's own thread changes it
        await asyncio.sleep(0)


def looks(cluster) -> int:
    return sum(isinstance(request, GetRouteInfoByTopic) for _, request in cluster.asked)


def on_io(mq, action, *arguments) -> None:
    mq._client.io.loop.call_soon_threadsafe(action, *arguments)


def freeze(broker) -> None:
    """Its process is stopped: connections stand, and nothing is answered."""

    broker._handlers[SendRecords] = lambda wire, number, request, body: None


@pytest.mark.feature("F168", "F230")
async def test_what_a_frozen_leader_had_goes_to_the_next_one(cluster, broker, producing) -> None:
    follower = cluster.follower(broker)
    async with producing() as mq:
        await mq.send("T", b"before")
        freeze(broker)
        sending = asyncio.ensure_future(mq.send("T", b"x"))
        before = looks(cluster)
        await until(lambda: looks(cluster) > before + 2)
        assert not sending.done(), "a leader that is slow keeps what it has"
        on_io(mq, cluster.lead, follower)
        result = await sending
    (frame,) = follower.frames
    assert frame.attempt == 2, "so that the new leader looks for it"
    assert result.message_id in {one.message_id for one in follower.stored("T")}


@pytest.mark.feature("F168", "F230")
async def test_it_goes_to_the_next_leader_of_that_broker_and_not_to_another_broker(
    cluster, broker, producing
) -> None:
    """The next leader may have it already, and looks for it; another broker cannot know."""
    follower, other = cluster.follower(broker), cluster.broker("broker-b")
    async with producing() as mq:
        freeze(broker)
        sending = [asyncio.ensure_future(mq.send("T", b"x")) for _ in range(8)]
        before = looks(cluster)
        await until(lambda: looks(cluster) > before + 2)
        on_io(mq, cluster.lead, follower)
        await asyncio.gather(*sending)
    assert {frame.attempt for frame in other.frames} == {1}
    assert {frame.attempt for frame in follower.frames} == {2}
