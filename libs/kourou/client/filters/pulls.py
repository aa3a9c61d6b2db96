"""Pulls with a Python filter: they go to a filter server of the queue's broker, not to the broker.

A pull changes no state, so after a lost reply it is sent to another server.

State: soft.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kourou.client.filters.servers import FilterServers
from kourou.client.filters.uploads import FilterUploads
from kourou.client.session.connections import Connections
from kourou.client.session.routes import QueueMap
from kourou.client.settings.consumer_settings import FilterFailover
from kourou.clock import Clock
from kourou.errors import Code, FilterFailed, TimedOut, Unavailable, UnknownOutcome
from kourou.model.filter import FilterFailure
from kourou.model.topic import MessageQueue

if TYPE_CHECKING:
    from kourou.client.consumer.puller import Pulled

UNSERVED = "unserved"
"""The failure kind if a broker has no filter server (kinds: docs/filters.md)."""


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
        self._servers = FilterServers(clock, connections.stands, connections.lost)
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
