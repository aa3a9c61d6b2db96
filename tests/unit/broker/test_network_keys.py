"""Addresses that follow from several keys."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings
from kourou.errors import ConfigError
from kourou.settings.declaration import settings_of
from kourou.transport.curve_keys import make_pair


@pytest.mark.parametrize(
    ("keys", "zmq", "admin"),
    [
        ({}, "127.0.0.1:20911", 18_081),
        ({"listen_port": 10_931}, "127.0.0.1:20931", 18_082),
        ({"listen_port": 10_912}, "127.0.0.1:20912", 0),
        ({"listen_port": 0}, "127.0.0.1:0", 0),
        ({"listen_port": 1, "zmq_port": 5, "admin_port_wanted": 6}, "127.0.0.1:5", 6),
        ({"bind_address": "::1", "broker_ip1": "127.0.0.1"}, "[::1]:20911", 18_081),
        ({"admin_enabled": False}, "127.0.0.1:20911", None),
    ],
)
def test_ports(keys: dict[str, object], zmq: str, admin: int | None) -> None:
    settings = BrokerSettings(**keys)  # type: ignore[arg-type]  # a test's shorthand
    assert settings.zmq_bind_address == zmq
    assert settings.admin_port == admin


@pytest.mark.feature("F327")
def test_the_address_that_clients_dial() -> None:
    assert BrokerSettings().broker_ip == "127.0.0.1"
    assert BrokerSettings(broker_ip1="192.0.2.7").broker_ip == "192.0.2.7"
    assert BrokerSettings(bind_address="10.1.2.3", insecure_network=True).broker_ip == "10.1.2.3"
    found = ipaddress.ip_address(
        BrokerSettings(bind_address="0.0.0.0", insecure_network=True).broker_ip
    )
    assert not found.is_unspecified


def test_name_servers_are_dialled_over_zeromq() -> None:
    assert BrokerSettings(namesrv_addr="10.0.0.1:9876; [::1]:30000").name_server_endpoints == (
        "10.0.0.1:19876",
        "[::1]:30000",
    )
    assert BrokerSettings().name_server_endpoints == ()


def test_the_port_in_stored_records_is_rocketmqs() -> None:
    assert BrokerSettings().store_port(20_911, 10_911) == 10_911
    assert BrokerSettings(listen_port=0).store_port(45_000, 41_000) == 41_000
    assert BrokerSettings(listen_port=0).store_port(45_000, None) == 35_000
    assert BrokerSettings(listen_port=0).store_port(5_000, None) == 5_000


def test_listeners_as_the_name_server_is_told() -> None:
    settings = BrokerSettings(advertised_listeners="host=127.0.0.1:30911; internal=broker:20911")
    assert settings.listeners({"zmq": "10.0.0.5:20911"}) == {
        "zmq:internal": "broker:20911",
        "zmq:host": "127.0.0.1:30911",
    }
    assert BrokerSettings().listeners({"zmq": "h:1", "tcp": "h:2"}) == {
        "zmq:internal": "h:1",
        "tcp:internal": "h:2",
    }


def test_the_address_that_rocketmqs_clients_dial_may_be_said() -> None:
    """Routes are dialled literally, so each listener of a name server has its own answer."""
    given = "tcp:internal=broker:10911; tcp:host=127.0.0.1:10911; zmq:host=127.0.0.1:20911"
    settings = BrokerSettings(advertised_listeners=given)
    assert settings.listeners({"zmq": "h:1", "tcp": "h:2"}) == {
        "zmq:internal": "h:1",
        "zmq:host": "127.0.0.1:20911",
        "tcp:internal": "broker:10911",
        "tcp:host": "127.0.0.1:10911",
    }
    assert settings.listeners({"zmq": "h:1"}) == {
        "zmq:internal": "h:1",
        "zmq:host": "127.0.0.1:20911",
    }, "what does not listen is not advertised"
    for wrong in ("udp:host=h:1", "tcp:=h:1", "tcp:host=h", "tcp:host"):
        with pytest.raises(ConfigError, match="advertisedListeners"):
            BrokerSettings(advertised_listeners=wrong)


def test_where_rocketmqs_clients_are_listened_for() -> None:
    assert BrokerSettings().tcp_listeners == {
        "internal": "127.0.0.1:10911",
        "vip": "127.0.0.1:10909",
    }
    assert BrokerSettings(listen_port=0).tcp_listeners == {"internal": "127.0.0.1:0"}
    assert BrokerSettings(listen_port=2).tcp_listeners == {"internal": "127.0.0.1:2"}
    assert BrokerSettings(tcp_enabled=False).tcp_listeners == {}
    elsewhere = BrokerSettings(tcp_bind_address="::1", listen_port=0)
    assert elsewhere.tcp_listeners == {"internal": "[::1]:0"}
    with pytest.raises(ConfigError, match="tcpBindAddress"):
        BrokerSettings(tcp_bind_address="0.0.0.0")
    BrokerSettings(tcp_bind_address="0.0.0.0", tcp_enabled=False)
    BrokerSettings(tcp_bind_address="0.0.0.0", insecure_network=True)


@pytest.mark.feature("F334")
def test_the_address_server_is_asked_only_if_that_was_said() -> None:
    asks = {"fetch_namesrv_addr": True, "address_server": "lists.example"}
    url = "http://lists.example:8080/rocketmq/nsaddr"
    assert BrokerSettings(**asks).name_server_list_url == url
    assert BrokerSettings(address_server="lists.example").name_server_list_url == ""
    named = BrokerSettings(**asks, namesrv_addr="10.0.0.1:9876")
    assert named.name_server_list_url == "", "as at RocketMQ, what is named wins"
    assert BrokerSettings(fetch_namesrv_addr=True, namesrv_addr="n:1").name_server_list_url == ""
    with pytest.raises(ConfigError, match="no address server is set"):
        BrokerSettings(fetch_namesrv_addr=True)


@pytest.mark.parametrize("text", ["http://lists", "lists/x", "lists:port", "a b", "[::1", "::1"])
def test_an_address_server_is_a_host(text: str) -> None:
    (domain,) = (one for one in settings_of(BrokerSettings) if one.name == "address_server")
    assert domain.parse("lists.example:81") == "lists.example:81"
    assert domain.parse("[::1]:81") == "[::1]:81"
    with pytest.raises(ConfigError, match="rmqAddressServerDomain"):
        domain.parse(text)


def test_with_keys_it_knows_whom_it_dials_and_who_may_copy(tmp_path: Path) -> None:
    public, key = make_pair(tmp_path, "own")
    told = {"curve_key_file": key, "curve_clients": "any"}
    with pytest.raises(ConfigError, match="curveServerKey is not"):
        BrokerSettings(**told, namesrv_addr="127.0.0.1:9876")
    BrokerSettings(**told)  # it dials nobody
    BrokerSettings(**told, namesrv_addr="remoting://127.0.0.1:9876")
    with pytest.raises(ConfigError, match="curveMembers is set"):
        BrokerSettings(curve_members="any")
    found = BrokerSettings(**told, namesrv_addr="127.0.0.1:9876", curve_server_key=public)
    assert found.members_curve is not None
    assert found.members_curve.allowed.allows("whoever")
    assert not found.knows_replicas
    found = BrokerSettings(**told, curve_members=str(public))
    assert found.members_curve is not None
    assert not found.members_curve.allowed.allows("whoever")
    assert found.knows_replicas
    assert not BrokerSettings(**told, curve_members="any").knows_replicas
    assert BrokerSettings().members_curve is None
    assert not BrokerSettings().knows_replicas
    assert BrokerSettings(replication_enabled=False).knows_replicas, "nobody reaches it"


@pytest.mark.parametrize(
    "settings",
    [{"acl_enable": True}, {"authentication_enabled": True}, {"authorization_enabled": True}],
)
def test_who_relies_on_access_control_does_not_start_without_users(
    settings: dict[str, bool],
) -> None:
    with pytest.raises(ConfigError, match="=true, but this broker has no users") as caught:
        BrokerSettings(**settings).check_users({})
    assert "initialAdminFile" in caught.value.hint
    BrokerSettings(**settings).check_users({"root": None})
    BrokerSettings().check_users({})
