"""The context of the API's operations.

A chapter that keeps state (leases, samples, jobs) has a class that takes the gateway, and gets its
only instance by `gateway.part(ThatClass)`. The instance is created at the first call, or with the
service if the class is in kourou_console.operations.STARTED, and closed with the gateway.

A user who signed in has a gateway of its own, thus its own client and components. A class with
`of_console = True` keeps what the console has read by its own rights: its only instance is the
console's, and operations that use it declare what they need.

State: soft, that of the components.

The gateways of the users who signed in.

Each user has a client, all of whose requests are sent on behalf of that user, and all components
that keep something for a user: leases, jobs, idempotency keys. So brokers decide everything by the
rights of the user, and no user sees what another one has. What an operation needs beyond that is
asked from the brokers before (`Gateway.need`).

State: soft, bounded, also for one user with all of its API tokens, so that it does not keep others
out. A gateway is closed when its user has done nothing for USER_IDLE_MS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from kourou.access.api_token import owner_of
from kourou.access.model import Action
from kourou.client.admin.api import Admin
from kourou.client.client import Client
from kourou.client.session.io_thread import background
from kourou.clock import Clock
from kourou.errors import KourouError, NoPermission
from kourou.model.limits import GATEWAY_RIGHTS_MAX, GATEWAY_USER_SENDERS_MAX, GATEWAY_USERS_MAX
from kourou.telemetry.metrics import Family, Histogram, Labels
from kourou_console.config import ConsoleSettings
from kourou_console.http.responses import Busy

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


USER_IDLE_MS = 900_000
"""As long as an Idempotency-Key is remembered."""

LOOK_S = 30.0

OpenClient = Callable[[str], Awaitable[Client]]
"""Opens a client whose requests are sent on behalf of this user."""


@dataclass(slots=True)
class _UserGateway:
    """The gateway of one user; times are monotonic ms.

    `under_way`: requests that use it now.
    """

    user: str
    opening: asyncio.Task[Gateway] | None = None
    gateway: Gateway | None = None
    under_way: int = 0
    used_ms: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it may be closed."""
        used = self.gateway is not None and self.gateway.in_use
        return not self.under_way and not used


class UserGateways:
    """All of them, and the console's own. Used on its event loop."""

    def __init__(self, own: Gateway, open_client: OpenClient) -> None:
        self._own = own
        self._open_client = open_client
        self._users: dict[str, _UserGateway] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close all gateways of users."""
        if self._looking is not None:
            self._looking.cancel()
        while self._users:
            self._close_later(self._users.popitem()[1])
        if self._closing:
            await asyncio.wait(self._closing)

    # -- one user ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[Gateway]:
        """The gateway of a user for one request; opened at the first. Raises Busy at the limit."""
        one = self._users.get(user) or self._admit(user)
        one.under_way += 1
        try:
            yield await self._opened(one)
        finally:
            one.under_way -= 1
            one.used_ms = self._own.clock.monotonic_ms()

    # -- opening and closing ----------------------------------------------------------------------

    def _admit(self, user: str) -> _UserGateway:
        owner = owner_of(user)
        own = [one for one in self._users.values() if owner_of(one.user) == owner]
        if len(own) >= GATEWAY_USER_SENDERS_MAX:
            most = f"user {owner} works with this gateway by {GATEWAY_USER_SENDERS_MAX} API tokens"
            self._make_room(own, f"{most}, the maximum")
        elif len(self._users) >= GATEWAY_USERS_MAX:
            most = f"{GATEWAY_USERS_MAX} users work with this gateway, the maximum"
            self._make_room(self._users.values(), most)
        if self._looking is None:
            self._looking = background(self._keep_looking(), "closing gateways of idle users")
        one = self._users[user] = _UserGateway(user)
        return one

    def _make_room(self, among: Iterable[_UserGateway], otherwise: str) -> None:
        """Close the one that was idle for longest. Raises Busy if none is idle."""
        idle = [one for one in among if one.is_idle]
        if not idle:
            raise Busy(otherwise)
        oldest = min(idle, key=lambda one: one.used_ms)
        self._close_later(self._users.pop(oldest.user))

    async def _opened(self, one: _UserGateway) -> Gateway:
        """The gateway of a user; several first requests open one."""
        if one.opening is None:
            one.opening = asyncio.ensure_future(self._open(one.user))
        try:
            one.gateway = await asyncio.shield(one.opening)
        except BaseException:
            if one.opening.done() and self._users.get(one.user) is one:
                del self._users[one.user]  # it failed, or ends: the next request opens another
            raise
        one.gateway.cluster_name = self._own.cluster_name
        return one.gateway

    async def _open(self, user: str) -> Gateway:
        client = await self._open_client(user)
        return Gateway(client, self._own.clock, self._own.settings, user=user, own=self._own)

    def _close_later(self, one: _UserGateway) -> None:
        task = asyncio.ensure_future(self._close_one(one))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @staticmethod
    async def _close_one(one: _UserGateway) -> None:
        if one.opening is None:
            return
        try:
            gateway = await one.opening
            await gateway.close()
            await gateway.client.close()
        except KourouError as error:
            _log.warning(
                "user-client-close-failed: closing the client of user %(user)s: %(error)s",
                {"user": one.user, "error": error},
            )

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Close the gateways of users who have done nothing for long."""
        since_ms = self._own.clock.monotonic_ms() - USER_IDLE_MS
        for one in list(self._users.values()):
            if one.is_idle and one.used_ms <= since_ms:
                self._close_later(self._users.pop(one.user))

    # -- metrics ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._users)

    def families(self, base: Labels) -> Iterator[Family]:
        """The metrics of all gateways, the console's own among them, as sums."""
        gateways = [one.gateway for one in self._users.values() if one.gateway is not None]
        sums: dict[str, Family] = {}
        for gateway in (self._own, *gateways):
            for family in gateway.families(base):
                known = sums.get(family.name)
                sums[family.name] = family if known is None else _sum(known, family)
        yield from sums.values()


def _sum(one: Family, other: Family) -> Family:
    """Two families of plain numbers with the same labels as one."""
    totals: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in (*one.samples, *other.samples):
        assert not isinstance(value, Histogram), "components have counters and gauges"
        key = tuple(labels.items())
        totals[key] = totals.get(key, 0) + value
    return replace(one, samples=[(dict(key), value) for key, value in totals.items()])
