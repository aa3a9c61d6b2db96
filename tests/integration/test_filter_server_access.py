"""A filter server with a broker that has users: each client may do through it what it may do there.

A broker and a filter server as processes, which know one another by CURVE keys. The filter server
may read all topics; its clients may not, whoever has a key, or connects to its RocketMQ port.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.errors import Code
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change
from kourou.protocol.messages.access import AuthUpdateUser
from kourou.protocol.messages.filter_server import (
    GetFilters,
    PutFilter,
    RegisterMessageFilterClass,
    TryFilter,
)
from kourou.protocol.messages.pulls import PullFlag, PullMessage, QueryConsumerOffset
from kourou.protocol.record.layout import masked_crc
from kourou.protocol.request import Request
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.service.lifecycle import OPEN
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.service.processes import Child
from kourou.transport.curve_keys import (
    ClientCurve,
    ServerKeys,
)
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import WireReply, ZmqConnection
from kourou_rigs.access import send_to
from kourou_rigs.key_folder import KeyFolder
from kourou_rigs.records import decode_many

GROUP, NAME, TOPIC = "till", "odd", "numbers"
ODD = b"def match(message, context):\n    return int(message.body) % 2 == 1\n"
ALL = b"def match(message, context):\n    return True\n"
HOSTS = {"server": "127.0.0.1", "filters": "127.0.0.23"}
SECRET = "the-secret-of-till"
USERS = f"""\
[ops]
roles = ["administrator"]
curve-key-files = ["public/ops.key"]

[filters]
node = "DefaultCluster/broker-a/filters"
roles = ["reader"]
curve-key-files = ["public/filters.key"]
allow = ["Sub Topic:*", "Sub Group:*", "Update Filter:*"]

[till]
curve-key-files = ["public/till.key"]
secret-file = "till.secret"
allow = ["Sub Topic:{TOPIC}", "Sub Group:{GROUP}", "Create,Get,Update Filter:{GROUP}/*"]

[eve]
curve-key-files = ["public/eve.key"]

[console]
roles = ["console"]
curve-key-files = ["public/console.key"]
"""
TIMEOUT_MS = 20_000
STOPPING_S = 60


class Guarded:
    """The cluster, and connections with the keys of its users."""

    def __init__(self, folder: Path) -> None:
        users = ("server", "filters", "ops", "till", "eve", "console", "stranger")
        self.keys = keys = KeyFolder(folder, *users, hosts=HOSTS)
        server = {**keys.settings("server"), "curveClients": "any"}
        broker = {
            **keys.users(USERS, SECRET),
            "tcpEnable": "false",
            "defaultTopicQueueNums": "1",
        }
        settings = ClusterSettings(
            namesrv={**server, "tcpEnable": "false"},
            broker={**server, **broker},
            filter_servers=1,
            filter_server={
                **keys.settings("filters"),
                "curveClients": "any",
                "bindAddress": HOSTS["filters"],
                "unsafeNoSandbox": "true",
            },
            small_segments=True,
        )
        self.cluster = LocalCluster(folder / "cluster", settings)

    @property
    def broker(self) -> Child:
        return self.cluster.brokers[0]

    @property
    def filters(self) -> Child:
        return self.cluster.filter_servers[0]

    @asynccontextmanager
    async def connected(
        self, child: Child, name: str, on_behalf_of: str = ""
    ) -> AsyncIterator[ZmqConnection]:
        curve = ClientCurve(self.keys.pair(name), ServerKeys(self.keys.public))
        address = zmq_address(child).removeprefix("tcp://")
        connection = ZmqConnection(address, curve=curve, on_behalf_of=on_behalf_of)
        try:
            yield connection
        finally:
            connection.close()

    async def ask(self, child: Child, name: str, request: Request, body: bytes = b"") -> WireReply:
        async with self.connected(child, name) as connection:
            return await connection.request(request, body=(body,), timeout_ms=TIMEOUT_MS)

    async def by_remoting(self, request: Request, secret: str = "") -> RemotingCommand:
        """The filter server's reply in RocketMQ's protocol, in clear text."""
        fields = dict(encode_ext_fields(request))
        if secret:
            fields[ACCESS_KEY] = "till"
            fields[SIGNATURE] = sign(fields, [], secret)
        connection = RemotingConnection(str(self.filters.ready["tcp"]))
        try:
            command = RemotingCommand(request.code, ext_fields=fields)
            return await connection.exchange(command, timeout_ms=TIMEOUT_MS)
        finally:
            connection.close()

    async def committed(self) -> int | None:
        """How far the group has got."""
        request = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0)
        reply = await self.ask(self.broker, "ops", request)
        return None if reply.header is None else reply.header.offset  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    try:
        asyncio.run(fill(made))
        yield made
    finally:
        made.cluster.stop()


async def fill(made: Guarded) -> None:
    """Ten messages, and the filter of the group."""
    for number in range(10):
        sent = await made.ask(made.broker, "ops", send_to(TOPIC), b"%d" % number)
        assert sent.code == Code.SUCCESS, sent.remark
    put = PutFilter(consumer_group=GROUP, name=NAME, sha256=hashlib.sha256(ODD).hexdigest())
    stored = await made.ask(made.broker, "till", put, ODD)
    assert stored.code == Code.SUCCESS, stored.remark


def a_pull(offset: int = 0, commit: int | None = None) -> PullMessage:
    flags = PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION
    if commit is not None:
        flags |= PullFlag.COMMIT_OFFSET
    return PullMessage(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=int(flags),
        commit_offset=commit or 0,
        suspend_timeout_millis=0,
        subscription=NAME,
        expression_type="TAG",
        max_msg_bytes=1 << 20,
    )


async def pulled(made: Guarded, request: PullMessage, *, until: Code) -> WireReply:
    """Pull with the key of till until the reply has this code: news are under way."""
    async with (
        asyncio.timeout(STOPPING_S),
        made.connected(made.filters, "till") as connection,
    ):
        while True:
            reply = await connection.request(request, timeout_ms=TIMEOUT_MS)
            if reply.code == until:
                return reply


def numbers(body: bytes) -> list[int]:
    return [int(one.body) for one in decode_many(body)]


def test_only_who_decides_nothing_says_so(guarded: Guarded) -> None:
    """The name server has no curveMembers."""
    assert [OPEN in one.ready for one in guarded.cluster.all] == [True, False, False]
    assert guarded.cluster.namesrv.ready[OPEN] == "curveMembers is not set"


async def test_a_key_gets_what_its_user_has_a_right_to(guarded: Guarded) -> None:
    found = await pulled(guarded, a_pull(), until=Code.SUCCESS)
    assert numbers(b"".join(map(bytes, found.body))) == [1, 3, 5, 7, 9]
    before = await guarded.committed()
    upload = RegisterMessageFilterClass(
        consumer_group=GROUP, topic=TOPIC, class_name=NAME, class_crc=masked_crc(ALL)
    )
    trial = TryFilter(consumer_group=GROUP, name=NAME, topic=TOPIC, count=3)
    for name in ("eve", "stranger"):
        for request, body in (
            (a_pull(), b""),
            (a_pull(commit=9), b""),
            (upload, ALL),
            (trial, ALL),
            (trial, b""),
        ):
            refused = await guarded.ask(guarded.filters, name, request, body)
            assert (refused.code, bool(refused.body)) == (Code.NO_PERMISSION, False)
            assert "has no right to" in refused.remark
    assert await guarded.committed() == before, "nobody moved the group's offset"
    kept = await guarded.ask(guarded.broker, "ops", GetFilters(consumer_group=GROUP, name=NAME))
    assert hashlib.sha256(ALL).hexdigest().encode() not in b"".join(map(bytes, kept.body))
    tried = await guarded.ask(guarded.filters, "till", trial, ALL)
    assert tried.code == Code.SUCCESS, tried.remark
    other = structs.replace(a_pull(), consumer_group="others")
    assert (await guarded.ask(guarded.filters, "till", other)).code == Code.NO_PERMISSION
    await guarded.ask(guarded.filters, "till", a_pull(10, commit=4))
    assert await guarded.committed() == 4


async def test_a_signature_gets_what_its_user_has_a_right_to(guarded: Guarded) -> None:
    await pulled(guarded, a_pull(), until=Code.SUCCESS)
    found = await guarded.by_remoting(a_pull(), SECRET)
    assert found.code == Code.SUCCESS, found.remark
    assert numbers(bytes(found.body)) == [1, 3, 5, 7, 9]
    for secret in ("", "guessed"):
        refused = await guarded.by_remoting(a_pull(), secret)
        assert refused.code == Code.SYSTEM_ERROR
        assert "AclException" in (refused.remark or "")
        assert not refused.body


async def test_a_console_pulls_with_the_rights_of_its_user(guarded: Guarded) -> None:
    await pulled(guarded, a_pull(), until=Code.SUCCESS)
    for name, user, code in (
        ("console", "till", Code.SUCCESS),
        ("console", "eve", Code.NO_PERMISSION),
        ("console", "", Code.NO_PERMISSION),
        ("eve", "till", Code.NO_PERMISSION),
    ):
        async with guarded.connected(guarded.filters, name, user) as connection:
            reply = await connection.request(a_pull(), timeout_ms=TIMEOUT_MS)
        assert (reply.code, bool(reply.body)) == (code, code == Code.SUCCESS), (name, user)


async def test_what_is_revoked_ends_and_without_the_broker_nothing_goes(guarded: Guarded) -> None:
    await pulled(guarded, a_pull(), until=Code.SUCCESS)

    async def enable(enabled: bool) -> None:
        change = encode_user_change(UserChange(enabled=enabled))
        reply = await guarded.ask(guarded.broker, "ops", AuthUpdateUser(username="till"), change)
        assert reply.code == Code.SUCCESS, reply.remark

    await enable(False)
    refused = await pulled(guarded, a_pull(), until=Code.NO_PERMISSION)
    assert refused.remark == "the user is disabled"
    await enable(True)
    await pulled(guarded, a_pull(), until=Code.SUCCESS)
    guarded.broker.kill()
    away = await pulled(guarded, a_pull(), until=Code.SERVICE_NOT_AVAILABLE)
    assert not away.body
    guarded.cluster.start_broker(0).wait_for_ready()
    await pulled(guarded, a_pull(), until=Code.SUCCESS)
