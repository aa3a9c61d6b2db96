"""The keys of a name server."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.settings.declaration import settings_of
from kourou_namesrv.config import NamesrvSettings


@pytest.mark.feature("F030")
def test_the_defaults() -> None:
    settings = NamesrvSettings()
    assert settings.listen_port == 9876
    assert settings.listeners() == {"internal": "127.0.0.1:19876"}
    assert settings.tcp_listeners == {"internal": "127.0.0.1:9876"}
    assert settings.admin_port == 18_080
    assert (settings.scan_interval_ms, settings.broker_expiry_ms) == (10_000, 120_000)
    assert settings.kv_config_path == Path.home() / "namesrv" / "kvConfig.json"


def test_port_zero_takes_any_everywhere() -> None:
    settings = NamesrvSettings(listen_port=0)
    assert settings.listeners() == {"internal": "127.0.0.1:0"}
    assert settings.tcp_listeners == {"internal": "127.0.0.1:0"}
    assert settings.admin_port == 0


def test_listeners_by_name() -> None:
    settings = NamesrvSettings(zmq_listeners="internal=10.0.0.1:19876; host=[::1]:29876")
    assert settings.listeners() == {"internal": "10.0.0.1:19876", "host": "[::1]:29876"}
    assert NamesrvSettings(bind_address="::1", zmq_port=5).listeners() == {"internal": "[::1]:5"}


@pytest.mark.parametrize(
    "text", ["nameless", "a=host", "a=h:1;a=h:2", "=h:1", "a=h:99999", "a b=h:1"]
)
def test_listeners_that_make_no_sense(text: str) -> None:
    with pytest.raises(ConfigError):
        NamesrvSettings(zmq_listeners=text)
    with pytest.raises(ConfigError):
        NamesrvSettings(tcp_named_listeners=text)


def test_where_rocketmqs_clients_are_listened_for() -> None:
    named = NamesrvSettings(tcp_named_listeners="internal=10.0.0.1:9876; host=[::1]:9877")
    assert named.tcp_listeners == {"internal": "10.0.0.1:9876", "host": "[::1]:9877"}
    assert NamesrvSettings(tcp_enabled=False).tcp_listeners == {}
    with pytest.raises(ConfigError, match="tcpBindAddress"):
        NamesrvSettings(tcp_bind_address="0.0.0.0")


def test_members_need_keys() -> None:
    with pytest.raises(ConfigError, match="curveMembers is set, but curveKeyFile is not"):
        NamesrvSettings(curve_members="any")


def test_a_port_too_high_to_derive_from() -> None:
    with pytest.raises(ConfigError, match="give zmqPort"):
        NamesrvSettings(listen_port=60_000)
    NamesrvSettings(listen_port=60_000, zmq_port=1)


def test_every_key_is_explained() -> None:
    for one in settings_of(NamesrvSettings):
        assert len(one.about) > 10
        assert not one.dynamic
