"""A broker that dies in a living process leaves what a killed process leaves, and tells nobody."""

from __future__ import annotations

import pytest

from kourou.broker.config import BrokerSettings
from kourou.protocol.messages.namesrv import UnregisterBroker
from kourou.service.rocketmq_keys import BROKER_KEYS
from kourou.settings.sources import load_settings
from kourou.testing.cluster_broker import SMALL, MortalBroker
from kourou.testing.cluster_thread import TravelClock
from kourou.testing.disk import MemoryDisk


class Home:
    """Where a broker is born again and again."""

    def __init__(self, folder) -> None:
        self.disk = MemoryDisk()
        self.disk.have(folder)
        (folder / "kourou").mkdir()
        self.moves = 0
        given = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": str(folder)}
        self.settings = load_settings(
            BrokerSettings, arguments={**SMALL, **given}, environment={}, inert=BROKER_KEYS
        ).settings
        self.abort = folder / "abort"

    def _moved(self) -> None:
        self.moves += 1

    async def born(self) -> MortalBroker:
        broker = MortalBroker(self.settings, TravelClock(), self.disk, [], self._moved)
        await broker.recover(no_failure)
        await broker.serve()
        return broker


def no_failure(error: BaseException) -> None:
    raise error


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path)


async def test_a_stopped_broker_closes_its_store_and_a_dead_one_does_not(home):
    await (await home.born()).stop()
    assert not home.disk.exists(home.abort)
    broker = await home.born()
    end = broker.parts.view.log_range()[1]
    await broker.die()
    home.disk.kill()
    assert home.disk.exists(home.abort), "the next one knows that it was not closed"
    again = await home.born()
    assert again.parts.view.log_range()[1] >= end
    await again.stop()


async def test_it_dies_in_the_middle_of_a_start(home):
    broker = MortalBroker(home.settings, TravelClock(), home.disk, [], lambda: None)
    await broker.recover(no_failure)
    await broker.die()
    home.disk.kill()
    await (await home.born()).stop()


@pytest.mark.parametrize(("end", "farewells"), [("stop", 1), ("kill", 0)])
def test_a_stopped_broker_says_farewell_and_a_dead_one_does_not(
    kourou_cluster, monkeypatch, end, farewells
):
    cluster = kourou_cluster(1)
    loop, heard = cluster._namesrv._loop, []
    offer_all = loop.offer_all

    def hear(received) -> None:
        heard.extend(type(one.request) for one in received)
        offer_all(received)

    monkeypatch.setattr(loop, "offer_all", hear)
    cluster._thread.run(getattr(cluster.members[0], end)())
    assert heard.count(UnregisterBroker) == farewells
