"""What every service may be told, and that nothing of it is open by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.service.process_keys import ProcessKeys, RemotingKeys
from kourou.settings.sources import render
from kourou.transport.curve_keys import make_pair, read_pair
from kourou.transport.tls import ClientAuth, TlsMode


def test_nothing_is_open_to_the_network_by_default() -> None:
    keys = ProcessKeys()
    assert (keys.bind_address, keys.admin_host) == ("127.0.0.1", "127.0.0.1")
    assert not keys.insecure_network


@pytest.mark.parametrize("key", ["bind_address", "admin_host"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "*", "192.0.2.1"])
def test_an_address_open_to_the_network_must_be_wanted(key: str, host: str) -> None:
    with pytest.raises(ConfigError, match="insecureNetwork"):
        ProcessKeys(**{key: host}).check_process()
    ProcessKeys(**{key: host}, insecure_network=True).check_process()


def test_pages_that_are_not_served_are_open_to_nobody() -> None:
    ProcessKeys(admin_host="0.0.0.0", admin_enabled=False).check_process()


def test_with_keys_it_may_listen_to_the_network_but_not_show_its_pages(tmp_path: Path) -> None:
    key = make_pair(tmp_path, "own")[1]
    ProcessKeys(bind_address="0.0.0.0", curve_key_file=key).check_process()
    with pytest.raises(ConfigError, match=r"adminHost=.* is refused"):
        ProcessKeys(admin_host="0.0.0.0", curve_key_file=key).check_process()


TLS = {"tls_cert_path": Path("/c.pem"), "tls_key_path": Path("/k.pem")}


def test_http_serves_tls_or_clear_text_but_never_both() -> None:
    enforcing = ProcessKeys(tls_mode=TlsMode.ENFORCING, **TLS)
    enforcing.check_process()
    with pytest.raises(ConfigError, match=r"/c.pem cannot be read"):
        _ = enforcing.http_tls
    assert ProcessKeys().http_tls is None
    with pytest.raises(ConfigError, match=r"permissive, but there is no listener for RocketMQ's"):
        ProcessKeys(tls_mode=TlsMode.PERMISSIVE, **TLS).check_process()
    permissive = RemotingKeys(tls_mode=TlsMode.PERMISSIVE, **TLS)
    permissive.check_process()
    assert permissive.http_tls is None


def test_pages_may_be_open_to_those_with_a_certificate() -> None:
    enforcing = {"tls_mode": TlsMode.ENFORCING, "admin_host": "0.0.0.0", **TLS}
    trust = {"tls_trust_cert_path": Path("/ca.pem")}
    with pytest.raises(ConfigError, match=r"adminHost=.*any host could read.*client.auth=require"):
        ProcessKeys(**enforcing).check_process()
    optional = {"tls_need_client_auth": ClientAuth.OPTIONAL, **trust}
    with pytest.raises(ConfigError, match=r"adminHost=.* is refused"):
        ProcessKeys(**enforcing, **optional).check_process()
    ProcessKeys(**enforcing, tls_need_client_auth=ClientAuth.REQUIRE, **trust).check_process()


def test_it_dials_by_its_own_pair_and_shows_no_secret(tmp_path: Path) -> None:
    public, key = make_pair(tmp_path, "own")
    keys = ProcessKeys(curve_key_file=key, curve_server_key=public)
    keys.check_process()
    curve = keys.client_curve
    assert curve is not None
    assert curve.own.pair == read_pair(key)
    shown = render(keys, explained=False)
    assert f"curveKeyFile={key}" in shown
    assert curve.own.pair.secret not in shown + repr(keys) + repr(curve)
    assert ProcessKeys().client_curve is None
    with pytest.raises(ConfigError, match="curveServerKey is set and curveKeyFile is not"):
        ProcessKeys(curve_server_key=public).check_process()
    with pytest.raises(ConfigError, match="cannot be read"):
        _ = ProcessKeys(curve_key_file=key, curve_server_key=tmp_path / "gone").client_curve
