"""Topics, as an operator handles them."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest, TopicNotFound
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.namesrv import DeleteTopicInNamesrv


async def test_creating_returns_when_a_route_is_there(cluster, broker, mq):
    other = cluster.broker("broker-b")
    await mq.admin.topics.create("New", queues=2, read_queues=3)
    assert cluster.topics["New"] == (3, 2)
    for one in (broker, other):
        assert any(isinstance(request, UpdateAndCreateTopic) for request in one.seen)
    result = await mq.send("New", b"x")
    assert result.queue.queue_id < 2


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


async def test_a_topic_of_nobody(mq):
    for work in (mq.admin.topics.route("U"), mq.admin.topics.stats("U")):
        with pytest.raises(TopicNotFound):
            await work


async def test_a_borrowed_route_is_no_route(mq):
    await mq.send("Borrowed", b"x")
    mq._client.session.routes.forget("Borrowed")
    assert (await mq.admin.topics.route("Borrowed")).queue_datas
