"""Whom administration asks."""

from __future__ import annotations

import pytest

from kourou.client.admin_desk import AdminDesk
from kourou.errors import BadRequest, NoPermission, TopicNotFound, Unavailable
from kourou.protocol.messages.offsets import GetMaxOffset
from kourou.testing.wire_broker import Answer

ASK = GetMaxOffset(topic="T", queue_id=0)


@pytest.fixture
async def desk(broker, producing):
    async with producing() as mq:
        desk = AdminDesk(mq._client.session)
        desk.run = mq._client.io.run
        yield desk


async def test_leaders_of_everything_or_of_one_cluster(cluster, broker, desk):
    other = cluster.broker("broker-b")
    both = {"broker-a": broker.address, "broker-b": other.address}
    assert await desk.run(desk._leaders()) == both
    assert await desk.run(desk._leaders("c1")) == both
    assert await desk.run(desk._leaders_of("T")) == both
    with pytest.raises(BadRequest, match="c1"):
        await desk.run(desk._leaders("elsewhere"))
    with pytest.raises(TopicNotFound):
        await desk.run(desk._leaders_of("Nobody"))


async def test_no_broker_at_all(cluster, broker, desk):
    cluster.brokers.clear()
    with pytest.raises(Unavailable):
        await desk.run(desk._leaders())


async def test_a_route_borrowed_by_a_producer_is_no_topic(broker, desk):
    await desk.run(desk._session.routes.find("New", default_topic="TBW102", default_queue_nums=2))
    with pytest.raises(TopicNotFound):
        await desk.run(desk._leaders_of("New"))


async def test_answers_of_those_who_answer(cluster, broker, desk):
    other = cluster.broker("broker-b")
    other.intercept = lambda _: Answer(16, remark="no")
    addresses = [other.address, broker.address]
    assert len(await desk.run(desk._answers(addresses, ASK))) == 1
    with pytest.raises(NoPermission):
        await desk.run(desk._answers([other.address], ASK))
    with pytest.raises(NoPermission):
        await desk.run(desk._tell(addresses, ASK))
