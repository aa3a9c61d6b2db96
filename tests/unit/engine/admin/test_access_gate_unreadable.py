"""A broker that cannot read an event about users refuses everything; unknown doors are strict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.access.model import AccessMode
from kourou.access.plain_acl import read_plain_acl
from kourou.authorization.request_gate import USERS_UNREADABLE
from kourou.engine.inputs import UsersRead
from kourou.errors import Code
from kourou.events.control_events import Cause, Event, EventLost, UnknownEvent
from kourou.protocol.bodies.heartbeat_body import HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.access import AuthListUser, AuthUpdateUser, SetAccessMode
from kourou.protocol.messages.broker_admin import GetBrokerConfig, Undo
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.replication import FetchLog
from kourou.protocol.request import Request
from kourou.runtime import MEMBERS, OWN_LINKS
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, secret_box, send_to
from kourou_rigs.engine import Engine

UNREAD = UnknownEvent("UserSuspended", "user/till", b'{"type":"UserSuspended","user":"till"}')
REPLICA = Sender(protocol="zmq", listener=MEMBERS, key="r" * 40)
REQUESTS: tuple[tuple[Request, bytes], ...] = (
    (send_to("orders"), b"x"),
    (GetBrokerConfig(), b""),
    (AuthListUser(), b""),
    (AuthUpdateUser(username="root"), b'{"userStatus":"enable"}'),
    (SetAccessMode(mode="off"), b""),
    (Undo(offset=0), b""),
)


@pytest.fixture
def broker() -> SecuredBroker:
    """A broker without users that knows its replicas, with a topic."""
    made = SecuredBroker(Engine(secrets=secret_box(), knows_replicas=True))
    made.create_topics("orders")
    return made


def record(broker: SecuredBroker, event: Event) -> None:
    """Record an event, as a newer version that led the log might have."""
    parts = broker.engine.core.parts
    parts.recorder.record([event], Cause("newer"), broker.engine.wall_ms)
    broker.engine.perform(parts.appends.take_done())


@pytest.mark.parametrize("mode", [None, *AccessMode])
def test_an_event_that_cannot_be_read_opens_nothing(
    broker: SecuredBroker, mode: AccessMode | None
) -> None:
    """In no mode, for no administrator, and not without users: those may be what is missing."""
    senders = [ANYBODY]
    if mode is not None:
        senders.append(broker.administrator())
        assert broker.ask(senders[1], SetAccessMode(mode=mode)).code == Code.SUCCESS
    record(broker, UNREAD)
    stored, version = len(broker.engine.stored("orders")), broker.access.version
    for sender in senders:
        for request, body in REQUESTS:
            reply = broker.ask(sender, request, body)
            assert (reply.code, reply.remark) == (Code.NO_PERMISSION, USERS_UNREADABLE)
    forwarded = broker.ask(REPLICA, send_to("orders"), b"x", on_behalf_of="root//127.0.0.1/zmq")
    assert forwarded.code == Code.NO_PERMISSION
    assert len(broker.engine.stored("orders")) == stored
    assert broker.access.version == version


def test_a_closed_broker_goes_on_with_its_replicas(broker: SecuredBroker) -> None:
    """A newer version may take over from it."""
    broker.administrator()
    record(broker, UNREAD)
    fetch = FetchLog(group="broker-a", position=0, max_bytes=1_000)
    assert broker.ask(REPLICA, fetch).code != Code.NO_PERMISSION
    for protocol in OWN_LINKS:
        reply = broker.ask(Sender(protocol=protocol), send_to("orders"), b"x")
        assert reply.code == Code.SUCCESS


def test_a_lost_event_closes_a_broker_with_users_unless_it_was_about_something_else(
    broker: SecuredBroker,
) -> None:
    record(broker, EventLost("damaged"))
    assert broker.ask(ANYBODY, send_to("orders"), b"x").code == Code.SUCCESS, "no users"
    root = broker.administrator()
    record(broker, EventLost("damaged", about_users=False))
    assert broker.ask(root, AuthListUser()).code == Code.SUCCESS
    record(broker, EventLost("damaged"))
    assert broker.ask(root, AuthListUser()).code == Code.NO_PERMISSION


def test_a_closed_broker_shows_its_producers_no_half_messages(broker: SecuredBroker) -> None:
    """They get them without a request, when the broker checks transactions."""
    root = broker.administrator()
    beat = encode_heartbeat(HeartbeatBody("c-1", ("p",)))
    assert broker.ask(root, HeartBeat(), beat).code == Code.SUCCESS
    parts, now_ms = broker.engine.core.parts, broker.engine.wall_ms
    [member] = parts.context.members.producers("p")
    assert parts.access_gate.may_know(member, "orders", now_ms)
    record(broker, UNREAD)
    assert not parts.access_gate.may_know(member, "orders", now_ms)


def test_a_closed_broker_imports_no_users(broker: SecuredBroker) -> None:
    """Nobody knows which of them were changed by hand, or disabled."""
    broker.administrator()
    record(broker, UNREAD)
    account = {"accessKey": "till-01", "secretKey": "secret-of-till", "admin": True}
    found = read_plain_acl({"accounts": [account]})
    broker.engine.handle(UsersRead(found, broker.engine.wall_ms))
    assert set(broker.access.users) == {"root"}


# -- requests whose door is not known --------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        "till//10.1.2.3",  # of a replica that knows no doors
        "till//10.1.2.3/quic",
        "till//10.1.2.3/zmq/more",
        "till",
        "",
    ],
)
def test_a_forwarded_request_of_an_unknown_door_has_the_strictest_mode(
    broker: SecuredBroker, origin: str
) -> None:
    by_key = replace(broker.administrator(), secret="")
    broker.create(by_key, "till")
    for mode, door in (
        ("observe", ""),
        ("enforce", "remoting"),
        ("enforce", "zeromq"),
        ("enforce", "http"),
    ):
        assert broker.ask(by_key, SetAccessMode(mode=mode, door=door)).code == Code.SUCCESS
    reply = broker.ask(REPLICA, send_to("orders"), b"x", on_behalf_of=origin)
    assert reply.code == Code.NO_PERMISSION
    assert broker.engine.stored("orders") == []
    assert broker.ask(by_key, SetAccessMode(mode="observe")).code == Code.SUCCESS
    reply = broker.ask(REPLICA, send_to("orders"), b"x", on_behalf_of=origin)
    assert reply.code == Code.SUCCESS, "every door observes"
