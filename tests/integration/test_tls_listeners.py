"""A name server and a broker that enforce TLS, as processes with settings files."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

import pytest

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
    with LocalCluster(tmp_path, ClusterSettings(broker=tls, namesrv=tls)) as cluster:
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
        for target, source in zip(pair, authority.pair("renewed"), strict=True):
            source.replace(target)
        for child, code in services:
            while True:  # the files are looked at every second; the test's timeout ends this
                with secret(child, context) as after:
                    if subject(after) != first:
                        assert answer(after, code).code == 0
                        break
