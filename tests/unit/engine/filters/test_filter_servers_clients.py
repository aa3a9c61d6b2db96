"""CHECK_ACCESS: a filter server's client is decided as if it had sent its request to the broker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from kourou.access.model import Effect
from kourou.authorization.audit import AccessDecided
from kourou.errors import Code
from kourou.model.subscription import GroupConfig
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.messages.access import AuthUpdateUser, SetAccessMode
from kourou.protocol.messages.filter_server import (
    CheckAccess,
    CheckAccessResponse,
    GetFilterStatistics,
    NotifyFiltersChanged,
    RegisterFilterServer,
    RegisterMessageFilterClass,
    TryFilter,
)
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.pulls import PullFlag
from kourou.protocol.messages.quotas import FlowControlled, SetQuota
from kourou.protocol.request import Request
from kourou.protocol.wire.remoting import VERSION_4_9_8, VERSION_5_0_0
from kourou.runtime import Notify, Peer, Reply
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, signed_fields
from kourou_rigs.engine import header_of
from kourou_rigs.filter_bench import a_pull

NODE = {"kind": "node", "node": "DefaultCluster/broker-a/fs-1"}
PULL = a_pull(consumer_group="billing", topic="orders")
UPLOAD = RegisterMessageFilterClass(
    consumer_group="billing", topic="orders", class_name="late", class_crc=1
)
TRIAL = TryFilter(consumer_group="billing", name="late", topic="orders")
SOURCE = b"def match(message, context):\n    return True\n"
ALLOWED, UNDECIDED = CheckAccessResponse(), CheckAccessResponse(undecided=True)


@dataclass
class FilterServer:
    """A filter server as a client of its broker: it has registered over its connection."""

    broker: SecuredBroker
    sender: Sender
    peer: Peer

    def asks(self, client: Sender, request: Request, *body: bytes, **fields: Any) -> Reply:
        """The broker's reply about the request of a client."""
        signed = signed_fields(client, request, *body) if client.secret else None
        given: dict[str, Any] = {
            "request_code": request.code,
            "header": msgspec.msgpack.encode(request),
            "protocol": "tcp" if client.secret or client.subject else "zmq",
            "address": client.source,
            "version": client.version,
            "key": client.key,
            "subject": client.subject,
            "signed": signed,
        }
        question = CheckAccess(**(given | fields))
        received = self.broker.received(self.sender, question, *body, over=self.peer)
        [reply] = self.broker.give(received)
        assert reply is not None
        return reply

    def says(self, client: Sender, request: Request, *body: bytes, **fields: Any) -> Any:
        """The decision about it."""
        reply = self.asks(client, request, *body, **fields)
        assert reply.code == Code.SUCCESS, reply.remark
        return header_of(reply)


def connected(broker: SecuredBroker, sender: Sender) -> FilterServer:
    """A filter server that registers."""
    register = RegisterFilterServer(filter_server_addr="f1:1", listeners={"zmq:internal": "f1:1"})
    received = broker.received(sender, register)
    [reply] = broker.give(received)
    assert reply is not None
    assert reply.code == Code.SUCCESS, reply.remark
    return FilterServer(broker, sender, received.to.peer)


def zmq(sender: Sender) -> Sender:
    """The same by its CURVE key alone."""
    return replace(sender, secret="", protocol="zmq")


@pytest.fixture
def server(broker: SecuredBroker, root: Sender) -> FilterServer:
    """With the rights that deploy/users.toml gives it."""
    made = zmq(broker.create(root, "fs-1", "reader", **NODE))
    for resource, action in (("Topic:*", "Sub"), ("Group:*", "Sub"), ("Filter:*", "Update")):
        assert broker.allow(root, "fs-1", resource, action).code == Code.SUCCESS
    return connected(broker, made)


@pytest.fixture
def billing(broker: SecuredBroker, root: Sender) -> Sender:
    """A user who may consume one topic with one group."""
    made = broker.create(root, "billing", certificateSubjects=["CN=billing"])
    for resource in ("Topic:orders", "Group:billing"):
        assert broker.allow(root, "billing", resource, "Sub").code == Code.SUCCESS
    return made


# -- who the client is -----------------------------------------------------------------------------


def test_a_client_is_decided_by_its_own_rights(server: FilterServer, billing: Sender) -> None:
    by_key, by_signature = zmq(billing), replace(billing, key="")
    for client in (by_key, by_signature, Sender(subject="CN=billing")):
        assert server.says(client, PULL) == ALLOWED
        for foreign in ({"topic": "secret"}, {"consumer_group": "others"}):
            refused = server.says(client, msgspec.structs.replace(PULL, **foreign))
            assert refused.refusal in (Code.NO_PERMISSION, Code.SYSTEM_ERROR)
            assert "user billing has no right to Sub on" in refused.text
    for stranger in (
        Sender(protocol="zmq"),
        Sender(key="x" * 40),
        Sender(subject="CN=other"),
        Sender(user="billing", secret="guessed"),
        Sender(user="stranger", secret="whatever"),
    ):
        assert server.says(stranger, PULL).refusal


def test_a_signature_is_that_of_the_request_and_of_its_body(
    server: FilterServer, billing: Sender, root: Sender
) -> None:
    admin = replace(root, key="")
    assert server.says(admin, UPLOAD, SOURCE) == ALLOWED
    other = signed_fields(admin, UPLOAD, SOURCE + b"#")
    assert "Check signature failed" in server.says(admin, UPLOAD, SOURCE, signed=other).text
    assert "Check signature failed" in server.says(admin, PULL, signed={}).text
    mixed = replace(admin, subject="CN=billing")
    assert "does not belong to user root" in server.says(mixed, PULL).text
    assert billing.user


def test_a_refusal_is_what_the_client_understands(server: FilterServer, billing: Sender) -> None:
    secret = msgspec.structs.replace(PULL, topic="secret")
    old, new = replace(billing, version=VERSION_4_9_8), replace(billing, version=VERSION_5_0_0)
    assert server.says(new, secret).refusal == Code.NO_PERMISSION
    refused = server.says(old, secret)
    assert refused.refusal == Code.SYSTEM_ERROR
    assert refused.text.startswith("org.apache.rocketmq.acl.common.AclException: user billing")


def test_policies_for_networks_are_about_the_client(
    broker: SecuredBroker, server: FilterServer, root: Sender, billing: Sender
) -> None:
    broker.allow(root, "billing", "Topic:secret", "Sub", networks=("10.1.0.0/16",))
    secret = msgspec.structs.replace(PULL, topic="secret")
    assert server.says(replace(billing, source="10.1.2.3"), secret) == ALLOWED
    assert server.says(replace(billing, source="10.2.2.3"), secret).refusal


def test_a_console_names_its_user_and_no_one_else_does(
    broker: SecuredBroker, server: FilterServer, root: Sender, billing: Sender
) -> None:
    console = zmq(broker.create(root, "console-1", "console"))
    assert server.says(console, PULL).refusal
    assert server.says(console, PULL, on_behalf_of="billing") == ALLOWED
    named = server.says(zmq(root), PULL, on_behalf_of="billing")
    assert named.text == "user root may not send on behalf of user billing"


def test_what_is_revoked_is_refused_at_once(
    broker: SecuredBroker, server: FilterServer, root: Sender, billing: Sender
) -> None:
    assert server.says(zmq(billing), PULL) == ALLOWED
    off = msgspec.json.encode({"userStatus": "disable"})
    assert broker.ask(root, AuthUpdateUser(username="billing"), off).code == Code.SUCCESS
    assert server.says(zmq(billing), PULL).refusal == Code.NO_PERMISSION


# -- requests --------------------------------------------------------------------------------------


def test_a_filter_server_is_notified_of_changed_rights_before_its_pulls_end(
    broker: SecuredBroker, server: FilterServer, root: Sender, billing: Sender
) -> None:
    """So what it asks again, or lets wait again, is decided by the new rights."""
    flags = int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
    waits = msgspec.structs.replace(
        PULL, sys_flag=flags, suspend_timeout_millis=60_000, subscription="*"
    )
    broker.engine.advance(100)
    pull = broker.received(server.sender, waits, over=server.peer)
    assert broker.give(pull) == [None]
    broker.engine.effects.clear()
    broker.engine.advance(100)
    assert not [one for one in broker.engine.effects if isinstance(one, Notify | Reply)]
    denied = broker.allow(root, "billing", "Topic:orders", "Sub", effect=Effect.DENY)
    assert denied.code == Code.SUCCESS
    broker.engine.effects.clear()
    broker.engine.advance(100)
    notice, ended = (one for one in broker.engine.effects if isinstance(one, Notify | Reply))
    news = NotifyFiltersChanged(filters_version=0, rights_changed=True)
    assert notice == Notify(server.peer, news)
    assert (ended.to, ended.code) == (pull.to, Code.PULL_NOT_FOUND)


def test_uploads_and_trials_need_rights_to_the_filter(
    broker: SecuredBroker, server: FilterServer, root: Sender, billing: Sender
) -> None:
    client = zmq(billing)
    for request in (UPLOAD, TRIAL):
        assert "Filter:billing/late" in server.says(client, request, SOURCE).text
    broker.allow(root, "billing", "Filter:billing/*", "Get")
    assert server.says(client, TRIAL) == ALLOWED, "of a stored version"
    assert server.says(client, TRIAL, SOURCE).refusal
    broker.allow(root, "billing", "Filter:billing/*", "Create")
    assert server.says(client, UPLOAD, SOURCE) == ALLOWED
    assert server.says(client, TRIAL, SOURCE) == ALLOWED
    foreign = msgspec.structs.replace(TRIAL, topic="secret")
    assert "Sub on Topic:secret" in server.says(client, foreign, SOURCE).text


def test_figures_need_get_and_only_nodes_bring_news(
    server: FilterServer, billing: Sender, root: Sender
) -> None:
    assert server.says(zmq(billing), GetFilterStatistics()).refusal
    assert server.says(zmq(root), GetFilterStatistics()) == ALLOWED
    news = NotifyFiltersChanged(filters_version=1)
    assert "only a node" in server.says(zmq(root), news).text


def test_the_audit_names_the_client(
    broker: SecuredBroker, server: FilterServer, root: Sender, billing: Sender
) -> None:
    server.says(replace(zmq(root), source="10.9.9.9"), UPLOAD, SOURCE)
    server.says(replace(zmq(billing), source="10.8.8.8"), UPLOAD, SOURCE)
    noted = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
    assert [
        (one.user, one.source, one.request, one.allowed, one.handled) for one in noted[-2:]
    ] == [
        ("root", "10.9.9.9", "RegisterMessageFilterClass", True, True),
        ("billing", "10.8.8.8", "RegisterMessageFilterClass", False, False),
    ]


def test_a_client_is_charged_for_its_requests(
    broker: SecuredBroker, server: FilterServer, root: Sender, billing: Sender
) -> None:
    quota = SetQuota(kind="user", name="billing", requests=10)
    assert broker.ask(root, quota).code == Code.SUCCESS
    client = zmq(billing)
    for _ in range(10):
        assert server.says(client, PULL) == ALLOWED
    question = CheckAccess(
        request_code=PULL.code,
        header=msgspec.msgpack.encode(PULL),
        protocol="zmq",
        address="127.0.0.1",
        version=VERSION_4_9_8,
        key=client.key,
    )
    given = [broker.received(server.sender, question, over=server.peer) for _ in range(12)]
    replies = broker.give(*given)
    assert replies[0] is None, "the reply waits for what the client owes"
    refused = replies[-1]
    assert refused is not None
    assert (refused.code, "user billing is over its quota" in refused.remark) == (
        Code.FLOW_CONTROL,
        True,
    )
    assert isinstance(refused.header, FlowControlled)
    broker.engine.advance(1_000)
    late = broker.engine.replies[given[0].to.peer.id, given[0].to.correlation]
    assert (late.code, late.header) == (Code.SUCCESS, ALLOWED)
    assert server.says(zmq(root), PULL) == ALLOWED, "nobody else waits"


@pytest.mark.parametrize(
    ("kind", "name", "fields"),
    [
        ("user", "billing", {"fetch_bytes": 1_000}),
        ("user", "billing", {"fetch_messages": 10}),
        ("topic", "orders", {"fetch_bytes": 1_000}),
        ("group", "billing", {"fetch_messages": 10}),
    ],
)
def test_a_client_is_charged_for_what_its_filter_server_returned(
    broker: SecuredBroker,
    server: FilterServer,
    root: Sender,
    billing: Sender,
    kind: str,
    name: str,
    fields: dict[str, int],
) -> None:
    group = encode_group_config(GroupConfig("billing"))
    put = UpdateAndCreateSubscriptionGroup()
    assert broker.ask(root, put, group).code == Code.SUCCESS
    assert broker.ask(root, SetQuota(kind=kind, name=name, **fields)).code == Code.SUCCESS
    client = zmq(billing)
    free = {"fetched_bytes": 1_000, "fetched_messages": 10}
    assert server.says(client, PULL, **free) == ALLOWED, "a second is free"
    refused = server.asks(client, PULL, fetched_bytes=2_000, fetched_messages=20)
    assert refused.code == Code.FLOW_CONTROL
    assert f"{kind} {name} is over its quota" in refused.remark
    assert server.says(client, TRIAL, **free).refusal, "not a pull, and no right to it"
    broker.engine.advance(4_000)
    assert server.says(client, PULL, fetched_bytes=-9, fetched_messages=-9) == ALLOWED


# -- modes -----------------------------------------------------------------------------------------


def test_a_filter_server_learns_whether_clients_are_decided(broker: SecuredBroker) -> None:
    register = RegisterFilterServer(filter_server_addr="f1:1", listeners={"zmq:internal": "f1:1"})

    def decides(sender: Sender = ANYBODY) -> bool:
        found: bool = header_of(broker.ask(sender, register)).decides
        return found

    assert not decides()
    root = broker.administrator()
    server = zmq(broker.create(root, "fs-1", **NODE))
    assert decides(server)
    assert broker.ask(root, SetAccessMode(mode="observe", door="http")).code == Code.SUCCESS
    assert not decides(server)


def test_without_users_nothing_is_decided(broker: SecuredBroker) -> None:
    server = connected(broker, Sender(protocol="zmq"))
    assert server.says(Sender(), PULL) == UNDECIDED
    assert server.says(Sender(), PULL, on_behalf_of="till") == UNDECIDED


def test_the_mode_is_that_of_the_clients_door(
    broker: SecuredBroker, server: FilterServer, root: Sender
) -> None:
    def change(mode: str, door: str = "") -> None:
        reply = broker.ask(root, SetAccessMode(mode=mode, door=door))
        assert reply.code == Code.SUCCESS, reply.remark

    anybody, signing = Sender(protocol="zmq"), Sender(user="root", secret="wrong")
    change("off", "remoting")
    assert server.says(signing, PULL) == UNDECIDED
    assert server.says(anybody, PULL).refusal == Code.NO_PERMISSION
    change("observe", "zeromq")
    assert server.says(anybody, PULL) == ALLOWED
    noted = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
    assert (noted[-1].request, noted[-1].allowed, noted[-1].handled) == ("PullMessage", False, True)
    change("off", "zeromq")
    assert server.says(anybody, PULL) == UNDECIDED
    named = server.says(anybody, PULL, on_behalf_of="root")
    assert named.text == "user anonymous may not send on behalf of user root"


# -- only filter servers ---------------------------------------------------------------------------


def test_only_a_registered_filter_server_of_this_broker_asks(
    broker: SecuredBroker, server: FilterServer, root: Sender
) -> None:
    elsewhere = broker.create(root, "fs-b", kind="node", node="DefaultCluster/broker-b/fs")
    beside = broker.create(root, "replica", kind="node", node="DefaultCluster/broker-a/1")
    for sender in (root, elsewhere, ANYBODY, Sender(key="x" * 40)):
        number = broker.received(zmq(sender), PULL).to.peer
        reply = FilterServer(broker, zmq(sender), number).asks(root, PULL)
        assert reply.code == Code.NO_PERMISSION
        assert reply.header is None
    other = broker.received(zmq(beside), PULL).to.peer
    reply = FilterServer(broker, zmq(beside), other).asks(root, PULL)
    assert (reply.code, "no filter server is registered over this connection" in reply.remark) == (
        Code.NO_PERMISSION,
        True,
    )


def test_a_filter_server_without_a_user_works_until_decisions_are_enforced(
    broker: SecuredBroker, root: Sender
) -> None:
    broker.ask(root, SetAccessMode(mode="observe"))
    server = connected(broker, Sender(protocol="zmq"))
    assert server.says(Sender(), PULL) == UNDECIDED
    broker.ask(root, SetAccessMode(mode="off", door="zeromq"))
    broker.ask(root, SetAccessMode(mode="enforce", door="remoting"))
    assert server.says(Sender(protocol="zmq"), PULL) == UNDECIDED
    reply = server.asks(Sender(user="root", secret="wrong"), PULL)
    assert (reply.code, reply.remark) == (
        Code.NO_PERMISSION,
        "only a node of this cluster may send it",
    )


@pytest.mark.fault
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"protocol": "leader"}, "is not one of clients"),
        ({"protocol": "raft"}, "is not one of clients"),
        ({"protocol": ""}, "is not one of clients"),
        ({"request_code": 10}, "does not handle requests of type 10"),
        ({"request_code": -1}, "does not handle requests of type -1"),
        ({"address": ""}, "the address of the client is missing"),
        ({"address": "localhost"}, "is not an IP address"),
        ({"header": b""}, "the header of PULL_MESSAGE is wrong"),
        ({"header": b"\xff" * 9}, "the header of PULL_MESSAGE is wrong"),
        ({"header": msgspec.msgpack.encode({"topic": 7})}, "the header of PULL_MESSAGE is wrong"),
    ],
)
def test_what_no_client_sends_is_refused(
    server: FilterServer, root: Sender, fields: dict[str, Any], text: str
) -> None:
    reply = server.asks(zmq(root), PULL, **fields)
    assert reply.code == Code.SYSTEM_ERROR
    assert text in reply.remark
