"""The I/O side of one client: what its producers and consumers share.

State: soft. Everything except the constructor runs on the I/O thread.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Protocol

from kourou.client.consumer.offsets import QueueFacts
from kourou.client.filters.pulls import FilterPulls
from kourou.client.introspection.broker_requests import (
    BrokerRequest,
    Buffer,
    ConsumerRequests,
    RequestHandlers,
)
from kourou.client.requests.replies import Requests
from kourou.client.session.connections import Connections, Dial, body_of
from kourou.client.session.discovery import NameServers
from kourou.client.session.heartbeats import ClientMembership, Heartbeats
from kourou.client.session.io_thread import Io
from kourou.client.session.name_servers import NameServerChoice
from kourou.client.session.route_table import QueueMap, RouteTable
from kourou.client.settings.client_settings import ClientSettings
from kourou.client.settings.consumer_settings import FilterFailover
from kourou.client.tracing.spans import ClientTracing
from kourou.clock import Clock
from kourou.errors import BadRequest, KourouError, Unavailable
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import decode_consumer_ids
from kourou.protocol.bodies.route_bodies import decode_cluster_info
from kourou.protocol.bodies.statistics_bodies import decode_offset_table
from kourou.protocol.messages.groups import GetConsumerListByGroup, NotifyConsumerIdsChanged
from kourou.protocol.messages.namesrv import GetBrokerClusterInfo
from kourou.protocol.messages.pulls import ResetConsumerClientOffset
from kourou.protocol.messages.sends import CheckTransactionState

_log = logging.getLogger("kourou.client")


class GroupConsumer(Protocol):
    """The part of a consumer that a session uses."""

    @property
    def group(self) -> str:
        """The consumer's group."""
        ...

    @property
    def membership(self) -> ClientMembership:
        """The group membership for heartbeats."""
        ...

    def rebalance_soon(self) -> None:
        """Rebalance, because the group changed."""
        ...

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Handle an operator's offset reset."""
        ...

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets that the consumer would commit for each queue of a topic."""
        ...


class HalfAnswerer(Protocol):
    """Answers check-backs for a producer group's half messages."""

    def take(self, address: str, request: CheckTransactionState, record: bytes) -> None:
        """Handle a broker's check-back for this half message."""
        ...


class Session:
    """The connections and shared state of one client."""

    def __init__(
        self,
        io: Io,
        settings: ClientSettings,
        found: NameServers,
        client_id: str,
        *,
        dial: Dial,
        clock: Clock,
        chance: random.Random,
        tracing: ClientTracing | None = None,
    ) -> None:
        self.io = io
        self.tracing = tracing
        self.settings = settings
        self.client_id = client_id
        self.clock = clock
        self.chance = chance
        self.request_handlers = RequestHandlers(self._send_answer)
        self.request_handlers.on(NotifyConsumerIdsChanged, self._members_changed)
        self.request_handlers.on(ResetConsumerClientOffset, self._reset)
        self.half_handlers: dict[str, HalfAnswerer] = {}  # by producer group
        self.connections = Connections(dial, self.request_handlers.heard)
        self.name_servers = NameServerChoice(
            found,
            self.connections,
            timeout_ms=settings.request_timeout_ms,
            list_interval_ms=settings.namesrv_list_interval_ms,
            chance=chance,
        )
        self.routes = RouteTable(
            self.name_servers, interval_ms=settings.poll_name_server_interval_ms, chance=chance
        )
        self.requests = Requests(self)
        self.facts = QueueFacts(self.connections, self.routes, settings.request_timeout_ms)
        self._members: dict[str, GroupConsumer] = {}
        ConsumerRequests(
            self._members.get, lambda: ";".join(self.name_servers.addresses), client_id
        ).register(self.request_handlers)
        self.heartbeats = Heartbeats(
            client_id,
            self.connections,
            self.routes,
            lambda: [member.membership for member in self._members.values()],
            interval_ms=settings.heartbeat_broker_interval_ms,
            timeout_ms=settings.request_timeout_ms,
        )

    # -- lifecycle --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start. Connections to name servers and brokers are opened when they are first needed."""
        await self.name_servers.start()
        self.routes.start()
        self.heartbeats.start()

    async def close(self) -> None:
        """Close all connections. Producers and consumers must be closed already."""
        self.requests.close_all()
        self.request_handlers.close()
        self.io.identities -= {(self.client_id, group) for group in self._members}
        self.heartbeats.close()
        self.routes.close()
        self.name_servers.close()
        self.connections.close()

    # -- groups -----------------------------------------------------------------------------------

    async def join(self, member: GroupConsumer) -> None:
        """Register a consumer in its group; all brokers have a heartbeat when this returns."""
        if member.group in self._members:
            raise BadRequest(
                f"this client already has a consumer in group {member.group}",
                hint="subscribe that consumer to more topics, or open another client",
            )
        identity = (self.client_id, member.group)
        if identity in self.io.identities:
            raise BadRequest(
                "another client of this process already uses client ID "
                f"{self.client_id} in group {member.group}",
                hint="give each client its own instance name, or leave it at DEFAULT",
            )
        self.io.identities.add(identity)
        self._members[member.group] = member
        await self.heartbeats.beat()

    async def leave(self, member: GroupConsumer) -> None:
        """Remove a consumer from its group."""
        if self._members.get(member.group) is member:
            del self._members[member.group]
            self.io.identities.discard((self.client_id, member.group))
            await self.heartbeats.leave(consumer_group=member.group)

    async def introduce(self, topic: str) -> QueueMap:
        """Make sure that every broker of a topic has received this client's heartbeat."""
        known = await self.routes.find(topic)
        await self.heartbeats.reach(known.addresses())
        return known

    async def members(self, group: str, known: QueueMap) -> list[str]:
        """Return the client IDs of a group, from any broker of the topic; includes this client.

        Raises KourouError if no broker replies or none knows this client yet (then a heartbeat is
        sent).
        """
        addresses = known.addresses()
        await self.heartbeats.reach(addresses)
        self.chance.shuffle(addresses)
        failure: KourouError = Unavailable(f"no broker of topic {known.topic} is online")
        for address in addresses:
            try:
                reply = await self.connections.ask(
                    address,
                    GetConsumerListByGroup(consumer_group=group),
                    timeout_ms=self.settings.request_timeout_ms,
                )
                ids = decode_consumer_ids(body_of(reply))
            except KourouError as error:
                failure = error
                continue
            if self.client_id in ids:
                return ids
            failure = Unavailable(f"broker {address} does not know this consumer yet")
        self.heartbeats.soon()
        raise failure

    async def leader_missing(self) -> bool:
        """Return whether a broker without a leader is registered; False if name servers fail.

        Name servers may not know such a broker's topics, because leaders register topics.
        """
        try:
            info = decode_cluster_info(body_of(await self.name_servers.ask(GetBrokerClusterInfo())))
        except KourouError as error:
            _log.info(
                "leaders-unknown: the name servers did not return the leaders: %(error)s",
                {"error": error},
            )
            return False
        return any(one.master_addr() is None for one in info.brokers.values())

    def filter_pulls(self, group: str, failover: FilterFailover) -> FilterPulls:
        """Return the filter server access of a consumer."""
        return FilterPulls(
            group,
            self.client_id,
            self.connections,
            self.clock,
            timeout_ms=self.settings.request_timeout_ms,
            route_stale=self.routes.stale,
            failover=failover,
        )

    # -- requests from brokers --------------------------------------------------------------------

    def _send_answer(self, address: str, parts: Sequence[Buffer]) -> bool:
        return self.connections.to(address).send_parts(parts)

    async def _members_changed(self, asked: BrokerRequest) -> None:
        assert isinstance(asked.request, NotifyConsumerIdsChanged)
        member = self._members.get(asked.request.consumer_group)
        if member is not None:
            member.rebalance_soon()

    async def _reset(self, asked: BrokerRequest) -> None:
        assert isinstance(asked.request, ResetConsumerClientOffset)
        member = self._members.get(asked.request.group)
        if member is not None:
            offsets = decode_offset_table(asked.body[0] if asked.body else b"")
            await self._reset_member(member, offsets)

    async def _reset_member(self, member: GroupConsumer, offsets: dict[MessageQueue, int]) -> None:
        try:
            await member.reset(offsets)
        except KourouError as error:
            _log.warning(
                "offset-reset-failed: group %(group)s: offset reset failed: %(error)s",
                {"group": member.group, "error": error},
            )
