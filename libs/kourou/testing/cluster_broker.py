"""The brokers and filter servers of a cluster in this process.

A broker can be started, killed and restarted on its store, without ending the process. A filter
server can be started, stopped and restarted. Its service runs on the cluster's thread; filters run
in sandboxed processes that a zygote forks, as in production.

State: soft; messages are on the disk.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.raft.raft_service import RaftService
from kourou.broker.role_session import RoleSession
from kourou.clock import Clock
from kourou.engine.inputs import Input
from kourou.engine.view import CoreView
from kourou.errors import BadRequest, ConfigError, Unavailable
from kourou.runtime import Received
from kourou.service.processes import free_port
from kourou.settings.sources import load_settings
from kourou.store.disk import Disk
from kourou.store.store import Store
from kourou.testing.cluster_thread import TravelClock
from kourou.testing.disk import MemoryDisk
from kourou.testing.faulty_server import Fault, FaultyServer

if TYPE_CHECKING:
    from kourou_filter_server.app import FilterServerService

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


class MortalBroker(BrokerService):
    """A broker that can be killed without ending the process.

    It calls `moved` after each loop iteration in which it handled an input. `faults` are those of
    its connections; the list may be changed at any time on the event loop.
    """

    server_type = FaultyServer

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        disk: Disk | None,
        faults: list[Fault],
        moved: Callable[[], None],
    ) -> None:
        super().__init__(settings, clock, disk)
        self._faults = faults
        self._moved = moved

    @property
    def server(self) -> FaultyServer:
        """Its listener, once it is listening."""
        server = self._listening.zmq.server()
        assert isinstance(server, FaultyServer)
        return server

    @property
    def store(self) -> Store:
        """Its store, once it is open."""
        assert self._session is not None
        return self._session.store

    @property
    def view(self) -> CoreView:
        """Its state, once it has recovered."""
        assert self._session is not None
        return self._session.view

    @property
    def leads(self) -> bool:
        """True if it accepts sends, as far as it knows."""
        session = self._session
        return session is not None and session.leads and not session.over

    async def serve(self) -> Mapping[str, str]:
        """Serve with faults."""
        self.server.faults = self._faults
        return await super().serve()

    async def die(self) -> None:
        """End like a killed process: no client is notified, and the store is not closed properly.

        Operations that other threads have started are completed, as for a process that dies
        slightly later.
        """
        self._ready = False
        if self._session is not None:
            self._session.cease()
        self._listening.protocols.close()
        if self._registration is not None:
            self._registration.forget()
            await self._registration.stop()
        if self._store_runtime is not None:
            await self._store_runtime.close(settle=False)
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    # -- notifications ----------------------------------------------------------------------------

    def _admit(self, session: RoleSession, received: list[Received]) -> None:
        super()._admit(session, received)
        session.project()  # tests read its store
        self._moved()

    def _post(self, item: Input) -> None:
        super()._post(item)
        asyncio.get_running_loop().call_soon(self._moved)


class MortalRaftBroker(MortalBroker, RaftService):
    """A RaftService that calls `moved` like a MortalBroker, and after each change of its role."""

    async def die(self) -> None:
        """End like a killed process; a change of role in progress is completed."""
        self._stopping = True
        await self._group.stop()
        await self._renewed()
        await super().die()

    async def _begin(self) -> None:
        await super()._begin()
        self._moved()


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
        self._overrides = settings
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
            self.found.append(service.view.store_view.log_range()[1])
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
            **self._overrides,
        }
        return load_settings(self._kind, arguments=given, environment={}).settings


def _kind_of(settings: BrokerSettings) -> type[MortalBroker]:
    """Return the class of a broker, or of a broker of a Raft group."""
    return MortalRaftBroker if settings.raft_enabled else MortalBroker


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


class ClusterFilterServer:
    """A filter server by its broker and index. All coroutines run on the cluster's thread."""

    def __init__(
        self, broker: ClusterBroker, index: int, settings: Mapping[str, str], clock: TravelClock
    ) -> None:
        self.name = f"{broker.name}/{index}"
        self.failure: BaseException | None = None
        self._broker = broker
        self._index = index
        self._overrides = settings
        self._clock = clock
        self._service: FilterServerService | None = None
        self._address = ""

    @property
    def is_up(self) -> bool:
        """True if it is running."""
        return self._service is not None and self.failure is None

    @property
    def address(self) -> str:
        """The address of its clients, as in routes; raises Unavailable while it is down."""
        if not self.is_up:
            why = f": {self.failure}" if self.failure else ""
            raise Unavailable(f"the filter server {self.name} is down{why}")
        return self._address.removeprefix("tcp://")

    async def start(self) -> None:
        """Start it; raises ConfigError if the machine lacks a layer of the sandbox."""
        from kourou_filter_server.app import FilterServerService
        from kourou_filter_server.config import FilterServerSettings

        if self._service is not None:
            raise BadRequest(f"the filter server {self.name} is up already")
        given = {
            "connectWhichBroker": f"tcp://{HOST}:{self._broker.service.server.port}",
            "filterServerIndex": str(self._index),
            "listenPort": "0",
            "adminEnable": "false",
            "tcpEnable": "false",
            **self._overrides,
        }
        settings = load_settings(FilterServerSettings, arguments=given, environment={}).settings
        self.failure = None
        service = FilterServerService(settings, self._clock)
        try:
            await service.recover(self._failed)
            self._address = (await service.serve())["zmq"]
        except BaseException:
            await service.stop()
            raise
        self._service = service

    async def stop(self) -> None:
        """Drain and stop it, as SIGTERM does."""
        service, self._service = self._service, None
        if service is not None:
            await service.drain()
            await service.stop()

    def _failed(self, error: BaseException) -> None:
        self.failure = error
