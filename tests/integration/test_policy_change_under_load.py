"""A change of rights counts at every door within a second, while hundreds of connections send.

A name server, a broker, a filter server and a console as processes that know one another by CURVE
keys. What is measured is when the last request was sent that was allowed: that does not depend on
how slow replies are.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kourou import Client, ClientSettings
from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.clock import SystemClock
from kourou.errors import Code
from kourou.protocol.messages.filter_server import PutFilter
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic
from kourou.protocol.messages.pulls import PullFlag, PullMessage
from kourou.protocol.request import Request
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.service.processes import Child
from kourou.transport.curve_keys import (
    ClientCurve,
    ServerKeys,
)
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.access import send_to
from kourou_rigs.console import HttpClient
from kourou_rigs.key_folder import KeyFolder

SENDERS = 200
AT_ONCE_MS = 0
WITHIN_MS = 1_000
TIMEOUT_MS = 60_000
LATE_S = 60
HOLD_MS = 30_000
GROUP, NAME, BUSY, QUIET = "till", "all", "orders-busy", "orders-quiet"
ORDERS = f"/v1/topics/{BUSY}/messages"
FILTER = b"def match(message, context):\n    return True\n"
SECRET = "the-secret-of-till"
HOSTS = {"server": "127.0.0.1", "filters": "127.0.0.23"}
USERS = f"""\
[ops]
roles = ["administrator"]
curve-key-files = ["public/ops.key"]

[filters]
node = "DefaultCluster/broker-a/filters"
roles = ["reader"]
curve-key-files = ["public/filters.key"]
allow = ["Sub Topic:*", "Sub Group:*", "Update Filter:*"]

[console]
roles = ["console", "reader"]
curve-key-files = ["public/console.key"]

[load]
curve-key-files = ["public/load.key"]
allow = ["Pub Topic:load"]

[till]
curve-key-files = ["public/till.key"]
secret-file = "till.secret"
allow = [
  "Pub,Sub Topic:orders-*",
  "Sub Group:{GROUP}",
  "Create,Get,Update Filter:{GROUP}/*",
  "Get Cluster:*",
]
"""

pytestmark = pytest.mark.timeout(600)  # processes, and much to do for them

Ask = Callable[[], Awaitable[int]]
"""Sends one request; ALLOWED, REFUSED, or another number for a reply that is neither."""

ALLOWED, REFUSED, NEITHER = 1, 0, 2


class Suite:
    """The cluster, and connections with the keys of its users."""

    def __init__(self, folder: Path) -> None:
        self.clock = SystemClock()
        users = ("server", "filters", "console", "ops", "till", "load")
        self.keys = keys = KeyFolder(folder, *users, hosts=HOSTS)
        files = keys.users(USERS, SECRET)
        server = {**keys.settings("server"), "curveClients": "any"}
        names = {
            "accessKeyFile": files["accessKeyFile"],
            "curveMembers": str(keys.public / "server.key"),
        }
        settings = ClusterSettings(
            namesrv={**server, **names},
            broker={**server, **files},
            filter_servers=1,
            filter_server={
                **keys.settings("filters"),
                "curveClients": "any",
                "bindAddress": HOSTS["filters"],
                "unsafeNoSandbox": "true",
            },
            console={**keys.settings("console"), "signIn": "users", "sampleInterval": "1000"},
            small_segments=True,
        )
        self.cluster = LocalCluster(folder / "cluster", settings)
        assert self.cluster.console is not None
        self.http = HttpClient(str(self.cluster.console.ready["http"]).removeprefix("http://"))

    @property
    def broker(self) -> Child:
        return self.cluster.brokers[0]

    @property
    def filters(self) -> Child:
        return self.cluster.filter_servers[0]

    def client(self, name: str) -> Client:
        settings = ClientSettings(
            curve_key_file=str(self.keys.secret(name)),
            curve_server_key=str(self.keys.public),
        )
        return Client(self.cluster.address, settings=settings)

    @contextmanager
    def zmq(self, child: Child, name: str) -> Iterator[ZmqConnection]:
        curve = ClientCurve(self.keys.pair(name), ServerKeys(self.keys.public))
        connection = ZmqConnection(zmq_address(child).removeprefix("tcp://"), curve=curve)
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def remoting(self, child: Child) -> Iterator[RemotingConnection]:
        connection = RemotingConnection(str(child.ready["tcp"]).removeprefix("tcp://"))
        try:
            yield connection
        finally:
            connection.close()


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    made = Suite(tmp_path_factory.mktemp("suite"))
    try:
        asyncio.run(fill(made))
        yield made
    finally:
        made.cluster.stop()


async def fill(made: Suite) -> None:
    """The topics, a message, and the filter of the group."""
    async with made.client("ops") as mq:
        for topic in (BUSY, QUIET, "load"):
            await mq.admin.topics.create(topic, queues=1)
    with made.zmq(made.broker, "till") as connection:
        put = PutFilter(consumer_group=GROUP, name=NAME, sha256=hashlib.sha256(FILTER).hexdigest())
        for request, body in ((put, FILTER), (send_to(BUSY), b"x")):
            reply = await connection.request(request, body=(body,), timeout_ms=TIMEOUT_MS)
            assert reply.code == Code.SUCCESS, reply.remark


# -- load -----------------------------------------------------------------------------------------


@dataclass
class Load:
    """Connections each of which sends one message after the other."""

    counts: list[int] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep_sending(self, connection: ZmqConnection, number: int) -> None:
        request, body = send_to("load"), (b"x" * 1_024,)
        while True:
            reply = await connection.request(request, body=body, timeout_ms=TIMEOUT_MS)
            assert reply.code == Code.SUCCESS, reply.remark
            self.counts[number] += 1
            self.grown.set()

    async def each_has_sent(self, more: int) -> None:
        """Wait until each connection has sent so many messages more."""
        wanted = [count + more for count in self.counts]
        while any(count < at for count, at in zip(self.counts, wanted, strict=True)):
            self.grown.clear()
            await self.grown.wait()


@asynccontextmanager
async def load(suite: Suite) -> AsyncIterator[Load]:
    """The senders, each of which has sent something already."""
    made = Load([0] * SENDERS)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        connections = [stack.enter_context(suite.zmq(suite.broker, "load")) for _ in range(SENDERS)]
        tasks = [
            group.create_task(made.keep_sending(connection, number))
            for number, connection in enumerate(connections)
        ]
        try:
            await made.each_has_sent(1)
            yield made
        finally:
            for task in tasks:
                task.cancel()


# -- doors ----------------------------------------------------------------------------------------


def by_code(code: int) -> int:
    return {int(Code.SUCCESS): ALLOWED, int(Code.NO_PERMISSION): REFUSED}.get(code, NEITHER)


def by_zmq(connection: ZmqConnection, request: Request, body: bytes = b"") -> Ask:
    async def ask() -> int:
        reply = await connection.request(request, body=(body,), timeout_ms=TIMEOUT_MS)
        return by_code(reply.code)

    return ask


def by_remoting(connection: RemotingConnection, request: Request, body: bytes = b"") -> Ask:
    """Signed by till, as RocketMQ's clients do."""
    fields = {**encode_ext_fields(request), ACCESS_KEY: "till"}
    fields[SIGNATURE] = sign(fields, [body], SECRET)

    async def ask() -> int:
        command = RemotingCommand(request.code, ext_fields=fields)
        reply = await connection.exchange(command, (body,), timeout_ms=TIMEOUT_MS)
        refused = "AclException" in (reply.remark or "")
        return REFUSED if refused else by_code(reply.code)

    return ask


def by_http(suite: Suite, method: str, path: str, headers: Mapping[str, str]) -> Ask:
    body = b"x" if method == "POST" else None

    async def ask() -> int:
        answer = await asyncio.to_thread(
            suite.http.request, method, path, headers=headers, body=body
        )
        return {200: ALLOWED, 401: REFUSED, 403: REFUSED}.get(answer.status, NEITHER)

    return ask


def basic(secret: str = SECRET) -> dict[str, str]:
    text = base64.b64encode(f"till:{secret}".encode()).decode()
    return {"Authorization": f"Basic {text}"}


def a_pull(topic: str, hold_ms: int = 0, *, filtered: bool) -> PullMessage:
    flags = PullFlag.SUBSCRIPTION
    if hold_ms:
        flags |= PullFlag.SUSPEND
    if filtered:
        flags |= PullFlag.CLASS_FILTER
    return PullMessage(
        consumer_group=GROUP,
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=int(flags),
        suspend_timeout_millis=hold_ms,
        subscription=NAME if filtered else "*",
        expression_type="TAG",
        max_msg_bytes=1 << 16,
    )


@dataclass
class Watch:
    """A request that is repeated until it is refused."""

    ask: Ask
    clock: SystemClock
    allowed: int = 0
    #: When the last one that was allowed was sent, monotonic ms.
    last_ms: int = 0
    again: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        while True:
            sent_ms = self.clock.monotonic_ms()
            outcome = await self.ask()
            if outcome == REFUSED and self.allowed:
                return
            if outcome == ALLOWED:
                self.allowed, self.last_ms = self.allowed + 1, sent_ms
                self.again.set()

    async def is_allowed(self, times: int = 3) -> None:
        """Wait until it was allowed some times more."""
        wanted = self.allowed + times
        while self.allowed < wanted:
            self.again.clear()
            await self.again.wait()


async def late_ms(
    suite: Suite, doors: Mapping[str, Ask], change: Callable[[], Awaitable[None]]
) -> dict[str, int]:
    """How long after the reply to a change the last request was sent that was still allowed.

    Not positive: none was.
    """
    watches = {name: Watch(ask, suite.clock) for name, ask in doors.items()}
    async with asyncio.timeout(LATE_S), asyncio.TaskGroup() as group:
        for one in watches.values():
            group.create_task(one.run())
        for one in watches.values():
            await one.is_allowed()
        await change()
        changed_ms = suite.clock.monotonic_ms()
    return {name: one.last_ms - changed_ms for name, one in watches.items()}


# -- changes --------------------------------------------------------------------------------------


async def test_a_policy_that_is_revoked_counts_at_no_door_after_a_second(suite: Suite) -> None:
    async with AsyncExitStack() as stack, load(suite) as senders:
        mq = await stack.enter_async_context(suite.client("ops"))
        broker, names, filters, waits, waits_there = (
            stack.enter_context(suite.zmq(child, "till"))
            for child in (
                *(suite.broker, suite.cluster.namesrv, suite.filters),
                *(suite.broker, suite.filters),
            )
        )
        signed, signed_names = (
            stack.enter_context(suite.remoting(child))
            for child in (suite.broker, suite.cluster.namesrv)
        )
        route = GetRouteInfoByTopic(topic=BUSY)
        doors = {
            "broker, zeromq": by_zmq(broker, send_to(BUSY), b"x"),
            "broker, remoting": by_remoting(signed, send_to(BUSY), b"x"),
            "name server, zeromq": by_zmq(names, route),
            "name server, remoting": by_remoting(signed_names, route),
            "filter server": by_zmq(filters, a_pull(BUSY, filtered=True)),
            "console": by_http(suite, "POST", ORDERS, basic()),
        }
        while await doors["filter server"]() != ALLOWED:  # it has to hear of the filter first
            pass
        waiting = [
            asyncio.ensure_future(
                connection.request(
                    a_pull(QUIET, HOLD_MS, filtered=filtered), timeout_ms=2 * HOLD_MS
                )
            )
            for connection, filtered in ((waits, False), (waits_there, True))
        ]
        before = sum(senders.counts)

        async def change() -> None:
            await senders.each_has_sent(1)
            assert not [one for one in waiting if one.done()], "they wait for a message"
            await mq.admin.users.revoke("till", "Topic:orders-*")

        late = await late_ms(suite, doors, change)
        sent = await mq.send(QUIET, b"secret")
        assert sent.queue.topic == QUIET
        for pull in waiting:
            reply = await pull  # it ended with the change, before the message
            assert reply.code in (Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY)
            assert b"".join(map(bytes, reply.body)) == b""
        assert sum(senders.counts) - before >= SENDERS
        await mq.admin.users.allow("till", "Topic:orders-*", "Pub,Sub")
    assert late.pop("filter server") <= WITHIN_MS
    assert {name: ms for name, ms in late.items() if ms > AT_ONCE_MS} == {}


async def test_what_the_console_decides_itself_changes_within_a_second(suite: Suite) -> None:
    async with AsyncExitStack() as stack, load(suite):
        mq = await stack.enter_async_context(suite.client("ops"))
        users = mq.admin.users

        async def no_figures() -> None:
            await users.revoke("till", "Cluster:*")

        late = await late_ms(
            suite, {"figures": by_http(suite, "GET", "/v1/overview", basic())}, no_figures
        )
        token = await users.create_token("till", scope="writer", days=1)
        bearer = {"Authorization": f"Bearer {token}"}
        [kept] = (await users.tokens("till"))["broker-a"]

        async def no_token() -> None:
            await users.revoke_token("till", kept.id)

        of_token = {
            "sends of a token": by_http(suite, "POST", ORDERS, bearer),
            "a token": by_http(suite, "GET", "/v1/me", bearer),
        }
        late |= await late_ms(suite, of_token, no_token)

        async def another_secret() -> None:
            await users.set("till", secret="another-secret-of-till")

        of_secret = {"a former secret": by_http(suite, "GET", "/v1/me", basic())}
        late |= await late_ms(suite, of_secret, another_secret)
        await users.set("till", secret=SECRET)
        await users.allow("till", "Cluster:*", "Get")
    assert late.pop("sends of a token") <= AT_ONCE_MS
    assert {name: ms for name, ms in late.items() if ms > WITHIN_MS} == {}


async def test_a_disabled_user_gets_nothing_anywhere_after_a_second(suite: Suite) -> None:
    async with AsyncExitStack() as stack, load(suite):
        mq = await stack.enter_async_context(suite.client("ops"))
        broker, names, filters = (
            stack.enter_context(suite.zmq(child, "till"))
            for child in (suite.broker, suite.cluster.namesrv, suite.filters)
        )
        doors = {
            "broker": by_zmq(broker, send_to(BUSY), b"x"),
            "name server": by_zmq(names, GetRouteInfoByTopic(topic=BUSY)),
            "filter server": by_zmq(filters, a_pull(BUSY, filtered=True)),
            "console, sends": by_http(suite, "POST", ORDERS, basic()),
            "console": by_http(suite, "GET", "/v1/me", basic()),
        }

        async def disable() -> None:
            await mq.admin.users.set("till", enabled=False)

        late = await late_ms(suite, doors, disable)
        await mq.admin.users.set("till", enabled=True)
    for name in ("filter server", "console"):
        assert late.pop(name) <= WITHIN_MS, name
    assert {name: ms for name, ms in late.items() if ms > AT_ONCE_MS} == {}
