"""One filter server of a cluster in this process, which can be started, stopped and restarted.

The service runs on the cluster's thread; filters run in sandboxed processes that a zygote forks, as
in production. The service is imported when the first one starts.

State: soft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.errors import BadRequest, Unavailable
from kourou.settings.sources import load_settings
from kourou.testing.travel import TravelClock

if TYPE_CHECKING:
    from kourou.testing.cluster_broker import ClusterBroker
    from kourou_filter_server.app import FilterServerService

HOST = "127.0.0.1"


class ClusterFilterServer:
    """A filter server by its broker and index. All coroutines run on the cluster's thread."""

    def __init__(
        self, broker: ClusterBroker, index: int, settings: Mapping[str, str], clock: TravelClock
    ) -> None:
        self.name = f"{broker.name}/{index}"
        self.failure: BaseException | None = None
        self._broker = broker
        self._index = index
        self._given = settings
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
            **self._given,
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
