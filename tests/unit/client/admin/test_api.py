"""Brokers and the cluster, for operators."""

from __future__ import annotations

import pytest

from kourou.client.session.io_thread import ClientClosed
from kourou.errors import DecodeError
from kourou.protocol.bodies.broker_bodies import SettingView, encode_setting_views
from kourou.protocol.messages.broker_admin import (
    GetBrokerConfig,
    UpdateBrokerConfig,
)
from kourou.protocol.wire.properties_text import encode_properties_text
from kourou_rigs.wire_broker import Answer


async def test_only_an_open_client_has_it(producing):
    with pytest.raises(ClientClosed):
        _ = producing().admin


async def test_a_setting_is_returned_with_its_allowed_values(broker, admin, answers):
    view = SettingView(name="traceOn", value="true", configured="true", kind="boolean")

    seen = answers(broker, {GetBrokerConfig: Answer(body=encode_setting_views([view]))})
    assert await admin.brokers.settings("broker-a") == [view]
    assert seen[0].described
    answers(broker, {GetBrokerConfig: Answer(body=encode_properties_text({"traceOn": "true"}))})
    with pytest.raises(DecodeError):  # a broker of another make
        await admin.brokers.settings("broker-a")


async def test_reasons_go_along(broker, admin, answers):
    seen = answers(broker, {UpdateBrokerConfig: Answer()})
    await admin.brokers.update_config("broker-a", {"traceOn": "false"}, reason="quiet")
    assert seen[0].reason == "quiet"


def test_write_permission_is_seen_in_the_routes(kourou_broker):
    with kourou_broker.client() as mq:
        brokers = mq.admin.brokers
        assert brokers.writable("broker-a") is True
        brokers.wipe_write_perm("broker-a")
        assert brokers.writable("broker-a") is False
        brokers.add_write_perm("broker-a")
        assert brokers.writable("broker-a") is True
        assert brokers.writable("nobody") is None
