"""Pulls with a Python filter: they go to a filter server of the queue's broker, not to the broker.

A pull changes no state, so after a lost reply it is sent to another server.

State: soft: which servers did not reply recently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from kourou.client.filters.uploads import FilterUploads
from kourou.client.session.connections import Connections
from kourou.client.session.route_table import QueueMap
from kourou.client.settings.consumer_settings import FilterFailover
from kourou.clock import Clock
from kourou.errors import Code, FilterFailed, TimedOut, Unavailable, UnknownOutcome
from kourou.model.filter import FilterFailure
from kourou.model.topic import MessageQueue

if TYPE_CHECKING:
    from kourou.client.consumer.puller import Pulled

SHUN_MS = 1_000
"""How long, at least, a server that did not reply is skipped while there are others."""

ALIKE_QUEUES_MAX = 1_024
"""With more queues than this, the hash alone balances well enough."""

UNSERVED = "unserved"
"""The failure kind if a broker has no filter server (kinds: docs/filters.md)."""


class FilterServerChoice:
    """One consumer's assignment of queues to filter servers, with failover.

    Every consumer of a group computes the same assignment from the same route. A queue goes to the
    server that a hash of both ranks highest among those with capacity; the number of queues per
    server is balanced. So the load is even, and few queues move when a server starts or stops. A
    server keeps the worker of a filter, so a queue stays with its server as long as possible.

    `is_connected(address)` returns whether a connection exists, `lost(address)` whether one was
    lost.
    """

    def __init__(
        self, clock: Clock, is_connected: Callable[[str], bool], lost: Callable[[str], bool]
    ) -> None:
        self._clock = clock
        self._is_connected = is_connected
        self._lost = lost
        self._silent: dict[str, int] = {}
        self._orders: dict[tuple[str, str], _Order] = {}

    def order(
        self, known: QueueMap, queue: MessageQueue, address: str, *, every: bool = False
    ) -> Sequence[str]:
        """Return the filter servers for a queue, the preferred one first; empty if there is none.

        `address` is the replica of its broker to read from. If that replica has no filter servers,
        those of another replica are used. Unavailable servers are left out, unless `every` is set.
        """
        servers = _servers(known, queue.broker_name, address)
        if not servers:
            return ()
        key = queue.topic, queue.broker_name
        order = self._orders.get(key)
        if order is None or order.servers != servers or order.route is not known:
            order = self._orders[key] = _Order(known, servers, queue)
        ranked = order.of(queue)
        if every or (not self._silent and not self._lost(ranked[0])):
            return ranked
        able = [server for server in ranked if self._able(server)]
        return able or ranked

    def _able(self, server: str) -> bool:
        """Return whether a server is usable.

        After a missing reply it is usable when SHUN_MS is over and it is connected; after a lost
        connection, when it is connected.
        """
        until_ms = self._silent.get(server)
        if until_ms is None:
            return not self._lost(server)
        return self._clock.monotonic_ms() >= until_ms and self._is_connected(server)

    def silent(self, server: str) -> None:
        """Record that a server did not reply."""
        self._silent[server] = self._clock.monotonic_ms() + SHUN_MS

    def answered(self, server: str) -> None:
        """Record that a server replied."""
        if self._silent:
            self._silent.pop(server, None)


def _servers(known: QueueMap, broker_name: str, address: str) -> tuple[str, ...]:
    table = known.route.filter_server_table
    own = table.get(address)
    if own:
        return tuple(sorted(own))
    broker = known.brokers.get(broker_name)
    if broker is not None:
        for member in sorted(broker.broker_addrs):
            own = table.get(broker.broker_addrs[member])
            if own:
                return tuple(sorted(own))
    return ()


class _Order:
    """The assignment for all queues of one topic at one broker, under one route."""

    __slots__ = ("_first", "_ranked", "route", "servers")

    def __init__(self, route: QueueMap, servers: tuple[str, ...], queue: MessageQueue) -> None:
        self.route = route
        self.servers = servers
        self._ranked: dict[MessageQueue, tuple[str, ...]] = {}
        queues = [one for one in route.readable if one.broker_name == queue.broker_name]
        self._first = {} if len(queues) > ALIKE_QUEUES_MAX else shared_out(queues, servers)

    def of(self, queue: MessageQueue) -> tuple[str, ...]:
        ranked = self._ranked.get(queue)
        if ranked is None:
            by_rank = sorted(self.servers, key=lambda server: _rank(queue, server))
            first = self._first.get(queue, by_rank[0])
            ranked = (first, *(server for server in by_rank if server != first))
            self._ranked[queue] = ranked
        return ranked


def shared_out(queues: Sequence[MessageQueue], servers: Sequence[str]) -> dict[MessageQueue, str]:
    """Return the preferred server of each queue; the numbers of queues differ by at most one."""
    each, left = divmod(len(queues), len(servers))
    taken = dict.fromkeys(servers, 0)
    pairs = sorted((_rank(queue, server), queue, server) for queue in queues for server in servers)
    chosen: dict[MessageQueue, str] = {}
    for _, queue, server in pairs:
        if queue in chosen or taken[server] > each or (taken[server] == each and not left):
            continue
        left -= taken[server] == each
        taken[server] += 1
        chosen[queue] = server
    return chosen


def _rank(queue: MessageQueue, server: str) -> bytes:
    return blake2b(f"{queue!s} {server}".encode(), digest_size=8).digest()


class FilterPulls:
    """The pulls of one consumer whose subscriptions use filters. Used on the I/O thread."""

    def __init__(
        self,
        group: str,
        client_id: str,
        connections: Connections,
        clock: Clock,
        *,
        timeout_ms: int,
        route_stale: Callable[[str], None],
        failover: FilterFailover = FilterFailover.ANOTHER,
    ) -> None:
        self.uploads = FilterUploads(group, client_id, connections, timeout_ms)
        self._servers = FilterServerChoice(clock, connections.is_connected, connections.lost)
        self._route_stale = route_stale
        self._failover = failover

    async def ask(
        self,
        known: QueueMap,
        queue: MessageQueue,
        address: str,
        name: str,
        ask: Callable[[str], Awaitable[Pulled]],
    ) -> Pulled:
        """Return the reply of a filter server; `ask` sends the pull to a server's address.

        `address` is the replica of the queue's broker to read from. If the filter is missing there
        and this consumer has its source, the filter is uploaded and the pull is repeated. Raises
        FilterFailed if there is no filter server or the broker refuses the filter; otherwise the
        error of the last server.
        """
        await self.uploads.ready(known, queue.broker_name, name)
        pulled = await self._ask_first(known, queue, address, name, ask)
        if pulled.filter_failure == FilterFailure.MISSING and self.uploads.forget(
            queue.broker_name, name
        ):
            await self.uploads.ready(known, queue.broker_name, name)
            pulled = await self._ask_first(known, queue, address, name, ask)
        return pulled

    async def _ask_first(
        self,
        known: QueueMap,
        queue: MessageQueue,
        address: str,
        name: str,
        ask: Callable[[str], Awaitable[Pulled]],
    ) -> Pulled:
        """Return the reply of the first filter server that replies."""
        waits = self._failover is FilterFailover.FAIL
        servers = self._servers.order(known, queue, address, every=waits)
        if not servers:
            self._route_stale(queue.topic)
            raise FilterFailed(
                f"broker {queue.broker_name} has no filter server online, and "
                f"filter {name} requires one",
                hint="start one: kourou filter-server",
                kind=UNSERVED,
            )
        if waits:
            return await ask(servers[0])
        last = servers[-1]
        for server in servers:
            try:
                pulled = await ask(server)
            except (Unavailable, UnknownOutcome) as error:
                self._silent(queue, server)
                if server is last or isinstance(error, TimedOut):
                    raise  # after a full timeout the next pull selects another server
                continue
            if pulled.code != Code.SERVICE_NOT_AVAILABLE:
                self._servers.answered(server)
                return pulled
            self._silent(queue, server)  # the server is starting or stopping
            if server is last:
                return pulled
        raise AssertionError("the last server's answer is the answer")

    def _silent(self, queue: MessageQueue, server: str) -> None:
        self._servers.silent(server)
        self._route_stale(queue.topic)  # the server may have left, and others may be available


def failure_of(queue: MessageQueue, pulled: Pulled) -> FilterFailed:
    """Return the reply FILTER_FAILED as the error that applications catch."""
    return FilterFailed(
        f"{queue!s}: {pulled.remark or 'the filter failed'}",
        hint=f"consumption stops at offset {pulled.next_offset} until the filter works"
        if pulled.next_offset >= 0
        else "",
        kind=pulled.filter_failure,
        filter_version=pulled.filter_version,
    )
