"""Whether, where and how patiently RocketMQ's clients are listened for."""

from __future__ import annotations

import pytest

from kourou.errors import ConfigError
from kourou.service.remoting_keys import RemotingKeys


def test_by_default_they_are_served_where_everybody_is() -> None:
    keys = RemotingKeys()
    keys.check_remoting()
    assert (keys.tcp_enabled, keys.tcp_address(9876), keys.idle_seconds) == (
        True,
        "127.0.0.1:9876",
        120,
    )
    assert RemotingKeys(bind_address="::1").tcp_address(1) == "[::1]:1"
    assert RemotingKeys(tcp_bind_address="127.0.0.2").tcp_address(1) == "127.0.0.2:1"


def test_an_address_that_is_open_to_the_network_must_be_meant() -> None:
    with pytest.raises(ConfigError, match=r"tcpBindAddress=.* is refused"):
        RemotingKeys(tcp_bind_address="0.0.0.0").check_remoting()
    RemotingKeys(tcp_bind_address="0.0.0.0", insecure_network=True).check_remoting()
    RemotingKeys(tcp_bind_address="0.0.0.0", tcp_enabled=False).check_remoting()
