"""A name server, a broker and a console that enforce TLS, as processes with settings files."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

import pytest

from kourou.cli.health import run_health
from kourou.errors import Unavailable
from kourou.protocol.wire.remoting import RemotingCommand, decode_header, encode_command
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou.transport.addresses import split_address
from kourou_rigs.certificates import Authority

GET_TOPIC_CONFIG = 21
GET_CLUSTER_INFO = 106
PATIENCE_S = 20.0


def connected(child: Child) -> socket.socket:
    return socket.create_connection(split_address(str(child.ready["tcp"])), PATIENCE_S)


def answer(connection: socket.socket, code: int) -> RemotingCommand:
    connection.sendall(encode_command(RemotingCommand(code, opaque=7)))
    received = connection.makefile("rb")
    size, word = struct.unpack(">II", received.read(8))
    header = received.read(word & 0xFFFFFF)
    received.read(size - 4 - len(header))
    return decode_header(word >> 24, header)


def secret(child: Child, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(connected(child), server_hostname="localhost")


def subject(connection: ssl.SSLSocket) -> object:
    certificate = connection.getpeercert()
    assert certificate is not None
    return certificate["subject"]


def test_services_enforce_tls_and_take_a_new_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys", "tests")
    pair = authority.pair("server")
    tls = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(pair[0]),
        "tls.server.keyPath": str(pair[1]),
    }
    context = ssl.create_default_context(cafile=str(authority.path))
    settings = ClusterSettings(broker=tls, namesrv=tls, console=tls)
    with LocalCluster(tmp_path, settings) as cluster:
        services = (
            (cluster.namesrv, GET_CLUSTER_INFO),
            (cluster.brokers[0], GET_TOPIC_CONFIG),
        )
        for child, code in services:
            with secret(child, context) as connection:
                assert answer(connection, code).code == 0
            with connected(child) as plain, pytest.raises((ConnectionError, struct.error)):
                answer(plain, code)
            with secret(child, context) as before:
                assert answer(before, code).code == 0
                first = subject(before)
        assert cluster.console is not None
        pages = [str(child.ready["admin"]) for child in (cluster.namesrv, cluster.brokers[0])]
        for page in (*pages, *(str(cluster.console.ready[one]) for one in ("admin", "http"))):
            assert page.startswith("https://127.0.0.1:")
            assert run_health(["--ca", str(authority.path), f"{page}/readyz"]) == 0
            with pytest.raises(Unavailable, match="answers 400: this port serves HTTPS"):
                run_health([f"{page.replace('https', 'http')}/readyz"])
        for target, source in zip(pair, authority.pair("renewed"), strict=True):
            source.replace(target)
        for child, code in services:
            while True:  # the files are looked at every second; the test's timeout ends this
                with secret(child, context) as after:
                    if subject(after) != first:
                        assert answer(after, code).code == 0
                        break
