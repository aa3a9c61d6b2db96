"""Commands for brokers and name servers: names and addresses of brokers, empty namespaces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kourou.cli.admin.brokers import broker_name, key_values
from kourou.errors import BadRequest
from kourou.model.topic import BrokerData
from kourou.protocol.bodies.route_bodies import ClusterInfo

CLUSTER = ClusterInfo(
    brokers={"broker-a": BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:20911"})},
    clusters={"DefaultCluster": ("broker-a",)},
)


def client_with(**families: object) -> Any:
    return SimpleNamespace(admin=SimpleNamespace(**families))


@pytest.mark.parametrize("text", ["broker-a", "127.0.0.1:20911", "127.0.0.1:10911"])
def test_a_broker_is_named_by_its_name_or_either_address(text: str) -> None:
    client = client_with(cluster=SimpleNamespace(info=lambda: CLUSTER))
    assert broker_name(client, text) == "broker-a"


@pytest.mark.parametrize("text", ["broker-b", "127.0.0.1:10912", "127.0.0.1:70000", ":", ""])
def test_an_unknown_broker_is_refused_and_the_known_ones_are_named(text: str) -> None:
    client = client_with(cluster=SimpleNamespace(info=lambda: CLUSTER))
    with pytest.raises(BadRequest, match=r"known: broker-a"):
        broker_name(client, text)


def test_a_namespace_may_have_no_keys() -> None:
    name_servers = SimpleNamespace(list=lambda _namespace: {})
    report = key_values(client_with(name_servers=name_servers), "shops")
    assert report.remarks == ["namespace shops has no keys"]
