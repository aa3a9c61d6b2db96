"""Requests about users and policies: who may change whom, and that no secret comes out again."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kourou.access.api_token import id_of, token_digest, token_of
from kourou.access.model import AccessMode, Door, Effect, UserKind
from kourou.access.password import OF_NO_USER
from kourou.authorization.audit import AccessDecided
from kourou.engine.admin.history import event_view, tell_state
from kourou.engine.control import encode_state
from kourou.engine.inputs import RegistrationDone
from kourou.errors import Code, DecodeError
from kourou.model.limits import OWN_CHANGES_HOUR_MAX
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import (
    ReportedRefusal,
    UserChange,
    decode_policies_of_users,
    decode_tokens,
    decode_user_change,
    decode_users,
    encode_reported,
)
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.messages.access import (
    AuthCreateAcl,
    AuthCreateUser,
    AuthDeleteAcl,
    AuthDeleteUser,
    AuthGetAcl,
    AuthGetUser,
    AuthListAcl,
    AuthListUser,
    AuthUpdateAcl,
    AuthUpdateUser,
    CheckCredential,
    CreateApiToken,
    CreateOwnToken,
    ExplainAccess,
    GetAccessStatus,
    ListApiTokens,
    ListOwnTokens,
    ReportRefusals,
    RevokeApiToken,
    RevokeOwnToken,
    SetAccessMode,
    SetOwnPassword,
)
from kourou.protocol.messages.broker_admin import (
    GetBrokerClusterAclInfo,
    GetBrokerConfig,
    GetControlEvents,
    Undo,
    UpdateAndCreateAclConfig,
    UpdateAndCreateTopic,
)
from kourou.protocol.messages.filter_server import ChangeFilter, PutFilter
from kourou.protocol.messages.groups import (
    DeleteSubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.messages.replication import FetchLog
from kourou.runtime.core import Reply
from kourou.service.secret_keys import SecretKeys
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, curve_key, secret_box
from kourou_rigs.engine import Engine, header_of

ONLY_AN_ADMINISTRATOR = "only an administrator may change"
SUPER = {"userType": "Super"}


@pytest.fixture
def broker() -> SecuredBroker:
    """A broker without users."""
    return SecuredBroker()


@pytest.fixture
def root(broker: SecuredBroker) -> Sender:
    """The administrator."""
    return broker.administrator()


@pytest.fixture
def clerk(broker: SecuredBroker, root: Sender) -> Sender:
    """A user who may do everything with users, and nothing else."""
    made = broker.create(root, "clerk")
    assert broker.allow(root, "clerk", "User:*", "All").code == Code.SUCCESS
    return made


def ask(broker: SecuredBroker, sender: Sender, request: Any, **body: Any) -> Reply:
    return broker.ask(sender, request, msgspec.json.encode(body) if body else b"")


def entries(*found: dict[str, Any]) -> dict[str, Any]:
    return {"policies": [{"policyType": "Custom", "entries": list(found)}]}


def one_user(broker: SecuredBroker, sender: Sender, name: str) -> dict[str, Any]:
    reply = ask(broker, sender, AuthGetUser(username=name))
    assert reply.code == Code.SUCCESS, reply.remark
    return json.loads(b"".join(reply.body))


# -- the first user -------------------------------------------------------------------------------


def test_the_first_user_must_be_an_administrator(broker: SecuredBroker) -> None:
    reply = ask(broker, ANYBODY, AuthCreateUser(username="till"), password="a-secret")
    assert (reply.code, "first user must be" in reply.remark) == (Code.SYSTEM_ERROR, True)
    assert not broker.access.users
    reply = ask(broker, ANYBODY, AuthCreateUser(username="root"), password="a-secret", **SUPER)
    assert reply.code == Code.SUCCESS
    assert ask(broker, ANYBODY, AuthListUser()).code == Code.NO_PERMISSION


def test_a_change_is_answered_when_name_servers_know_it() -> None:
    broker = SecuredBroker(Engine(name_servers=False))
    body = msgspec.json.encode({**SUPER, "curveKeys": [curve_key("root")]})
    [reply] = broker.give(broker.received(ANYBODY, AuthCreateUser(username="root"), body))
    assert reply is None
    broker.engine.handle(RegistrationDone(1))
    [reply] = broker.engine.replies.values()
    assert reply.code == Code.SUCCESS


def test_without_keys_for_secrets_a_user_needs_a_curve_key() -> None:
    broker = SecuredBroker(Engine())
    reply = ask(broker, ANYBODY, AuthCreateUser(username="root"), password="a-secret", **SUPER)
    assert (reply.code, "accessKeyFile is not set" in reply.remark) == (Code.NO_PERMISSION, True)
    by_key = {"curveKeys": [curve_key("root")], **SUPER}
    assert ask(broker, ANYBODY, AuthCreateUser(username="root"), **by_key).code == Code.SUCCESS
    assert ask(broker, Sender(key=curve_key("root")), AuthListUser()).code == Code.SUCCESS


def test_the_last_administrator_stays(broker: SecuredBroker, root: Sender) -> None:
    for request, body in (
        (AuthDeleteUser(username="root"), {}),
        (AuthUpdateUser(username="root"), {"userStatus": "disable"}),
        (AuthUpdateUser(username="root"), {"userType": "Normal"}),
        (AuthUpdateUser(username="root"), {"roles": ["administrator:orders-"]}),
    ):
        reply = ask(broker, root, request, **body)
        assert (reply.code, "the last administrator" in reply.remark) == (Code.SYSTEM_ERROR, True)
    first = next(one.offset for one in broker.events() if one.event.type == "UserPut")
    reply = ask(broker, replace(root, secret=""), Undo(offset=first, force=True))
    assert "the last administrator" in reply.remark
    assert broker.access.table.administrators == ["root"]


@pytest.mark.parametrize("resource", ["*", "User:*", "Topic:*"])
def test_no_denial_takes_the_rights_of_an_administrator(
    broker: SecuredBroker, root: Sender, resource: str
) -> None:
    """Who could deny the last one everything would have removed it."""
    broker.create(root, "till")
    denied = broker.allow(root, "root", resource, "All", effect=Effect.DENY)
    assert denied.code == Code.SUCCESS, denied.remark
    changed = ask(broker, root, AuthUpdateUser(username="till"), userStatus="disable")
    assert changed.code == Code.SUCCESS, changed.remark
    assert not broker.access.users["till"].enabled
    topic = UpdateAndCreateTopic(topic="new", read_queue_nums=1, write_queue_nums=1, perm=6)
    assert broker.ask(root, topic).code == Code.SUCCESS
    removed = ask(broker, root, AuthDeleteAcl(subject="User:root", resource=resource))
    assert removed.code == Code.SUCCESS, removed.remark


# -- users ----------------------------------------------------------------------------------------


def test_a_change_leaves_what_it_does_not_mention(broker: SecuredBroker, root: Sender) -> None:
    broker.create(root, "till", "writer:orders-", "reader")
    changed = AuthUpdateUser(username="till")
    assert ask(broker, root, changed, userStatus="disable").code == Code.SUCCESS
    user = one_user(broker, root, "till")
    assert (user["userStatus"], user["roles"]) == ("disable", ["writer:orders-", "reader"])
    assert user["curveKeys"] == [curve_key("till")]
    assert ask(broker, root, changed, **SUPER).code == Code.SUCCESS
    roles = ["administrator", "writer:orders-", "reader"]
    assert one_user(broker, root, "till")["roles"] == roles
    assert one_user(broker, root, "till")["userType"] == "Super"
    assert ask(broker, root, changed, userType="Normal").code == Code.SUCCESS
    assert one_user(broker, root, "till")["roles"] == roles[1:]


def test_users_are_created_once_and_found_by_a_part_of_their_name(
    broker: SecuredBroker, root: Sender
) -> None:
    broker.create(root, "till-1")
    broker.create(root, "till-2", kind="node", node="DefaultCluster/broker-a/1")
    again = ask(broker, root, AuthCreateUser(username="till-1"))
    assert "user till-1 exists" in again.remark
    found = decode_users(b"".join(ask(broker, root, AuthListUser(filter="till")).body))
    assert [(one.name, one.kind) for one in found] == [
        ("till-1", UserKind.SERVICE),
        ("till-2", UserKind.NODE),
    ]
    absent = ask(broker, root, AuthGetUser(username="x"))
    assert (absent.code, b"".join(absent.body)) == (Code.SUCCESS, b""), "as mqadmin 5.3 expects"
    for request in (AuthUpdateUser(username="x"), AuthDeleteUser(username="x")):
        assert "user 'x' not found" in ask(broker, root, request).remark


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"password": "short"}, "a secret has 7 to 256 printable characters"),
        ({"password": "with\nline"}, "a secret has 7 to 256 printable characters"),
        ({"userType": "root"}, "userType is 'root' (one of super, normal)"),
        ({"userStatus": "on"}, "userStatus is 'on' (one of enable, disable)"),
        ({"kind": "robot"}, "kind is 'robot'"),
        ({"roles": ["king"]}, "'king' is not a role"),
        ({"curveKeys": ["short"]}, "'short' is not a CURVE public key"),
        ({"kind": "node"}, "a node, and only a node, names its process"),
    ],
)
def test_a_bad_user_changes_nothing(
    broker: SecuredBroker, root: Sender, body: dict[str, Any], sentence: str
) -> None:
    version = broker.access.version
    reply = ask(broker, root, AuthCreateUser(username="till"), **body)
    assert (reply.code, sentence in reply.remark) == (Code.SYSTEM_ERROR, True), reply.remark
    assert body.get("password", "?") not in reply.remark
    assert broker.access.version == version


# -- policies -------------------------------------------------------------------------------------


def test_policies_come_back_as_they_were_given(broker: SecuredBroker, root: Sender) -> None:
    broker.create(root, "till")
    given = [
        {"resource": "Topic:orders-*", "actions": ["pub", "SUB"], "sourceIps": ["10.0.0.*"]},
        {"resource": "Group:g", "actions": ["All"], "decision": "Deny", "untilMs": 99},
    ]
    request = AuthCreateAcl(subject="User:till", reason="for the shop")
    assert ask(broker, root, request, **entries(*given)).code == Code.SUCCESS
    reply = ask(broker, root, AuthGetAcl(subject="User:till"))
    [found] = json.loads(b"".join(reply.body))["policies"]
    assert found["entries"] == [
        {
            "resource": "Group:g",
            "actions": ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List"],
            "decision": "Deny",
            "untilMs": 99,
        },
        {
            "resource": "Topic:orders-*",
            "actions": ["Pub", "Sub"],
            "sourceIps": ["10.0.0.0/24"],
            "decision": "Allow",
        },
    ]
    assert {one.reason for one in broker.access.policies.values()} == {"for the shop"}


def test_a_policy_for_a_resource_replaces_the_one_before(
    broker: SecuredBroker, root: Sender
) -> None:
    broker.create(root, "till")
    orders = {"resource": "Topic:orders", "actions": ["Pub"]}
    update = AuthUpdateAcl(subject="User:till")
    ask(broker, root, update, **entries(orders))
    ask(broker, root, update, **entries({**orders, "decision": "Deny"}))
    [policy] = broker.access.policies.values()
    assert policy.effect is Effect.DENY
    both = entries(orders, {**orders, "decision": "Deny"})
    ask(broker, root, update, **both)
    assert len(broker.access.policies) == 2


def test_policies_are_removed_by_resource_or_all(broker: SecuredBroker, root: Sender) -> None:
    broker.create(root, "till")
    for name in ("a", "b", "c"):
        broker.allow(root, "till", f"Topic:{name}", "Pub")
    one = AuthDeleteAcl(subject="User:till", resource="Topic:b")
    assert ask(broker, root, one).code == Code.SUCCESS
    listed = AuthListAcl(subject_filter="till", resource_filter="Topic")
    found = decode_policies_of_users(b"".join(ask(broker, root, listed).body))
    assert [str(policy.resource) for policy in found] == ["Topic:a", "Topic:c"]
    assert ask(broker, root, AuthDeleteAcl(subject="User:till")).code == Code.SUCCESS
    assert not broker.access.policies
    again = ask(broker, root, AuthDeleteAcl(subject="User:till"))
    assert again.code == Code.SUCCESS, "none is left, as was wanted"


def test_without_policies_the_reply_has_no_body_and_without_a_user_it_is_an_error(
    broker: SecuredBroker, root: Sender
) -> None:
    """As mqadmin 5.3 expects: what it gets a body for, copyAcl copies."""
    broker.create(root, "till")
    for subject in ("User:till", "User:anonymous"):
        none = ask(broker, root, AuthGetAcl(subject=subject))
        assert (none.code, b"".join(none.body)) == (Code.SUCCESS, b""), subject
    for request in (AuthGetAcl(subject="User:tlil"), AuthDeleteAcl(subject="User:tlil")):
        reply = ask(broker, root, request)
        assert (reply.code, "user 'tlil' not found" in reply.remark) == (Code.SYSTEM_ERROR, True)
    broker.allow(root, "anonymous", "Topic:news", "Sub")
    found = ask(broker, root, AuthGetAcl(subject="User:anonymous"))
    assert json.loads(b"".join(found.body))["subject"] == "User:anonymous"


@pytest.mark.parametrize(
    ("subject", "entry", "sentence"),
    [
        ("till", {"resource": "Topic:a", "actions": ["Pub"]}, "'till' is not a subject"),
        ("User:nemo", {"resource": "Topic:a", "actions": ["Pub"]}, "user 'nemo' not found"),
        ("User:till", {"resource": "Topic", "actions": ["Pub"]}, "'Topic' is not a resource"),
        ("User:till", {"resource": "Topic:a*b", "actions": ["Pub"]}, "is not a resource"),
        ("User:till", {"resource": "Topic:a", "actions": ["Own"]}, "'Own' is not an action"),
        ("User:till", {"resource": "Topic:a", "actions": []}, "at least one action"),
        (
            "User:till",
            {"resource": "Cluster:DefaultCluster", "actions": ["Update"], "decision": "Deny"},
            "Cluster:DefaultCluster matches nothing",
        ),
        (
            "User:till",
            {"resource": "Topic:a", "actions": ["Pub"], "decision": "Perhaps"},
            "decision is 'Perhaps'",
        ),
        (
            "User:till",
            {"resource": "Topic:a", "actions": ["Pub"], "sourceIps": ["010.0.0.1"]},
            "is not an address",
        ),
    ],
)
def test_a_bad_policy_changes_nothing(
    broker: SecuredBroker, root: Sender, subject: str, entry: dict[str, Any], sentence: str
) -> None:
    broker.create(root, "till")
    version = broker.access.version
    good = {"resource": "Topic:good", "actions": ["Pub"]}
    reply = ask(broker, root, AuthCreateAcl(subject=subject), **entries(good, entry))
    assert (reply.code, sentence in reply.remark) == (Code.SYSTEM_ERROR, True), reply.remark
    assert broker.access.version == version


# -- nobody raises himself ------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["operator", "writer", "reader", "filter-author", "backup"])
def test_no_other_role_may_change_users(broker: SecuredBroker, root: Sender, role: str) -> None:
    user = broker.create(root, "joe", role)
    grant = entries({"resource": "*", "actions": ["All"]})
    for request, body in (
        (AuthUpdateUser(username="joe"), SUPER),
        (AuthCreateUser(username="other"), SUPER),
        (AuthDeleteUser(username="root"), {}),
        (AuthCreateAcl(subject="User:joe"), grant),
        (AuthUpdateAcl(subject="User:joe"), grant),
        (AuthDeleteAcl(subject="User:root"), {}),
        (SetAccessMode(mode="off"), {}),
        (UpdateAndCreateAclConfig(access_key="joe", secret_key="1234567", admin=True), {}),
    ):
        version = broker.access.version
        how = user if request.code < 30_000 else replace(user, secret="")
        reply = ask(broker, how, request, **body)
        assert reply.code == Code.NO_PERMISSION, request
        assert broker.access.version == version


def test_an_operator_does_not_undo_what_was_decided_about_users(
    broker: SecuredBroker, root: Sender
) -> None:
    operator = broker.create(root, "joe", "operator")
    assert ask(broker, root, AuthUpdateUser(username="joe"), roles=["reader"]).code == 0
    demotion = broker.events()[-1].offset
    assert ask(broker, root, AuthUpdateUser(username="joe"), roles=["operator"]).code == 0
    broker.allow(root, "joe", "Topic:secret", "Get", effect="deny")
    denial = broker.events()[-1].offset
    for offset in (demotion, denial):
        reply = ask(broker, replace(operator, secret=""), Undo(offset=offset, force=True))
        assert (reply.code, ONLY_AN_ADMINISTRATOR in reply.remark) == (Code.NO_PERMISSION, True)
    assert len(broker.access.policies) == 1
    reply = ask(broker, replace(root, secret=""), Undo(offset=denial))
    assert (reply.code, len(broker.access.policies)) == (Code.SUCCESS, 0)


@pytest.mark.parametrize("mode", list(AccessMode))
def test_an_administrator_undoes_what_was_decided_about_users_in_every_mode(
    broker: SecuredBroker, root: Sender, mode: AccessMode
) -> None:
    by_key, joe = replace(root, secret=""), replace(broker.create(root, "joe", "operator"), key="")
    assert ask(broker, root, AuthUpdateUser(username="joe"), roles=["reader", "operator"]).code == 0
    change = broker.events()[-1].offset
    assert ask(broker, by_key, SetAccessMode(mode=mode)).code == Code.SUCCESS
    for sender in (ANYBODY, joe, replace(root, secret="a wrong secret"), Sender(key="x" * 40)):
        assert ask(broker, sender, Undo(offset=change)).code == Code.NO_PERMISSION
    assert len(broker.access.users["joe"].roles) == 2
    assert ask(broker, by_key, Undo(offset=change)).code == Code.SUCCESS
    assert len(broker.access.users["joe"].roles) == 1
    assert broker.events()[-1].actor == "User:root"


def test_with_decisions_off_only_an_administrator_sees_users_in_the_history(
    broker: SecuredBroker, root: Sender
) -> None:
    by_key = replace(root, secret="")
    broker.allow(root, "root", "Topic:hidden-name", "Get")
    assert ask(broker, by_key, SetAccessMode(mode="off")).code == Code.SUCCESS
    request = GetControlEvents(from_offset=0, max_count=500)
    for sender, shown in ((by_key, True), (ANYBODY, False), (replace(root, secret="no"), False)):
        reply = ask(broker, sender, request)
        assert (b"hidden-name" in b"".join(map(bytes, reply.body))) is shown


def test_an_undo_needs_the_right_to_what_it_changes(broker: SecuredBroker, root: Sender) -> None:
    operator = replace(broker.create(root, "joe", "operator"), secret="")
    put = UpdateAndCreateTopic(topic="secret", read_queue_nums=2, write_queue_nums=2, perm=6)
    for queues in (2, 4):
        wanted = msgspec.structs.replace(put, read_queue_nums=queues, write_queue_nums=queues)
        assert broker.ask(root, wanted).code == Code.SUCCESS
    change = broker.events()[-1].offset
    broker.allow(root, "joe", "Topic:secret", "Update", effect="deny")
    reply = ask(broker, operator, Undo(offset=change, force=True))
    assert (reply.code, "Update on Topic:secret" in reply.remark) == (Code.NO_PERMISSION, True)
    assert ask(broker, root, AuthDeleteAcl(subject="User:joe")).code == Code.SUCCESS
    assert ask(broker, operator, Undo(offset=change, force=True)).code == Code.SUCCESS


PAY = UpdateAndCreateTopic(topic="pay", read_queue_nums=1, write_queue_nums=1, perm=6)
PUT_GROUP = (UpdateAndCreateSubscriptionGroup(), encode_group_config(GroupConfig("g")))
DELETE_GROUP = (DeleteSubscriptionGroup(group_name="g"), b"")


@pytest.mark.parametrize(
    ("changes", "event", "action", "resource"),
    [
        ([(PAY, b"")], "TopicPut", "Delete", "Topic:pay"),
        ([PUT_GROUP], "GroupPut", "Delete", "Group:g"),
        ([PUT_GROUP, DELETE_GROUP], "GroupDeleted", "Create", "Group:g"),
    ],
)
def test_an_undo_needs_the_right_to_the_opposite_change(
    broker: SecuredBroker,
    root: Sender,
    changes: list[tuple[Any, bytes]],
    event: str,
    action: str,
    resource: str,
) -> None:
    operator = replace(broker.create(root, "joe", "operator"), secret="")
    for request, body in changes:
        assert broker.ask(root, request, body).code == Code.SUCCESS
    [*_, change] = [one.offset for one in broker.events() if one.event.type == event]
    undo = Undo(offset=change, force=True)
    broker.allow(root, "joe", resource, action, effect="deny")
    count = len(broker.events())
    reply = ask(broker, operator, undo)
    assert (reply.code, f"{action} on {resource}" in reply.remark) == (Code.NO_PERMISSION, True)
    assert len(broker.events()) == count
    assert ask(broker, root, AuthDeleteAcl(subject="User:joe")).code == Code.SUCCESS
    assert ask(broker, operator, undo).code == Code.SUCCESS


def test_who_may_not_upload_filters_does_not_restore_one(
    broker: SecuredBroker, root: Sender
) -> None:
    operator = replace(broker.create(root, "joe", "operator"), secret="")
    source = b"def match(message, context):\n    return message.offset > 1\n"
    digest = hashlib.sha256(source).hexdigest()
    put = PutFilter(consumer_group="g", name="late", sha256=digest)
    assert broker.ask(replace(root, secret=""), put, source).code == Code.SUCCESS
    delete = ChangeFilter(consumer_group="g", name="late", action="delete")
    assert ask(broker, operator, delete).code == Code.SUCCESS
    undo = Undo(offset=broker.events()[-1].offset)
    reply = ask(broker, operator, undo)
    assert (reply.code, "Create on Filter:g/late" in reply.remark) == (Code.NO_PERMISSION, True)
    broker.allow(root, "joe", "Filter:g/late", "Create")
    assert ask(broker, operator, undo).code == Code.SUCCESS
    undo = Undo(offset=broker.events()[-1].offset)
    broker.allow(root, "joe", "Filter:g/late", "Delete", effect="deny")
    reply = ask(broker, operator, undo)
    assert (reply.code, "Delete on Filter:g/late" in reply.remark) == (Code.NO_PERMISSION, True)


def test_the_log_is_not_for_who_may_not_read_users(broker: SecuredBroker, root: Sender) -> None:
    """It has their names, policies and keys."""
    fetch = FetchLog(group="broker-a", position=0, max_bytes=1 << 20)
    for name, reads in (("viewer", False), ("writer", False), ("backup", True)):
        sender = replace(broker.create(root, name, name), secret="")
        reply = ask(broker, sender, fetch)
        assert (reply.code == Code.SUCCESS) is reads
        assert (curve_key("root").encode() in b"".join(map(bytes, reply.body))) is reads
    broker.allow(root, "viewer", "User:*", "Get")
    assert ask(broker, Sender(key=curve_key("viewer")), fetch).code == Code.SUCCESS


def test_a_reader_of_the_history_learns_nothing_about_users(
    broker: SecuredBroker, root: Sender
) -> None:
    reader = replace(broker.create(root, "joe", "reader", "viewer"), secret="")
    broker.allow(root, "joe", "Topic:hidden-name", "Get", effect="deny")
    seen = {}
    for name, sender in (("joe", reader), ("root", replace(root, secret=""))):
        reply = ask(broker, sender, GetControlEvents(from_offset=0, max_count=500))
        seen[name] = b"".join(map(bytes, reply.body))
    assert b"PolicyPut" in seen["joe"]
    assert b"hidden-name" not in seen["joe"]
    assert b"hidden-name" in seen["root"]
    pull = PullMessage(
        consumer_group="g",
        topic=CONTROL_TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    broker.allow(root, "joe", "Group:g", "Sub")
    assert ask(broker, reader, pull).code == Code.NO_PERMISSION


def test_a_right_to_change_users_leads_to_no_other_right(
    broker: SecuredBroker, root: Sender, clerk: Sender
) -> None:
    broker.create(root, "writer", "writer")
    broker.create(root, "till")
    broker.allow(root, "till", "Topic:orders", "Pub")
    broker.create(root, "node", kind="node", node="DefaultCluster/broker-a/1")
    broker.create(root, "bare")  # what is given to it now would count when it gets rights
    grant = entries({"resource": "*", "actions": ["All"]})
    node = {"kind": "node", "node": "DefaultCluster/broker-a/2"}
    for request, body in (
        (AuthUpdateUser(username="clerk"), SUPER),
        (AuthUpdateUser(username="clerk"), {"roles": ["reader"]}),
        (AuthCreateUser(username="new"), {"roles": ["reader"]}),
        (AuthCreateUser(username="new"), node),
        (AuthUpdateUser(username="root"), {"password": "my-own-secret"}),
        (AuthUpdateUser(username="writer"), {"password": "my-own-secret"}),
        (AuthUpdateUser(username="till"), {"password": "my-own-secret"}),
        (AuthUpdateUser(username="till"), {"curveKeys": ["y" * 40]}),
        (AuthUpdateUser(username="node"), {"password": "my-own-secret"}),
        (AuthUpdateUser(username="bare"), {"password": "my-own-secret"}),
        (AuthUpdateUser(username="bare"), {"passwordHash": OF_NO_USER}),
        (AuthUpdateUser(username="bare"), {"curveKeys": ["y" * 40]}),
        (AuthUpdateUser(username="bare"), {"certificateSubjects": ["CN=clerk"]}),
        (AuthCreateUser(username="new"), {"password": "my-own-secret"}),
        (AuthCreateUser(username="new"), {"passwordHash": OF_NO_USER}),
        (AuthCreateUser(username="new"), {"curveKeys": ["y" * 40]}),
        (AuthCreateUser(username="new"), {"certificateSubjects": ["CN=clerk"]}),
        (creation(broker, "bare"), {}),
        (AuthDeleteUser(username="writer"), {}),
        (AuthCreateAcl(subject="User:clerk"), grant),
        (AuthDeleteAcl(subject="User:clerk"), {}),
        (UpdateAndCreateAclConfig(access_key="clerk-2", secret_key="1234567"), {}),
    ):
        reply = ask(broker, clerk, request, **body)
        assert ONLY_AN_ADMINISTRATOR in reply.remark, request
    for request, body in (
        (AuthCreateUser(username="plain"), {"kind": "person"}),
        (AuthUpdateUser(username="plain"), {"userStatus": "disable"}),
        (AuthDeleteUser(username="plain"), {}),
        (AuthUpdateUser(username="bare"), {"curveKeys": [], "userStatus": "disable"}),
    ):
        assert ask(broker, clerk, request, **body).code == Code.SUCCESS, request


# -- decisions ------------------------------------------------------------------------------------


def test_why_a_user_may_do_something_or_not(broker: SecuredBroker, root: Sender) -> None:
    broker.create(root, "till", "reader")
    broker.allow(root, "till", "Topic:orders", "Pub", networks=("10.0.0.0/8",))
    by_key = replace(root, secret="")

    def why(action: str, resource: str, source: str = "") -> tuple[bool, str, list[str]]:
        request = ExplainAccess(username="till", action=action, resource=resource, source=source)
        header = header_of(ask(broker, by_key, request))
        return header.allowed, header.by, header.nearest

    orders = "policy till/Topic:orders/allow"
    assert why("pub", "Topic:orders", "10.1.1.1") == (True, orders, [])
    allowed, by, nearest = why("Pub", "Topic:orders", "11.1.1.1")
    assert (allowed, by) == (False, "no policy allows it")
    assert nearest[0] == f"{orders}, but only from 10.0.0.0/8"
    assert why("Get", "Cluster:any")[:2] == (True, "role reader")
    for action, resource, source in (
        ("All", "Topic:orders", ""),
        ("Pub", "*", ""),
        ("Pub", "Topic:orders", "localhost"),
    ):
        request = ExplainAccess(username="till", action=action, resource=resource, source=source)
        assert ask(broker, by_key, request).code == Code.SYSTEM_ERROR


def test_every_user_may_ask_about_itself(broker: SecuredBroker, root: Sender) -> None:
    till = replace(broker.create(root, "till", "viewer"), secret="")
    console = replace(broker.create(root, "console-1", "console"), secret="")

    def may(sender: Sender, action: str, resource: str, **how: str) -> bool:
        request = ExplainAccess(username="", action=action, resource=resource)
        return bool(header_of(broker.ask(sender, request, **how)).allowed)

    for sender, how in ((till, {}), (console, {"on_behalf_of": "till"})):
        assert may(sender, "Sub", "Topic:*", **how)
        assert not may(sender, "Pub", "Topic:*", **how)
    assert broker.allow(root, "till", "Topic:secret", "Sub", effect=Effect.DENY).code == 0
    assert not may(till, "Sub", "Topic:*")
    assert may(till, "Get", "Cluster:*")
    assert not may(console, "Get", "Cluster:*")
    assert ask(broker, replace(root, secret=""), SetAccessMode(mode="observe")).code == 0
    assert may(till, "Pub", "Topic:orders")


def test_without_users_everybody_may_do_everything(broker: SecuredBroker) -> None:
    request = ExplainAccess(username="", action="Pub", resource="Topic:orders")
    assert header_of(broker.ask(ANYBODY, request)).allowed


# -- secrets at a console -------------------------------------------------------------------------


def checked(broker: SecuredBroker, sender: Sender, name: str, **fields: str) -> tuple[bool, str]:
    """Whether a secret, or an id, is valid, and the id."""
    secret = fields.pop("secret", "")
    body = msgspec.json.encode({"password": secret})
    reply = broker.ask(sender, CheckCredential(username=name, **fields), body)
    assert reply.code == Code.SUCCESS, reply.remark
    header = header_of(reply)
    assert header.has_users
    return header.valid, header.credential


def test_a_console_checks_secrets(broker: SecuredBroker, root: Sender) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    till = broker.create(root, "till")
    valid, credential = checked(broker, console, "till", secret=till.secret)
    assert valid
    assert credential
    assert till.secret not in credential
    nothing = (False, "")
    assert checked(broker, console, "till", secret="another-secret") == nothing
    assert checked(broker, console, "nobody", secret=till.secret) == nothing
    assert checked(broker, console, "till") == nothing
    assert checked(broker, console, "till", credential=credential) == (True, credential)
    assert checked(broker, console, "till", credential="none") == nothing
    assert checked(broker, console, "nobody", credential=credential) == nothing


def test_a_refused_sign_in_is_noted_and_does_not_tell_who_exists(
    broker: SecuredBroker, root: Sender
) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    till = broker.create(root, "till")
    broker.engine.effects.clear()
    for name, secret in (("till", till.secret), ("till", "guessed"), ("x" * 500, "guessed")):
        checked(broker, console, name, secret=secret)
    noted = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
    assert [(one.user, one.console, one.allowed) for one in noted] == [
        ("till", "console-1", False),
        ("x" * 64, "console-1", False),
    ]
    assert len({(one.request, one.need, one.by) for one in noted}) == 1
    assert {one.door for one in noted} == {"http"}


def test_a_wrong_token_at_a_console_is_noted(broker: SecuredBroker, root: Sender) -> None:
    by_key = replace(root, secret="")
    console = replace(broker.create(root, "console-1", "console"), secret="")
    broker.create(root, "till")
    assert ask(broker, by_key, creation(broker)).code == Code.SUCCESS
    broker.engine.effects.clear()
    assert sender_of(broker, console)[0]
    broker.engine.wall_ms += DAY_MS
    for digest in (DIGEST, "0" * 64):
        assert not sender_of(broker, console, digest)[0]
    noted = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
    assert [(one.user, one.by, one.console, one.door) for one in noted] == [
        (f"till:{id_of(DIGEST)}", "the token has expired", "console-1", "http"),
        ("anonymous", f"the token {'0' * 12} is unknown, or was revoked", "console-1", "http"),
    ]


def test_what_a_console_or_a_node_refused_itself_is_noted_as_theirs(
    broker: SecuredBroker, root: Sender
) -> None:
    console = replace(broker.create(root, "console-1", "console:shop-"), secret="")
    node = {"kind": "node", "node": "DefaultCluster/broker-a/fs-1"}
    server = replace(broker.create(root, "fs-1", **node), secret="")
    refusal = ReportedRefusal(
        user="eve", source="192.0.2.7", request="SignIn", by="wrong", door=Door.HTTP, count=3
    )
    refused = broker.engine.core.parts.access_gate.refused
    for sender, name in ((console, "console-1"), (server, "fs-1")):
        broker.engine.effects.clear()
        reply = broker.ask(sender, ReportRefusals(), encode_reported([refusal]))
        assert reply.code == Code.SUCCESS, reply.remark
        [one] = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
        assert (one.user, one.source, one.request) == ("eve", "192.0.2.7", "SignIn")
        assert (one.count, one.console, one.door, one.handled) == (3, name, "http", False)
    assert broker.engine.core.parts.access_gate.refused == refused + 6
    [counted] = [
        one for one in broker.engine.core.parts.access_gate.refusals() if one.user == "eve"
    ]
    assert (counted.count, counted.request) == (6, "SignIn")


def test_a_console_names_only_users_whose_console_it_is(
    broker: SecuredBroker, root: Sender
) -> None:
    console = replace(broker.create(root, "console-1", "console:shop-"), secret="")
    for name in ("shop-1", "till"):
        broker.create(root, name)
    names = ("shop-1", "shop-1:0123456789ab", "till", "till:0123456789ab", "nobody", "tokenFile/ci")
    broker.engine.effects.clear()
    body = encode_reported(
        [ReportedRefusal(user=name, source="", request="SignIn", by="no") for name in names]
    )
    assert broker.ask(console, ReportRefusals(), body).code == Code.SUCCESS
    noted = [one.user for one in broker.engine.effects if isinstance(one, AccessDecided)]
    assert noted == [*names[:2], "anonymous", "anonymous", *names[4:]]


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
def test_who_is_neither_writes_nothing_into_the_audit(
    broker: SecuredBroker, root: Sender, mode: str
) -> None:
    by_key, till = replace(root, secret=""), replace(broker.create(root, "till"), secret="")
    console = replace(broker.create(root, "console-1", "console"), secret="")
    elsewhere = {"kind": "node", "node": "DefaultCluster/broker-b/fs-1"}
    other = replace(broker.create(root, "fs-1", **elsewhere), secret="")
    assert ask(broker, by_key, SetAccessMode(mode=mode)).code == Code.SUCCESS
    body = encode_reported([ReportedRefusal(user="x", source="", request="SignIn", by="x")])
    broker.engine.effects.clear()
    for sender, named in ((by_key, ""), (till, ""), (ANYBODY, ""), (other, ""), (console, "till")):
        reply = broker.ask(sender, ReportRefusals(), body, on_behalf_of=named)
        assert reply.code == Code.NO_PERMISSION, sender
    noted = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
    assert {one.request for one in noted} == {"ReportRefusals"}


def test_without_users_no_report_is_noted(broker: SecuredBroker) -> None:
    body = encode_reported([ReportedRefusal(user="x", source="", request="SignIn", by="x")])
    assert broker.ask(ANYBODY, ReportRefusals(), body).code == Code.SUCCESS
    assert not [one for one in broker.engine.effects if isinstance(one, AccessDecided)]


def test_what_ends_a_credential(broker: SecuredBroker, root: Sender) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    for name, change in (
        ("disabled", {"userStatus": "disable"}),
        ("renewed", {"password": "another-secret"}),
        ("console-2", {"roles": ["console"]}),
        ("node", {"kind": "node", "node": "c/b/0"}),
    ):
        made = broker.create(root, name)
        valid, credential = checked(broker, console, name, secret=made.secret)
        assert valid
        assert ask(broker, root, AuthUpdateUser(username=name), **change).code == Code.SUCCESS
        assert checked(broker, console, name, credential=credential) == (False, ""), name
    made = broker.create(root, "deleted")
    _, credential = checked(broker, console, "deleted", secret=made.secret)
    assert ask(broker, root, AuthDeleteUser(username="deleted")).code == Code.SUCCESS
    assert checked(broker, console, "deleted", credential=credential) == (False, "")


def owner(broker: SecuredBroker, sender: Sender, subject: str) -> str:
    """To whom certificates with a subject belong."""
    reply = broker.ask(sender, CheckCredential(username="", subject=subject), b"")
    assert reply.code == Code.SUCCESS, reply.remark
    header = header_of(reply)
    assert (header.valid, header.credential) == (bool(header.username), "")
    return header.username


def test_a_console_learns_whose_a_certificate_is(broker: SecuredBroker, root: Sender) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    subjects = {"till": "CN=till,O=Example", "node": "CN=node", "console-2": "CN=console-2"}
    kinds = {"node": {"kind": "node", "node": "c/b/0"}, "console-2": {"roles": ["console"]}}
    for name, subject in subjects.items():
        broker.create(root, name, certificateSubjects=[subject], **kinds.get(name, {}))
    assert owner(broker, console, subjects["till"]) == "till"
    for subject in ("CN=till", "CN=unknown", subjects["node"], subjects["console-2"]):
        assert owner(broker, console, subject) == "", subject
    assert ask(broker, root, AuthUpdateUser(username="till"), userStatus="disable").code == 0
    assert owner(broker, console, subjects["till"]) == ""


def test_a_console_of_other_users_does_not_learn_it(broker: SecuredBroker, root: Sender) -> None:
    own = replace(broker.create(root, "console-1", "console:shop-"), secret="")
    broker.create(root, "till", certificateSubjects=["CN=till"])
    broker.create(root, "shop-a", certificateSubjects=["CN=shop-a"])
    assert owner(broker, own, "CN=shop-a") == "shop-a"
    for sender in (own, replace(root, secret=""), ANYBODY):
        for subject in ("CN=till", "CN=unknown"):
            reply = broker.ask(sender, CheckCredential(username="", subject=subject), b"")
            assert reply.code == Code.NO_PERMISSION, subject


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
def test_nobody_else_checks_secrets(broker: SecuredBroker, root: Sender, mode: str) -> None:
    own = replace(broker.create(root, "console-1", "console:shop-"), secret="")
    assert ask(broker, root, SetAccessMode(mode=mode)).code == Code.SUCCESS
    body = msgspec.json.encode({"password": root.secret})
    for sender in (replace(root, secret=""), ANYBODY, own):
        reply = broker.ask(sender, CheckCredential(username="root"), body)
        assert reply.code == Code.NO_PERMISSION
        assert reply.remark == "only a console of user root may send it"


def test_a_broker_without_users_says_so(broker: SecuredBroker) -> None:
    header = header_of(broker.ask(ANYBODY, CheckCredential(username="till"), b"{}"))
    assert (header.valid, header.has_users) == (False, False)


# -- passwords ------------------------------------------------------------------------------------


def test_only_a_console_gets_the_hash_of_a_password(broker: SecuredBroker, root: Sender) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    own = replace(broker.create(root, "console-2", "console:shop-"), secret="")
    broker.create(root, "till")
    changed = AuthUpdateUser(username="till")
    assert ask(broker, root, changed, passwordHash=OF_NO_USER).code == Code.SUCCESS

    def answer(sender: Sender, name: str = "till") -> Reply:
        return broker.ask(sender, CheckCredential(username=name, password=True), b"")

    header = header_of(answer(console))
    assert (header.valid, header.password_hash) == (True, OF_NO_USER)
    for name in ("nobody", "console-2", "root"):
        assert header_of(answer(console, name)).password_hash == "", name
    for sender in (own, replace(root, secret=""), ANYBODY):
        assert answer(sender).code == Code.NO_PERMISSION
    assert ask(broker, root, changed, userStatus="disable").code == Code.SUCCESS
    assert header_of(answer(console)).password_hash == ""
    assert ask(broker, root, changed, userStatus="enable", passwordHash="").code == Code.SUCCESS
    assert header_of(answer(console)).password_hash == ""


def test_who_may_set_a_password_and_that_no_reply_shows_it(
    broker: SecuredBroker, root: Sender, clerk: Sender
) -> None:
    by_key = replace(root, secret="")
    broker.create(root, "till", "writer")
    broker.create(root, "plain")
    for name in ("till", "root", "plain"):
        reply = ask(broker, clerk, AuthUpdateUser(username=name), passwordHash=OF_NO_USER)
        assert ONLY_AN_ADMINISTRATOR in reply.remark, name
    changed = AuthUpdateUser(username="till")
    refused = ask(broker, root, changed, passwordHash="several long words")
    assert "a password is stored as" in refused.remark
    assert "several long words" not in refused.remark
    assert ask(broker, root, changed, passwordHash=OF_NO_USER).code == Code.SUCCESS
    replies = [
        ask(broker, root, AuthGetUser(username="till")),
        ask(broker, root, AuthListUser()),
        ask(broker, by_key, GetControlEvents(from_offset=0, max_count=100)),
    ]
    shown = [
        *(b"".join(one.body) for one in replies),
        *(msgspec.json.encode(event_view(one)) for one in broker.events()),
        tell_state(broker.engine.control, "user/till"),
    ]
    assert b'"has_password":true' in shown[-1]
    assert not [one for one in shown if b"argon2id" in one]
    assert json.loads(shown[0])["kept"] == ["secret", "password"]


def test_no_copy_of_the_log_or_the_state_has_the_hash_of_a_password(
    broker: SecuredBroker, root: Sender
) -> None:
    hashed = OF_NO_USER.replace("AAA", "BCD")
    broker.create(root, "ann", passwordHash=hashed)
    sealed = broker.access.passwords["ann"]
    stored = [*broker.engine.store.records.values(), encode_state(broker.engine.control)]
    stored.append(repr([broker.access, broker.events(), broker.engine.effects]).encode())
    for text in (hashed, hashed.rpartition("$")[2], "argon2id"):
        assert not [one for one in stored if text.encode() in one], text
    assert secret_box().open("ann:password", sealed) == hashed
    with pytest.raises(DecodeError):  # nor is it a secret of the user, or of one with that name
        secret_box().open("ann", sealed)


def test_without_keys_for_secrets_there_are_no_passwords() -> None:
    broker = SecuredBroker(Engine())
    by_key = {"curveKeys": [curve_key("root")], **SUPER}
    assert ask(broker, ANYBODY, AuthCreateUser(username="root"), **by_key).code == Code.SUCCESS
    root = Sender(key=curve_key("root"))
    reply = ask(broker, root, AuthUpdateUser(username="root"), passwordHash=OF_NO_USER)
    assert reply.code == Code.NO_PERMISSION
    assert "cannot keep passwords: accessKeyFile is not set" in reply.remark
    assert ask(broker, root, AuthUpdateUser(username="root"), passwordHash="").code == 0
    assert broker.access.passwords == {}


def test_a_password_whose_key_is_lost_lets_nobody_in(broker: SecuredBroker, root: Sender) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    broker.create(root, "ann", passwordHash=OF_NO_USER)
    question = CheckCredential(username="ann", password=True)
    assert header_of(broker.ask(console, question, b"")).password_hash == OF_NO_USER
    for box in (None, SecretKeys({"k2": bytes(range(32))})):
        broker.engine.core.parts.access_gate._box = box
        header = header_of(broker.ask(console, question, b""))
        assert (header.valid, header.password_hash) == (False, ""), box


# -- tokens ---------------------------------------------------------------------------------------

DIGEST = token_digest(token_of(bytes(32)))


def creation(broker: SecuredBroker, name: str = "till", **fields: Any) -> CreateApiToken:
    """A token for a day."""
    now_ms = broker.engine.wall_ms
    values = {
        "digest": DIGEST,
        "scope": "writer:orders-",
        "created_ms": now_ms,
        "expires_ms": now_ms + DAY_MS,
    }
    return CreateApiToken(username=name, **{**values, **fields})


def tokens(broker: SecuredBroker, sender: Sender, name: str = "") -> list[str]:
    """The names of the tokens in a list."""
    reply = ask(broker, sender, ListApiTokens(username=name))
    assert reply.code == Code.SUCCESS, reply.remark
    return [one.name for one in decode_tokens(b"".join(reply.body))]


def sender_of(broker: SecuredBroker, console: Sender, digest: str = DIGEST) -> tuple[bool, ...]:
    """What a console gets to know about a token: valid, its name, and why not."""
    reply = broker.ask(console, CheckCredential(username="", digest=digest), b"")
    assert reply.code == Code.SUCCESS, reply.remark
    header = header_of(reply)
    return header.valid, header.username, header.refusal


def test_a_token_is_created_listed_and_revoked(broker: SecuredBroker, root: Sender) -> None:
    by_key = replace(root, secret="")
    console = replace(broker.create(root, "console-1", "console"), secret="")
    broker.create(root, "till", "writer")
    broker.create(root, "other")
    name = f"till:{id_of(DIGEST)}"
    for _ in range(2):  # repeated, as after a lost reply
        assert ask(broker, by_key, creation(broker)).code == Code.SUCCESS
    assert [one.event.type for one in broker.events()].count("ApiTokenCreated") == 1
    assert tokens(broker, by_key) == tokens(broker, by_key, "till") == [name]
    assert tokens(broker, by_key, "other") == []
    assert sender_of(broker, console) == (True, name, "")
    assert sender_of(broker, console, DIGEST[:-1] + "x") == (False, "", "")
    for _ in range(2):
        revoked = RevokeApiToken(username="till", token_id=id_of(DIGEST))
        assert ask(broker, by_key, revoked).code == Code.SUCCESS
    assert sender_of(broker, console) == (False, "", "")
    assert tokens(broker, by_key) == []


def test_a_console_learns_why_a_token_does_not_count(broker: SecuredBroker, root: Sender) -> None:
    by_key = replace(root, secret="")
    console = replace(broker.create(root, "console-1", "console"), secret="")
    broker.create(root, "till")
    assert ask(broker, by_key, creation(broker)).code == Code.SUCCESS
    name = f"till:{id_of(DIGEST)}"
    broker.engine.wall_ms += DAY_MS - 1
    assert sender_of(broker, console) == (True, name, "")
    broker.engine.wall_ms += 1
    assert sender_of(broker, console) == (False, name, "the token has expired")
    assert ask(broker, root, AuthUpdateUser(username="till"), userStatus="disable").code == 0
    refusal = "user till is disabled, or may not use a console"
    assert sender_of(broker, console) == (False, name, refusal)


def test_a_console_of_other_users_learns_nothing_about_a_token(
    broker: SecuredBroker, root: Sender
) -> None:
    by_key = replace(root, secret="")
    own = replace(broker.create(root, "console-1", "console:shop-"), secret="")
    broker.create(root, "till", certificateSubjects=["CN=till"])
    broker.create(root, "shop-a")
    of_shop = token_digest(token_of(bytes([1]) * 32))
    assert ask(broker, by_key, creation(broker)).code == Code.SUCCESS
    assert ask(broker, by_key, creation(broker, "shop-a", digest=of_shop)).code == Code.SUCCESS
    assert sender_of(broker, own, of_shop)[1] == f"shop-a:{id_of(of_shop)}"
    for sender in (own, by_key, ANYBODY):
        for fields in ({"digest": DIGEST}, {"digest": of_shop, "subject": "CN=till"}):
            reply = broker.ask(sender, CheckCredential(username="shop-a", **fields), b"")
            assert reply.code == Code.NO_PERMISSION, (sender, fields)


def test_only_an_administrator_gives_a_token(
    broker: SecuredBroker, root: Sender, clerk: Sender
) -> None:
    by_key, console = replace(root, secret=""), broker.create(root, "console-1", "console")
    broker.create(root, "till", "writer")
    broker.create(root, "plain")
    clerk = replace(clerk, secret="")
    revoked = RevokeApiToken(username="till", token_id=id_of(DIGEST))
    assert ask(broker, by_key, creation(broker)).code == Code.SUCCESS
    for request in (creation(broker), creation(broker, "root"), revoked):
        assert ONLY_AN_ADMINISTRATOR in ask(broker, clerk, request).remark, request
    of_plain = token_digest(token_of(bytes([2]) * 32))
    planted = ask(broker, clerk, creation(broker, "plain", digest=of_plain))
    assert ONLY_AN_ADMINISTRATOR in planted.remark, "it would count when the user gets rights"
    assert ask(broker, by_key, creation(broker, "plain", digest=of_plain)).code == Code.SUCCESS
    taken = RevokeApiToken(username="plain", token_id=id_of(of_plain))
    assert ask(broker, clerk, taken).code == Code.SUCCESS
    name = f"till:{id_of(DIGEST)}"
    for request in (creation(broker), revoked, ListApiTokens()):
        for sender, how in (
            (replace(broker_user(broker, root), secret=""), {}),
            (replace(console, secret=""), {"on_behalf_of": "root"}),
            (replace(console, secret=""), {"on_behalf_of": name}),
        ):
            assert broker.ask(sender, request, **how).code == Code.NO_PERMISSION, request


def broker_user(broker: SecuredBroker, root: Sender) -> Sender:
    """A user with all rights but those on users."""
    if "operator-1" in broker.access.users:
        return Sender(user="operator-1", key=curve_key("operator-1"))
    return broker.create(root, "operator-1", "writer", "operator", "filter-author")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"digest": "abc"}, "64 hexadecimal digits"),
        ({"scope": "king"}, "'king' is not a role"),
        ({"scope": "console"}, "cannot be a console"),
        ({"expires_ms": 0}, "expires after"),
        ({"created_ms": 0}, "expires after"),
    ],
)
def test_a_token_that_cannot_be_is_refused(
    broker: SecuredBroker, root: Sender, fields: dict[str, Any], why: str
) -> None:
    broker.create(root, "till")
    reply = ask(broker, replace(root, secret=""), creation(broker, **fields))
    assert (reply.code, why in reply.remark) == (Code.SYSTEM_ERROR, True), reply.remark
    assert not broker.access.tokens


def test_no_reply_shows_the_hash_of_a_token(broker: SecuredBroker, root: Sender) -> None:
    by_key = replace(root, secret="")
    broker.create(root, "till", "writer")
    assert ask(broker, by_key, creation(broker)).code == Code.SUCCESS
    created = broker.events()[-1]
    replies = [
        ask(broker, by_key, ListApiTokens()),
        ask(broker, by_key, GetControlEvents(from_offset=0, max_count=100)),
        ask(broker, by_key, Undo(offset=created.offset)),
    ]
    assert not broker.access.tokens, "the undo revoked it"
    shown = [
        *(b"".join(one.body) + msgspec.json.encode([one.header, one.remark]) for one in replies),
        *(msgspec.json.encode(event_view(one)) for one in broker.events()),
    ]
    assert [one.code for one in replies] == [Code.SUCCESS] * 3, replies
    assert any(id_of(DIGEST).encode() in one for one in shown)
    state = broker.engine.control.copy()
    state.access.tokens["till:x"] = created.event.token
    shown.append(tell_state(state, "user/till"))
    assert b'"scope"' in shown[-1]
    assert not [one for one in shown if DIGEST.encode() in one or DIGEST[16:].encode() in one]


# -- a user about itself --------------------------------------------------------------------------


def own_token(broker: SecuredBroker, number: int = 0, **fields: Any) -> CreateOwnToken:
    """A token of the sender for a day."""
    now_ms = broker.engine.wall_ms
    values = {
        "digest": token_digest(token_of(number.to_bytes(32, "big"))),
        "scope": "writer",
        "created_ms": now_ms,
        "expires_ms": now_ms + DAY_MS,
    }
    return CreateOwnToken(**{**values, **fields})


def own_tokens(broker: SecuredBroker, sender: Sender) -> list[str]:
    """The names of the tokens that a user gets to know of itself."""
    reply = ask(broker, sender, ListOwnTokens())
    assert reply.code == Code.SUCCESS, reply.remark
    return [one.name for one in decode_tokens(b"".join(reply.body))]


OWN = [SetOwnPassword(), RevokeOwnToken(token_id="x"), ListOwnTokens()]


@pytest.fixture
def till(broker: SecuredBroker, root: Sender) -> Sender:
    """A user without any right, by its CURVE key."""
    return replace(broker.create(root, "till"), secret="")


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
def test_a_user_without_rights_changes_its_own_password_and_tokens(
    broker: SecuredBroker, root: Sender, till: Sender, mode: str
) -> None:
    by_key = replace(root, secret="")
    other = replace(broker.create(root, "other"), secret="")
    assert ask(broker, by_key, SetAccessMode(mode=mode)).code == Code.SUCCESS
    assert ask(broker, till, SetOwnPassword(), passwordHash=OF_NO_USER).code == Code.SUCCESS
    gate = broker.engine.core.parts.access_gate
    assert [gate.password_of(name) for name in ("till", "other", "root")] == [OF_NO_USER, "", ""]
    created = own_token(broker)
    assert ask(broker, till, created).code == Code.SUCCESS
    assert own_tokens(broker, till) == [f"till:{id_of(created.digest)}"]
    assert own_tokens(broker, other) == own_tokens(broker, by_key) == []
    taken = RevokeOwnToken(token_id=id_of(created.digest))
    assert ask(broker, other, taken).code == Code.SUCCESS, "it has none, so nothing changes"
    assert own_tokens(broker, till) != []
    assert ask(broker, till, taken).code == Code.SUCCESS
    assert own_tokens(broker, till) == []
    assert ask(broker, till, SetOwnPassword(), passwordHash="").code == Code.SUCCESS
    assert broker.access.passwords == {}
    by_itself = [one for one in broker.events() if one.actor == "User:till"]
    assert [one.event.type for one in by_itself] == [
        *("UserPasswordSet", "ApiTokenCreated", "ApiTokenRevoked", "UserPasswordSet")
    ]


def test_a_user_gives_itself_nothing_but_a_password(broker: SecuredBroker, till: Sender) -> None:
    missing = ask(broker, till, SetOwnPassword())
    assert missing.code == Code.SYSTEM_ERROR, "no body"
    for body in (
        {"roles": ["administrator"]},
        {"passwordHash": OF_NO_USER, "roles": ["administrator"]},
        {"passwordHash": OF_NO_USER, "userType": "Super"},
        {"passwordHash": OF_NO_USER, "curveKeys": [curve_key("more")]},
        {"passwordHash": OF_NO_USER, "password": "a-secret"},
    ):
        reply = ask(broker, till, SetOwnPassword(), **body)
        assert (reply.code, "and nothing else" in reply.remark) == (Code.SYSTEM_ERROR, True), body
    plain = ask(broker, till, SetOwnPassword(), passwordHash="several long words")
    assert "a password is stored as" in plain.remark
    assert broker.access.passwords == {}
    assert broker.access.users["till"].roles == ()


def test_a_token_of_ones_own_may_do_no_more_than_its_user(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    created = own_token(broker, scope="administrator")
    assert ask(broker, till, created).code == Code.SUCCESS
    name = f"till:{id_of(created.digest)}"
    topic = UpdateAndCreateTopic(topic="t", read_queue_nums=1, write_queue_nums=1, perm=6)
    refused = broker.ask(console, topic, b"", on_behalf_of=name)
    assert f"user {name} has no right to Create or Update on Topic:t" in refused.remark


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
def test_nobody_else_sends_them(
    broker: SecuredBroker, root: Sender, till: Sender, mode: str
) -> None:
    """A console has a hash at most as proof of its user: so not for a user, nor for its token."""
    console = replace(broker.create(root, "console-1", "console"), secret="")
    node = {"kind": "node", "node": "DefaultCluster/broker-a/1"}
    server = replace(broker.create(root, "fs-1", **node), secret="")
    assert ask(broker, till, own_token(broker)).code == Code.SUCCESS
    [name] = own_tokens(broker, till)
    assert ask(broker, replace(root, secret=""), SetAccessMode(mode=mode)).code == Code.SUCCESS
    before = len(broker.events())
    for request in (*OWN, own_token(broker, 1)):
        for sender, named, why in (
            (console, "till", "it is not sent on behalf of a user"),
            (console, name, "it is not sent on behalf of a user"),
            (console, "", "is a node, a console or a token, not a user"),
            (server, "", "is a node, a console or a token, not a user"),
            (till, "root", "user till may not send on behalf of user root"),
            (ANYBODY, "", "the request has no credentials"),
            (Sender(key=curve_key("unknown")), "", "the request has no credentials"),
        ):
            reply = broker.ask(sender, request, b"", on_behalf_of=named)
            assert (reply.code, why in reply.remark) == (Code.NO_PERMISSION, True), reply.remark
    assert len(broker.events()) == before


def test_a_disabled_user_does_not_change_itself(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    assert ask(broker, root, AuthUpdateUser(username="till"), userStatus="disable").code == 0
    for request in (*OWN, own_token(broker)):
        reply = ask(broker, till, request)
        assert (reply.code, reply.remark) == (Code.NO_PERMISSION, "the user is disabled")


def test_changes_of_oneself_are_in_the_audit(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    created = own_token(broker)
    for request, body in (
        (SetOwnPassword(), {"passwordHash": OF_NO_USER}),
        (created, {}),
        (RevokeOwnToken(token_id=id_of(created.digest)), {}),
        (ListOwnTokens(), {}),
    ):
        broker.engine.effects.clear()
        assert ask(broker, till, request, **body).code == Code.SUCCESS
        noted = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
        if isinstance(request, ListOwnTokens):
            assert noted == []
            continue
        [one] = noted
        assert (one.user, one.request, one.allowed) == ("till", type(request).__name__, True)
        assert (one.need, one.by) == ("Update on User:till", "the user itself")


def test_who_has_no_right_does_not_fill_the_log(broker: SecuredBroker, till: Sender) -> None:
    for number in range(OWN_CHANGES_HOUR_MAX):
        assert ask(broker, till, own_token(broker, number)).code == Code.SUCCESS
    for request, body in (
        (own_token(broker, OWN_CHANGES_HOUR_MAX), {}),
        (SetOwnPassword(), {"passwordHash": OF_NO_USER}),
    ):
        assert ask(broker, till, request, **body).code == Code.SYSTEM_BUSY
    [*_, last] = own_tokens(broker, till)
    taken = RevokeOwnToken(token_id=last.partition(":")[2])
    assert ask(broker, till, taken).code == Code.SUCCESS, "what was created can be taken back"
    broker.engine.wall_ms += 3_600_000
    assert ask(broker, till, own_token(broker, OWN_CHANGES_HOUR_MAX)).code == Code.SUCCESS


def test_without_users_there_is_no_one_to_change(broker: SecuredBroker) -> None:
    for request in (*OWN, own_token(broker)):
        reply = ask(broker, ANYBODY, request)
        assert (reply.code, "has no users" in reply.remark) == (Code.SYSTEM_ERROR, True)


def test_the_mode_is_one_of_three(broker: SecuredBroker, root: Sender) -> None:
    by_key = replace(root, secret="")
    assert "'perhaps' is not a mode" in ask(broker, by_key, SetAccessMode(mode="perhaps")).remark
    for mode in ("observe", "off", "enforce"):
        assert ask(broker, by_key, SetAccessMode(mode=mode)).code == Code.SUCCESS
        header = header_of(ask(broker, by_key, GetAccessStatus()))
        assert (header.mode, header.effective, header.users) == (mode, mode, 1)


def test_a_door_may_have_a_mode_of_its_own(broker: SecuredBroker, root: Sender) -> None:
    by_key = replace(root, secret="")
    wrong = ask(broker, by_key, SetAccessMode(mode="off", door="window"))
    assert "'window' is not a door" in wrong.remark
    assert "remoting, zeromq, http" in wrong.remark
    for door in ("zeromq", "http"):
        assert ask(broker, by_key, SetAccessMode(mode="off", door=door)).code == Code.SUCCESS
    header = header_of(ask(broker, by_key, GetAccessStatus()))
    assert (header.mode, header.doors) == ("enforce", {"http": "off", "zeromq": "off"})
    assert broker.events()[-1].event.aggregate == "access/mode"
    assert ask(broker, by_key, SetAccessMode(mode="enforce")).code == Code.SUCCESS
    assert header_of(ask(broker, by_key, GetAccessStatus())).doors == {}


# -- secrets --------------------------------------------------------------------------------------


def test_no_secret_comes_out_again(
    broker: SecuredBroker, root: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "the-most-secret-of-all"
    with caplog.at_level(logging.DEBUG):
        user = broker.create(root, "till", secret=secret)
        account = UpdateAndCreateAclConfig(access_key="account", secret_key=secret)
        assert ask(broker, root, account).code == Code.SUCCESS
        by_key = replace(root, secret="")
        replies = [
            ask(broker, root, AuthGetUser(username="till")),
            ask(broker, root, AuthListUser()),
            ask(broker, root, AuthGetAcl(subject="User:till")),
            ask(broker, root, AuthListAcl()),
            ask(broker, root, GetBrokerConfig()),
            ask(broker, root, GetBrokerClusterAclInfo()),
            ask(broker, by_key, GetControlEvents(from_offset=0, max_count=100)),
            ask(broker, by_key, GetAccessStatus()),
            ask(broker, replace(user, secret=secret.upper()), AuthListUser()),
        ]
    said = [
        *(msgspec.json.encode([one.header, one.remark]) + b"".join(one.body) for one in replies),
        *(msgspec.json.encode(event_view(one)) for one in broker.events()),
        caplog.text.encode(),
        repr([broker.access, broker.events(), broker.engine.effects]).encode(),
        repr(account).encode(),
        repr(decode_user_change(msgspec.json.encode({"password": secret}))).encode(),
        b"".join(broker.engine.store.records.values()),
    ]
    assert [text for text in said if secret.encode() in text] == []
    sealed = [broker.access.secrets[name].ciphertext for name in ("till", "account")]
    assert sealed[0] != sealed[1]
    assert UserChange(secret=secret) != UserChange()
    assert not any(one.event.type == "UserSecretSet" and _shown(one) for one in broker.events())


def _shown(recorded: Any) -> str:
    """The ciphertext in what operators see of an event."""
    view = json.loads(msgspec.json.encode(event_view(recorded)))
    return str(view["event"]["secret"]["ciphertext"])
