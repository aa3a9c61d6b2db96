"""Heartbeats: the client's groups and subscriptions, sent to all brokers periodically.

A broker unregisters a client whose connection ends. So the client sends a heartbeat at once after a
lost connection, and when a broker has a new leader, which may not know the client yet.

State: soft. The client's producers and consumers define its groups.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kourou.client.session.connections import Connections, Dial
from kourou.client.session.io_thread import Io, background, is_set_within
from kourou.client.session.route_table import RouteTable
from kourou.errors import KourouError
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.groups import HeartBeat, UnregisterClient
from kourou.protocol.wire.frames import Frame

SOON_MS = 20
"""The delay of an early heartbeat, so that reasons at the same time cause only one."""

_log = logging.getLogger("kourou.client")

LOOP_CHECK_MS = 2_000
"""The interval of the checks: three of them before a broker considers the client silent."""


@dataclass(frozen=True, slots=True)
class ClientMembership:
    """The client's membership in one consumer group."""

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: tuple[Subscription, ...]


class Heartbeats:
    """Sends heartbeats. `memberships()` returns the client's current consumer groups."""

    def __init__(
        self,
        client_id: str,
        connections: Connections,
        routes: RouteTable,
        memberships: Callable[[], Iterable[ClientMembership]],
        *,
        interval_ms: int,
        timeout_ms: int,
    ) -> None:
        self._client_id = client_id
        self._connections = connections
        self._routes = routes
        self._memberships = memberships
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._producer_groups: dict[str, int] = {}
        self._reached: set[str] = set()
        self._failed: set[str] = set()
        self._differing: dict[str, list[str]] = {}
        """Address -> the texts in its last reply about consumers with other subscriptions."""

        self.last: tuple[bytes, list[str]] = (b"", [])
        """The last heartbeat and the brokers that it was sent to; any thread may read it."""

        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- lifecycle --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start sending heartbeats."""
        self._routes.listen(self._route_changed)
        self._routes.listen_leaders(self._leader_changed)
        self._connections.on_reconnected = self._came_back
        self._task = background(self._keep_sending(), "heartbeats")

    def close(self) -> None:
        """Stop sending heartbeats."""
        if self._task is not None:
            self._task.cancel()

    def soon(self) -> None:
        """Send a heartbeat soon, because something changed or a connection may be new."""
        self._wanted.set()

    def _route_changed(self, _topic: str) -> None:
        if not self._routes.addresses() <= self._reached:
            self.soon()

    def _leader_changed(self, _name: str, address: str) -> None:
        self._reached.discard(address)
        self.soon()

    def _came_back(self, address: str) -> None:
        # Nothing else may reveal it: an idle producer sends no requests to the broker, but the
        # broker may send it a check-back for a transaction.
        if address in self._reached or address in self._failed:
            self._reached.discard(address)
            self.soon()

    async def _keep_sending(self) -> None:
        while True:
            if await is_set_within(self._wanted, self._interval_ms):
                await asyncio.sleep(SOON_MS / 1000)
            else:
                # Filter servers receive no heartbeats, but their connections are in use.
                self._connections.retain_routes(
                    self._routes.addresses() | self._routes.filter_servers()
                )
            self._wanted.clear()
            await self.beat()

    # -- sending ----------------------------------------------------------------------------------

    def add_producer_group(self, group: str) -> None:
        """Add `group` to the client's producer groups."""
        self._producer_groups[group] = self._producer_groups.get(group, 0) + 1
        self.soon()

    async def beat(self) -> None:
        """Send a heartbeat to every broker now.

        Failures are logged only, because the next heartbeat repeats everything.
        """
        consumers = tuple(
            ConsumerData(
                group=one.group,
                consume_type=one.consume_type,
                message_model=one.message_model,
                consume_from_where=one.consume_from_where,
                subscriptions=one.subscriptions,
            )
            for one in self._memberships()
        )
        if not consumers and not self._producer_groups:
            return
        body = encode_heartbeat(
            HeartbeatBody(
                client_id=self._client_id,
                producer_groups=tuple(self._producer_groups),
                consumers=consumers,
            )
        )
        addresses = self._routes.addresses()
        self.last = body, sorted(addresses)
        self._reached &= addresses
        self._failed &= addresses
        for gone in self._differing.keys() - addresses:
            del self._differing[gone]
        await asyncio.gather(*(self._send(address, body) for address in self.last[1]))

    async def reach(self, addresses: Iterable[str]) -> None:
        """Send a heartbeat now if one of these brokers has not received one yet.

        One whose last heartbeat failed, and that is not connected, is not waited for again: each
        pull from other brokers would take the whole timeout.
        """
        for address in addresses:
            if address not in self._reached and (
                address not in self._failed or self._connections.is_connected(address)
            ):
                await self.beat()
                return

    async def _send(self, address: str, body: bytes) -> None:
        self._reached.add(address)
        try:
            reply = await self._connections.ask(
                address, HeartBeat(), body=body, timeout_ms=self._timeout_ms
            )
        except KourouError as error:
            self._reached.discard(address)
            self._failed.add(address)
            _log.warning(
                "heartbeat-failed: heartbeat to broker %(address)s failed: %(error)s",
                {"address": address, "error": error},
            )
        else:
            self._failed.discard(address)
            self._warn(address, reply.remark.splitlines())

    def _warn(self, address: str, differing: list[str]) -> None:
        """Log each text about differing subscriptions once, even if several brokers repeat it."""
        known = {text for texts in self._differing.values() for text in texts}
        self._differing[address] = differing
        for text in differing:
            if text not in known:
                _log.warning(
                    "subscriptions-differ: subscriptions differ: %(difference)s",
                    {"difference": text},
                )

    async def leave(self, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Unregister the client from a group at every broker (request code 35).

        This takes a moment at most. A broker that cannot be reached now detects it by the lost
        connection, or by missing heartbeats.
        """
        if producer_group:
            self._producer_groups[producer_group] -= 1
            if self._producer_groups[producer_group]:
                return
            del self._producer_groups[producer_group]
        request = UnregisterClient(
            client_id=self._client_id,
            producer_group=producer_group or None,
            consumer_group=consumer_group or None,
        )
        await asyncio.gather(*(self._unregister(address, request) for address in self._reached))

    async def _unregister(self, address: str, request: UnregisterClient) -> None:
        try:
            await self._connections.ask(address, request, timeout_ms=self._timeout_ms, hurried=True)
        except KourouError as error:
            _log.info(
                "client-unregistration-failed: unregistering from broker %(address)s failed: "
                "%(error)s",
                {"address": address, "error": error},
            )


class Standby:
    """Sends heartbeats from `thread` while the application blocks the `loop` on which it consumes.

    A broker receives nothing from a blocked loop. After some seconds it closes the connection and
    assigns the consumer's queues to others, which process its messages again. So a thread checks
    every two seconds whether the loop runs. If it does not, the thread sends the last heartbeat on
    its own connections; brokers identify a consumer by its client ID, whatever the connection. When
    the loop runs again, the client first sends a heartbeat itself; then the thread's connections
    are closed.
    """

    def __init__(
        self, heartbeats: Heartbeats, loop: asyncio.AbstractEventLoop, thread: Io, dial: Dial
    ) -> None:
        self._heartbeats = heartbeats
        self._loop = loop
        self._thread = thread
        self._dial = dial
        self._turned = False
        self._watch: concurrent.futures.Future[None] | None = None

    def start(self) -> None:
        """Start watching the loop."""
        self._watch = self._thread.submit(self._keep_watching())
        self._watch.add_done_callback(_ended)

    async def close(self) -> None:
        """Stop watching; runs on the loop."""
        watch, self._watch = self._watch, None
        if watch is not None and not self._thread.orphaned:
            watch.cancel()
            await self._thread.run(asyncio.sleep(0))  # by then it has closed its connections

    def _turn(self) -> None:
        self._turned = True

    async def _keep_watching(self) -> None:
        connections: Connections | None = None
        try:
            while True:
                self._turned = False
                try:
                    self._loop.call_soon_threadsafe(self._turn)
                except RuntimeError:  # the loop is closed
                    return
                await asyncio.sleep(LOOP_CHECK_MS / 1_000)
                if not self._turned:
                    if connections is None:
                        _log.warning(
                            "event-loop-blocked: the event loop is blocked: messages wait; a "
                            "thread sends heartbeats"
                        )
                        connections = Connections(self._dial, _ignore)
                    await self._send_last(connections)
                elif connections is not None and await self._client_sends():
                    connections.close()
                    connections = None
        finally:
            if connections is not None:
                connections.close()

    async def _send_last(self, connections: Connections) -> None:
        body, addresses = self._heartbeats.last

        async def send(address: str) -> None:
            try:
                await connections.ask(address, HeartBeat(), body=body, timeout_ms=LOOP_CHECK_MS)
            except KourouError as error:
                _log.warning(
                    "heartbeat-failed: heartbeat to broker %(address)s failed: %(error)s",
                    {"address": address, "error": error},
                )

        await asyncio.gather(*map(send, addresses))

    async def _client_sends(self) -> bool:
        """Return whether the client sent a heartbeat itself; False if its loop is blocked again."""
        beat = asyncio.run_coroutine_threadsafe(self._heartbeats.beat(), self._loop)
        try:
            async with asyncio.timeout(LOOP_CHECK_MS / 1_000):
                await asyncio.wrap_future(beat)
        except TimeoutError:
            return False
        return True


def _ended(watch: concurrent.futures.Future[None]) -> None:
    if not watch.cancelled() and (error := watch.exception()) is not None:
        _log.error("loop-watch-failed: watching the event loop failed unexpectedly", exc_info=error)


def _ignore(_address: str, _frame: Frame) -> None:
    """Ignore frames on these connections: the client's own connections receive them too."""
