"""A real broker that can be killed without ending the process.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.role_session import RoleSession

from kourou.clock import Clock
from kourou.engine.inputs import Input
from kourou.engine.parts import BrokerParts
from kourou.runtime.core import Received
from kourou.store.disk import Disk
from kourou.store.store import Store
from kourou.testing.faulty_server import Fault, FaultyServer


class MortalBroker(BrokerService):
    """A BrokerService that calls `moved` after each loop iteration in which it handled an input.

    `faults` are those of its connections; the list may be changed at any time on the event loop.
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
    def parts(self) -> BrokerParts:
        """Its state, once it has recovered."""
        assert self._session is not None
        return self._session.parts

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

    # -- notifications
    # ------------------------------------------------------------------------------

    def _admit(self, session: RoleSession, received: list[Received]) -> None:
        super()._admit(session, received)
        session.project()  # tests read its store
        self._moved()

    def _post(self, item: Input) -> None:
        super()._post(item)
        asyncio.get_running_loop().call_soon(self._moved)
