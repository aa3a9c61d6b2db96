"""The I/O side of one client: what its producers and consumers share.

Lives here: connections, name servers, routes, heartbeats of one client put together, its list of
consumers, and what brokers say unasked. May not live here: the application's side.

State: soft. Everything but the constructor runs on the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Protocol

from kourou.client.background import background
from kourou.client.connections import Connections, Dial, body_of
from kourou.client.discovery import NameServers
from kourou.client.heartbeats import Heartbeats, Membership
from kourou.client.io_thread import IoThread
from kourou.client.name_servers import NameServerChoice
from kourou.client.offsets import QueueFacts
from kourou.client.route_table import RouteTable
from kourou.client.routes import QueueMap
from kourou.client.settings import ClientSettings
from kourou.client.tracing import ClientTracing
from kourou.clock import Clock
from kourou.errors import BadRequest, Code, DecodeError, KourouError, Unavailable
from kourou.model.queue import MessageQueue
from kourou.protocol.bodies import decode_consumer_ids, decode_offset_table
from kourou.protocol.frames import Frame, Kind, decode_request, encode_reply
from kourou.protocol.messages.membership import GetConsumerListByGroup, NotifyConsumerIdsChanged
from kourou.protocol.messages.offsets import ResetConsumerClientOffset

_log = logging.getLogger("kourou.client")


class Member(Protocol):
    """A consumer, as much as a session knows of it."""

    @property
    def group(self) -> str:
        """Its group."""
        ...

    @property
    def membership(self) -> Membership:
        """What brokers are told of it."""
        ...

    def rebalance_soon(self) -> None:
        """The group changed."""
        ...

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group."""
        ...


class Session:
    """One client's conversations."""

    def __init__(
        self,
        io: IoThread,
        settings: ClientSettings,
        found: NameServers,
        client_id: str,
        *,
        dial: Dial,
        clock: Clock,
        chance: random.Random,
        fetch_list: Callable[[str], str] | None = None,
        tracing: ClientTracing | None = None,
    ) -> None:
        self.io = io
        self.tracing = tracing
        self.settings = settings
        self.client_id = client_id
        self.clock = clock
        self.chance = chance
        self.connections = Connections(dial, self._heard)
        self.name_servers = NameServerChoice(
            found,
            self.connections,
            timeout_ms=settings.request_timeout_ms,
            list_interval_ms=settings.namesrv_list_interval_ms,
            chance=chance,
            fetch=fetch_list,
        )
        self.routes = RouteTable(
            self.name_servers, interval_ms=settings.poll_name_server_interval_ms, chance=chance
        )
        self.facts = QueueFacts(self.connections, self.routes, settings.request_timeout_ms)
        self._members: dict[str, Member] = {}
        self.heartbeats = Heartbeats(
            client_id,
            self.connections,
            self.routes,
            lambda: [member.membership for member in self._members.values()],
            interval_ms=settings.heartbeat_broker_interval_ms,
            timeout_ms=settings.request_timeout_ms,
        )
        self._resets: set[asyncio.Task[None]] = set()

    # -- life -------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin. Name servers and brokers are spoken to when they are first needed."""
        await self.name_servers.start()
        self.routes.start()
        self.heartbeats.start()

    async def close(self) -> None:
        """End every conversation. Producers and consumers have closed before."""
        for task in self._resets:
            task.cancel()
        self.io.seats -= {(self.client_id, group) for group in self._members}
        self.heartbeats.close()
        self.routes.close()
        self.name_servers.close()
        self.connections.close()

    # -- groups -----------------------------------------------------------------------------------

    async def join(self, member: Member) -> None:
        """A consumer enters its group: every broker is told before this returns."""
        if member.group in self._members:
            raise BadRequest(
                f"this client already is a member of the group {member.group}",
                hint="one consumer can subscribe several topics; or open another client",
            )
        seat = (self.client_id, member.group)
        if seat in self.io.seats:
            raise BadRequest(
                f"another client of this process is the member {self.client_id} of the group "
                f"{member.group}",
                hint="give each client an instance name of its own, or leave it at DEFAULT",
            )
        self.io.seats.add(seat)
        self._members[member.group] = member
        await self.heartbeats.beat()

    async def leave(self, member: Member) -> None:
        """A consumer leaves its group."""
        if self._members.get(member.group) is member:
            del self._members[member.group]
            self.io.seats.discard((self.client_id, member.group))
            await self.heartbeats.leave(consumer_group=member.group)

    async def introduce(self, topic: str) -> QueueMap:
        """Make sure that every broker of a topic has heard of this client's groups."""
        known = await self.routes.find(topic)
        await self.heartbeats.reach(known.addresses())
        return known

    async def members(self, group: str, known: QueueMap) -> list[str]:
        """The client ids of a group, from any broker of the topic; this client is among them.

        Raises KourouError when no broker tells, or none knows us yet (then a heartbeat is sent).
        """
        addresses = known.addresses()
        await self.heartbeats.reach(addresses)
        self.chance.shuffle(addresses)
        failure: KourouError = Unavailable(f"no broker of {known.topic} is known")
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
            failure = Unavailable(f"broker {address} does not know this member yet")
        self.heartbeats.soon()
        raise failure

    # -- what brokers say unasked -----------------------------------------------------------------

    def _heard(self, address: str, frame: Frame) -> None:
        try:
            request = decode_request(frame)
            if isinstance(request, NotifyConsumerIdsChanged):
                member = self._members.get(request.consumer_group)
                if member is not None:
                    member.rebalance_soon()
            elif isinstance(request, ResetConsumerClientOffset):
                self._reset(request.group, frame)
            elif frame.kind is Kind.REQUEST:
                self._decline(address, frame, f"clients do not answer request {frame.code}")
        except (BadRequest, DecodeError) as error:
            _log.warning("broker %s says what cannot be understood: %s", address, error)
            if frame.kind is Kind.REQUEST:
                self._decline(address, frame, str(error))

    def _decline(self, address: str, frame: Frame, remark: str) -> None:
        head = encode_reply(frame.correlation, Code.REQUEST_CODE_NOT_SUPPORTED, remark)
        self.connections.to(address).send_parts([head])

    def _reset(self, group: str, frame: Frame) -> None:
        member = self._members.get(group)
        if member is None:
            return
        offsets = decode_offset_table(frame.body[0] if frame.body else b"")
        task = background(self._reset_member(member, offsets), f"resetting group {group}")
        self._resets.add(task)
        task.add_done_callback(self._resets.discard)

    async def _reset_member(self, member: Member, offsets: dict[MessageQueue, int]) -> None:
        try:
            await member.reset(offsets)
        except KourouError as error:
            _log.warning("group %s could not be reset: %s", member.group, error)
