"""The context of the API's operations.

A chapter that keeps state (leases, samples, jobs) has a class that takes the gateway, and gets its
only instance by `gateway.part(ThatClass)`. The instance is created at the first call, or with the
service if the class is in kourou_console.operations.STARTED, and closed with the gateway.

A user who signed in has a gateway of its own (kourou_console.user_gateways), thus its own client
and components. A class with `of_console = True` keeps what the console has read by its own rights:
its only instance is the console's, and operations that use it declare what they need.

State: soft, that of the components.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from kourou.access.model import Action
from kourou.client.admin.api import Admin
from kourou.client.client import Client
from kourou.clock import Clock
from kourou.errors import NoPermission
from kourou.model.limits import GATEWAY_RIGHTS_MAX
from kourou.telemetry.metrics import Family, Labels
from kourou_console.config import ConsoleSettings

PartT = TypeVar("PartT")
_log = logging.getLogger("kourou.console")

RIGHT_MS = 1_000
"""How long a right that brokers confirmed is not asked for again."""


@dataclass(slots=True)
class Gateway:
    """One instance for the life of the service and one for each user, used on one event loop.

    `make_client` creates another client of the same cluster with its own settings, for example for
    a consumer group. It takes the arguments of kourou.Client except for the address; the caller
    opens and closes the client.
    """

    client: Client
    clock: Clock
    settings: ConsoleSettings = field(default_factory=ConsoleSettings)
    make_client: Callable[..., Client] | None = None
    #: The name of the first cluster; None until the cluster has replied.
    cluster_name: str | None = None
    #: The user on whose behalf the client sends; "" for the console itself.
    user: str = ""
    #: The console's own gateway, for that of a user.
    own: Gateway | None = None
    _parts: dict[type, Any] = field(default_factory=dict)
    _allowed: dict[tuple[Action, str], int] = field(default_factory=dict)

    @property
    def admin(self) -> Admin:
        """The admin API; its methods may be awaited on any loop."""
        return self.client.admin

    def part(self, make: Callable[[Gateway], PartT]) -> PartT:
        """The only instance of a class that takes the gateway; created at the first call.

        A component may have `async def start()` (called for those of STARTED when the service
        starts), `async def close()`, and `families(base)`, its metrics for /metrics.
        """
        kind = cast("type", make)
        if self.own is not None and getattr(kind, "of_console", False):
            return self.own.part(make)
        if kind not in self._parts:
            self._parts[kind] = make(self)
        return cast("PartT", self._parts[kind])

    async def need(self, action: Action, resource: str) -> None:
        """Raise NoPermission unless every broker that replies allows it to the gateway's user.

        A positive answer is used again for RIGHT_MS.
        """
        now_ms = self.clock.monotonic_ms()
        if not self.user or self._allowed.get((action, resource), now_ms) > now_ms:
            return
        answers = await self.admin.users.may(action, resource)
        for error in answers.missing.values():
            if isinstance(error, NoPermission):
                raise error
        for broker, answer in answers.items():
            if not answer.allowed:
                raise NoPermission(
                    f"user {self.user} has no right to {action} on {resource} at {broker} "
                    f"({answer.by})"
                )
        if len(self._allowed) >= GATEWAY_RIGHTS_MAX:
            self._allowed.clear()
        self._allowed[action, resource] = now_ms + RIGHT_MS

    @property
    def in_use(self) -> bool:
        """Whether a component still works for its user between two requests."""
        return any(getattr(one, "in_use", False) for one in self._parts.values())

    def families(self, base: Labels) -> Iterable[Family]:
        """The metrics of all components."""
        for one in list(self._parts.values()):
            families = getattr(one, "families", None)
            if families is not None:
                yield from families(base)

    async def close(self) -> None:
        """Close all components, the newest first; the client is closed by its owner."""
        parts, self._parts = list(self._parts.values()), {}
        for one in reversed(parts):
            close = getattr(one, "close", None)
            if close is None:
                continue
            try:
                await close()
            except Exception:  # noqa: BLE001 - a failure must not keep the others open
                _log.exception(
                    "component-close-failed: closing %(component)s failed",
                    {"component": type(one).__name__},
                )
