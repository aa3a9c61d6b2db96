"""One broker of a cluster keeps its name, its port and its store over every end."""

from __future__ import annotations

import pytest

from kourou.errors import ConfigError, Unavailable
from kourou.testing.cluster_broker import ClusterBroker
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
