"""One broker of a cluster keeps its name, its port and its store over every end."""

from __future__ import annotations

import asyncio

import pytest

from kourou.errors import BadRequest, ConfigError, Unavailable
from kourou.testing.cluster_broker import ClusterBroker, until_free
from kourou.testing.cluster_thread import TravelClock
from kourou.testing.disk import MemoryDisk

NOBODY = "127.0.0.1:9"


@pytest.fixture
def make(tmp_path):
    def broker(**settings) -> ClusterBroker:
        given = {"namesrvAddr": "", **settings}
        return ClusterBroker(
            "broker-a", tmp_path, given, TravelClock(), MemoryDisk(), moved=lambda: None
        )

    return broker


async def test_it_listens_at_its_former_port(make):
    broker = make()
    await broker.start(NOBODY)
    port = broker.service.server.port
    await broker.stop()
    assert not broker.is_up
    await broker.start(NOBODY)
    assert broker.service.server.port == port
    await broker.kill()
    await broker.start(NOBODY)
    assert broker.service.server.port == port
    await broker.stop()


async def test_each_start_tells_where_the_log_ended(make):
    broker = make()
    await broker.start(NOBODY)
    end = broker.service.parts.view.log_range()[1]
    await broker.kill()
    await broker.start(NOBODY)
    await broker.kill()
    assert broker.found == [0, end]


async def test_a_port_that_somebody_took_is_said(monkeypatch):
    monkeypatch.setattr("kourou.testing.cluster_broker.PORT_WAIT_S", 0)
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    with pytest.raises(ConfigError, match=f"port {port} is in use"):
        await until_free(port)
    taken.close()
    await taken.wait_closed()
    await until_free(port)


async def test_one_that_is_up_is_not_started_and_one_that_is_down_has_no_service(make):
    broker = make()
    with pytest.raises(Unavailable, match="broker-a is down"):
        assert broker.service
    await broker.start(NOBODY)
    with pytest.raises(BadRequest, match="is up already"):
        await broker.start(NOBODY)
    await broker.stop()
    await broker.stop()
    await broker.kill()


async def test_a_start_that_fails_leaves_its_port_and_store_free(make, monkeypatch):
    broker = make()
    monkeypatch.setattr("kourou.testing.cluster_broker.MortalBroker.serve", refuse)
    with pytest.raises(ConfigError, match="not today"):
        await broker.start(NOBODY)
    assert not broker.is_up
    monkeypatch.undo()
    await broker.start(NOBODY)
    await broker.stop()


async def refuse(_self) -> None:
    raise ConfigError("not today")


async def test_its_failure_is_raised_at_the_next_use(make):
    broker = make(flushDiskType="SYNC_FLUSH")
    await broker.start(NOBODY)
    broker._failed(OSError("the disk is gone"))
    broker._failed(OSError("what follows is not told"))
    await broker._ended()
    with pytest.raises(Unavailable, match="the disk is gone"):
        assert broker.service
    await broker.start(NOBODY)
    assert broker.failure is None
    await broker.stop()
