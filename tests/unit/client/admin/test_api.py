"""Brokers, topics and name servers, for operators."""

from __future__ import annotations

import pytest

from kourou.client.admin.name_servers import ORDER_NAMESPACE
from kourou.client.session.io_thread import ClientClosed
from kourou.errors import BadRequest, DecodeError, NoPermission, TopicNotFound
from kourou.protocol.bodies.broker_bodies import SettingView, encode_setting_views
from kourou.protocol.messages.broker_admin import (
    GetBrokerConfig,
    UpdateAndCreateTopic,
    UpdateBrokerConfig,
)
from kourou.protocol.messages.namesrv import DeleteTopicInNamesrv
from kourou.protocol.wire.properties_text import encode_properties_text
from kourou_rigs.wire_faults import Answer


async def test_only_an_open_client_has_it(producing):
    with pytest.raises(ClientClosed):
        _ = producing().admin


async def test_a_setting_is_returned_with_its_allowed_values(broker, admin):
    view = SettingView(name="traceOn", value="true", configured="true", kind="boolean")
    of_another_make = encode_properties_text({"traceOn": "true"})
    broker.faults[GetBrokerConfig] = [
        Answer(body=encode_setting_views([view])),
        Answer(body=of_another_make),
    ]
    assert await admin.brokers.settings("broker-a") == [view]
    assert broker.requests(GetBrokerConfig)[0].described
    with pytest.raises(DecodeError):
        await admin.brokers.settings("broker-a")


async def test_reasons_go_along(broker, admin):
    broker.faults[UpdateBrokerConfig] = [Answer()]
    await admin.brokers.update_config("broker-a", {"traceOn": "false"}, reason="quiet")
    assert broker.requests(UpdateBrokerConfig)[0].reason == "quiet"


def test_write_permission_is_seen_in_the_routes(kourou_broker):
    with kourou_broker.client() as mq:
        brokers = mq.admin.brokers
        assert brokers.writable("broker-a") is True
        brokers.wipe_write_perm("broker-a")
        assert brokers.writable("broker-a") is False
        brokers.add_write_perm("broker-a")
        assert brokers.writable("broker-a") is True
        assert brokers.writable("nobody") is None


# -- topics ----------------------------------------------------------------------------------------


async def test_creating_returns_when_a_route_is_there(cluster, broker, mq):
    other = cluster.broker("broker-b")
    await mq.admin.topics.create("New", queues=2, read_queues=3)
    assert cluster.topics["New"] == (3, 2)
    for one in (broker, other):
        assert one.requests(UpdateAndCreateTopic)
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


# -- name servers ----------------------------------------------------------------------------------


def test_order_settings_are_written_as_rocketmq_reads_them(kourou_broker):
    with kourou_broker.client() as mq:
        mq.admin.name_servers.put_order("orders", {"broker-a": 4, "broker-b": 2})
        value = mq.admin.name_servers.get(ORDER_NAMESPACE, "orders")
        assert value == "broker-a:4;broker-b:2"
        with pytest.raises(BadRequest):
            mq.admin.name_servers.put_order("orders", {})


def test_settings_and_topics(kourou_broker):
    topic = kourou_broker.create_topic()
    with kourou_broker.client() as mq:
        ((_, settings),) = mq.admin.name_servers.settings().items()
        assert "listenPort" in settings
        with pytest.raises(NoPermission):
            mq.admin.name_servers.update_settings({"listenPort": "1"})
        assert topic in mq.admin.name_servers.topics_of("DefaultCluster")
