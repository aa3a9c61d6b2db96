"""What name servers keep for operators."""

from __future__ import annotations

import pytest

from kourou.client.admin.name_servers import ORDER_NAMESPACE
from kourou.errors import BadRequest, NoPermission


def test_keys_and_values(kourou_broker):
    with kourou_broker.client() as mq:
        name_servers = mq.admin.name_servers
        assert name_servers.get("space", "key") is None
        assert name_servers.list("space") == {}
        name_servers.put("space", "key", "value")
        assert name_servers.get("space", "key") == "value"
        assert name_servers.list("space") == {"key": "value"}
        name_servers.delete("space", "key")
        name_servers.delete("space", "key")
        assert name_servers.get("space", "key") is None


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


def test_every_name_server_answers_for_itself(kourou_broker):
    with kourou_broker.client() as mq:
        ((address, settings),) = mq.admin.name_servers.each().items()
        assert address
        assert settings == next(iter(mq.admin.name_servers.settings().values()))
