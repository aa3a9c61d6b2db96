"""What a client was allowed is remembered, until anything that it depends on changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kourou.access.api_token import ApiToken, token_digest, token_of
from kourou.access.model import Action, Need, ResourceType, RoleGrant, User, UserRole
from kourou.access.requirements import REQUIREMENTS, CallerKind
from kourou.access.signature import SignedFields, SigningKey, verify
from kourou.authorization import access_uses, request_gate
from kourou.authorization.access_table import evolve, evolve_unread
from kourou.authorization.access_uses import UsesCounted
from kourou.authorization.audit import AccessDecided
from kourou.authorization.request_gate import NO_FACTS
from kourou.engine.admin.access_gate import USES_INTERVAL_MS, AccessGate
from kourou.errors import Code
from kourou.events.control_events import ApiTokenCreated, UnknownEvent, UserPut
from kourou.model.topic import MessageQueue
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.lists_body import LockBatch, encode_lock_batch
from kourou.protocol.messages.access import (
    AuthCreateAcl,
    AuthCreateUser,
    AuthDeleteAcl,
    AuthDeleteUser,
    AuthUpdateAcl,
    AuthUpdateUser,
    CreateApiToken,
    CreateOwnToken,
    ListOwnTokens,
    RevokeApiToken,
    RevokeOwnToken,
    SetAccessMode,
    SetOwnPassword,
)
from kourou.protocol.messages.broker_admin import (
    DeleteAclConfig,
    DeleteTopicInBroker,
    Undo,
    UpdateAndCreateAclConfig,
    UpdateAndCreateTopic,
)
from kourou.protocol.messages.groups import LockBatchMq
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.messages.sends import SendRecords, Target
from kourou.protocol.request import Request
from kourou.protocol.table import REQUESTS
from kourou.runtime import MEMBERS, Reply
from kourou.service.passwords import new_hash
from kourou_rigs.access import (
    ANYBODY,
    SecuredBroker,
    Sender,
    curve_key,
    sample_request,
    secret_box,
    send_to,
)
from kourou_rigs.engine import Engine

SUBJECT = "CN=till,O=Example"
SEND = send_to("orders")
OFTEN = (
    SEND,
    SendRecords(targets=[Target("orders", 0)], sizes=b"", producer_group="p"),
    PullMessage(consumer_group="g", topic="orders", queue_id=0, queue_offset=0, max_msg_nums=1),
)
TOPIC = UpdateAndCreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
REPLICA = Sender(protocol="zmq", listener=MEMBERS, key="r" * 40)


@pytest.fixture
def broker() -> SecuredBroker:
    """A broker that knows its replicas, with a topic."""
    made = SecuredBroker(Engine(secrets=secret_box(), knows_replicas=True))
    assert made.ask(ANYBODY, TOPIC).code == Code.SUCCESS
    return made


@pytest.fixture
def till(broker: SecuredBroker, root: Sender) -> Sender:
    """A user who sends and consumes, and signs its requests."""
    made = broker.create(root, "till", "writer", certificateSubjects=[SUBJECT])
    return replace(made, key="")


def gate_of(broker: SecuredBroker) -> AccessGate:
    return broker.engine.core.parts.access_gate


def allows(broker: SecuredBroker, sender: Sender, request: Request = SEND, **how: Any) -> bool:
    return gate_of(broker).allows(broker.received(sender, request, b"x", **how), [])


def change(broker: SecuredBroker, root: Sender, **fields: object) -> Reply:
    request = AuthUpdateUser(username="till")
    return broker.ask(root, request, msgspec.json.encode(fields))


def way(broker: SecuredBroker, root: Sender, till: Sender, name: str) -> tuple[Sender, str]:
    """Who sends, and on whose behalf."""
    match name:
        case "key":
            return Sender(key=curve_key("till")), ""
        case "certificate":
            return Sender(subject=SUBJECT), ""
        case "console":
            return replace(broker.create(root, "console-1", "console"), secret=""), "till"
        case "replica":
            return REPLICA, "till//10.1.2.3/tcp"
        case "anonymous":
            broker.allow(root, "anonymous", "Topic:orders", "Pub", "Sub")
            broker.allow(root, "anonymous", "Group:g", "Sub")
            return ANYBODY, ""
    return till, ""


WAYS = ("signature", "key", "certificate", "console", "replica", "anonymous")
SHOWN = ("user", "console", "forwarded_from", "address", "source", "actor", "door")


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("request_", OFTEN, ids=lambda request: type(request).__name__)
def test_what_was_allowed_is_not_decided_again(
    broker: SecuredBroker,
    root: Sender,
    till: Sender,
    name: str,
    request_: Request,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, named = way(broker, root, till, name)
    gate, effects = gate_of(broker), list[Any]()
    first, second = (broker.received(sender, request_, b"x", on_behalf_of=named) for _ in range(2))
    assert gate.allows(first, effects)
    allowed = gate.allowed

    def decided(*_: object, **__: object) -> bool:
        pytest.fail("it is decided again")

    monkeypatch.setattr(gate, "_examine", decided)
    assert gate.allows(second, effects)
    assert (effects, gate.allowed) == ([], allowed + 1)
    assert {one: getattr(first, one) for one in SHOWN} == {
        one: getattr(second, one) for one in SHOWN
    }
    assert second.user == ("anonymous" if name == "anonymous" else "till")


def counted(broker: SecuredBroker) -> list[tuple[str, str, str, int]]:
    """What the gate counted until now: user, first right, network, requests."""
    broker.engine.wall_ms += USES_INTERVAL_MS
    [found] = gate_of(broker).counted(broker.engine.wall_ms)
    assert isinstance(found, UsesCounted)
    return [
        (one.user, str(one.needs[0][0]), one.network, one.count)
        for one in found.lines
        if one.user != "root"
    ]


def test_each_decided_request_is_counted_by_user_right_and_network(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    gate = gate_of(broker)
    assert gate.counted(broker.engine.wall_ms) == [], "the minute begins"
    for _ in range(3):
        assert allows(broker, till, SEND)
    assert allows(broker, replace(till, source="10.1.2.3"), SEND)
    assert not allows(broker, ANYBODY, SEND)
    assert gate.counted(broker.engine.wall_ms + USES_INTERVAL_MS - 1) == []
    pub = "Pub on Topic:orders"
    assert counted(broker) == [
        ("till", pub, "127.0.0.0/24", 3),
        ("till", pub, "10.1.2.0/24", 1),
        ("anonymous", pub, "127.0.0.0/24", 1),
    ]
    assert allows(broker, till, SEND)
    assert change(broker, root, roles=["writer", "reader"]).code == Code.SUCCESS
    assert allows(broker, till, SEND)
    assert counted(broker) == [("till", pub, "127.0.0.0/24", 2)], "also what was remembered before"
    assert broker.ask(root, SetAccessMode(mode="observe")).code == Code.SUCCESS
    assert allows(broker, ANYBODY, SEND)
    assert counted(broker) == [("anonymous", pub, "127.0.0.0/24", 1)], "observed only"


@pytest.mark.fault
def test_little_is_kept_of_a_request_that_names_very_many_topics(
    broker: SecuredBroker, till: Sender
) -> None:
    """Nobody has to prove who sends it: a frame has room for 100,000 names."""
    assert gate_of(broker).counted(broker.engine.wall_ms) == []
    for group in ("g1", "g2"):
        queues = [MessageQueue(f"{group}-{number}", "broker-a", 0) for number in range(1_000)]
        body = encode_lock_batch(LockBatch(group, "c", (*queues, *queues)))
        assert broker.ask(ANYBODY, LockBatchMq(), body).code == Code.NO_PERMISSION
    broker.engine.wall_ms += USES_INTERVAL_MS
    [found] = gate_of(broker).counted(broker.engine.wall_ms)
    assert isinstance(found, UsesCounted)
    anonymous = [one for one in found.lines if one.user == "anonymous"]
    assert [(one.needs, one.count) for one in anonymous] == [((), 2)]


def test_a_gate_counts_also_what_a_former_one_remembered(
    broker: SecuredBroker, till: Sender
) -> None:
    """A broker that changes its role has another gate for the same users."""
    former = gate_of(broker)
    assert allows(broker, till)
    gate = AccessGate(former._context, secret_box(), knows_replicas=True)
    assert gate.allows(broker.received(till, SEND, b"x"), [])
    [found] = gate.counted_last(broker.engine.wall_ms)
    assert isinstance(found, UsesCounted)
    assert [(one.user, one.count) for one in found.lines] == [("till", 1)]
    assert gate.counted_last(broker.engine.wall_ms) == []


def test_what_is_remembered_is_counted_also_after_too_many_kinds(
    broker: SecuredBroker, till: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_uses, "ACCESS_USES_USER_MAX", 2)
    assert gate_of(broker).counted(broker.engine.wall_ms) == []
    for source in ("10.0.1.1", "10.0.2.1", "10.0.3.1"):
        assert allows(broker, replace(till, source=source), SEND)
    broker.engine.wall_ms += USES_INTERVAL_MS
    [first] = gate_of(broker).counted(broker.engine.wall_ms)
    assert isinstance(first, UsesCounted)
    assert [len(one.needs) for one in first.lines if one.user == "till"] == [1, 1, 0]
    assert allows(broker, replace(till, source="10.0.3.1"), SEND)
    assert counted(broker) == [("till", "Pub on Topic:orders", "10.0.3.0/24", 1)]


REVOCATIONS: dict[str, Callable[[SecuredBroker, Sender], Reply]] = {
    "disabled": lambda broker, root: change(broker, root, userStatus="disable"),
    "without a role": lambda broker, root: change(broker, root, roles=[]),
    "another secret": lambda broker, root: change(broker, root, password="another-secret"),
    "deleted": lambda broker, root: broker.ask(root, AuthDeleteUser(username="till")),
    "denied": lambda broker, root: broker.allow(
        root, "till", "Topic:orders", "Pub", "Sub", effect="deny"
    ),
}


@pytest.mark.fault
@pytest.mark.parametrize("how", REVOCATIONS)
def test_what_is_taken_away_is_refused_at_the_very_next_request(
    broker: SecuredBroker, root: Sender, till: Sender, how: str
) -> None:
    for request in OFTEN:
        assert allows(broker, till, request)
        assert allows(broker, till, request)
    assert len(broker.access.remembered) == len(OFTEN)
    assert REVOCATIONS[how](broker, root).code == Code.SUCCESS
    assert broker.access.remembered == {}
    for request in OFTEN:
        assert not allows(broker, till, request), request
    assert broker.access.remembered == {}, "refusals are not remembered"


Sent = tuple[Request, object]
"""A request and its body, which becomes JSON."""

FRESH = {"digest": token_digest(token_of(b"k" * 32)), "scope": "writer"}


def fresh_token(broker: SecuredBroker) -> dict[str, Any]:
    """The fields of a token that a user does not have yet."""
    now_ms = broker.engine.wall_ms
    return {**FRESH, "created_ms": now_ms, "expires_ms": now_ms + DAY_MS}


def token_id(broker: SecuredBroker, root: Sender) -> str:
    """The id of a token that the user has."""
    return broker.token(root, "till", "writer").partition(":")[2]


def policy(effect: str = "Allow") -> object:
    """Policies of a user, as their body."""
    entry = {"resource": "Topic:bills", "actions": ["Pub"], "decision": effect}
    return {"policies": [{"policyType": "Custom", "entries": [entry]}]}


def with_policy(broker: SecuredBroker, root: Sender) -> str:
    """The subject of a user who has a policy."""
    assert broker.allow(root, "till", "Topic:bills", "Pub").code == Code.SUCCESS
    return "User:till"


def undoable(broker: SecuredBroker, root: Sender) -> int:
    """The offset of a change of a user."""
    assert change(broker, root, roles=["writer", "reader"]).code == Code.SUCCESS
    return broker.events()[-1].offset


def sealed(broker: SecuredBroker, root: Sender) -> object:
    """A password by its hash."""
    return {"passwordHash": new_hash("a-long-password")}


CHANGES: dict[str, Callable[[SecuredBroker, Sender], Sent]] = {
    "UPDATE_AND_CREATE_ACL_CONFIG": lambda *_: (
        UpdateAndCreateAclConfig(access_key="eve-at-home", secret_key="secret-of-eve"),
        None,
    ),
    "DELETE_ACL_CONFIG": lambda *_: (DeleteAclConfig(access_key="till"), None),
    "AUTH_CREATE_USER": lambda *_: (AuthCreateUser(username="eve"), {}),
    "AUTH_UPDATE_USER": lambda *_: (AuthUpdateUser(username="till"), {"roles": []}),
    "AUTH_DELETE_USER": lambda *_: (AuthDeleteUser(username="till"), None),
    "AUTH_CREATE_ACL": lambda *_: (AuthCreateAcl(subject="User:till"), policy()),
    "AUTH_UPDATE_ACL": lambda broker, root: (
        AuthUpdateAcl(subject=with_policy(broker, root)),
        policy("Deny"),
    ),
    "AUTH_DELETE_ACL": lambda broker, root: (
        AuthDeleteAcl(subject=with_policy(broker, root)),
        None,
    ),
    "SET_ACCESS_MODE": lambda *_: (SetAccessMode(mode="observe", door="http"), None),
    "CREATE_API_TOKEN": lambda broker, _: (
        CreateApiToken(username="till", **fresh_token(broker)),
        None,
    ),
    "REVOKE_API_TOKEN": lambda broker, root: (
        RevokeApiToken(username="till", token_id=token_id(broker, root)),
        None,
    ),
    "SET_OWN_PASSWORD": lambda broker, root: (SetOwnPassword(), sealed(broker, root)),
    "CREATE_OWN_TOKEN": lambda broker, _: (CreateOwnToken(**fresh_token(broker)), None),
    "REVOKE_OWN_TOKEN": lambda broker, root: (
        RevokeOwnToken(token_id=token_id(broker, root)),
        None,
    ),
    "UNDO": lambda broker, root: (Undo(offset=undoable(broker, root)), None),
}
"""How each request changes the table of users; UNDO needs the right to what it undoes."""

REFUSED = {"UPDATE_GLOBAL_WHITE_ADDRS_CONFIG"}
"""Needs a right to change users, and changes nothing: addresses never replace credentials."""


def test_every_request_that_changes_users_is_tried() -> None:
    changing = {
        spec.name
        for spec in REQUESTS.values()
        if (requirement := REQUIREMENTS.get(spec.name)) is not None
        for need in requirement.needs(sample_request(spec, {"topic": "t"}), NO_FACTS)
        if isinstance(need, Need)
        and need.type is ResourceType.USER
        and not {Action.CREATE, Action.UPDATE, Action.DELETE}.isdisjoint(need.actions)
    }
    assert changing | {"UNDO"} == CHANGES.keys() | REFUSED


@pytest.mark.parametrize("name", CHANGES)
def test_every_request_that_changes_users_empties_what_was_remembered(
    broker: SecuredBroker, root: Sender, till: Sender, name: str
) -> None:
    request, fields = CHANGES[name](broker, root)
    for often in OFTEN:
        assert allows(broker, till, often)
    version = broker.access.version
    assert len(broker.access.remembered) == len(OFTEN)
    sender = Sender(
        key=curve_key("till" if REQUIREMENTS[name].caller is CallerKind.SELF else "root")
    )
    body = () if fields is None else (msgspec.json.encode(fields),)
    reply = broker.ask(sender, request, *body)
    assert reply.code == Code.SUCCESS, reply.remark
    assert broker.access.version > version, "it changed nothing"
    assert broker.access.remembered == {}


@pytest.mark.fault
def test_an_event_that_cannot_be_read_ends_what_was_remembered(
    broker: SecuredBroker, till: Sender
) -> None:
    assert allows(broker, till)
    evolve_unread(broker.access, UnknownEvent("UserSuspended", "user/till", b"{}"), 7, 9)
    assert not allows(broker, till)


@pytest.mark.fault
def test_a_key_and_a_subject_that_are_taken_away_end_at_once(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    by_key, by_subject = Sender(key=curve_key("till")), Sender(subject=SUBJECT)
    assert allows(broker, by_key)
    assert allows(broker, by_subject)
    assert change(broker, root, curveKeys=[], certificateSubjects=[]).code == Code.SUCCESS
    assert not allows(broker, by_key)
    assert not allows(broker, by_subject)


@pytest.mark.fault
def test_a_grant_ends_on_time(broker: SecuredBroker, root: Sender) -> None:
    guest = replace(broker.create(root, "guest"), key="")
    end_ms = broker.engine.wall_ms + 5_000
    broker.allow(root, "guest", "Topic:orders", "Pub", until_ms=end_ms)
    assert allows(broker, guest)
    broker.engine.wall_ms = end_ms - 1
    assert allows(broker, guest)
    broker.engine.wall_ms = end_ms
    assert not allows(broker, guest)
    assert not allows(broker, guest)


@pytest.mark.fault
def test_a_longer_grant_outlives_a_shorter_one(broker: SecuredBroker, root: Sender) -> None:
    """What ends first ends nothing else."""
    guest = replace(broker.create(root, "guest"), key="")
    end_ms = broker.engine.wall_ms + 5_000
    broker.allow(root, "guest", "Topic:orders", "Pub", until_ms=end_ms)
    broker.allow(root, "guest", "Topic:*", "Pub", until_ms=end_ms + 5_000)
    assert allows(broker, guest)
    broker.engine.wall_ms = end_ms
    assert allows(broker, guest)
    broker.engine.wall_ms = end_ms + 4_999
    assert allows(broker, guest)
    broker.engine.wall_ms = end_ms + 5_000
    assert not allows(broker, guest)


@pytest.mark.fault
def test_a_console_and_a_token_end_on_time(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    token = broker.token(root, "till", "writer")
    assert allows(broker, console, on_behalf_of=token)
    assert allows(broker, console, on_behalf_of="till")
    broker.engine.wall_ms += DAY_MS
    assert not allows(broker, console, on_behalf_of=token)
    assert allows(broker, console, on_behalf_of="till")
    end_ms = broker.engine.wall_ms + 5_000
    grant = RoleGrant(UserRole.CONSOLE, "", end_ms)
    user = User(name="console-1", roles=(grant,), curve_keys=(console.key,))
    evolve(broker.access, UserPut(user))
    assert allows(broker, console, on_behalf_of="till")
    broker.engine.wall_ms = end_ms
    assert not allows(broker, console, on_behalf_of="till")


@pytest.mark.fault
def test_a_send_to_a_topic_that_was_deleted_needs_create_again(
    broker: SecuredBroker, root: Sender
) -> None:
    guest = replace(broker.create(root, "guest"), key="")
    broker.allow(root, "guest", "Topic:orders", "Pub")
    for request in OFTEN[:2]:
        assert allows(broker, guest, request)
    assert broker.ask(root, DeleteTopicInBroker(topic="orders")).code == Code.SUCCESS
    for request in OFTEN[:2]:
        assert not allows(broker, guest, request)
    assert broker.ask(root, TOPIC).code == Code.SUCCESS
    for request in OFTEN[:2]:
        assert allows(broker, guest, request)


# -- whose it is ----------------------------------------------------------------------------------


@pytest.mark.fault
def test_what_is_remembered_counts_only_for_who_proves_the_same_in_the_same_way(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    broker.create(root, "ann", "writer", certificateSubjects=["CN=ann"])
    inner = replace(broker.create(root, "inner"), key="")
    broker.allow(root, "inner", "Topic:orders", "Pub", networks=("10.0.0.0/8",))
    broker.allow(root, "anonymous", "Topic:orders", "Pub")
    at_home = replace(inner, source="10.0.0.1")
    for sender in (till, at_home, ANYBODY):
        assert allows(broker, sender)
        assert allows(broker, sender)
    for sender in (
        replace(inner, source="192.0.2.1"),
        replace(till, subject="CN=ann"),
        replace(till, key=curve_key("ann")),
        replace(till, secret="guessed-it"),
        replace(till, user="inner"),
    ):
        assert not allows(broker, sender), sender
    for signed in ({"AccessKey": "", "Signature": "x"}, {"AccessKey": None}, {"AccessKey": "till"}):
        assert not allows(broker, ANYBODY, signed=signed), signed
    assert not allows(broker, REPLICA, on_behalf_of="nemo//127.0.0.1/tcp")
    assert not allows(broker, till, on_behalf_of="ann")
    for sender in (till, at_home, ANYBODY):
        assert allows(broker, sender)


@pytest.mark.fault
def test_a_signature_is_checked_each_time_and_once(
    broker: SecuredBroker, till: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong one takes as long as that of a name that does not exist, and gets the same text."""
    checked: list[str] = []

    def counted(signed: SignedFields, body: Iterable[bytes], key: SigningKey) -> bool:
        checked.append(signed.access_key)
        return verify(signed, body, key)

    assert allows(broker, till)
    monkeypatch.setattr(request_gate, "verify", counted)
    texts = set()
    for sender in (till, replace(till, secret="guessed-it"), Sender(user="nemo", secret="guessed")):
        effects: list[Any] = []
        received = broker.received(sender, SEND, b"x")
        if gate_of(broker).allows(received, effects):
            assert (sender, received.user, effects) == (till, "till", [])
            continue
        noted, reply = effects
        assert isinstance(noted, AccessDecided)
        assert (noted.user, received.user) == ("anonymous", "")
        texts.add(reply.remark.replace(sender.user, "NAME"))
    assert checked == ["till", "till", "nemo"]
    assert texts == {"Check signature failed for accessKey=NAME"}


# -- modes ----------------------------------------------------------------------------------------


def test_a_mode_counts_from_the_next_request_on(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    forged = replace(till, secret="guessed-it")
    assert allows(broker, till)
    for mode, handled in (("observe", True), ("enforce", False), ("off", True), ("enforce", False)):
        assert broker.ask(root, SetAccessMode(mode=mode)).code == Code.SUCCESS
        for _ in range(2):
            assert allows(broker, till)
        refused = gate_of(broker).refused
        assert allows(broker, forged) is handled, mode
        assert gate_of(broker).refused == refused + (mode != "off")


def test_a_door_has_its_own_memory(broker: SecuredBroker, root: Sender, till: Sender) -> None:
    """What is handled at one door because nothing is enforced there is refused at another."""
    assert broker.ask(root, SetAccessMode(mode="off", door="zeromq")).code == Code.SUCCESS
    by_tcp, by_zmq = (Sender(protocol=protocol) for protocol in ("tcp", "zmq"))
    for _ in range(2):
        assert allows(broker, by_zmq)
        assert not allows(broker, by_tcp)
        assert allows(broker, replace(till, protocol="tcp"))


def test_what_is_remembered_is_bounded(
    broker: SecuredBroker, till: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_gate, "ACCESS_DECISIONS_MAX", 3)
    for number in range(10):
        pull = msgspec.structs.replace(OFTEN[2], consumer_group=f"g{number}")
        assert allows(broker, till, pull)
        assert 1 <= len(broker.access.remembered) <= 3


def test_a_replica_that_names_a_token_as_the_user_itself_ends_no_broker(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    token = ApiToken(
        id="0123456789ab",
        user="till",
        digest="0" * 64,
        scope=RoleGrant(UserRole.WRITER),
        created_ms=0,
        expires_ms=broker.engine.wall_ms + DAY_MS,
    )
    evolve(broker.engine.core.parts.control.access, ApiTokenCreated(token))
    reply = broker.ask(REPLICA, ListOwnTokens(), on_behalf_of=f"{token.name}//10.1.2.3/zmq")
    assert (reply.code, "or a token, not a user" in reply.remark) == (Code.NO_PERMISSION, True), (
        reply.remark
    )
