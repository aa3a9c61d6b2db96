"""Whether, where and how patiently RocketMQ's clients are listened for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.service.process_keys import RemotingKeys
from kourou.transport.curve_keys import make_pair, read_pair


def test_an_address_that_is_open_to_the_network_must_be_meant() -> None:
    with pytest.raises(ConfigError, match=r"tcpBindAddress=.* is refused"):
        RemotingKeys(tcp_bind_address="0.0.0.0").check_remoting()
    RemotingKeys(tcp_bind_address="0.0.0.0", insecure_network=True).check_remoting()
    RemotingKeys(tcp_bind_address="0.0.0.0", tcp_enabled=False).check_remoting()


def test_who_is_let_in_must_be_said(tmp_path: Path) -> None:
    public, key = make_pair(tmp_path, "own")
    with pytest.raises(ConfigError, match=r"curveKeyFile is set and curveClients is not.*any"):
        RemotingKeys(curve_key_file=key).check_remoting()
    with pytest.raises(ConfigError, match="curveClients is set and curveKeyFile is not"):
        RemotingKeys(curve_clients="any").check_remoting()
    listens = RemotingKeys(curve_key_file=key, curve_clients=str(public))
    listens.check_remoting()
    curve = listens.server_curve
    assert curve is not None
    assert curve.pair == read_pair(key)
    assert curve.allowed.allows(curve.pair.public)
    assert not curve.allowed.allows("another")
    assert RemotingKeys().server_curve is None
    anybody = RemotingKeys(curve_key_file=key, curve_clients="any").server_curve
    assert anybody is not None
    assert anybody.allowed.allows("another")


def test_keys_are_no_leave_for_rocketmq_s_frames(tmp_path: Path) -> None:
    key = make_pair(tmp_path, "own")[1]

    def check(**told: object) -> None:
        keys = RemotingKeys(curve_key_file=key, curve_clients="any", **told)  # type: ignore[arg-type]  # a shorthand
        keys.check_process()
        keys.check_remoting()

    with pytest.raises(ConfigError, match="would not be encrypted"):
        check(bind_address="0.0.0.0")
    with pytest.raises(ConfigError, match="would not be encrypted"):
        check(bind_address="127.0.0.1", tcp_bind_address="0.0.0.0", insecure_network=False)
    check(bind_address="0.0.0.0", tcp_enabled=False)
    check(bind_address="0.0.0.0", tcp_bind_address="127.0.0.1")
    check(bind_address="0.0.0.0", insecure_network=True)
