"""Registration of filter servers, and their notification when filters change.

State: none of its own.

Filter servers are notified of a change when it is committed, once for all changes of a batch. A
filter server that misses a notification sees the new version number in the reply to its next
registration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kourou.engine.control import ControlState
from kourou.engine.effects import Announce, Effect
from kourou.engine.filters.filter_servers import FilterServers
from kourou.engine.policy import BrokerPolicy
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.sends.recorder import Recorder
from kourou.protocol.messages.filter_server import (
    NotifyFiltersChanged,
    RegisterFilterServer,
    RegisterFilterServerResponse,
    UnregisterFilterServer,
)
from kourou.protocol.request import Request
from kourou.runtime.core import LogWarning, Notify, Peer, Received, Reply


class FilterServerHandler:
    """Handles filter servers' requests about themselves."""

    def __init__(
        self,
        servers: FilterServers,
        control: ControlState,
        recorder: Recorder,
        confirmations: Confirmations,
        policy: BrokerPolicy,
    ) -> None:
        self._servers = servers
        self._control = control
        self._recorder = recorder
        self._confirmations = confirmations
        self._policy = policy

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {RegisterFilterServer: self.register, UnregisterFilterServer: self.unregister}

    def register(
        self, now_ms: int, received: Received, request: RegisterFilterServer
    ) -> list[Effect]:
        """Register a filter server (301); the reply to a new one waits for the name servers."""
        new = self._servers.register(
            now_ms, request.filter_server_addr, request.listeners, received.to.peer
        )
        header = RegisterFilterServerResponse(
            broker_name=self._policy.broker_name,
            broker_id=self._policy.broker_id,
            filters_version=self._control.filters.version,
        )
        announced: list[Effect] = [Announce()] if new else []
        return [*announced, Reply(received.to, header=header)]

    def unregister(
        self, _now_ms: int, received: Received, request: UnregisterFilterServer
    ) -> list[Effect]:
        """Remove a filter server (30020)."""
        gone = self._servers.unregister(request.filter_server_addr, received.to.peer)
        announced: list[Effect] = [Announce()] if gone else []
        return [*announced, Reply(received.to)]

    def disconnected(self, peer: Peer) -> list[Effect]:
        """Remove the filter servers of a closed connection."""
        return self._gone(self._servers.drop_peer(peer), "its connection closed")

    def expire(self, now_ms: int) -> list[Effect]:
        """Remove the filter servers that were silent for too long."""
        gone = self._servers.expire(now_ms, self._policy.filter_server_expiry_ms)
        return self._gone(gone, "no heartbeat for too long")

    def _gone(self, addresses: Sequence[str], why: str) -> list[Effect]:
        if not addresses:
            return []
        lost = [LogWarning(f"filter server {address} is offline: {why}") for address in addresses]
        return [*lost, Announce()]  # unnumbered: no reply waits for it

    def tell(self) -> list[Effect]:
        """Notify every filter server of changed filters, once the change is committed."""
        end = self._recorder.filters_end
        if not end or end > self._confirmations.confirmed:
            return []
        self._recorder.filters_end = 0
        notice = NotifyFiltersChanged(filters_version=self._control.filters.version)
        return [Notify(one.peer, notice) for one in self._servers if one.told]
