"""Users and policies, as an administrator handles them, at two brokers with the real core."""

from __future__ import annotations

import secrets

import msgspec
import pytest

from kourou.access.api_token import OF_NO_USER, id_of, token_digest
from kourou.access.model import Action, Effect, Pattern, Policy, RoleGrant, User, UserKind, UserRole
from kourou.client.admin.users import AccessAnswer
from kourou.errors import BadRequest, NoPermission, Rejected, Unavailable
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import ReportedRefusal
from kourou.protocol.messages.access import AuthDeleteUser, ReportRefusals
from kourou.protocol.messages.broker_admin import GetStateAt, GetStateAtResponse
from kourou.protocol.request import Request
from kourou.runtime import Peer
from kourou_rigs.wire_cluster import WireCluster
from kourou_rigs.wire_core import connect_as
from kourou_rigs.wire_faults import Answer, Silence, always

OPS = "ops" + "0" * 37
TILL = "till" + "0" * 36
SECRET = "a-secret-of-till"


@pytest.fixture
def cluster():
    """A cluster of brokers with the real core; the client's CURVE key is that of ops."""
    found = WireCluster()
    for name in ("broker-a", "broker-b"):
        connect_as(found.broker(name), OPS)
    return found


@pytest.fixture
async def mq(cluster, producing):
    async with producing() as mq:
        yield mq


@pytest.fixture
async def users(mq):
    """The API, after the first administrator was created."""
    await mq.admin.users.create("ops", admin=True, curve_keys=[OPS])
    return mq.admin.users


def access(cluster, name="broker-a"):
    return cluster.brokers[f"{name}:20911"].engine.control.access


async def test_the_first_user_must_be_an_administrator(cluster, mq):
    with pytest.raises(Rejected, match="the first user must be an administrator"):
        await mq.admin.users.create("till")
    assert access(cluster).users == {}


async def test_a_user_is_created_at_every_broker(cluster, users):
    await users.create(
        "till",
        secret=SECRET,
        roles=["writer:orders-", RoleGrant(UserRole.READER)],
        kind=UserKind.PERSON,
        curve_keys=[TILL],
        reason="a till",
    )
    expected = User(
        name="till",
        kind=UserKind.PERSON,
        roles=(RoleGrant(UserRole.WRITER, "orders-"), RoleGrant(UserRole.READER)),
        curve_keys=(TILL,),
    )
    assert await users.get("till") == {"broker-a": expected, "broker-b": expected}
    for name in ("broker-a", "broker-b"):
        assert "till" in access(cluster, name).secrets
    listed = await users.list()
    assert listed.agreed
    assert [one.name for one in listed["broker-b"]] == ["ops", "till"]


async def test_a_user_who_exists_is_not_created_again(users):
    await users.create("till")
    with pytest.raises(Rejected, match="'till' exists"):
        await users.create("till")


async def test_a_creation_that_failed_at_one_broker_is_completed(cluster, users):
    [_, b] = cluster.brokers.values()
    connect_as(b, OPS, keeps_secrets=False)
    with pytest.raises(Rejected) as refused:
        await users.create("till", secret=SECRET)
    assert "not changed at broker-b: this broker cannot keep secrets" in refused.value.message
    assert "broker-a changed" in refused.value.hint
    assert SECRET not in str(refused.value)
    assert "till" in access(cluster).users
    assert "till" not in access(cluster, "broker-b").users
    connect_as(b, OPS)
    await users.create("till", secret=SECRET, roles=["writer"])
    assert (await users.get("till")).agreed
    assert {"till"} == set(access(cluster, "broker-b").secrets)


async def test_a_change_reaches_the_other_brokers_and_names_the_one_that_failed(cluster, users):
    await users.create("till")
    [a, _] = cluster.brokers.values()

    a.faults[AuthDeleteUser] = [Silence]
    with pytest.raises(Unavailable, match=r"not changed at broker-a: .*did not answer"):
        await users.delete("till")
    assert "till" not in access(cluster, "broker-b").users
    found = await users.get("till")
    assert (list(found), list(found.missing)) == (["broker-a"], ["broker-b"])
    await users.delete("till")
    assert "till" not in access(cluster).users
    with pytest.raises(Rejected, match="not found"):
        await users.delete("till")
    with pytest.raises(Rejected, match="not found"):
        await users.get("till")


async def test_what_is_not_given_stays(cluster, users):
    await users.create("till", secret=SECRET, roles=["writer"], curve_keys=[TILL])
    await users.set("till", enabled=False)
    [before, _] = (await users.get("till")).values()
    assert before == User(
        name="till", enabled=False, roles=(RoleGrant(UserRole.WRITER),), curve_keys=(TILL,)
    )
    sealed = access(cluster).secrets["till"]
    await users.set("till", roles=[], curve_keys=[], secret=SECRET + "2", enabled=True)
    [after, _] = (await users.get("till")).values()
    assert after == User(name="till")
    assert access(cluster).secrets["till"] != sealed


async def test_the_last_administrator_stays(users):
    for change in (
        users.delete("ops"),
        users.set("ops", admin=False),
        users.set("ops", enabled=False),
    ):
        with pytest.raises(Rejected, match="last administrator"):
            await change


async def test_policies_are_put_replaced_and_revoked(users):
    await users.create("till")
    await users.allow("till", "Topic:orders", "sub, pub", networks=["10.0.0.0/8", "192.168.0.7"])
    await users.deny("till", "Topic:secret-*", ["All"], until_ms=9_999_999_999_999)
    await users.allow("anonymous", "Topic:news", "Sub")
    found = await users.policies("till")
    assert found.agreed
    assert found["broker-a"] == [
        Policy(
            id="till/Topic:orders/allow",
            user="till",
            resource=Pattern.parse("Topic:orders"),
            actions=(Action.PUB, Action.SUB),
            networks=("10.0.0.0/8", "192.168.0.7/32"),
        ),
        Policy(
            id="till/Topic:secret-*/deny",
            user="till",
            resource=Pattern.parse("Topic:secret-*"),
            actions=tuple(Action),
            effect=Effect.DENY,
            until_ms=9_999_999_999_999,
        ),
    ]
    await users.deny("till", "Topic:orders", "Pub")
    [orders, _] = (await users.policies("till"))["broker-b"]
    assert (orders.effect, orders.actions) == (Effect.DENY, (Action.PUB,))
    await users.revoke("till", "Topic:orders")
    assert len((await users.policies("till"))["broker-a"]) == 1
    await users.revoke("till")
    assert [one.user for one in (await users.policies())["broker-a"]] == ["anonymous"]
    await users.revoke("anonymous", "Topic:news")
    assert await users.policies() == {"broker-a": [], "broker-b": []}


async def test_policies_are_revoked_where_their_user_is(cluster, users):
    await users.create("till")
    await users.allow("till", "Topic:orders", "Sub")
    access(cluster, "broker-b").users.pop("till")
    access(cluster, "broker-b").policies.clear()
    await users.revoke("till")
    assert not access(cluster).policies
    with pytest.raises(Rejected, match="user 'tlil' not found"):
        await users.revoke("tlil")


async def test_a_resource_may_have_a_policy_of_each_effect(users):
    await users.create("till")
    orders = Pattern.parse("Topic:orders")
    both = [
        Policy(id=effect, user="till", resource=orders, actions=(action,), effect=effect)
        for effect, action in ((Effect.ALLOW, Action.SUB), (Effect.DENY, Action.PUB))
    ]
    await users.put_policies("till", both)
    assert len((await users.policies("till"))["broker-a"]) == 2


@pytest.mark.parametrize(
    ("resource", "actions", "networks"),
    [
        ("orders", "Pub", ()),
        ("Topic:a*b", "Pub", ()),
        ("Topic:orders", "Publish", ()),
        ("Topic:orders", "", ()),
        ("Topic:orders", "Pub", ("10.0.0.1/8",)),
        ("Topic:orders", "Pub", ("0177.0.0.1",)),
    ],
)
async def test_policies_are_checked_first(cluster, users, resource, actions, networks):
    version = access(cluster).version
    with pytest.raises(BadRequest):
        await users.allow("till", resource, actions, networks=networks)
    assert access(cluster).version == version


async def test_values_of_users_are_checked_first(mq):
    for wrong in (
        {"name": "a:b"},
        {"name": "till", "curve_keys": ["short"]},
        {"name": "till", "node": "c1/broker-a/0", "kind": UserKind.SERVICE},
        {"name": "till", "roles": ["captain"]},
    ):
        with pytest.raises(BadRequest):
            await mq.admin.users.create(**wrong)
    with pytest.raises(BadRequest) as refused:
        await mq.admin.users.create("till", secret="short")
    assert "short" not in str(refused.value)


async def test_mode_and_status(cluster, users):
    with pytest.raises(BadRequest, match="'on' is not a mode"):
        await users.mode("on")
    await users.mode("observe")
    found = await users.status()
    assert [(one.mode, one.effective, one.users) for one in found.values()] == [
        ("observe", "observe", 1)
    ] * 2
    with pytest.raises(BadRequest, match="'window' is not a door"):
        await users.mode("enforce", "window")
    await users.mode("enforce", "remoting")
    found = await users.status()
    assert [(one.mode, one.doors) for one in found.values()] == [
        ("observe", {"remoting": "enforce"})
    ] * 2


async def test_refusals_are_in_the_status(cluster, users, mq):
    await users.create("till", curve_keys=[TILL])
    [a, b] = cluster.brokers.values()
    for one in (a, b):
        connect_as(one, TILL)
    with pytest.raises(NoPermission, match="user till has no right to Get on User:ops"):
        await users.why("ops", "Pub", "Topic:orders")
    for one in (a, b):
        connect_as(one, OPS)
    [one] = (await users.status())["broker-a"].refusals
    assert (one.user, one.request, one.need, one.count, one.handled) == (
        *("till", "ExplainAccess", "Get on User:ops", 1, False),
    )


async def test_why(users):
    await users.create("till", roles=["writer:orders-"])
    await users.allow("till", "Topic:news", "Sub", networks=["10.0.0.0/8"])
    assert await users.why("till", "Pub", "Topic:orders-1") == {
        name: AccessAnswer(allowed=True, by="role writer on orders-*")
        for name in ("broker-a", "broker-b")
    }
    refused = (await users.why("till", "Sub", "Topic:news"))["broker-a"]
    assert not refused.allowed
    assert refused.nearest == ("policy till/Topic:news/allow, but only from 10.0.0.0/8",)
    assert (await users.why("till", "Sub", "Topic:news", "10.1.2.3"))["broker-a"].allowed


async def test_why_at_a_past_moment_is_decided_by_the_state_of_that_time(cluster, users):
    """Each broker is asked for the user as of then; what the user may now does not count."""
    user = User(name="till", roles=(RoleGrant(UserRole.WRITER, "orders-", until_ms=2_000),))
    policy = Policy(
        id="p", user="till", resource=Pattern.parse("Topic:news"), actions=(Action.SUB,),
        networks=("10.0.0.0/8",),
    )  # fmt: skip
    state = msgspec.json.encode({"user": user, "has_secret": True, "policies": [policy]})
    asked = []

    def answer(request):
        asked.append((request.aggregate, request.at_ms))
        header = GetStateAtResponse(next_offset=9, at_ms=1)
        return Answer(header=header, body=state if request.at_ms else b"null")

    for broker in cluster.brokers.values():
        broker.faults[GetStateAt] = always(answer)
    found = await users.why("till", "Pub", "Topic:orders-1", at_ms=1_999)
    assert found == {
        name: AccessAnswer(allowed=True, by="role writer on orders-*")
        for name in ("broker-a", "broker-b")
    }
    assert asked == [("user/till", 1_999)] * 2
    assert not (await users.why("till", "Pub", "Topic:orders-1", at_ms=2_000))["broker-a"].allowed
    refused = (await users.why("till", "Sub", "Topic:news", at_ms=5))["broker-a"]
    assert refused.nearest == ("policy p, but only from 10.0.0.0/8",)
    assert (await users.why("till", "Sub", "Topic:news", "10.1.2.3", at_ms=5))["broker-a"].allowed
    absent = (await users.why("till", "Sub", "Topic:news", at_ms=0))["broker-a"]
    assert (absent.allowed, absent.by) == (False, "the user does not exist")
    with pytest.raises(BadRequest, match="is not an IP address"):
        await users.why("till", "Sub", "Topic:news", "010.0.0.1", at_ms=5)
    with pytest.raises(BadRequest, match="one action on one resource"):
        await users.why("till", "All", "Topic:news", at_ms=5)


async def test_brokers_that_differ_are_seen(cluster, users):
    await users.create("till")
    access(cluster, "broker-b").users.pop("till")
    listed = await users.list()
    assert not listed.agreed
    assert [len(found) for found in listed.values()] == [2, 1]


async def test_a_broker_that_does_not_reply_is_named(cluster, users):
    [a, b] = cluster.brokers.values()
    a.faults[Request] = always(Silence)
    found = await users.list()
    assert (list(found), list(found.missing)) == (["broker-b"], ["broker-a"])
    b.faults[Request] = always(Silence)
    with pytest.raises(Exception, match="did not answer"):
        await users.list()


async def test_no_secret_is_in_a_repr(users):
    from kourou.client.admin.users import _change

    secret = secrets.token_urlsafe()
    change = _change(secret=secret, admin=None, roles=None, kind=None, curve_keys=None, node=None)
    assert (change.secret, secret in repr(change)) == (secret, False)


# -- consoles -------------------------------------------------------------------------------------

CONSOLE = "console" + "0" * 33


@pytest.fixture
async def console(cluster, users):
    """The API of a console, and a user."""
    await users.create("till", secret=SECRET, roles=["reader"])
    await become_console(cluster, users)
    return users


def connect_all(cluster, key):
    """As connect_as, at all brokers, which keep the keys of their secrets."""

    def peer(number):
        return Peer(number, "zmq", ("127.0.0.1", 40_000 + number), key=key)

    for broker in cluster.brokers.values():
        broker.engine.peer = peer


async def become_console(cluster, users):
    """From now on the client's key is that of a console, which is a user of its own."""
    await users.create("console-1", roles=["console"], curve_keys=[CONSOLE])
    connect_all(cluster, CONSOLE)


async def test_a_secret_has_an_id_at_each_broker(console):
    found = await console.credential("till", SECRET)
    assert set(found) == {"broker-a", "broker-b"}
    assert len(set(found.values())) == 2
    assert await console.has_credential("till", found)
    assert not await console.has_credential("till", {"broker-a": found["broker-a"]})
    assert not await console.has_credential("till", {})
    for name, secret in (("till", "another-secret"), ("nobody", SECRET), ("till", "")):
        assert await console.credential(name, secret) == {}


async def test_a_certificate_belongs_to_the_user_of_whom_all_brokers_say_so(cluster, users):
    subject = "CN=till,O=Example"
    await users.create("till", certificate_subjects=[subject])
    await become_console(cluster, users)
    assert await users.user_of_certificate(subject) == "till"
    assert await users.user_of_certificate("CN=till") == ""
    table = access(cluster, "broker-b")
    table.users["till"] = msgspec.structs.replace(table.users["till"], certificate_subjects=())
    table.changed(0)
    assert await users.user_of_certificate(subject) == ""


async def test_subjects_are_kept_and_removed(cluster, users):
    await users.create("till", certificate_subjects=["cn=till, O=Example"])
    expected = User(name="till", certificate_subjects=("CN=till,O=Example",))
    assert await users.get("till") == {"broker-a": expected, "broker-b": expected}
    await users.set("till", enabled=False)
    assert (await users.get("till"))["broker-a"].certificate_subjects == ("CN=till,O=Example",)
    await users.set("till", certificate_subjects=[])
    assert (await users.get("till"))["broker-b"].certificate_subjects == ()
    with pytest.raises(BadRequest, match="is not the subject of a certificate"):
        await users.create("new", certificate_subjects=["till"])


async def test_one_broker_with_another_secret_is_enough_to_refuse(cluster, console):
    found = await console.credential("till", SECRET)
    access(cluster, "broker-b").secrets.pop("till")
    access(cluster, "broker-b").changed(0)
    assert await console.credential("till", SECRET) == {}
    assert not await console.has_credential("till", found)


async def test_brokers_without_users_or_without_a_reply_do_not_count(cluster, console):
    [a, b] = cluster.brokers.values()
    access(cluster, "broker-b").users.clear()
    access(cluster, "broker-b").changed(0)
    found = await console.credential("till", SECRET)
    assert set(found) == {"broker-a"}
    b.faults[Request] = always(Silence)
    assert await console.has_credential("till", found)
    a.faults[Request] = always(Silence)
    with pytest.raises(Exception, match="did not answer"):
        await console.credential("till", SECRET)


async def test_brokers_keep_the_hash_of_a_password(cluster, users):
    await users.create("till", password_hash=OF_NO_USER)
    await users.create("console-1", roles=["console"], curve_keys=[CONSOLE])
    assert await users.kept("till") == {"broker-a": ("password",), "broker-b": ("password",)}
    assert await users.kept("ops") == {"broker-a": (), "broker-b": ()}
    with pytest.raises(Rejected, match="a password is stored as"):
        await users.set("till", password_hash="several long words")
    await users.set("till", enabled=True)
    connect_all(cluster, CONSOLE)
    assert await users.password_hash("till") == OF_NO_USER
    assert await users.password_hash("unknown") == ""
    box = cluster.brokers["broker-b:20911"].engine.core.parts.access_gate._box
    other = box.seal("till:password", OF_NO_USER.replace("AAA", "BBB"))
    access(cluster, "broker-b").passwords["till"] = other
    assert await users.password_hash("till") == "", "brokers do not agree"
    connect_all(cluster, OPS)
    await users.set("till", password_hash="")
    assert access(cluster).passwords == access(cluster, "broker-b").passwords == {}


async def test_a_token_is_returned_once_and_ends_with_its_revocation(cluster, users):
    await users.create("till", roles=["writer"])
    token = await users.create_token("till", scope="writer:orders-", days=7, reason="shop")
    listed = await users.tokens("till")
    assert (set(listed), listed.agreed) == ({"broker-a", "broker-b"}, True)
    [one] = listed["broker-a"]
    assert (one.user, one.scope) == ("till", RoleGrant(UserRole.WRITER, "orders-"))
    assert one.expires_ms - one.created_ms == 7 * DAY_MS
    assert (one.id, one.digest) == (id_of(token_digest(token)), "")
    assert await users.tokens("ops") == {"broker-a": [], "broker-b": []}
    with pytest.raises(Rejected, match="user 'ops' has no token"):
        await users.revoke_token("ops", one.id)
    await users.revoke_token("till", one.id)
    assert await users.tokens() == {"broker-a": [], "broker-b": []}
    with pytest.raises(Rejected, match="has no token"):
        await users.revoke_token("till", one.id)


async def test_a_user_changes_its_own_password_and_tokens_without_a_right(cluster, users):
    await users.create("till", curve_keys=[TILL])
    connect_all(cluster, TILL)
    with pytest.raises(NoPermission):
        await users.set("till", password_hash=OF_NO_USER)
    await users.set_own_password(OF_NO_USER, reason="forgotten")
    for name in ("broker-a", "broker-b"):
        assert set(access(cluster, name).passwords) == {"till"}
    token = await users.create_own_token(scope="reader", days=7)
    listed = await users.own_tokens()
    [one] = listed["broker-a"]
    assert (one.name, listed.agreed) == (f"till:{id_of(token_digest(token))}", True)
    with pytest.raises(Rejected, match="you have no token 'x'"):
        await users.revoke_own_token("x")
    await users.revoke_own_token(one.id)
    assert await users.own_tokens() == {"broker-a": [], "broker-b": []}
    await users.set_own_password("")
    assert access(cluster).passwords == access(cluster, "broker-b").passwords == {}


async def test_what_a_console_refused_itself_goes_to_the_audit_of_one_broker(cluster, users):
    await users.create("console-1", roles=["console"], curve_keys=[CONSOLE])
    refusal = ReportedRefusal(user="eve", source="", request="SignIn", by="wrong", count=3)
    with pytest.raises(NoPermission):
        await users.report_refusals([refusal])
    connect_all(cluster, CONSOLE)

    def counted(name):
        gate = cluster.brokers[f"{name}:20911"].engine.core.parts.access_gate
        return [one.count for one in gate.refusals() if one.user == "eve"]

    await users.report_refusals([refusal])
    assert (counted("broker-a"), counted("broker-b")) == ([3], [])
    cluster.brokers["broker-a:20911"].faults[ReportRefusals] = always(Silence)
    await users.report_refusals([refusal])
    assert (counted("broker-a"), counted("broker-b")) == ([3], [3])
    cluster.brokers["broker-b:20911"].faults[ReportRefusals] = always(Silence)
    with pytest.raises(Exception, match="did not answer"):
        await users.report_refusals([refusal])


async def test_a_token_that_cannot_be_is_refused_before_brokers_are_asked(cluster, users):
    await users.create("till")
    for scope, days in (("king", 1), ("console", 1), ("reader", 0), ("reader", 367)):
        with pytest.raises(BadRequest):
            await users.create_token("till", scope=scope, days=days)
    with pytest.raises(Rejected, match="'nemo' not found"):
        await users.create_token("nemo", scope="reader", days=1)
    assert await users.tokens() == {"broker-a": [], "broker-b": []}


async def test_a_revocation_reaches_the_brokers_that_have_the_token(cluster, users):
    await users.create("till")
    token = await users.create_token("till", scope="reader", days=1)
    access(cluster, "broker-a").tokens.clear()
    access(cluster, "broker-a").changed(0)
    await users.revoke_token("till", id_of(token_digest(token)))
    assert access(cluster, "broker-b").tokens == {}


async def test_a_console_learns_the_sender_of_a_token(cluster, users):
    await users.create("till")
    digest = token_digest(await users.create_token("till", scope="reader", days=1))
    await become_console(cluster, users)
    name = f"till:{id_of(digest)}"
    assert await users.sender_of_token(digest) == name
    assert await users.sender_of_token(token_digest("another")) == ""
    table = access(cluster, "broker-b")
    table.tokens[name] = msgspec.structs.replace(table.tokens[name], expires_ms=1)
    table.changed(0)
    with pytest.raises(Rejected, match="the token has expired"):
        await users.sender_of_token(digest)
    table.tokens.clear()
    table.changed(0)
    assert await users.sender_of_token(digest) == "", "one broker without it is enough"


async def test_only_a_console_checks_secrets(users):
    await users.create("till", secret=SECRET)
    with pytest.raises(NoPermission, match="only a console of user till"):
        await users.credential("till", SECRET)


async def test_a_client_asks_what_it_may_itself(console):
    answer = AccessAnswer(allowed=False, by="no policy allows it")
    assert (await console.may("Get", "Cluster:*"))["broker-a"] == answer
