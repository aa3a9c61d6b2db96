"""Every request of the table, sent by one user of each kind: who is let through.

The copies are in tests/golden/access: requests.txt of a broker's core, name_server.txt of a name
server, through its sockets. A person compares them with the needs of each request; after an
intended change: `pytest tests/golden/test_access_requests.py --rewrite`.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.golden.conftest import GoldenCopies

from kourou.authorization.access_table import encode_access
from kourou.authorization.request_gate import NOT_A_MEMBER
from kourou.errors import Code
from kourou.model.names import HALF_TOPIC, TRACE_TOPIC
from kourou.model.subscription import GroupConfig, Subscription
from kourou.model.topic import DataVersion, MessageQueue, TopicConfig
from kourou.model.transaction import BatchQuery
from kourou.protocol.bodies.config_bodies import encode_data_version, encode_group_config
from kourou.protocol.bodies.heartbeat_body import (
    ConsumerData,
    HeartbeatBody,
    SubscriptionCheck,
    encode_heartbeat,
    encode_subscription_check,
)
from kourou.protocol.bodies.lists_body import LockBatch, encode_lock_batch
from kourou.protocol.bodies.registration_body import BrokerRegistration, encode_registration
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.namesrv import PutUsers, RegisterBroker, UpdateNamesrvConfig
from kourou.protocol.messages.sends import SendMessage, Target
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.request import Answerer, Request, RequestSpec
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.runtime import Reply
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, make_pair
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import ZmqConnection
from kourou_namesrv.app import NamesrvService
from kourou_namesrv.config import NamesrvSettings
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, sample_request, signed_fields

COPY = Path(__file__).parent / "access" / "requests.txt"

WIDTH = 46

HEAD = """\
# Every request of kourou.protocol.table at a broker that has users: who is let through.
#
#   +  handled
#   .  refused, and no handler saw it
#   3  not supported here, whoever sends it
#
# anon: without credentials; wrong: a wrong secret, or an unknown key; none: a user without rights;
# node: a replica of this cluster; then users with one role each, on everything; cons: a console.
# The topic `orders` and the group `g` exist, and the message that a request names is in `orders`.
# Lists are for every user; they have only what the user has a right to.
#
"""

KINDS = {
    "reader": ["reader"],
    "viewer": ["viewer"],
    "writer": ["writer"],
    "oper": ["operator"],
    "author": ["filter-author"],
    "backup": ["backup"],
    "cons": ["console"],
    "admin": ["administrator"],
}

_QUEUE = MessageQueue("orders", "broker-a", 0)
_ORDERS = Subscription("orders")
BODIES = {
    "HEART_BEAT": encode_heartbeat(
        HeartbeatBody("c1", ("p",), (ConsumerData("g", subscriptions=(_ORDERS,)),))
    ),
    "CHECK_CLIENT_CONFIG": encode_subscription_check(SubscriptionCheck("c1", "g", _ORDERS)),
    "LOCK_BATCH_MQ": encode_lock_batch(LockBatch("g", "c1", (_QUEUE,))),
    "UNLOCK_BATCH_MQ": encode_lock_batch(LockBatch("g", "c1", (_QUEUE,))),
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": encode_group_config(GroupConfig("g")),
}

SENDS: Mapping[str, Mapping[str, Any]] = {
    "orders": {},
    "a new topic": {"topic": "new"},
    "the retry topic of g": {"topic": "%RETRY%g"},
    "traces": {"topic": TRACE_TOPIC},
    "half messages": {"topic": HALF_TOPIC},
}
READS: Mapping[str, Mapping[str, Any]] = {
    "orders": {},
    "the retry topic of g": {"topic": "%RETRY%g"},
    "the dead letters of g": {"topic": "%DLQ%g"},
    "half messages": {"topic": HALF_TOPIC},
}
QUERIES: Mapping[str, Mapping[str, Any]] = {
    "of a new query": {"query": "new"},
    "of another user's query": {"query": "of-bob"},
}
VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "SEND_MESSAGE": SENDS,
    "SEND_RECORDS": {
        "orders": {},
        "orders and a new topic": {"targets": [Target("orders", 0), Target("new", 0)]},
    },
    "SEND_REPLY_MESSAGE": {
        "to the reply topic": {"topic": "DefaultCluster_REPLY_TOPIC"},
        "a new topic": {"topic": "new"},
    },
    "PULL_MESSAGE": READS,
    "QUERY_MESSAGE": READS,
    "VIEW_MESSAGE_BY_ID": {"of orders": {}, "unknown": {"offset": 1 << 40}},
    "END_TRANSACTION": {"of orders": {}, "unknown": {"commit_log_offset": 1 << 40}},
    "UPDATE_AND_CREATE_TOPIC": {"orders": {}, "a new topic": {"topic": "new"}},
    "GET_CONSUMER_RUNNING_INFO": {"": {}, "with stacks": {"jstack_enable": True}},
    "GET_HISTORY": {
        "of orders": {"aggregate": "topic/orders"},
        "of a user": {"aggregate": "user/bob"},
        "of all": {"aggregate": ""},
    },
    "GET_STATE_AT": {"of orders": {"aggregate": "topic/orders"}, "of all": {"aggregate": ""}},
    "EXPLAIN_ACCESS": {"of a user": {}, "of oneself": {"username": ""}},
    "CHANGE_FILTER": {"disable": {"action": "disable"}, "delete": {"action": "delete"}},
    "GET_FILTERS": {"one": {}, "all": {"consumer_group": "", "name": ""}},
    "GET_BATCH_STATE": QUERIES,
    "PREPARE_BATCH": QUERIES,
    "DECIDE_BATCH": QUERIES,
    "RESOLVE_BATCH": QUERIES,
    "ABORT_BATCH": QUERIES,
}

_FIELDS: Mapping[str, Any] = {
    "topic": "orders",
    "consumer_group": "g",
    "group": "g",
    "group_name": "g",
    "src_group": "g",
    "dest_group": "g",
    "compare_group": "g",
    "producer_group": "p",
    "username": "bob",
    "subject": "User:bob",
    "access_key": "bob",
    "name": "late",
    "targets": [Target("orders", 0)],
    "jstack_enable": False,
}


def secured() -> tuple[SecuredBroker, int]:
    """A broker with a topic, a group and a message at the returned position; no users yet."""
    broker = SecuredBroker()
    topic = UpdateAndCreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
    broker.engine.control.topics.table[TRACE_TOPIC] = TopicConfig(TRACE_TOPIC)
    broker.engine.control.batches.table["of-bob"] = BatchQuery("broker-a", user="bob")
    group = encode_group_config(GroupConfig("g"))
    send = SendMessage(producer_group="p", topic="orders", queue_id=0, born_timestamp=1)
    for request, body in (
        (topic, b""),
        (UpdateAndCreateSubscriptionGroup(), group),
        (send, b"content"),
    ):
        assert broker.ask(ANYBODY, request, body).code == Code.SUCCESS
    [stored] = broker.engine.stored("orders")
    return broker, stored.position


def senders(broker: SecuredBroker) -> dict[str, Sender]:
    """One sender of each kind, in the order of the columns."""
    root = broker.administrator()
    found = {
        "anon": ANYBODY,
        "wrong": Sender(user="root", secret="not-the-secret", key="." * 40),
        "none": broker.create(root, "none"),
    }
    for name, roles in KINDS.items():
        found[name] = broker.create(root, name, *roles)
    node = {"kind": "node", "node": "DefaultCluster/broker-a/1"}
    found["node"] = broker.create(root, "node", **node)
    return found


def sample(spec: RequestSpec, position: int, fields: Mapping[str, Any]) -> Any:
    """A request of this kind about `orders`, `g` and the message at `position`."""
    known = {
        **_FIELDS,
        "offset": position,
        "commit_log_offset": position,
        "msg_id": encode_offset_id(("127.0.0.1", 10911), position),
        **fields,
    }
    return sample_request(spec, known)


def entries(broker: SecuredBroker) -> list[type]:
    """Replace every handler by one that only notes what it received."""
    entered: list[type] = []

    def handler(_now_ms: int, received: Any, request: Any) -> list[Reply]:
        entered.append(type(request))
        return [Reply(received.to)]

    core: Any = broker.engine.core
    core._handlers = dict.fromkeys(core._handlers, handler)
    return entered


def walk() -> Iterator[str]:
    """A line for each request: who is let through."""
    broker, position = secured()
    who = senders(broker)
    entered = entries(broker)
    yield " " * WIDTH + " ".join(f"{name:>6}" for name in who)
    for code, spec in sorted(REQUESTS.items()):
        for variant, fields in VARIANTS.get(spec.name, {"": {}}).items():
            request = sample(spec, position, fields)
            marks = []
            for sender in who.values():
                signed = Sender(user=sender.user, secret=sender.secret)
                how = signed if spec.remoting else Sender(key=sender.key)
                entered.clear()
                reply = broker.ask(how, request, BODIES.get(spec.name, b""))
                if entered:
                    assert reply.code == Code.SUCCESS
                    marks.append("+")
                elif reply.code == Code.REQUEST_CODE_NOT_SUPPORTED:
                    marks.append("3")
                else:
                    assert reply.code == Code.NO_PERMISSION, (spec.name, reply)
                    marks.append(".")
            name = f"{code} {spec.name}" + (f", {variant}" if variant else "")
            yield f"{name:<{WIDTH}}" + " ".join(f"{mark:>6}" for mark in marks)


def test_each_request_is_for_whom_it_is(golden_copies: GoldenCopies) -> None:
    golden_copies.check(COPY, HEAD + "\n".join(line.rstrip() for line in walk()) + "\n")


# -- name servers ---------------------------------------------------------------------------------

NAME_SERVER_COPY = COPY.with_name("name_server.txt")
NAME_SERVER_HEAD = """\
# Every request of a name server with curveMembers, which has the users of a broker: who is let
# through. Each request goes through a socket.
#
#   +  handled
#   .  refused, and no handler saw it
#   3  not in RocketMQ's protocol
#
# By RocketMQ's protocol: anon, without credentials; wrong, a wrong secret; none, a user without
# rights; then users with one role each, on everything. By CURVE: key, an unknown key; k-oper, the
# key of the operator; member, a key of curveMembers, which only brokers have.
#
"""
ROLES = {
    "none": [],
    "reader": ["reader"],
    "writer": ["writer"],
    "oper": ["operator"],
    "admin": ["administrator"],
}
CURVE_USERS = {"key": "stranger", "k-oper": "oper", "member": "member"}
TIMEOUT_MS = 20_000
REFUSALS = ("AclException", "has no right to", "no credentials", NOT_A_MEMBER)

NAME_SERVER_FIELDS: Mapping[str, Any] = {
    **_FIELDS,
    "broker_name": "broker-a",
    "broker_addr": "127.0.0.1:10911",
    "cluster_name": "DefaultCluster",
    "cluster": "DefaultCluster",
    "broker_id": 0,
    "namespace": "N",
    "key": "k",
    "value": "v",
}
VALUES_OF: Mapping[str, Mapping[str, Any]] = {
    "of a topic's order": {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"},
    "of operators": {},
    "of Kourou": {"namespace": "KOUROU_PROMOTED", "key": "DefaultCluster/broker-a"},
}
NAME_SERVER_VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "PUT_KV_CONFIG": VALUES_OF,
    "GET_KV_CONFIG": VALUES_OF,
    "DELETE_KV_CONFIG": VALUES_OF,
    "GET_ROUTEINFO_BY_TOPIC": {
        "orders": {},
        "new topics": {"topic": "TBW102"},
        "traces": {"topic": TRACE_TOPIC},
        "half messages": {"topic": HALF_TOPIC},
    },
}


class NameServer:
    """A name server with the users of a broker; requests go through its sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("namesrv", *CURVE_USERS.values()):
            make_pair(folder / name, name, ["127.0.0.1"] if name == "namesrv" else [])
        (folder / "access.keys").touch(0o600)
        (folder / "access.keys").write_text(f"k1:{base64.b64encode(bytes(range(32))).decode()}\n")
        self.broker = SecuredBroker()
        root = self.broker.administrator()
        self.senders = {"anon": ANYBODY, "wrong": Sender(user="root", secret="not-the-secret")}
        for name, roles in ROLES.items():
            keys = [self.pair(name).pair.public] if name in CURVE_USERS.values() else []
            self.senders[name] = self.broker.create(root, name, *roles, curveKeys=keys)
        self._wires: dict[str, ZmqConnection] = {}
        self._remoting: RemotingConnection

    def pair(self, name: str) -> PairFile:
        return PairFile(self.folder / name / f"{name}.key_secret")

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        settings = NamesrvSettings(
            listen_port=0,
            admin_enabled=False,
            kv_config_path=self.folder / "kv" / "kvConfig.json",
            curve_key_file=self.folder / "namesrv" / "namesrv.key_secret",
            curve_clients="any",
            curve_members=str(self.folder / "member" / "member.key"),
            access_key_file=self.folder / "access.keys",
        )
        service = NamesrvService(settings)
        await service.recover(_unexpected)
        listening = await service.serve()
        servers = ServerKeys(self.folder / "namesrv" / "namesrv.key")
        for column, name in CURVE_USERS.items():
            curve = ClientCurve(self.pair(name), servers)
            self._wires[column] = ZmqConnection(
                listening["zmq"].removeprefix("tcp://"), curve=curve
            )
        self._remoting = RemotingConnection(listening["tcp"].removeprefix("tcp://"))
        try:
            yield
        finally:
            for wire in self._wires.values():
                wire.close()
            self._remoting.close()
            await service.drain()
            await service.stop()

    async def ask(self, column: str, request: Request, body: bytes = b"") -> tuple[int, str]:
        """Code and remark of the reply to a request, sent as the column says."""
        if column in self._wires:
            reply = await self._wires[column].request(request, body=(body,), timeout_ms=TIMEOUT_MS)
            return reply.code, reply.remark
        sender = self.senders[column]
        fields = dict(encode_ext_fields(request))
        if sender.secret:
            fields = {
                key: value or "" for key, value in signed_fields(sender, request, body).items()
            }
        command = RemotingCommand(request.code, ext_fields=fields)
        answer = await self._remoting.exchange(command, (body,), timeout_ms=TIMEOUT_MS)
        return answer.code, answer.remark or ""


def _unexpected(error: BaseException) -> None:
    raise AssertionError from error


async def walk_name_server(server: NameServer) -> AsyncIterator[str]:
    """A line for each request of a name server: who is let through."""
    columns = [*server.senders, *CURVE_USERS]
    registration = BrokerRegistration((TopicConfig("orders"),), DataVersion(1, 1))
    bodies = {
        "REGISTER_BROKER": encode_registration(registration),
        "QUERY_DATA_VERSION": encode_data_version(DataVersion(1, 1)),
        "PUT_USERS": encode_access(server.broker.access),
        "UPDATE_NAMESRV_CONFIG": b"kvConfigPath=/etc/passwd\n",
    }
    for kind in (RegisterBroker, PutUsers):
        spec = REQUESTS[kind.code]
        request = sample_request(spec, NAME_SERVER_FIELDS)
        assert (await server.ask("member", request, bodies[spec.name]))[0] == Code.SUCCESS
    yield " " * WIDTH + " ".join(f"{name:>6}" for name in columns)
    for code, spec in sorted(REQUESTS.items()):
        if Answerer.NAMESRV not in spec.answered_by:
            continue
        for variant, fields in NAME_SERVER_VARIANTS.get(spec.name, {"": {}}).items():
            request = sample_request(spec, {**NAME_SERVER_FIELDS, **fields})
            marks = []
            for column in columns:
                answer = await server.ask(column, request, bodies.get(spec.name, b""))
                marks.append(_mark(*answer))
            name = f"{code} {spec.name}" + (f", {variant}" if variant else "")
            yield f"{name:<{WIDTH}}" + " ".join(f"{mark:>6}" for mark in marks)


def _mark(code: int, remark: str) -> str:
    if code == Code.REQUEST_CODE_NOT_SUPPORTED:
        return "3"
    return "." if code and any(text in remark for text in REFUSALS) else "+"


async def test_each_request_of_a_name_server_is_for_whom_it_is(
    golden_copies: GoldenCopies, tmp_path: Path
) -> None:
    server = NameServer(tmp_path)
    async with server.started():
        lines = [line.rstrip() async for line in walk_name_server(server)]
        changed = await server.ask("admin", UpdateNamesrvConfig(), b"kvConfigPath=/etc/passwd\n")
    golden_copies.check(NAME_SERVER_COPY, NAME_SERVER_HEAD + "\n".join(lines) + "\n")
    assert changed[0] == Code.NO_PERMISSION, "no setting is for requests"
    refused = (tmp_path / "kv" / "audit" / "refused-00000001.jsonl").read_bytes()
    first = msgspec.json.decode(refused.splitlines()[0])
    assert first["user"] == "anonymous"
    assert first["request"] == "PutKvConfig"
