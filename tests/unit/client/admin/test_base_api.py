"""Whom administration asks."""

from __future__ import annotations

import pytest

from kourou.client.admin import base_api
from kourou.client.admin.base_api import AdminApi
from kourou.errors import BadRequest, NoPermission, TopicNotFound, Unavailable
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker, UpdateAndCreateTopic
from kourou.protocol.messages.pulls import GetMaxOffset
from kourou.protocol.request import Request
from kourou_rigs.wire_faults import Answer, always

ASK = GetMaxOffset(topic="T", queue_id=0)


@pytest.fixture
async def api(broker, producing):
    async with producing() as mq:
        api = AdminApi(mq._client.session)
        api.run = mq._client.io.run
        yield api


async def test_leaders_of_everything_or_of_one_cluster(cluster, broker, api):
    other = cluster.broker("broker-b")
    both = {"broker-a": broker.address, "broker-b": other.address}
    assert await api.run(api._leaders()) == both
    assert await api.run(api._leaders("c1")) == both
    assert await api.run(api._leaders_of("T")) == both
    with pytest.raises(BadRequest, match="c1"):
        await api.run(api._leaders("elsewhere"))
    with pytest.raises(TopicNotFound):
        await api.run(api._leaders_of("Nobody"))


async def test_no_broker_at_all(cluster, broker, api):
    cluster.brokers.clear()
    with pytest.raises(Unavailable):
        await api.run(api._leaders())


async def test_a_route_borrowed_by_a_producer_is_no_topic(broker, api):
    await api.run(api._session.routes.find("New", default_topic="TBW102", default_queue_nums=2))
    with pytest.raises(TopicNotFound):
        await api.run(api._leaders_of("New"))


async def test_answers_of_those_who_answer(cluster, broker, api):
    other = cluster.broker("broker-b")
    other.faults[Request] = always(Answer(16, remark="no"))
    addresses = [other.address, broker.address]
    assert len(await api.run(api._answers(addresses, ASK))) == 1
    with pytest.raises(NoPermission):
        await api.run(api._answers([other.address], ASK))
    with pytest.raises(NoPermission):
        await api.run(api._tell(addresses, ASK))


@pytest.mark.fault
@pytest.mark.parametrize("down", [True, False])
async def test_a_change_goes_to_whoever_leads_by_then(cluster, broker, api, down):
    follower = cluster.follower(broker)
    addresses = (await api.run(api._leaders())).values()
    io = api._session.io
    io.loop.call_soon_threadsafe(lambda: cluster.nobody_leads(broker, down=down))
    io.loop.call_soon_threadsafe(io.loop.call_later, 0.1, cluster.lead, follower)
    request = UpdateAndCreateTopic(
        topic="New", default_topic="TBW102", read_queue_nums=3, write_queue_nums=3, perm=6
    )
    await api.run(api._tell(addresses, request))
    assert cluster.topics["New"] == (3, 3)
    assert request.topic in {getattr(one, "topic", "") for one in follower.seen}
    codes = [code for wire in cluster.wires_to(broker) for code, _ in wire.deadlines]
    assert not down or codes.count(request.code) == 1, "who is known to be away is not asked"


async def test_leaders_are_waited_for(cluster, broker, api):
    follower = cluster.follower(broker)
    io = api._session.io
    for ask in (api._leaders, lambda: api._chosen("broker-a")):
        io.loop.call_soon_threadsafe(cluster.nobody_leads, broker)
        io.loop.call_soon_threadsafe(io.loop.call_later, 0.05, cluster.lead, follower)
        assert await api.run(ask()) == {"broker-a": follower.address}


async def test_a_broker_that_nobody_leads_is_no_wrong_name(cluster, broker, api, monkeypatch):
    monkeypatch.setattr(base_api, "ADMIN_TIMEOUT_MS", 50)
    cluster.follower(broker)
    cluster.nobody_leads(broker)
    with pytest.raises(Unavailable, match="has no leader"):
        await api.run(api._chosen("broker-a"))
    with pytest.raises(BadRequest, match="broker 'broker-x' is unknown"):
        await api.run(api._chosen("broker-x"))


async def test_a_leader_that_is_away_is_asked_when_it_is_back(cluster, broker, api):
    """Its name server still has it."""
    addresses = (await api.run(api._leaders())).values()
    cluster.down.add(broker.address)
    io = api._session.io
    io.loop.call_soon_threadsafe(io.loop.call_later, 0.15, cluster.down.clear)
    request = DeleteTopicInBroker(topic="T")
    await api.run(api._tell(addresses, request))
    codes = [code for wire in cluster.wires_to(broker) for code, _ in wire.deadlines]
    assert 2 <= codes.count(request.code) <= 4, "not again and again meanwhile"
