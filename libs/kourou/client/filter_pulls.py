"""A pull that a filter judges: to a filter server of the queue's broker, never to the broker.

A pull changes nothing, so one whose answer was lost is asked again elsewhere.

State: soft.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kourou.client.connections import Connections
from kourou.client.filter_servers import FilterServers
from kourou.client.filter_uploads import FilterUploads
from kourou.client.routes import QueueMap
from kourou.client.settings_consumer import FilterFailover
from kourou.clock import Clock
from kourou.errors import Code, FilterFailed, TimedOut, Unavailable, UnknownOutcome
from kourou.model.filter import FilterFailure
from kourou.model.queue import MessageQueue

if TYPE_CHECKING:
    from kourou.client.puller import Pulled

UNSERVED = "unserved"
"""The kind of failure where a broker has no filter server (kinds: docs/filters.md)."""


class FilterPulls:
    """The pulls of one consumer whose subscriptions name filters. Used on the I/O thread."""

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
        """The answer of a filter server; `ask` asks one by its address.

        `address` is the member of the queue's broker to be read from. A filter that is missing
        there is uploaded again, if it is ours, and asked once more. Raises FilterFailed if there is
        no filter server or the filter is refused; else what the last server that was asked raised.
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
        """The answer of the first filter server that gives one."""
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
                    raise  # after a whole timeout the next pull asks another one
                continue
            if pulled.code != Code.SERVICE_NOT_AVAILABLE:
                self._servers.answered(server)
                return pulled
            self._silent(queue, server)  # it only starts, or it stops
            if server is last:
                return pulled
        raise AssertionError("the last server's answer is the answer")

    def _silent(self, queue: MessageQueue, server: str) -> None:
        self._servers.silent(server)
        self._route_stale(queue.topic)  # it may have left, and others may be there


def failure_of(queue: MessageQueue, pulled: Pulled) -> FilterFailed:
    """What FILTER_FAILED says, as the error an application catches."""
    return FilterFailed(
        f"{queue!s}: {pulled.remark or 'the filter failed'}",
        hint=f"consumption stops at offset {pulled.next_offset} until the filter works"
        if pulled.next_offset >= 0
        else "",
        kind=pulled.filter_failure,
        filter_version=pulled.filter_version,
    )
