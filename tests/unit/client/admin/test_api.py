"""Brokers and the cluster, for operators."""

from __future__ import annotations

import pytest

from kourou.client.session.io_thread import ClientClosed
from kourou.errors import BadRequest, Code, ConfigError, DecodeError
from kourou.protocol.bodies.broker_bodies import SettingView, encode_setting_views
from kourou.protocol.bodies.route_bodies import encode_kv_table
from kourou.protocol.bodies.statistics_bodies import BrokerStats, StatsItem, encode_broker_stats
from kourou.protocol.messages.broker_admin import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    UpdateBrokerConfig,
    ViewBrokerStatsData,
)
from kourou.protocol.wire.properties_text import encode_properties_text
from kourou_rigs.wire_broker import Answer


@pytest.fixture
async def admin(broker, producing):
    async with producing() as mq:
        yield mq.admin


async def test_the_cluster(cluster, admin):
    cluster.broker("broker-b")
    info = await admin.cluster.info()
    assert info.clusters == {"c1": ("broker-a", "broker-b")}
    assert await admin.brokers.names() == ["broker-a", "broker-b"]


async def test_settings_of_a_broker(broker, admin):
    changed = []

    def answer(request):
        if isinstance(request, GetBrokerConfig):
            return Answer(body=encode_properties_text({"brokerName": "broker-a"}))
        if isinstance(request, UpdateBrokerConfig):
            changed.append(request)
            return Answer()
        if isinstance(request, GetBrokerRuntimeInfo):
            return Answer(body=encode_kv_table({"putTps": "1 2 3"}))
        return None

    broker.intercept = answer
    assert await admin.brokers.config("broker-a") == {"brokerName": "broker-a"}
    assert await admin.brokers.runtime("broker-a") == {"putTps": "1 2 3"}
    await admin.brokers.update_config("broker-a", {"flushDiskType": "SYNC_FLUSH"})
    assert len(changed) == 1
    broker.intercept = lambda _: Answer(Code.NO_PERMISSION, remark="not while it runs")
    with pytest.raises(Exception, match="not while it runs"):
        await admin.brokers.update_config("broker-a", {"storePathRootDir": "x"})
    assert not issubclass(BadRequest, ConfigError)


async def test_deleting_what_is_expired(broker, admin):
    asked = []

    def answer(request):
        asked.append(type(request))
        return Answer()

    broker.intercept = answer
    await admin.brokers.delete_expired_log("broker-a")
    await admin.brokers.clean_expired_queues("broker-a")
    await admin.brokers.clean_unused_topics("broker-a")
    assert asked == [DeleteExpiredCommitLog, CleanExpiredConsumeQueue, CleanUnusedTopic]


async def test_statistics_of_a_broker(broker, admin):
    stats = BrokerStats(stats_minute=StatsItem(sum=6, tps=0.1, avgpt=1.0))
    asked = []

    def answer(request):
        asked.append(request)
        return Answer(body=encode_broker_stats(stats))

    broker.intercept = answer
    assert await admin.brokers.statistics("broker-a", "TOPIC_PUT_NUMS", "T") == stats
    assert asked == [ViewBrokerStatsData(stats_name="TOPIC_PUT_NUMS", stats_key="T")]


async def test_a_broker_nobody_knows(admin):
    with pytest.raises(BadRequest, match="broker-a"):
        await admin.brokers.config("broker-x")


async def test_only_an_open_client_has_it(producing):
    with pytest.raises(ClientClosed):
        _ = producing().admin


async def test_a_setting_is_returned_with_its_allowed_values(broker, admin):
    view = SettingView(name="traceOn", value="true", configured="true", kind="boolean")

    def answer(request):
        if isinstance(request, GetBrokerConfig):
            assert request.described
            return Answer(body=encode_setting_views([view]))
        return None

    broker.intercept = answer
    assert await admin.brokers.settings("broker-a") == [view]
    broker.intercept = lambda _: Answer(body=encode_properties_text({"traceOn": "true"}))
    with pytest.raises(DecodeError):  # a broker of another make
        await admin.brokers.settings("broker-a")


async def test_reasons_go_along(broker, admin):
    seen = []

    def answer(request):
        if isinstance(request, UpdateBrokerConfig):
            seen.append(request.reason)
            return Answer()
        return None

    broker.intercept = answer
    await admin.brokers.update_config("broker-a", {"traceOn": "false"}, reason="quiet")
    assert seen == ["quiet"]


def test_write_permission_is_seen_in_the_routes(kourou_broker):
    with kourou_broker.client() as mq:
        brokers = mq.admin.brokers
        assert brokers.writable("broker-a") is True
        brokers.wipe_write_perm("broker-a")
        assert brokers.writable("broker-a") is False
        brokers.add_write_perm("broker-a")
        assert brokers.writable("broker-a") is True
        assert brokers.writable("nobody") is None
