"""Registers the broker and its topics with every name server, every 30 seconds and on changes.

The name servers are configured, or polled from an HTTP address server:

    http://rmqAddressServerDomain:8080/rocketmq/rmqAddressServerSubGroup
    http://rmqAddressServerDomain/rocketmq/rmqAddressServerSubGroup         if it names a port

Its response is `host:port;host:port`. If it is unreachable, the broker still serves and uses the
last list that it received.

State: soft. A name server that is unreachable is retried with the next registration; the broker
serves in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kourou.authorization.access_table import AccessAggregate, encode_access
from kourou.client.session.discovery import LIST_REFRESH_MS, zmq_endpoint
from kourou.client.session.name_servers import NameServerList
from kourou.engine.control import ControlState
from kourou.errors import Code, KourouError
from kourou.model.topic import MASTER_ID, DataVersion, Permission, TopicConfig
from kourou.protocol.bodies.registration_body import BrokerRegistration, encode_registration
from kourou.protocol.messages.namesrv import (
    PutUsers,
    RegisterBroker,
    RegisterBrokerResponse,
    UnregisterBroker,
)
from kourou.protocol.wire.remoting import Language
from kourou.transport.curve_keys import ClientCurve
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import ZmqConnection

_log = logging.getLogger("kourou.broker")

CONNECT_WAIT_MS = 3_000
LEAVE_TIMEOUT_MS = 1_000
REMOTING = "remoting://"
"""Address prefix of a RocketMQ name server, which speaks the remoting protocol only."""

RETRY_S = 1.0
"""Retry interval after a failure: name server and broker are often started together."""

_PASSES = (Code.SYSTEM_BUSY, Code.SERVICE_NOT_AVAILABLE)
"""The replies of a name server that has too much to do, or that starts or stops."""


@dataclass(frozen=True, slots=True)
class RegistrationIdentity:
    """The identity to register.

    `broker_addr` is the address for RocketMQ clients, or for Kourou clients if TCP is disabled.
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    listeners: dict[str, str]


Topics = Callable[[], tuple[Sequence[TopicConfig], DataVersion]]
Users = Callable[[], AccessAggregate]
FilterListeners = Callable[[], Sequence[dict[str, str]]]
"""The listeners of each filter server: `transport:listener` -> `host:port`."""


def registered_topics(
    control: ControlState, permission: int
) -> tuple[list[TopicConfig], DataVersion]:
    """Return the topics as registered: no topic allows more than the broker's permission.

    Name servers read the table only if its version has changed. Therefore the version includes that
    of the settings, which contain the broker's permission.
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


def tcp_addresses(listeners: Sequence[dict[str, str]]) -> tuple[str, ...]:
    """Return the filter servers' addresses for RocketMQ clients; others are omitted."""
    found = (one.get("tcp:internal") for one in listeners)
    return tuple(address for address in found if address is not None)


@dataclass(slots=True, eq=False)
class _NameServer:
    """One name server. `due` is set to register immediately.

    `received` is the number of the newest announcement that it has received. `lags`: how often in
    a row it did not take the newest users, for a reason that passes, so what they lost may still
    count there. The pause before each further attempt doubles.
    """

    address: str
    connection: ZmqConnection | RemotingConnection
    due: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    registered: bool = False
    received: int = 0
    lags: int = 0


class Registration:
    """Registers with all name servers of a list; `follow` replaces the list.

    Addresses are `host:port` of ZeroMQ listeners, or `remoting://host:port` of RocketMQ's own name
    servers; the latter receive only the listener in `broker_addr`. `completed` is called with the
    number of an announcement when every reachable name server has it. `epoch` returns the newest
    epoch of the log, `promotion` the epoch of its newest promotion. `fenced` receives a higher
    epoch: on a leader, the name server has refused it; on a follower, a promotion must exceed that
    epoch. `answered` receives each reply: on a follower, it contains the leader's address. While
    `hurry` returns true, registration repeats every second. `users` returns the users to send to
    name servers that take them.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        identity: RegistrationIdentity,
        topics: Topics,
        *,
        period_ms: int,
        timeout_ms: int,
        completed: Callable[[int], None] = lambda number: None,
        filter_listeners: FilterListeners = tuple,
        users: Users = AccessAggregate,
        epoch: Callable[[], int | None] = lambda: None,
        promotion: Callable[[], int | None] = lambda: None,
        fenced: Callable[[int], None] = lambda epoch: None,
        answered: Callable[[RegisterBrokerResponse], None] = lambda answer: None,
        hurry: Callable[[], bool] = lambda: False,
        curve: ClientCurve | None = None,
    ) -> None:
        self._answered, self._hurry = answered, hurry
        self._epoch, self._promotion = epoch, promotion
        self._fenced = fenced
        self._completed = completed
        self._number = self._known_number = 0
        self._first_addresses = addresses
        self._identity = identity
        self._topics = topics
        self._curve = curve
        self._filter_listeners = filter_listeners
        self._users = users
        self._period_s = period_ms / 1_000
        self._timeout_ms = timeout_ms
        self._servers: dict[str, _NameServer] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._decided = asyncio.Event()

    @property
    def registered(self) -> dict[str, bool]:
        """Each name server of the list, and whether this broker is registered with it."""
        return {address: server.registered for address, server in self._servers.items()}

    def start(self) -> None:
        """Start to register, on the running loop."""
        self.follow(self._first_addresses)

    def follow(self, addresses: Sequence[str]) -> None:
        """Register with these servers: start with new ones, unregister from removed ones."""
        for address in [known for known in self._servers if known not in addresses]:
            server = self._servers.pop(address)
            task = asyncio.create_task(self._leave(server))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        self._report()
        for address in addresses:
            if address not in self._servers:
                connection = _dial(address, self._curve)
                server = self._servers[address] = _NameServer(address, connection)
                if isinstance(connection, ZmqConnection):
                    connection.on_connected = partial(self._connected, server)
                server.task = asyncio.create_task(self._keep_registered(server))

    def become(self, identity: RegistrationIdentity) -> None:
        """Register another identity (role) at the same address from now on.

        Name servers drop what they knew of that address.
        """
        self._identity = identity
        self.register_now(0)

    def register_now(self, number: int) -> None:
        """Register now, because topics changed. Calls in one loop iteration are combined.

        Announcements have increasing numbers; 0 requests no notification.
        """
        self._number = max(self._number, number)
        for server in self._servers.values():
            server.due.set()
        self._report()

    def _report(self) -> None:
        """Report the newest announcement that all registered name servers have."""
        received = [server.received for server in self._servers.values() if server.registered]
        number = min(received, default=self._number)
        if number > self._known_number:
            self._known_number = number
            self._completed(number)

    async def first(self, timeout_s: float) -> None:
        """Wait until a name server has registered this broker, or until the timeout.

        It also returns if the broker was fenced, because then it must follow.
        """
        if not self._servers:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._decided.wait()
        except TimeoutError:
            _log.warning(
                "registration-delayed: this broker is not registered with a name server yet; "
                "retrying %(servers)s",
                {"servers": ", ".join(self._servers)},
            )

    def forget(self) -> None:
        """Skip unregistering at the stop."""
        for server in self._servers.values():
            server.registered = False

    async def stop(self) -> None:
        """Unregister from every registered name server, and close."""
        self.follow(())
        await asyncio.gather(*self._leaving)

    def _connected(self, server: _NameServer) -> None:
        """Register again: a name server drops what it received over a connection when that ends."""
        if server.registered:
            server.due.set()

    async def _keep_registered(self, server: _NameServer) -> None:
        while True:
            server.due.clear()
            done = await self._register(server)
            try:
                rests = done and not self._hurry()
                retry_s = min(RETRY_S * 2 ** min(max(server.lags - 1, 0), 10), self._period_s)
                async with asyncio.timeout(self._period_s if rests else retry_s):
                    await server.due.wait()
            except TimeoutError:
                continue

    async def _register(self, server: _NameServer) -> bool:
        """Register once; False if it should be retried soon."""
        me = self._identity
        number = self._number
        topics, version = self._topics()
        filter_servers = self._filter_listeners()
        request = RegisterBroker(
            broker_name=me.broker_name,
            broker_addr=me.broker_addr,
            cluster_name=me.cluster_name,
            ha_server_addr=me.ha_server_addr,
            broker_id=me.broker_id,
            listeners=me.listeners,
            filter_listeners=list(filter_servers) or None,
            epoch=self._epoch(),
            promotion=self._promotion(),
        )
        body = encode_registration(
            BrokerRegistration(tuple(topics), version, tcp_addresses(filter_servers))
        )
        try:
            reply = await server.connection.request(
                request, body=(body,), timeout_ms=self._timeout_ms
            )
        except KourouError as error:
            self._note(server, done=False, why=str(error))
            return False
        done = reply.code == Code.SUCCESS
        if done:
            if isinstance(reply.header, RegisterBrokerResponse):
                await self._send_users(server, reply.header.users)
            if not server.lags:
                server.received = number
        self._note(server, done=done, why=reply.remark)
        if not isinstance(reply.header, RegisterBrokerResponse):
            return done
        if done:
            self._answered(reply.header)
        if reply.header.epoch is None:
            return done and not server.lags
        self._fenced(reply.header.epoch)  # before the broker is reported as ready
        self._decided.set()
        return True  # an immediate retry would change nothing

    async def _send_users(self, server: _NameServer, known: str | None) -> None:
        """Send the users to a name server that has others; `known` is the mark of those it has.

        A follower may lack the newest changes, so it sends its users only if there are none there.
        A failure that passes is repeated soon, and a change is not reported as known before; what
        the name server refuses is repeated with the next registration.
        """
        me, users = self._identity, self._users()
        lagged, server.lags = server.lags, 0
        if known is None or known == users.mark:
            return
        if me.broker_id != MASTER_ID and (known or not users.active):
            return
        request = PutUsers(cluster_name=me.cluster_name, broker_name=me.broker_name)
        try:
            reply = await server.connection.request(
                request, body=(encode_access(users),), timeout_ms=self._timeout_ms
            )
        except KourouError as error:
            server.lags, why = lagged + 1, str(error)
        else:
            server.lags, why = lagged + 1 if reply.code in _PASSES else 0, reply.remark
            if reply.code != Code.SUCCESS and not server.lags:
                _log.warning(
                    "users-refused: name server %(address)s refused the users: %(remark)s",
                    {"address": server.address, "remark": why},
                )
        if server.lags and not lagged:
            _log.warning(
                "users-not-published: name server %(address)s has former users: %(error)s",
                {"address": server.address, "error": why},
            )

    def _note(self, server: _NameServer, *, done: bool, why: str) -> None:
        if done and not server.registered:
            _log.info(
                "broker-registered: registered with name server %(address)s",
                {"address": server.address},
            )
        elif not done and server.registered:
            _log.warning(
                "name-server-silent: name server %(address)s does not respond: %(error)s",
                {"address": server.address, "error": why},
            )
        server.registered = done
        if done:
            self._decided.set()
        self._report()

    async def _leave(self, server: _NameServer) -> None:
        """Stop registering there, and unregister if this broker is registered."""
        if server.task is not None:
            server.task.cancel()
            await asyncio.gather(server.task, return_exceptions=True)
        me = self._identity
        request = UnregisterBroker(
            broker_name=me.broker_name,
            broker_addr=me.broker_addr,
            cluster_name=me.cluster_name,
            broker_id=me.broker_id,
        )
        try:
            if server.registered:
                await server.connection.request(request, timeout_ms=LEAVE_TIMEOUT_MS)
        except KourouError as error:
            _log.warning(
                "unregistration-failed: unregistering from name server %(address)s failed: "
                "%(error)s",
                {"address": server.address, "error": error},
            )
        finally:
            server.connection.close()


def _dial(address: str, curve: ClientCurve | None) -> ZmqConnection | RemotingConnection:
    if address.startswith(REMOTING):
        return RemotingConnection(
            address.removeprefix(REMOTING), connect_wait_ms=CONNECT_WAIT_MS, language=Language.JAVA
        )
    return ZmqConnection(address, connect_wait_ms=CONNECT_WAIT_MS, curve=curve)


# -- address servers -------------------------------------------------------------------------------


ADDRESS_SERVER_PORT = 8080
LIST_REFRESH_S = LIST_REFRESH_MS / 1_000
LIST_RETRY_S = 10.0
"""Retry interval until the first list: without a list, clients cannot find this broker."""


def list_url(domain: str, sub_group: str) -> str:
    """Return the URL of the list on the address server `domain`, which may include a port."""
    port = "" if ":" in domain.rpartition("]")[2] else f":{ADDRESS_SERVER_PORT}"
    return f"http://{domain}{port}/rocketmq/{sub_group}"


class AddressServer:
    """Polls the list at `url`; `follow` is called with each list that could be read.

    The list has `host:port` of the name servers' ZeroMQ listeners. `fetch` and `sleep` can be
    replaced in tests.
    """

    def __init__(
        self,
        url: str,
        follow: Callable[[Sequence[str]], None],
        *,
        fetch: Callable[[str], str] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._list = NameServerList(url, _log, fetch=fetch)
        self._follow = follow
        self._sleep = sleep
        self._polled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start polling on the running loop."""
        self._task = asyncio.create_task(self._poll())

    async def first(self, timeout_s: float) -> None:
        """Wait until the first poll has ended, or until the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._polled.wait()
        except TimeoutError:
            _log.warning(
                "address-server-silent: the address server %(url)s has not returned the name "
                "server list yet",
                {"url": self._list.url},
            )
        if not self._list.addresses:
            _log.warning(
                "name-servers-unknown: clients cannot find this broker through a name server until "
                "the list arrives"
            )

    async def stop(self) -> None:
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _poll(self) -> None:
        while True:
            if await self._list.refresh():
                self._follow(_endpoints(self._list.addresses))
            self._polled.set()
            await self._sleep(LIST_REFRESH_S if self._list.addresses else LIST_RETRY_S)


def _endpoints(addresses: Sequence[str]) -> list[str]:
    """Return ZeroMQ endpoints without duplicates: a server may be listed with both its ports."""
    return list(dict.fromkeys(zmq_endpoint(one).removeprefix("tcp://") for one in addresses))
