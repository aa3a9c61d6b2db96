"""What a client's producers and consumers share, and what brokers tell it."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.session.heartbeats import ClientMembership
from kourou.errors import Code, Unavailable
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel
from kourou.protocol.messages.broker_admin import GetAllTopicConfig
from kourou.protocol.messages.groups import (
    GetConsumerListByGroup,
    HeartBeat,
    NotifyConsumerIdsChanged,
)
from kourou.protocol.messages.pulls import ResetConsumerClientOffset
from kourou.protocol.wire.frames import FrameKind
from kourou_rigs.wire_faults import Answer


class Member:
    def __init__(self, group="g") -> None:
        self.group = group
        self.changes = 0
        self.resets: list = []
        self.heard = asyncio.Event()

    @property
    def membership(self):
        return ClientMembership(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            (),
        )

    def rebalance_soon(self):
        self.changes += 1
        self.heard.set()

    async def reset(self, offsets):
        self.resets.append(offsets)
        self.heard.set()


@pytest.fixture
async def session(cluster, broker, producing):
    """An open session; the test runs on its loop's thread by `on_io`."""
    async with producing() as mq:
        yield mq._client.session


async def on_io(session, work):
    return await session.io.run(work())


async def test_members_are_asked_of_any_broker_that_answers(cluster, broker, session):
    other = cluster.broker("broker-b")
    cluster.down.add(other.address)

    async def work():
        await session.join(Member())
        known = await session.routes.find("T")
        return [await session.members("g", known) for _ in range(6)]

    assert all(ids == [session.client_id] for ids in await on_io(session, work))


async def test_a_broker_that_does_not_know_us_gets_a_heartbeat(cluster, broker, session):
    async def work():
        await session.join(Member())
        known = await session.routes.find("T")
        await session.heartbeats.reach(known.addresses())
        broker.disconnect()
        with pytest.raises(Exception, match="has no consumer at this broker"):
            await session.members("g", known)
        broker.faults[GetConsumerListByGroup] = [Answer(body=b'{"consumerIdList":["x"]}')]
        with pytest.raises(Unavailable, match="does not know this consumer yet"):
            await session.members("g", known)
        notified = asyncio.Event()
        broker.faults[HeartBeat] = [lambda _: notified.set()]
        await notified.wait()

    await on_io(session, work)


async def test_requests_a_client_does_not_answer_are_declined(cluster, broker, session):
    async def work():
        member = Member()
        await session.join(member)
        session.connections.to(broker.address)
        [wire] = cluster.wires_to(broker)
        wire.hear(GetAllTopicConfig(), kind=FrameKind.REQUEST)
        wire.hear(NotifyConsumerIdsChanged(consumer_group="g"))
        await member.heard.wait()
        return wire.replies[0]

    reply = await on_io(session, work)
    assert (reply.kind, reply.code) == (FrameKind.REPLY, Code.REQUEST_CODE_NOT_SUPPORTED)


async def test_nonsense_from_a_broker_is_logged_and_survived(cluster, broker, session, caplog):
    async def work():
        member = Member()
        await session.join(member)
        session.connections.to(broker.address)
        [wire] = cluster.wires_to(broker)
        wire.hear(ResetConsumerClientOffset(topic="T", group="g"), b"no json")
        wire.hear(NotifyConsumerIdsChanged(consumer_group="g"))
        await member.heard.wait()
        assert member.resets == []

    await on_io(session, work)
    assert "sent a request that cannot be decoded:" in caplog.text


async def test_introducing_tells_new_brokers_first(broker, session):
    async def work():
        await session.join(Member())
        assert broker.members == {}, "no route was known when it joined"
        await session.introduce("T")
        assert session.client_id in broker.members["g"]

    await on_io(session, work)
