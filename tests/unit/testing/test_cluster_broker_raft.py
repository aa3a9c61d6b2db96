"""A member that dies in a living process leaves what a killed one leaves; it is its whole group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.service.local_cluster import GroupPorts
from kourou.settings.sources import load_settings
from kourou.testing.cluster_broker import SMALL, MortalRaftBroker, until_free
from kourou.testing.cluster_thread import TravelClock
from kourou.testing.disk import MemoryDisk
from kourou_ha_replica.app import ReplicaSettings


class Home:
    """Where a member is born again and again."""

    def __init__(self, folder: Path, ports: GroupPorts) -> None:
        self.disk = MemoryDisk()
        self.disk.have(folder)
        (folder / "kourou").mkdir()
        self._moved = asyncio.Event()
        given = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": str(folder)}
        self.settings = load_settings(
            ReplicaSettings,
            arguments={**SMALL, **given, **ports.settings(0)},
            environment={},
        ).settings

    async def born(self) -> MortalRaftBroker:
        """A member that leads."""
        assert self.settings.raft_port is not None
        await until_free(self.settings.raft_port)
        member = MortalRaftBroker(self.settings, TravelClock(), self.disk, [], self._moved.set)
        await member.recover(no_failure)
        await member.serve()
        while not member.leads:
            self._moved.clear()
            await self._moved.wait()
        return member


def no_failure(error: BaseException) -> None:
    raise error


@pytest.mark.feature("F154")
async def test_it_leads_again_in_another_epoch(tmp_path: Path) -> None:
    ports = GroupPorts(1)
    home = Home(tmp_path, ports)
    first = await home.born()
    epoch = first.view.control.replicas.epoch
    assert epoch > 0
    await first.die()
    assert home.disk.exists(tmp_path / "abort"), "as a killed process leaves it"
    home.disk.kill()
    second = await home.born()
    assert second.view.control.replicas.epoch > epoch
    await second.drain()
    await second.stop()
    assert not home.disk.exists(tmp_path / "abort")
    ports.release()
