"""A name server decides by the users that brokers sent it; see test_access_gate.py for a broker."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.authorization import request_gate
from kourou.authorization.access_table import (
    AccessAggregate,
    encode_access,
    evolve_unread,
    snapshot,
)
from kourou.authorization.audit import AccessDecided
from kourou.authorization.request_gate import (
    NOT_A_MEMBER,
    NOT_YET,
    USERS_UNREADABLE,
    PublishedGate,
    decision_counts,
)
from kourou.errors import BadRequest, Code, DecodeError, NoPermission
from kourou.events.control_events import UnknownEvent
from kourou.model.names import AUTO_CREATE_TOPIC, TRACE_TOPIC
from kourou.model.units import DAY_MS
from kourou.protocol.messages import namesrv as ask
from kourou.protocol.messages.access import SetAccessMode
from kourou.protocol.request import Request
from kourou.protocol.table import REQUESTS
from kourou.runtime import Peer, Received, Reply
from kourou.transport.curve_keys import AllowedKeys, make_pair
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, curve_key, sample_request, secret_box

MEMBER = Sender(key=curve_key("member"))
ROUTE = ask.GetRouteInfoByTopic(topic="orders-a")
PUT = ask.PutKvConfig(namespace="N", key="k", value="v")
OF_BROKERS = [
    spec
    for spec in REQUESTS.values()
    if spec.name in ("REGISTER_BROKER", "UNREGISTER_BROKER", "QUERY_DATA_VERSION", "PUT_USERS")
]


class Members:
    """The keys of brokers."""

    admits_all = False

    def allows(self, key: str, /) -> bool:
        return key == MEMBER.key


@dataclass
class Door:
    """A name server's gate, and a broker whose users it may get."""

    broker: SecuredBroker = field(default_factory=SecuredBroker)
    gate: PublishedGate = field(default_factory=lambda: PublishedGate(Members(), secret_box()))

    def publish(self, broker: SecuredBroker | None = None, name: str = "broker-a") -> None:
        access = (broker or self.broker).access
        request = ask.PutUsers(cluster_name="C", broker_name=name)
        self.gate.publish(request, encode_access(access))

    def given(self, received: Received) -> tuple[bool, list[Any]]:
        effects: list[Any] = []
        return self.gate.allows(received, effects), effects

    def refusal(self, sender: Sender, request: Request, **how: Any) -> str:
        """The text of the reply to a refused request; "" if it is handled."""
        allowed, effects = self.given(self.broker.received(sender, request, **how))
        if allowed:
            assert not any(isinstance(one, Reply) for one in effects)
            return ""
        refused, reply = effects
        assert isinstance(refused, AccessDecided)
        assert isinstance(reply, Reply)
        assert reply.code != Code.SUCCESS
        return reply.remark


@pytest.fixture
def door() -> Door:
    return Door()


def signed(sender: Sender) -> Sender:
    return Sender(user=sender.user, secret=sender.secret)


def test_without_keys_of_brokers_nothing_is_decided() -> None:
    door = Door(gate=PublishedGate(None))
    for request in (ROUTE, PUT, sample_request(OF_BROKERS[0], {})):
        assert door.refusal(ANYBODY, request) == ""
    with pytest.raises(NoPermission, match="set curveMembers"):
        door.publish()
    peer = Peer(1, "zmq", ("127.0.0.1", 1), key=MEMBER.key)
    assert door.gate.mark_of(peer, "C", "broker-a") is None


def test_why_a_name_server_decides_nothing(tmp_path: Path) -> None:
    key, _ = make_pair(tmp_path, "member")
    for members, why in (
        (None, "curveMembers is not set"),
        (AllowedKeys.of_setting("any"), "curveMembers=any"),
        (AllowedKeys.of_setting(str(key)), ""),
    ):
        assert PublishedGate(members).open_because == why


def test_a_name_server_is_open_as_long_as_one_of_its_brokers_is(door: Door) -> None:
    assert door.gate.open_because == "", "until users arrive, changes are refused"
    ours, theirs = door.broker, SecuredBroker()
    door.publish(ours)
    assert door.gate.open_because == "no broker has users"
    assert door.refusal(ANYBODY, PUT) == ""
    root, other = ours.administrator(), theirs.administrator()
    door.publish(ours)
    assert door.gate.open_because == ""
    assert door.refusal(ANYBODY, PUT) != ""
    assert ours.ask(root, SetAccessMode(mode="observe")).code == Code.SUCCESS
    assert theirs.ask(other, SetAccessMode(mode="observe", door="http")).code == Code.SUCCESS
    door.publish(theirs, "broker-b")
    assert door.gate.open_because == "access mode http=observe of broker C/broker-b"
    door.publish(ours)
    lax = "access mode remoting=observe zeromq=observe http=observe of broker C/broker-a"
    assert door.gate.open_because == lax


@pytest.mark.parametrize("spec", OF_BROKERS, ids=lambda spec: str(spec.name))
def test_only_brokers_send_what_is_for_brokers(door: Door, spec: Any) -> None:
    root = door.broker.administrator()
    request = sample_request(spec, {})
    for _ in range(2):  # without users, and with them
        for sender in (ANYBODY, signed(root), Sender(key=root.key), Sender(listener="members")):
            assert door.refusal(sender, request) == NOT_A_MEMBER
        assert door.refusal(MEMBER, request) == ""
        door.publish()


def test_the_key_of_a_node_registers_only_its_broker(door: Door) -> None:
    root = door.broker.administrator()
    node = {"kind": "node", "node": "C/broker-a/1", "curveKeys": [MEMBER.key]}
    door.broker.create(root, "replica", **node)
    for spec in OF_BROKERS:
        fields = {"cluster_name": "C", "broker_id": 0}
        own = sample_request(spec, {**fields, "broker_name": "broker-a"})
        other = sample_request(spec, {**fields, "broker_name": "broker-a2"})
        assert door.refusal(MEMBER, other) == ""
        door.publish()
        assert door.refusal(MEMBER, own) == ""
        refusal = door.refusal(MEMBER, other)
        assert refusal == "the key is that of node C/broker-a/1, which is not one of C/broker-a2/"
        assert door.refusal(MEMBER, PUT) == ""
        door.gate = PublishedGate(Members(), secret_box())


@pytest.mark.parametrize("claim", [{"listener": "members"}, {"protocol": "leader"}])
def test_no_name_of_a_listener_is_trusted(door: Door, claim: dict[str, str]) -> None:
    """A name server's listeners have the names that its settings give them."""
    door.broker.administrator()
    door.publish()
    assert "user anonymous has no right to" in door.refusal(Sender(**claim), PUT)


def test_until_users_arrive_what_changes_something_waits(door: Door) -> None:
    root = door.broker.administrator()
    changes = (PUT, ask.DeleteTopicInNamesrv(topic="t"), ask.UpdateNamesrvConfig())
    for request in changes:
        for sender in (ANYBODY, signed(root)):
            assert door.refusal(sender, request) == NOT_YET
    promotions = ask.GetKvConfig(namespace="KOUROU_PROMOTED", key="C/broker-a")
    all_of_them = ask.GetKvListByNamespace(namespace="KOUROU_PROMOTED")
    for request in (promotions, all_of_them):
        assert door.refusal(ANYBODY, request) == NOT_YET
    for request in (ROUTE, ask.GetBrokerClusterInfo(), ask.GetNamesrvConfig()):
        assert door.refusal(ANYBODY, request) == ""
    door.publish()
    for request in changes:
        assert door.refusal(signed(root), request) == ""
        assert "no right to" in door.refusal(ANYBODY, request)


def test_a_broker_without_users_decides_nothing_and_opens_nothing(door: Door) -> None:
    door.publish()
    assert door.refusal(ANYBODY, PUT) == ""
    other = SecuredBroker()
    other.administrator()
    door.publish(other, "broker-b")
    assert "no right to Update on Cluster:" in door.refusal(ANYBODY, PUT)


def test_each_request_needs_what_the_table_says(door: Door) -> None:
    root = door.broker.administrator()
    writer = door.broker.create(root, "till", "writer:orders-")
    operator = door.broker.create(root, "oper", "operator")
    nobody = door.broker.create(root, "none")
    door.publish()
    for sender in (signed(writer), Sender(key=writer.key)):
        assert door.refusal(sender, ROUTE) == ""
        for topic in (AUTO_CREATE_TOPIC, TRACE_TOPIC):
            assert door.refusal(sender, ask.GetRouteInfoByTopic(topic=topic)) == ""
        assert door.refusal(sender, ask.GetBrokerClusterInfo()) == ""
        assert "Topic:bills" in door.refusal(sender, ask.GetRouteInfoByTopic(topic="bills"))
        assert "Update on Cluster:" in door.refusal(sender, PUT)
    assert door.refusal(signed(operator), PUT) == ""
    assert "Topic:orders-a" in door.refusal(signed(nobody), ROUTE)
    inner = ask.PutKvConfig(namespace="KOUROU_PROMOTED", key="C/broker-a", value="1")
    assert "Update on User:" in door.refusal(signed(operator), inner)
    assert door.refusal(signed(root), inner) == ""
    assert "Topic:orders-a" in door.refusal(ANYBODY, ROUTE)
    assert door.refusal(ANYBODY, ask.GetBrokerClusterInfo()) == "the request has no credentials"
    wrong = door.refusal(Sender(user="till", secret="guessed-it"), ROUTE)
    assert wrong == "Check signature failed for accessKey=till"


def test_without_the_keys_of_secrets_no_signature_is_right(door: Door) -> None:
    root = door.broker.administrator()
    door.gate = PublishedGate(Members())
    door.publish()
    assert "Check signature failed" in door.refusal(signed(root), ROUTE)
    assert door.refusal(Sender(key=root.key), PUT) == ""


def test_a_broker_that_cannot_read_its_users_closes_its_name_server(door: Door) -> None:
    """Other brokers of the name server can still allow something."""
    root = door.broker.administrator()
    closed = door.broker.access.copy()
    evolve_unread(closed, UnknownEvent("UserSuspended", "user/till", b"{}"), 7, 9)
    request = ask.PutUsers(cluster_name="C", broker_name="broker-a")
    door.gate.publish(request, encode_access(closed))
    for sender in (signed(root), ANYBODY):
        for wanted in (ROUTE, PUT):
            assert door.refusal(sender, wanted) == USERS_UNREADABLE
    peer = Peer(1, "zmq", ("127.0.0.1", 1), key=MEMBER.key)
    assert door.gate.mark_of(peer, "C", "broker-a") == closed.mark != door.broker.access.mark
    door.publish(name="broker-b")
    assert door.refusal(signed(root), PUT) == ""
    door.publish()
    assert door.refusal(signed(root), PUT) == ""


def test_a_table_of_a_newer_build_is_read_without_what_is_new(door: Door) -> None:
    root = door.broker.administrator()
    table = msgspec.json.decode(msgspec.json.encode(snapshot(door.broker.access)))
    table["users"][0]["of_a_newer_build"] = table["of_a_newer_build"] = {"any": 1}
    request = ask.PutUsers(cluster_name="C", broker_name="broker-a")
    door.gate.publish(request, zlib.compress(msgspec.json.encode(table)))
    assert door.refusal(signed(root), PUT) == ""
    assert door.refusal(ANYBODY, PUT) != ""


def test_what_is_revoked_is_refused_from_the_next_table_on(door: Door) -> None:
    root = door.broker.administrator()
    operator = door.broker.create(root, "oper", "operator")
    door.publish()
    received = door.broker.received(signed(operator), PUT)
    assert door.given(received)[0]
    assert received.actor == "User:oper"
    users = door.broker.access.users
    users["oper"] = msgspec.structs.replace(users["oper"], enabled=False)
    door.publish()  # the version is the same: it is that of another table
    assert door.refusal(signed(operator), PUT) == "the user is disabled"


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_what_needs_a_right_on_users_is_enforced_in_every_mode(door: Door, mode: str) -> None:
    by_key = replace(door.broker.administrator(), secret="")
    operator = door.broker.create(by_key, "oper", "operator")
    assert door.broker.ask(by_key, SetAccessMode(mode=mode)).code == Code.SUCCESS
    door.publish()
    inner = ask.PutKvConfig(namespace="KOUROU_PROMOTED", key="C/broker-a", value="1")
    for sender in (ANYBODY, signed(operator)):
        assert "no right to Update on User:" in door.refusal(sender, inner)
        received = door.broker.received(sender, PUT)
        assert door.given(received)[0]
    assert "Check signature failed" in door.refusal(Sender(user="root", secret="guessed"), inner)
    assert door.refusal(by_key, inner) == ""


def test_a_token_counts_within_its_scope(door: Door) -> None:
    by_key = replace(door.broker.administrator(), secret="")
    door.broker.create(by_key, "till", "writer")
    console = replace(door.broker.create(by_key, "console-1", "console"), secret="")
    name = door.broker.token(by_key, "till", "writer:orders-")
    door.publish()
    assert door.refusal(console, ROUTE, on_behalf_of=name) == ""
    bills = ask.GetRouteInfoByTopic(topic="bills")
    assert "Topic:bills" in door.refusal(console, bills, on_behalf_of=name)
    assert door.refusal(console, bills, on_behalf_of="till") == ""
    door.broker.engine.wall_ms += DAY_MS
    expired = door.refusal(console, ROUTE, on_behalf_of=name)
    assert expired == f"the token {name} was revoked, or has expired"


def test_one_broker_that_allows_it_is_enough(door: Door) -> None:
    ours, theirs = door.broker, SecuredBroker()
    first = ours.administrator("ours")
    second = theirs.administrator("theirs")
    reader = theirs.create(second, "reader", "reader")
    door.publish(ours, "broker-a")
    door.publish(theirs, "broker-b")
    for sender in (first, second):
        assert door.refusal(signed(sender), PUT) == ""
    assert "user reader has no right to" in door.refusal(signed(reader), PUT)
    assert "Check signature failed" in door.refusal(Sender(user="x", secret="y" * 16), PUT)
    labels = decision_counts({"node": "n"}, door.gate)
    assert labels == [
        ({"decision": "allowed", "node": "n"}, 2),
        ({"decision": "refused", "node": "n"}, 2),
    ]


def test_lists_have_what_their_user_may_see(door: Door) -> None:
    root = door.broker.administrator()
    writer = door.broker.create(root, "till", "writer:orders-")
    reader = door.broker.create(root, "reader", "reader")
    topics = ["orders-a", "bills", "orders-b"]
    request = ask.GetAllTopicListFromNamesrv()
    assert door.refusal(ANYBODY, request) == ""
    assert door.gate.seen(topics) == topics
    door.publish()
    assert door.refusal(signed(writer), request) == ""
    assert door.gate.seen(topics) == ["orders-a", "orders-b"]
    for sender in (signed(reader), MEMBER):
        assert door.refusal(sender, request) == ""
        assert door.gate.seen(topics) == topics


def test_a_console_sends_for_its_users_only(door: Door) -> None:
    root = door.broker.administrator()
    door.broker.create(root, "till", "writer:orders-")
    console = door.broker.create(root, "console-1", "console", "operator")
    reader = door.broker.create(root, "reader", "reader")
    door.publish()
    key = Sender(key=console.key)
    received = door.broker.received(key, ROUTE, on_behalf_of="till")
    assert door.given(received)[0]
    assert received.actor == "User:till through User:console-1"
    assert "user till has no right" in door.refusal(key, PUT, on_behalf_of="till")
    assert door.refusal(key, PUT) == ""
    other = Sender(key=reader.key)
    assert "may not send on behalf of" in door.refusal(other, ROUTE, on_behalf_of="till")


def test_what_is_only_observed_is_handled_and_noted(door: Door) -> None:
    root = door.broker.administrator()
    assert door.broker.ask(root, SetAccessMode(mode="observe")).code == Code.SUCCESS
    door.publish()
    allowed, effects = door.given(door.broker.received(ANYBODY, PUT))
    assert allowed
    [noted] = effects
    assert isinstance(noted, AccessDecided)
    assert noted.handled
    assert noted.request == "PutKvConfig"
    assert noted.door == ""
    _, [noted] = door.given(door.broker.received(Sender(protocol="tcp"), PUT))
    assert noted.door == "remoting"


def test_a_change_is_noted_once_with_what_allowed_it(door: Door) -> None:
    """However many brokers' users were asked, and by which key."""
    theirs = SecuredBroker()
    theirs.create(theirs.administrator("theirs"), "oper")
    operator = door.broker.create(door.broker.administrator(), "oper", "operator")
    assert door.given(door.broker.received(MEMBER, PUT)) == (True, []), "there are no users"
    door.publish(theirs, "broker-b")
    door.publish()
    for sender, user, by in (
        (signed(operator), "oper", "role operator"),
        (MEMBER, "anonymous", "a key of curveMembers"),
    ):
        allowed, [noted] = door.given(door.broker.received(sender, PUT))
        assert allowed
        assert isinstance(noted, AccessDecided)
        assert (noted.allowed, noted.user, noted.by) == (True, user, by)
        assert (noted.request, noted.need) == ("PutKvConfig", "Update on Cluster:")
        assert door.given(door.broker.received(sender, ROUTE)) == (True, [])


def test_each_door_of_a_name_server_has_the_mode_that_brokers_say(door: Door) -> None:
    root = door.broker.administrator()
    door.broker.create(root, "console-1", "console")
    door.broker.create(root, "till")
    by_key = replace(root, secret="")
    enforce_remoting = SetAccessMode(mode="enforce", door="remoting")
    for request in (SetAccessMode(mode="off"), enforce_remoting):
        assert door.broker.ask(by_key, request).code == Code.SUCCESS
    door.publish()
    assert "no right to" in door.refusal(Sender(protocol="tcp"), PUT)
    assert door.refusal(Sender(protocol="zmq"), PUT) == ""
    console = Sender(protocol="zmq", key=curve_key("console-1"))
    assert door.refusal(console, PUT, on_behalf_of="till") == ""


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
def test_a_request_whose_needs_nobody_declared_is_refused(
    door: Door, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """By brokers and name servers, in every mode, whoever sends it."""
    declared = request_gate.requirements_by_type()
    lacking = {kind: one for kind, one in declared.items() if kind is not type(PUT)}
    root = door.broker.administrator()
    by_key = replace(root, secret="")
    assert door.broker.ask(by_key, SetAccessMode(mode=mode)).code == Code.SUCCESS
    door.publish()
    monkeypatch.setattr(request_gate, "_REQUIREMENTS", lacking)
    for gate in (door.gate, door.broker.engine.core.parts.access_gate):
        for sender in (ANYBODY, by_key, signed(root), MEMBER):
            effects: list[Any] = []
            assert not gate.allows(door.broker.received(sender, PUT), effects)
            assert effects[-1].code == Code.REQUEST_CODE_NOT_SUPPORTED
            assert gate.allows(door.broker.received(by_key, ROUTE), [])


def test_the_mark_of_the_users_changes_with_them(door: Door) -> None:
    peer = Peer(1, "zmq", ("127.0.0.1", 1), key=MEMBER.key)

    def mark() -> str | None:
        return door.gate.mark_of(peer, "C", "broker-a")

    seen = [mark()]
    assert seen == [""]
    door.publish()
    seen.append(mark())
    root = door.broker.administrator()
    door.publish()
    seen.append(mark())
    door.broker.create(root, "till")
    assert mark() == seen[-1]
    door.publish()
    seen.append(mark())
    assert len(set(seen)) == 4
    assert seen[-1] == door.broker.access.mark
    assert door.gate.mark_of(peer, "C", "broker-b") == ""
    assert door.gate.mark_of(replace(peer, key=""), "C", "broker-a") is None


@pytest.mark.fault
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        encode_access(AccessAggregate())[:-4],
        zlib.compress(b"[]"),
        zlib.compress(b'{"users":[{"name":"a/b"}]}'),
        zlib.compress(
            b'{"policies":[{"id":"1","user":"u","resource":["Topic","t",false],'
            b'"actions":["Pub"],"networks":["nowhere"]}]}'
        ),
    ],
    ids=["empty", "plain", "cut", "list", "name", "network"],
)
def test_a_damaged_table_changes_nothing(door: Door, body: bytes) -> None:
    root = door.broker.administrator()
    door.publish()
    request = ask.PutUsers(cluster_name="C", broker_name="broker-a")
    with pytest.raises((DecodeError, BadRequest)):
        door.gate.publish(request, body)
    assert door.refusal(signed(root), PUT) == ""
    assert door.refusal(ANYBODY, PUT) != ""
