"""The filter servers next to this broker: registration, addresses, and notification of changes.

State: soft. A filter server registers every few seconds. One that is silent for too long, or whose
connection is closed, is removed at once, so that consumers find another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kourou.access.signature import SignedFields
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.quota_gate import QuotaGate
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Announce, Effect
from kourou.errors import BadRequest, NoPermission, Throttled
from kourou.model.limits import (
    FILTER_SERVER_ADDRESS_LENGTH_MAX,
    FILTER_SERVER_LISTENERS_MAX,
    FILTER_SERVERS_MAX,
)
from kourou.protocol.bodies.access_bodies import check_source
from kourou.protocol.messages.filter_server import (
    CheckAccess,
    CheckAccessResponse,
    NotifyFiltersChanged,
    RegisterFilterServer,
    RegisterFilterServerResponse,
    UnregisterFilterServer,
)
from kourou.protocol.request import Answerer, Request
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.remoting import VERSION_4_9_8
from kourou.runtime import DOORS, LogWarning, Notify, Peer, Received, Reply, ReplyTo


@dataclass(slots=True)
class FilterServer:
    """One filter server. `listeners` has `protocol:listener` -> `host:port`; `heard_ms`: monotonic.

    `notified` is False for a filter server of RocketMQ, which does not understand Kourou's
    notifications. `user` registered it, "" where users are not known.
    """

    address: str
    listeners: Mapping[str, str]
    peer: Peer
    heard_ms: int
    notified: bool = True
    user: str = ""


class FilterServerTable:
    """The filter servers of one broker, by address. Times are monotonic ms."""

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table: dict[str, FilterServer] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[FilterServer]:
        return iter(self._table.values())

    def register(
        self,
        now_ms: int,
        address: str,
        listeners: Mapping[str, str] | None,
        peer: Peer,
        user: str = "",
    ) -> bool:
        """Add or refresh a filter server; return True if name servers must be informed.

        A filter server without listeners is reached at `address`, by the transport that it used.
        The address belongs to `user` while it is registered. Raises BadRequest, NoPermission or
        Throttled.
        """
        _check_address(address)
        table = {f"{peer.protocol}:internal": address} if listeners is None else dict(listeners)
        if len(table) > FILTER_SERVER_LISTENERS_MAX:
            raise BadRequest(
                f"a filter server can have at most {FILTER_SERVER_LISTENERS_MAX} listeners"
            )
        for name, dialled in table.items():
            _check_address(name)
            _check_address(dialled)
        before = self._table.get(address)
        if before is not None and before.user and user and before.user != user:
            raise NoPermission(
                f"another user has registered the filter server {address}",
                hint="give each filter server an address of its own",
            )
        if before is None and len(self._table) >= FILTER_SERVERS_MAX:
            raise Throttled(
                f"{FILTER_SERVERS_MAX} filter servers are registered at this broker "
                "already, the maximum"
            )
        self._table[address] = FilterServer(
            address, table, peer, now_ms, listeners is not None, user
        )
        return before is None or before.listeners != table

    def unregister(self, address: str, peer: Peer) -> bool:
        """Remove a filter server; return False if `peer` has no such registration."""
        known = self._table.get(address)
        if known is None or known.peer.id != peer.id:
            return False
        del self._table[address]
        return True

    def drop_peer(self, peer: Peer) -> list[str]:
        """Remove the filter servers of a closed connection; return their addresses."""
        return self._drop(lambda one: one.peer.id == peer.id) if self._table else []

    def expire(self, now_ms: int, expiry_ms: int) -> list[str]:
        """Remove those that were silent for too long; return their addresses."""
        return self._drop(lambda one: now_ms - one.heard_ms >= expiry_ms) if self._table else []

    def _drop(self, gone: Callable[[FilterServer], bool]) -> list[str]:
        found = [address for address, one in self._table.items() if gone(one)]
        for address in found:
            del self._table[address]
        return found

    def has_peer(self, peer: Peer) -> bool:
        """Return whether a filter server is registered over this connection."""
        return any(one.peer.id == peer.id for one in self._table.values())

    def address_of(self, peer: Peer) -> str:
        """Return the address registered over this connection, or else the connection's name."""
        for one in self._table.values():
            if one.peer.id == peer.id:
                return one.address
        return str(peer)

    def addresses_for(self, asker: Peer) -> list[str]:
        """Return the addresses that `asker` can connect to, in a stable order."""
        found = (
            one.listeners.get(f"{asker.protocol}:{asker.listener}")
            or one.listeners.get(f"{asker.protocol}:internal")
            for one in self._table.values()
        )
        return sorted({address for address in found if address is not None})

    def reported(self) -> tuple[dict[str, str], ...]:
        """Return the listeners of each, for registration with name servers, in a stable order."""
        return tuple(dict(self._table[address].listeners) for address in sorted(self._table))


def _check_address(text: str) -> None:
    if not 0 < len(text) <= FILTER_SERVER_ADDRESS_LENGTH_MAX or not text.isprintable():
        raise BadRequest(
            f"an address must have 1 to {FILTER_SERVER_ADDRESS_LENGTH_MAX} printable characters"
        )


@dataclass(slots=True)
class _ClientReplyTo(ReplyTo):
    """The reply address of a filter server's client, as far as decisions depend on it."""

    signed: SignedFields | None = field(default=None, repr=False)
    version: int = VERSION_4_9_8


def _request_of_client(received: Received, asked: CheckAccess) -> Received:
    """Return the request that a filter server asks about as if its client had sent it here.

    Raises BadRequest if a client cannot have sent it to a filter server.
    """
    spec = REQUESTS.get(asked.request_code)
    if spec is None or Answerer.FILTER_SERVER not in spec.answered_by:
        raise BadRequest(f"a filter server does not handle requests of type {asked.request_code}")
    if asked.protocol not in DOORS:
        raise BadRequest(
            f"the protocol {asked.protocol!r} is not one of clients: {', '.join(sorted(DOORS))}"
        )
    if not check_source(asked.address):
        raise BadRequest("the address of the client is missing")
    try:
        request = msgspec.msgpack.decode(asked.header, type=spec.header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRequest(f"the header of {spec.name} is wrong: {error}") from error
    asker = received.to
    peer = Peer(
        asker.peer.id, asked.protocol, (asked.address, 0), key=asked.key, subject=asked.subject
    )
    signed = None if asked.signed is None else SignedFields.of(asked.signed)
    return Received(
        _ClientReplyTo(peer, asker.correlation, signed=signed, version=asked.version),
        request,
        received.body,
        received.wall_ms,
        received.deadline_ms,
        on_behalf_of=asked.on_behalf_of,
    )


class FilterServerHandler:
    """Handles filter servers' requests about themselves and about their clients.

    State: none of its own.

    Filter servers are notified of a change when it is committed, once for all changes of a batch. A
    filter server that misses a notification sees the new version number in the reply to its next
    registration.
    """

    def __init__(
        self,
        context: BrokerContext,
        servers: FilterServerTable,
        gate: AccessGate,
        quotas: QuotaGate,
    ) -> None:
        self._servers = servers
        self._gate = gate
        self._quotas = quotas
        self._control = context.control
        self._recorder = context.recorder
        self._confirmations = context.confirmations
        self._policy = context.policy

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            RegisterFilterServer: self.register,
            UnregisterFilterServer: self.unregister,
            CheckAccess: self.check_access,
        }

    def register(
        self, now_ms: int, received: Received, request: RegisterFilterServer
    ) -> list[Effect]:
        """Register a filter server (301); the reply to a new one waits for the name servers."""
        new = self._servers.register(
            now_ms,
            request.filter_server_addr,
            request.listeners,
            received.to.peer,
            self._gate.sender(received),
        )
        header = RegisterFilterServerResponse(
            broker_name=self._policy.broker_name,
            broker_id=self._policy.broker_id,
            filters_version=self._control.filters.version,
            decides=not self._control.access.open_because,
        )
        registration: list[Effect] = [Announce()] if new else []
        return [*registration, Reply(received.to, header=header)]

    def unregister(
        self, _now_ms: int, received: Received, request: UnregisterFilterServer
    ) -> list[Effect]:
        """Remove a filter server (30020)."""
        gone = self._servers.unregister(request.filter_server_addr, received.to.peer)
        registration: list[Effect] = [Announce()] if gone else []
        return [*registration, Reply(received.to)]

    def check_access(self, now_ms: int, received: Received, request: CheckAccess) -> list[Effect]:
        """Reply whether a filter server's client may send it a request (30073).

        Mode, refusals, audit and quotas are those of a request that the client sends here itself.
        """
        client = _request_of_client(received, request)
        if not self._gate.decides_for(received, client):
            return [Reply(received.to, header=CheckAccessResponse(undecided=True))]
        if not self._servers.has_peer(received.to.peer):
            raise NoPermission(
                "no filter server is registered over this connection", hint="register it first"
            )
        decided: list[Effect] = []
        if self._gate.allows(client, decided):
            fetched = max(0, request.fetched_bytes), max(0, request.fetched_messages)
            if self._quotas.admits_client(now_ms, received, client, fetched, decided):
                decided.append(Reply(received.to, header=CheckAccessResponse()))
            return decided
        return [
            Reply(received.to, header=CheckAccessResponse(refusal=effect.code, text=effect.remark))
            if isinstance(effect, Reply)
            else effect
            for effect in decided
        ]

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
        lost = [
            LogWarning(
                "filter-server-offline: filter server %(address)s is offline: %(reason)s",
                {"address": address, "reason": why},
            )
            for address in addresses
        ]
        return [*lost, Announce()]  # unnumbered: no reply waits for it

    def notify_changes(self) -> list[Effect]:
        """Notify every filter server of changed filters, once the change is committed."""
        end = self._recorder.filters_end
        if not end or end > self._confirmations.confirmed:
            return []
        self._recorder.filters_end = 0
        return self._notify()

    def rights_changed(self) -> list[Effect]:
        """Notify every filter server that what it was allowed for its clients does not count."""
        return self._notify(rights_changed=True)

    def _notify(self, *, rights_changed: bool = False) -> list[Effect]:
        version = self._control.filters.version
        notice = NotifyFiltersChanged(filters_version=version, rights_changed=rights_changed)
        return [Notify(one.peer, notice) for one in self._servers if one.notified]
