"""RocketMQ's Java client and mqadmin over TLS, as `-Dtls.enable=true` makes them speak it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.interop import servers

from kourou.protocol.wire.remoting import RemotingCommand, encode_command
from kourou.transport.addresses import split_address
from kourou_rigs.certificates import Authority

SCENARIOS = "sync,batch,push,pull-waiting,query-by-id"
REFUSED = r"Remoting(Connect|SendRequest|Timeout)Exception"
GET_CLUSTER_INFO = 106
ANSWER_S = 10.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "keys", "tests")


def listening(authority: Authority, mode: str) -> dict[str, str]:
    """The settings of a listener."""
    certificate, key = authority.pair("server")
    return {
        "tls.server.mode": mode,
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key),
    }


def options(authority: Authority, *, certificate: bool) -> list[str]:
    """Those of a JVM: it verifies the server, and presents a certificate if it is to."""
    told = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.path),
    }
    if certificate:
        paths = authority.pair("client")
        told |= dict(
            zip(("tls.client.certPath", "tls.client.keyPath"), map(str, paths), strict=True)
        )
    return [f"-D{key}={value}" for key, value in told.items()]


def answers_clear_text(address: str) -> bool:
    """Does a request without TLS get an answer there?"""
    with socket.create_connection(split_address(address), ANSWER_S) as plain:
        plain.settimeout(ANSWER_S)
        plain.sendall(encode_command(RemotingCommand(GET_CLUSTER_INFO)))
        try:
            return bool(plain.recv(1))
        except ConnectionError:
            return False


@pytest.mark.slow
def test_permissive_servers_serve_tls_and_clear_text(
    run_java: Callable[..., None], authority: Authority, tmp_path: Path
) -> None:
    tls = listening(authority, "permissive")
    with servers.kourou_cluster(tmp_path, tls, namesrv=tls) as cluster:
        address = servers.tcp_address(cluster.namesrv)
        run_java(address, SCENARIOS, *options(authority, certificate=False))
        run_java(address, "broadcasting,pull,topics")
        for one in (cluster.namesrv, cluster.brokers[0]):
            assert answers_clear_text(servers.tcp_address(one))


@pytest.mark.slow
def test_enforcing_servers_serve_clients_with_a_certificate_only(
    run_java: Callable[..., None], authority: Authority, tmp_path: Path
) -> None:
    tls: Mapping[str, str] = {
        **listening(authority, "enforcing"),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority.path),
    }
    with servers.kourou_cluster(tmp_path, tls, namesrv=tls) as cluster:
        address = servers.tcp_address(cluster.namesrv)
        presenting = options(authority, certificate=True)
        run_java(address, SCENARIOS, *presenting)
        run_java(address, "mqadmin-topics,mqadmin-cluster", *presenting, client="mqadmin")
        with pytest.raises(AssertionError, match=REFUSED):
            run_java(address, "sync", *options(authority, certificate=False))
        for one in (cluster.namesrv, cluster.brokers[0]):
            assert not answers_clear_text(servers.tcp_address(one))
