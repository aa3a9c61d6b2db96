"""The gateways of the users who signed in.

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
from dataclasses import dataclass, replace

from kourou.access.api_token import owner_of
from kourou.client.client import Client
from kourou.client.session.io_thread import background
from kourou.errors import KourouError
from kourou.model.limits import GATEWAY_USER_SENDERS_MAX, GATEWAY_USERS_MAX
from kourou.telemetry.metrics import Family, Histogram, Labels
from kourou_console.gateway import Gateway
from kourou_console.http.responses import Busy

USER_IDLE_MS = 900_000
"""As long as an Idempotency-Key is remembered."""

LOOK_S = 30.0

OpenClient = Callable[[str], Awaitable[Client]]
"""Opens a client whose requests are sent on behalf of this user."""

_log = logging.getLogger("kourou.console")


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
