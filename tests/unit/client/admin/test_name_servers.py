"""What name servers keep for operators."""

from __future__ import annotations

import pytest

from kourou.client.admin.name_servers import ORDER_NAMESPACE
from kourou.errors import BadRequest, NoPermission


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
