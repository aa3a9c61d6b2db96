"""Telling every name server which topics are here, every 30 seconds and whenever they change.

Lives here: one connection and one task per name server; registering, and leaving.
May not live here: what a name server does with it.

State: soft. A name server that cannot be reached is tried again with the next registration; the
broker serves all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kourou.engine.control import ControlState
from kourou.errors import Code, KourouError
from kourou.model.permission import Permission
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.bodies import BrokerRegistration, encode_registration
from kourou.protocol.messages.namesrv import RegisterBroker, UnregisterBroker
from kourou.transport.zmq_client import ZmqConnection

_log = logging.getLogger("kourou.broker")

CONNECT_WAIT_MS = 3_000
RETRY_S = 1.0
"""After a failed registration: name server and broker are often started together."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who registers. `broker_addr` is what clients of this carrier dial."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    listeners: dict[str, str]


Topics = Callable[[], tuple[Sequence[TopicConfig], DataVersion]]


def told_topics(control: ControlState, permission: int) -> tuple[list[TopicConfig], DataVersion]:
    """The topics as name servers are told of them: none allows more than the broker does.

    Name servers look at the table when its version is another one, so that of the settings, which
    the broker's permission is one of, counts too.
    """
    topics, settings = control.topics.version, control.settings.version
    version = DataVersion(
        max(topics.timestamp, settings.timestamp), topics.counter + settings.counter
    )
    allowed = permission | int(Permission.INHERIT)
    return [
        topic if topic.perm & allowed == topic.perm else replace(topic, perm=topic.perm & allowed)
        for topic in control.topics
    ], version


class Registration:
    """Registers with all name servers of a list."""

    def __init__(
        self,
        addresses: Sequence[str],
        identity: Identity,
        topics: Topics,
        *,
        period_ms: int,
        timeout_ms: int,
    ) -> None:
        self._addresses = addresses
        self._identity = identity
        self._topics = topics
        self._period_s = period_ms / 1_000
        self._timeout_ms = timeout_ms
        self._connections: dict[str, ZmqConnection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted: dict[str, asyncio.Event] = {}
        self._known = asyncio.Event()
        self.registered: dict[str, bool] = dict.fromkeys(addresses, False)

    def start(self) -> None:
        """Begin to register, on the running loop."""
        for address in self._addresses:
            self._connections[address] = ZmqConnection(address, connect_wait_ms=CONNECT_WAIT_MS)
            self._wanted[address] = asyncio.Event()
            self._tasks.append(asyncio.create_task(self._keep_registered(address)))

    def announce(self) -> None:
        """Topics changed: register now. Announcements of one turn travel together."""
        for wanted in self._wanted.values():
            wanted.set()

    async def first(self, timeout_s: float) -> None:
        """Wait until some name server knows this broker, or the time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._known.wait()
        except TimeoutError:
            _log.warning(
                "no name server knows this broker yet; it goes on trying %s",
                ", ".join(self._addresses),
            )

    async def stop(self) -> None:
        """Leave every name server that can be reached, and close."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._leave(address) for address in self._addresses))
        for connection in self._connections.values():
            connection.close()
        self._tasks.clear()
        self._connections.clear()

    async def _keep_registered(self, address: str) -> None:
        wanted = self._wanted[address]
        while True:
            wanted.clear()
            done = await self._register(address)
            try:
                async with asyncio.timeout(self._period_s if done else RETRY_S):
                    await wanted.wait()
            except TimeoutError:
                continue

    async def _register(self, address: str) -> bool:
        me = self._identity
        topics, version = self._topics()
        request = RegisterBroker(
            broker_name=me.broker_name,
            broker_addr=me.broker_addr,
            cluster_name=me.cluster_name,
            ha_server_addr=me.ha_server_addr,
            broker_id=me.broker_id,
            listeners=me.listeners,
        )
        body = encode_registration(BrokerRegistration(tuple(topics), version))
        try:
            reply = await self._connections[address].request(
                request, body=(body,), timeout_ms=self._timeout_ms
            )
        except KourouError as error:
            self._note(address, done=False, why=str(error))
            return False
        done = reply.code == Code.SUCCESS
        self._note(address, done=done, why=reply.remark)
        return done

    def _note(self, address: str, *, done: bool, why: str) -> None:
        if done and not self.registered[address]:
            _log.info("registered with the name server %s", address)
        elif not done and self.registered[address]:
            _log.warning("the name server %s does not answer: %s", address, why)
        self.registered[address] = done
        if done:
            self._known.set()

    async def _leave(self, address: str) -> None:
        if not self.registered[address]:
            return
        self.registered[address] = False
        me = self._identity
        request = UnregisterBroker(
            broker_name=me.broker_name,
            broker_addr=me.broker_addr,
            cluster_name=me.cluster_name,
            broker_id=me.broker_id,
        )
        try:
            await self._connections[address].request(request, timeout_ms=1_000)
        except KourouError as error:
            _log.warning("could not leave the name server %s: %s", address, error)
