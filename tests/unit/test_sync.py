"""The blocking client opens and closes like the other one."""

from __future__ import annotations

import os

import pytest

from kourou.client.io_thread import ClientClosed, ForkedClient
from kourou.errors import ConfigError
from kourou.sync import Client
from kourou.testing.wire_cluster import WireCluster


@pytest.fixture
def cluster():
    cluster = WireCluster()
    cluster.broker()
    return cluster


def client(cluster) -> Client:
    return Client("127.0.0.1:9876", group="g", dial=cluster.dial)


def test_it_opens_and_closes(cluster):
    mq = client(cluster)
    with pytest.raises(ClientClosed):
        mq.send("T", b"")
    with mq:
        assert mq.client_id
        assert mq.send("T", b"x").offset == 0
    with pytest.raises(ClientClosed):
        mq.send("T", b"")
    with mq:
        assert mq.send("T", b"x").queue.topic == "T"


def test_two_clients_are_two_members(cluster):
    with client(cluster) as first, client(cluster) as second:
        assert first.client_id != second.client_id
        assert first._client.io is second._client.io


def test_without_name_servers(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError):
        Client()


@pytest.mark.fault
def test_after_a_fork_the_old_one_says_so_and_a_new_one_works(cluster):
    with client(cluster) as mq:
        mq.send("T", b"parent")
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            verdict = b"nothing"
            try:
                try:
                    mq.send("T", b"child")
                except ForkedClient:
                    verdict = b"told"
                mq.close()
                with client(cluster) as own:
                    own.send("T", b"child")
                    verdict += b" and sent"
            finally:
                os.write(write_end, verdict)
                os._exit(0)
        os.close(write_end)
        verdict = os.read(read_end, 100)
        os.close(read_end)
        os.waitpid(child, 0)
        assert verdict == b"told and sent"
        assert mq.send("T", b"parent").offset >= 0
