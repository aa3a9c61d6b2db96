"""Requests with API tokens: what the user and the scope allow, and what ends a token."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from kourou.access.model import AccessMode, Effect
from kourou.authorization.audit import AccessDecided
from kourou.errors import Code
from kourou.model.units import DAY_MS
from kourou.protocol.messages.access import (
    AuthUpdateUser,
    ExplainAccess,
    RevokeApiToken,
    SetAccessMode,
)
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic, UpdateBrokerConfig
from kourou.protocol.messages.pulls import GetMaxOffset
from kourou.protocol.messages.quotas import SetQuota
from kourou.runtime import MEMBERS, Reply
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, secret_box, send_to
from kourou_rigs.engine import Engine, header_of


@pytest.fixture
def broker() -> SecuredBroker:
    """A broker with two topics, an administrator, a writer, and a console."""
    made = SecuredBroker(Engine(secrets=secret_box(), knows_replicas=True))
    made.create_topics("orders", "bills")
    root = made.administrator()
    made.create(root, "till", "writer", "operator")
    made.create(root, "console-1", "console")
    return made


@pytest.fixture
def root() -> Sender:
    """The administrator."""
    return Sender(user="root", secret="secret-of-root")


@pytest.fixture
def console(broker: SecuredBroker) -> Sender:
    """It sends with its CURVE key."""
    return by_key(broker, "console-1")


def by_key(broker: SecuredBroker, name: str = "root") -> Sender:
    return Sender(key=broker.access.users[name].curve_keys[0])


def send(broker: SecuredBroker, console: Sender, name: str, topic: str = "orders") -> Reply:
    return broker.ask(console, send_to(topic), b"x", on_behalf_of=name)


def test_a_token_may_do_less_than_its_user_and_never_more(
    broker: SecuredBroker, root: Sender, console: Sender
) -> None:
    orders = broker.token(by_key(broker), "till", "writer:orders")
    reading = broker.token(by_key(broker), "till", "reader")
    everything = broker.token(by_key(broker), "till", "administrator")
    assert send(broker, console, orders).code == Code.SUCCESS
    refused = send(broker, console, orders, "bills")
    assert f"user {orders} has no right to Pub on Topic:bills" in refused.remark
    assert send(broker, console, reading).code == Code.NO_PERMISSION
    offset = GetMaxOffset(topic="bills", queue_id=0)
    assert broker.ask(console, offset, on_behalf_of=reading).code == Code.SUCCESS
    assert broker.ask(console, offset, on_behalf_of=orders).code == Code.NO_PERMISSION
    assert send(broker, console, everything, "bills").code == Code.SUCCESS
    denial = {"effect": Effect.DENY}
    assert broker.allow(root, "till", "Topic:bills", "Pub", **denial).code == Code.SUCCESS
    assert send(broker, console, everything, "bills").code == Code.NO_PERMISSION
    assert send(broker, console, "till").code == Code.SUCCESS


def test_a_token_of_an_administrator_has_its_scope_only(
    broker: SecuredBroker, console: Sender
) -> None:
    name = broker.token(by_key(broker), "root", "reader")
    assert send(broker, console, name).code == Code.NO_PERMISSION
    change = UpdateBrokerConfig()
    reply = broker.ask(console, change, b"traceOn=true", on_behalf_of=name)
    assert reply.code == Code.NO_PERMISSION
    may = ExplainAccess(username="", action="Get", resource="Cluster:*")
    assert header_of(broker.ask(console, may, on_behalf_of=name)).allowed
    may = ExplainAccess(username="", action="Update", resource="Cluster:*")
    assert not header_of(broker.ask(console, may, on_behalf_of=name)).allowed


def test_what_was_allowed_ends_at_the_moment_of_expiry(
    broker: SecuredBroker, console: Sender
) -> None:
    name = broker.token(by_key(broker), "till", "writer")
    broker.engine.wall_ms += DAY_MS - 1
    for _ in range(2):  # the second is allowed without being decided
        assert send(broker, console, name).code == Code.SUCCESS
    broker.engine.wall_ms += 1
    reply = send(broker, console, name)
    assert (reply.code, reply.remark) == (
        Code.NO_PERMISSION,
        f"the token {name} was revoked, or has expired",
    )
    assert send(broker, console, "till").code == Code.SUCCESS


def test_a_wall_clock_that_goes_back_revives_what_expired_and_nothing_that_was_taken_away(
    broker: SecuredBroker, root: Sender, console: Sender
) -> None:
    """An end is a moment of the wall clock; a decision is in the log, whatever the clock says."""
    expired, revoked = (broker.token(by_key(broker), "till", "writer") for _ in range(2))
    of_id = RevokeApiToken(username="till", token_id=revoked.removeprefix("till:"))
    assert broker.ask(by_key(broker), of_id).code == Code.SUCCESS
    broker.engine.wall_ms += DAY_MS
    assert "has expired" in send(broker, console, expired).remark
    broker.engine.wall_ms -= DAY_MS
    assert send(broker, console, expired).code == Code.SUCCESS
    assert "was revoked" in send(broker, console, revoked).remark
    disabled = msgspec.json.encode({"userStatus": "disable"})
    assert broker.ask(root, AuthUpdateUser(username="till"), disabled).code == Code.SUCCESS
    broker.engine.wall_ms -= DAY_MS
    assert send(broker, console, "till").code == Code.NO_PERMISSION
    assert send(broker, console, expired).code == Code.NO_PERMISSION


@pytest.mark.parametrize("mode", list(AccessMode))
def test_a_revoked_token_is_refused_at_the_next_request_in_every_mode(
    broker: SecuredBroker, root: Sender, console: Sender, mode: AccessMode
) -> None:
    assert broker.ask(root, SetAccessMode(mode=mode)).code == Code.SUCCESS
    name = broker.token(by_key(broker), "till", "writer")
    assert send(broker, console, name).code == Code.SUCCESS
    revoked = RevokeApiToken(username="till", token_id=name.removeprefix("till:"))
    assert broker.ask(by_key(broker), revoked).code == Code.SUCCESS
    for one in (name, "till:", "till:0123456789ab"):
        assert "was revoked, or has expired" in send(broker, console, one).remark, one
    assert send(broker, console, "till").code == Code.SUCCESS


def test_a_token_of_a_disabled_user_is_refused(
    broker: SecuredBroker, root: Sender, console: Sender
) -> None:
    name = broker.token(by_key(broker), "till", "writer")
    body = msgspec.json.encode({"userStatus": "disable"})
    assert broker.ask(root, AuthUpdateUser(username="till"), body).code == Code.SUCCESS
    assert send(broker, console, name).remark == f"user {name} cannot sign in"


def test_only_a_console_of_the_user_sends_with_its_token(
    broker: SecuredBroker, root: Sender
) -> None:
    name = broker.token(by_key(broker), "till", "writer")
    own = replace(broker.create(root, "console-2", "console:shop-"), secret="")
    for sender in (own, by_key(broker), by_key(broker, "till"), ANYBODY):
        assert "may not send on behalf of user" in send(broker, sender, name).remark


def test_a_name_of_a_token_is_no_credential(broker: SecuredBroker) -> None:
    """It is in the history, and who reads that must not gain anything by it."""
    name = broker.token(by_key(broker), "till", "writer")
    guessed = Sender(user=name, secret=name)
    assert "Check signature failed" in broker.ask(guessed, send_to("orders"), b"x").remark


def test_history_and_audit_name_the_token(broker: SecuredBroker, console: Sender) -> None:
    name = broker.token(by_key(broker), "till", "operator:orders")
    wanted = UpdateAndCreateTopic(topic="orders-2", read_queue_nums=1, write_queue_nums=1, perm=6)
    assert broker.ask(console, wanted, on_behalf_of=name).code == Code.SUCCESS
    actors = [one.actor for one in broker.events() if one.event.aggregate == "topic/orders-2"]
    assert actors == [f"User:{name} through User:console-1"]
    broker.engine.effects.clear()
    send(broker, console, name)
    [noted] = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
    assert (noted.user, noted.console) == (name, "console-1")


def test_a_replica_forwards_the_token_by_name(broker: SecuredBroker, console: Sender) -> None:
    name = broker.token(by_key(broker), "till", "writer:orders")
    received = broker.received(console, send_to("orders"), b"x", on_behalf_of=name)
    assert broker.engine.core.parts.access_gate.allows(received, [])
    replica = Sender(protocol="zmq", listener=MEMBERS)
    assert received.origin == f"console-1/{name}/{console.source}/{console.protocol}"
    for topic, expected in (("orders", Code.SUCCESS), ("bills", Code.NO_PERMISSION)):
        reply = broker.ask(replica, send_to(topic), b"x", on_behalf_of=received.origin)
        assert reply.code == expected, reply.remark


def test_the_quota_of_a_user_counts_the_requests_of_its_tokens(
    broker: SecuredBroker, root: Sender, console: Sender
) -> None:
    quota = SetQuota(kind="user", name="till", publish_messages=10, requests=10)
    assert broker.ask(root, quota).code == Code.SUCCESS
    names = [broker.token(by_key(broker), "till", "writer") for _ in range(4)]
    sent = [
        broker.received(console, send_to("orders"), b"x", on_behalf_of=name)
        for name in names
        for _ in range(10)
    ]
    codes = [one.code for one in broker.give(*sent) if one is not None]
    assert Code.FLOW_CONTROL in codes
