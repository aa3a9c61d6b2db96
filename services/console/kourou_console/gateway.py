"""What the operations of the API have to work with.

A chapter that has to remember something (leases, samples, jobs) makes a class of it that takes the
gateway, and asks for its one instance by `gateway.part(ThatClass)`. It is made when it is first
asked for, or with the service if it stands in kourou_console.operations.STARTED, and closed with
the gateway.

State: soft, what its parts hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from kourou.client.admin import Admin
from kourou.client.client import Client
from kourou.clock import Clock
from kourou.telemetry.metrics import Family, Labels
from kourou_console.settings import GatewaySettings

PartT = TypeVar("PartT")
_log = logging.getLogger("kourou.console")


@dataclass(slots=True)
class Gateway:
    """One for the life of the service; all operations share it, on one event loop.

    `make_client` opens a further client of the same cluster with settings of its own, say for a
    group of consumers; it takes what kourou.Client takes beside the address, and whoever calls it
    opens and closes what it returns.
    """

    client: Client
    clock: Clock
    settings: GatewaySettings = field(default_factory=GatewaySettings)
    make_client: Callable[..., Client] | None = None
    #: The first cluster's name, as soon as the cluster has answered.
    cluster_name: str | None = None
    _parts: dict[type, Any] = field(default_factory=dict)

    @property
    def admin(self) -> Admin:
        """Administration; its methods may be awaited on any loop."""
        return self.client.admin

    def part(self, make: Callable[[Gateway], PartT]) -> PartT:
        """The one instance of a class that takes the gateway; made when it is first asked for.

        A part may have `async def start()` (called for those of STARTED when the service starts),
        `async def close()`, and `families(base)`, its figures for /metrics.
        """
        kind = cast("type", make)
        if kind not in self._parts:
            self._parts[kind] = make(self)
        return cast("PartT", self._parts[kind])

    def families(self, base: Labels) -> Iterable[Family]:
        """The figures of all parts that have any."""
        for one in list(self._parts.values()):
            families = getattr(one, "families", None)
            if families is not None:
                yield from families(base)

    async def close(self) -> None:
        """Close all parts, the youngest first; the client is its owner's to close."""
        parts, self._parts = list(self._parts.values()), {}
        for one in reversed(parts):
            close = getattr(one, "close", None)
            if close is None:
                continue
            try:
                await close()
            except Exception:  # noqa: BLE001 - one part that cannot end must not keep the others
                _log.exception("closing %s failed", type(one).__name__)
