"""One broker of a cluster in this process, which can be started, killed and restarted on its store.

State: soft; messages are on the disk.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from kourou.errors import BadRequest, ConfigError, Unavailable
from kourou.service.kept_ports import free_port
from kourou.service.rocketmq_keys import BROKER_KEYS
from kourou.serving.config import BrokerSettings
from kourou.settings.sources import load_settings
from kourou.store.disk import Disk
from kourou.testing.faulty_server import Fault
from kourou.testing.memory_disk import MemoryDisk
from kourou.testing.mortal_broker import MortalBroker
from kourou.testing.travel import TravelClock

HOST = "127.0.0.1"
PORT_WAIT_S = 20.0

SMALL: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(5 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 4_096),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "adminEnable": "false",
}
"""Settings that differ from the defaults: small files for tests, and no admin pages."""


class ClusterBroker:
    """A broker by its name. All coroutines run on the cluster's thread.

    `kind` is the class of its settings, which differs for followers. `found` has the end of the log
    at each start, including the first one.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: Mapping[str, str],
        clock: TravelClock,
        disk: MemoryDisk | None,
        moved: Callable[[], None],
        kind: type[BrokerSettings] = BrokerSettings,
    ) -> None:
        self.name = name
        self._kind = kind
        self.disk = disk
        self.failure: BaseException | None = None
        self.faults: list[Fault] = []
        self.found: list[int] = []
        self._folder = folder
        self._given = settings
        self._clock = clock
        self._moved = moved
        self._service: MortalBroker | None = None
        self._port = free_port()
        self._ending: asyncio.Task[None] | None = None
        if disk is not None:
            disk.have(folder)

    @property
    def is_up(self) -> bool:
        """True if it is running."""
        return self._service is not None

    @property
    def service(self) -> MortalBroker:
        """The running service; raises Unavailable if there is none."""
        if self._service is None:
            why = f": {self.failure}" if self.failure else ""
            raise Unavailable(f"{self.name} is down{why}", hint="start it again: chaos.restart()")
        return self._service

    async def start(self, name_server: str) -> None:
        """Start it on its store; the port is the same at every start."""
        if self._service is not None:
            raise BadRequest(f"{self.name} is up already")
        settings = replace(self._settings(name_server), zmq_port=self._port)
        await until_free(self._port)
        if settings.raft_port is not None:
            await until_free(settings.raft_port)
        # The event store is a real file, even if the messages are on a disk in memory.
        (self._folder / "kourou").mkdir(parents=True, exist_ok=True)
        self.failure = None
        disk: Disk | None = self.disk
        service = _kind_of(settings)(settings, self._clock, disk, self.faults, self._moved)
        try:
            await service.recover(self._failed)
            self.found.append(service.parts.view.log_range()[1])
            await service.serve()
        except BaseException:
            await service.stop()
            raise
        self._service = service

    async def stop(self) -> None:
        """Drain and stop it, as SIGTERM does."""
        await self._ended()
        service, self._service = self._service, None
        if service is not None:
            await service.drain()
            await service.stop()

    async def kill(self) -> None:
        """End it as SIGKILL does."""
        await self._ended()
        service, self._service = self._service, None
        if service is not None:
            await service.die()
            if self.disk is not None:
                self.disk.kill()
            self._moved()

    def _failed(self, error: BaseException) -> None:
        """End it after a failure that would end a process with exit code 70 or 75."""
        if self.failure is None:
            self.failure = error
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            await service.die()
            if self.disk is not None:
                self.disk.kill()
        self._moved()

    async def _ended(self) -> None:
        if self._ending is not None:
            await self._ending
            self._ending = None

    def _settings(self, name_server: str) -> BrokerSettings:
        given = {
            **SMALL,
            "brokerName": self.name,
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": HOST,
            "listenPort": "0",
            "storePathRootDir": str(self._folder),
            "namesrvAddr": name_server,
            **self._given,
        }
        return load_settings(
            self._kind, arguments=given, environment={}, inert=BROKER_KEYS
        ).settings


def _kind_of(settings: BrokerSettings) -> type[MortalBroker]:
    """The class of a broker, or of a member of a Raft group; the latter is imported on demand."""
    if not settings.raft_enabled:
        return MortalBroker
    from kourou.testing.mortal_member import MortalMember

    return MortalMember


async def until_free(port: int) -> None:
    """Wait until the port of a closed listener can be bound: ZeroMQ closes it asynchronously.

    Raises ConfigError if it does not become free in time.
    """
    late = time.monotonic() + PORT_WAIT_S
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                if time.monotonic() > late:
                    raise ConfigError(f"port {port} is in use by another process now") from error
            else:
                return
        await asyncio.sleep(0.001)
