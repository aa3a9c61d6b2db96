"""What every service may be told, and that nothing of it is open by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings
from kourou.errors import ConfigError
from kourou.model.refused_settings import REFUSED
from kourou.service.process_keys import AccessKeys, ProcessKeys, RemotingKeys
from kourou.service.rocketmq_keys import BROKER_KEYS, NAMESRV_KEYS
from kourou.service.secret_keys import new_key_line
from kourou.settings.declaration import settings_of
from kourou.settings.sources import load_settings, render
from kourou.transport.curve_keys import make_pair, read_pair
from kourou.transport.tls import ClientAuth, TlsMode
from kourou_namesrv.config import NamesrvSettings


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


# -- A `broker.conf` of RocketMQ can be brought along as it is -------------------------------------


def test_what_promises_safety_is_not_among_them() -> None:
    assert not (BROKER_KEYS | NAMESRV_KEYS) & REFUSED.keys()


def test_typical_keys_are_known() -> None:
    broker = BROKER_KEYS | {one.key for one in settings_of(BrokerSettings)}
    brought = (
        *("sendMessageThreadPoolNums", "useReentrantLockWhenPutMessage", "brokerIP2"),
        *("transientStorePoolEnable", "serverWorkerThreads", "slaveReadEnable", "haListenPort"),
        *("enableDLegerCommitLog", "storePathRootDir", "autoCreateTopicEnable"),
    )
    for key in brought:
        assert key in broker, key
    namesrv = NAMESRV_KEYS | {one.key for one in settings_of(NamesrvSettings)}
    assert {"rocketmqHome", "kvConfigPath", "orderMessageEnable", "serverWorkerThreads"} <= namesrv


# -- whether, where and how patiently RocketMQ's clients are listened for --------------------------


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
    assert curve.own.pair == read_pair(key)
    assert curve.allowed.allows(curve.own.pair.public)
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


# -- TLS

FILES = {"tls.server.certPath": "/c.pem", "tls.server.keyPath": "/k.pem"}


def loaded(**told: str) -> RemotingKeys:
    """Settings as on a command line."""
    return load_settings(RemotingKeys, arguments=told, environment={}).settings


def tls(mode: str, **told: str) -> RemotingKeys:
    keys = loaded(**{"tls.server.mode": mode, **FILES, **told})
    keys.check_process()
    keys.check_remoting()
    return keys


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_tls_needs_a_certificate_and_its_key(mode: str) -> None:
    for lacking in FILES:
        told = {key: text for key, text in FILES.items() if key != lacking}
        with pytest.raises(
            ConfigError,
            match=rf"tls.server.mode={mode} needs .*certPath and .*keyPath.*never .* self-signed",
        ):
            loaded(**{"tls.server.mode": mode, **told}).check_process()
    assert tls(mode).tls_cert_path == Path("/c.pem")
    with pytest.raises(ConfigError, match=r"/c.pem cannot be read"):
        tls(mode).server_tls  # noqa: B018 - raises


def test_without_the_listener_tls_is_for_http_alone() -> None:
    assert tls("enforcing", tcpEnable="false").tls_cert_path
    with pytest.raises(ConfigError, match=r"permissive, but there is no listener"):
        tls("permissive", tcpEnable="false")


@pytest.mark.parametrize("key", [*FILES, "tls.server.trustCertPath", "tls.server.authClient"])
def test_settings_of_tls_without_tls_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} is set, but TLS is disabled.*enforcing"):
        loaded(**{key: "true"}).check_process()
    assert loaded(**{"tls.server.mode": "disabled"}).server_tls is None


@pytest.mark.parametrize(
    ("need", "auth", "found"),
    [
        ("none", "false", ClientAuth.NONE),
        ("none", "true", ClientAuth.REQUIRE),
        ("optional", "true", ClientAuth.OPTIONAL),
        ("require", "false", ClientAuth.REQUIRE),
    ],
)
def test_both_settings_of_client_certificates_are_one(
    need: str, auth: str, found: ClientAuth
) -> None:
    told = {"tls.server.need.client.auth": need, "tls.server.authClient": auth}
    trust = {"tls.server.trustCertPath": "/ca.pem"}
    if found is ClientAuth.NONE:
        assert tls("enforcing", **told).tls_client_auth is found
        with pytest.raises(ConfigError, match=r"trustCertPath is set and .*client.auth is not"):
            tls("enforcing", **told, **trust)
    else:
        assert tls("enforcing", **told, **trust).tls_client_auth is found
        with pytest.raises(ConfigError, match=r"(auth|authClient) is set and .*trustCertPath is"):
            tls("enforcing", **told)


def test_a_password_is_taken_from_a_file_only() -> None:
    with pytest.raises(ConfigError, match=r"keyPassword=… is refused.*keyPasswordFile") as caught:
        tls("enforcing", **{"tls.server.keyPassword": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert tls("enforcing", **{"tls.server.keyPasswordFile": "/p"}).tls_key_password_file


def test_the_network_may_reach_enforced_tls_alone(tmp_path: Path) -> None:
    key = make_pair(tmp_path, "own")[1]
    open_to_all = {"bindAddress": "0.0.0.0", "curveKeyFile": str(key), "curveClients": "any"}
    tls("enforcing", **open_to_all)
    tls("enforcing", tcpBindAddress="0.0.0.0")
    with pytest.raises(ConfigError, match=r"would not be encrypted.*tls.server.mode=enforcing"):
        tls("permissive", **open_to_all)
    with pytest.raises(ConfigError, match=r"tcpBindAddress=.* is refused"):
        tls("permissive", tcpBindAddress="0.0.0.0")
    with pytest.raises(ConfigError, match=r"bindAddress=.* is refused"):
        tls("enforcing", bindAddress="0.0.0.0")


def test_the_keys_of_secrets_come_from_the_file_that_is_set(tmp_path: Path) -> None:
    assert AccessKeys().secret_keys is None
    path = tmp_path / "access.keys"
    path.touch(0o600)
    path.write_text(new_key_line("one"))
    keys = AccessKeys(access_key_file=path).secret_keys
    assert keys is not None
    assert keys.open("till", keys.seal("till", "a-secret-of-till")) == "a-secret-of-till"
