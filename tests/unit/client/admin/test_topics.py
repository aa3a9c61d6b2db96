"""Topics, as an operator handles them."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest, TopicNotFound
from kourou.model.topic import DataVersion, MessageQueue, TopicConfig
from kourou.protocol.bodies.config_bodies import encode_topic_configs
from kourou.protocol.bodies.lists_body import encode_group_list
from kourou.protocol.messages.broker_admin import (
    GetAllTopicConfig,
    QueryTopicConsumeByWho,
    UpdateAndCreateTopic,
)
from kourou.protocol.messages.namesrv import DeleteTopicInNamesrv
from kourou_rigs.wire_broker import Answer


@pytest.fixture
async def mq(broker, producing):
    async with producing() as mq:
        yield mq


async def test_creating_returns_when_a_route_is_there(cluster, broker, mq):
    other = cluster.broker("broker-b")
    await mq.admin.topics.create("New", queues=2, read_queues=3)
    assert cluster.topics["New"] == (3, 2)
    for one in (broker, other):
        assert any(isinstance(request, UpdateAndCreateTopic) for request in one.seen)
    result = await mq.send("New", b"x")
    assert result.queue.queue_id < 2


async def test_creating_again_changes_it(cluster, mq):
    await mq.admin.topics.create("New", queues=2)
    await mq.admin.topics.create("New", queues=6)
    assert len((await mq.admin.topics.route("New")).queue_datas) == 1
    assert cluster.topics["New"] == (6, 6)


async def test_names_are_checked_first(broker, mq):
    with pytest.raises(BadRequest):
        await mq.admin.topics.create("no topic!")
    assert broker.seen == []


async def test_deleting_goes_to_brokers_and_name_servers(cluster, broker, mq):
    await mq.send("T", b"x")
    await mq.admin.topics.delete("T")
    assert broker.stored("T") == []
    assert any(isinstance(request, DeleteTopicInNamesrv) for _, request in cluster.asked)
    with pytest.raises(TopicNotFound):
        await mq.admin.topics.route("T")


async def test_listing_and_figures(broker, mq):
    await mq.send_many("T", [b"x"] * 8)
    assert await mq.admin.topics.list() == ["T", "TBW102"]
    stats = await mq.admin.topics.stats("T")
    assert list(stats) == [MessageQueue("T", "broker-a", n) for n in range(4)]
    assert sum(one.max_offset for one in stats.values()) == 8


async def test_configuration_and_consumers(broker, mq):
    config = TopicConfig("T", 4, 4)

    def answer(request):
        if isinstance(request, GetAllTopicConfig):
            return Answer(body=encode_topic_configs([TopicConfig("U"), config], DataVersion()))
        if isinstance(request, QueryTopicConsumeByWho):
            return Answer(body=encode_group_list(["h", "g"]))
        return None

    broker.intercept = answer
    assert await mq.admin.topics.config("T") == {"broker-a": config}
    assert await mq.admin.topics.consumer_groups("T") == ["g", "h"]


async def test_a_topic_of_nobody(mq):
    for work in (mq.admin.topics.route("U"), mq.admin.topics.stats("U")):
        with pytest.raises(TopicNotFound):
            await work


async def test_a_borrowed_route_is_no_route(mq):
    await mq.send("Borrowed", b"x")
    mq._client.session.routes.forget("Borrowed")
    assert (await mq.admin.topics.route("Borrowed")).queue_datas
