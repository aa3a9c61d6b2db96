"""Whom administration asks."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.admin import base_api
from kourou.errors import BadRequest, Code, NoPermission, TopicNotFound, Unavailable
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker, UpdateAndCreateTopic
from kourou.protocol.request import Request
from kourou_rigs.wire_faults import Answer, Cut, always


async def test_all_leaders_are_asked_or_those_of_one_cluster(cluster, broker, admin):
    cluster.broker("broker-b")
    assert await admin.brokers.names() == ["broker-a", "broker-b"]
    assert list(await admin.topics.all_configs(cluster="c1")) == ["broker-a", "broker-b"]
    with pytest.raises(BadRequest, match="c1"):
        await admin.topics.all_configs(cluster="elsewhere")


async def test_no_broker_at_all(cluster, admin):
    cluster.brokers.clear()
    with pytest.raises(Unavailable):
        await admin.brokers.names()


async def test_a_route_borrowed_by_a_producer_is_no_topic(mq):
    routes = mq._client.session.routes
    await mq._client.io.run(routes.find("New", default_topic="TBW102", default_queue_nums=2))
    for ask in (mq.admin.topics.route, mq.admin.topics.stats):
        with pytest.raises(TopicNotFound):
            await ask("New")


async def test_answers_of_those_who_answer(cluster, broker, admin):
    other = cluster.broker("broker-b")
    other.faults[Request] = always(Answer(16, remark="no"))
    await admin.groups.list()
    with pytest.raises(NoPermission):
        await admin.topics.create("New")
    broker.faults[Request] = always(Answer(16, remark="no"))
    with pytest.raises(NoPermission):
        await admin.groups.list()


@pytest.mark.fault
@pytest.mark.parametrize("down", [True, False])
async def test_a_change_goes_to_whoever_leads_by_then(cluster, broker, admin, down):
    follower = cluster.follower(broker)

    def deposed(_request):
        cluster.nobody_leads(broker, down=down)
        asyncio.get_running_loop().call_later(0.1, cluster.lead, follower)
        if down:
            raise Cut
        return Answer(Code.SERVICE_NOT_AVAILABLE, remark="the broker changes its role")

    broker.faults[UpdateAndCreateTopic] = [deposed]
    await admin.topics.create("New", queues=3)
    assert cluster.topics["New"] == (3, 3)
    assert [one.topic for one in follower.requests(UpdateAndCreateTopic)] == ["New"]
    assert not down or times_asked(cluster, broker, UpdateAndCreateTopic) == 1, (
        "who is known to be away is not asked"
    )


def times_asked(cluster, broker, kind: type[Request]) -> int:
    """How often this was sent to the broker, whether it arrived or not."""
    codes = [code for wire in cluster.wires_to(broker) for code, _ in wire.deadlines]
    return codes.count(kind.code)


async def test_leaders_are_waited_for(cluster, broker, admin):
    follower = cluster.follower(broker)
    loop = asyncio.get_running_loop()
    cluster.nobody_leads(broker)
    loop.call_later(0.05, cluster.lead, follower)
    assert await admin.brokers.names() == ["broker-a"]
    cluster.nobody_leads(follower, down=False)
    loop.call_later(0.05, cluster.lead, follower)
    assert list(await admin.topics.all_configs(broker="broker-a")) == ["broker-a"]


async def test_a_broker_that_nobody_leads_is_no_wrong_name(cluster, broker, admin, monkeypatch):
    monkeypatch.setattr(base_api, "ADMIN_TIMEOUT_MS", 50)
    cluster.follower(broker)
    cluster.nobody_leads(broker)
    with pytest.raises(Unavailable, match="has no leader"):
        await admin.topics.all_configs(broker="broker-a")
    with pytest.raises(BadRequest, match="broker 'broker-x' is unknown"):
        await admin.topics.all_configs(broker="broker-x")


async def test_a_leader_that_is_away_is_asked_when_it_is_back(cluster, broker, admin):
    """Its name server still has it."""
    cluster.down.add(broker.address)
    asyncio.get_running_loop().call_later(0.15, cluster.down.clear)
    await admin.topics.delete("T")
    assert 2 <= times_asked(cluster, broker, DeleteTopicInBroker) <= 4, (
        "not again and again meanwhile"
    )
