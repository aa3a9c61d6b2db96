"""RocketMQ's accounts become users with policies; its requests (50 to 54) are in a transcript."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.access.authorizer import AccessTable
from kourou.access.model import SealedSecret
from kourou.access.plain_acl import read_plain_acl
from kourou.authorization.request_gate import SecretBox
from kourou.engine.inputs import UsersRead
from kourou.errors import Code
from kourou.events.control_events import UserPut, UserSecretSet
from kourou.protocol.messages.access import AuthDeleteUser, AuthUpdateUser
from kourou.protocol.messages.broker_admin import (
    GetBrokerClusterAclInfo,
    UpdateAndCreateAclConfig,
)
from kourou.protocol.table import not_supported
from kourou.runtime import LogWarning, Reply
from kourou_rigs.access import SecuredBroker, Sender, secret_box, send_to
from kourou_rigs.engine import Engine

SECRET = "account-secret"


@pytest.fixture
def broker() -> SecuredBroker:
    """A broker without users."""
    return SecuredBroker()


def put(broker: SecuredBroker, sender: Sender, name: str = "till-01", **fields: Any) -> Reply:
    return broker.ask(sender, UpdateAndCreateAclConfig(access_key=name, **fields))


def shown(broker: SecuredBroker, name: str = "till-01") -> list[str]:
    """The policies of a user in short."""
    return sorted(
        f"{one.effect} {','.join(one.actions)} on {one.resource}"
        for one in broker.access.policies.values()
        if one.user == name
    )


def test_it_decides_as_the_import_of_a_file_with_the_same_account(
    broker: SecuredBroker, root: Sender
) -> None:
    account = {"accessKey": "till-01", "secretKey": SECRET}
    perms = {"a": "DENY", "b": "PUB", "c": "SUB", "d": "PUB|SUB"}
    for default in ("DENY", "PUB", "SUB", "PUB|SUB"):
        listed = [f"{name}={perm}" for name, perm in perms.items()]
        imported = read_plain_acl(
            {"accounts": [{**account, "defaultTopicPerm": default, "topicPerms": listed}]}
        )
        put(
            broker,
            root,
            secret_key=SECRET,
            default_topic_perm=default,
            topic_perms=",".join(listed),
        )
        wanted = {one.id: (one.actions, one.effect) for one in imported.policies}
        found = broker.access.policies.values()
        assert {one.id: (one.actions, one.effect) for one in found} == wanted


def test_accounts_with_their_secrets_are_never_shown() -> None:
    assert not_supported(54).startswith(" request type 54 not supported: no secret is ever shown")


# -- files ----------------------------------------------------------------------------------------


def account(name: str, **fields: Any) -> dict[str, Any]:
    return {"accessKey": name, "secretKey": f"secret-of-{name}", **fields}


def give(broker: SecuredBroker, *accounts: dict[str, Any]) -> list[str]:
    """Import a file with these accounts; returns what is logged."""
    found = read_plain_acl({"accounts": list(accounts)})
    before = len(broker.engine.effects)
    broker.engine.handle(UsersRead(found, broker.engine.wall_ms))
    new = broker.engine.effects[before:]
    return [one.sentence for one in new if isinstance(one, LogWarning)]


TILL = account("till-01", defaultTopicPerm="PUB", topicPerms=["secret=DENY"])


def test_users_of_files_are_imported_by_their_own_actor(
    broker: SecuredBroker, root: Sender
) -> None:
    assert give(broker, TILL) == []
    assert shown(broker) == ["allow Pub on Topic:*", "deny Pub on Topic:secret"]
    assert broker.access.users["till-01"].imported
    till = Sender(user="till-01", secret="secret-of-till-01")
    assert "no right to Pub" in broker.ask(till, send_to("secret"), b"x").remark
    found = broker.events()
    assert {one.actor for one in found if one.event.aggregate == "user/till-01"} == {"import"}
    assert {one.reason for one in found if one.actor == "import"} == {"aclImportDir"}


def test_the_same_files_again_change_nothing(broker: SecuredBroker, root: Sender) -> None:
    give(broker, TILL)
    version = broker.access.version
    assert give(broker, TILL) == []
    assert broker.access.version == version


class CountedBox:
    """The keys of a broker, and how often a secret was decrypted."""

    def __init__(self, box: SecretBox) -> None:
        self.box, self.opened = box, 0

    def open(self, user: str, sealed: SealedSecret) -> str:
        self.opened += 1
        return self.box.open(user, sealed)

    def seal(self, user: str, secret: str) -> SealedSecret:
        return self.box.seal(user, secret)


def test_the_same_files_and_users_are_compared_once() -> None:
    box = CountedBox(secret_box())
    broker = SecuredBroker(Engine(secrets=box))
    root = broker.administrator()

    def opened() -> int:
        before = box.opened
        give(broker, TILL, account("bill-01"))
        return box.opened - before

    assert [opened() for _ in range(4)] == [0, 2, 0, 0]
    broker.create(root, "by-hand", "reader")
    assert [opened() for _ in range(2)] == [2, 0]
    assert broker.ask(root, AuthDeleteUser(username="till-01")).code == Code.SUCCESS
    give(broker, TILL, account("bill-01"))
    assert "till-01" in broker.access.users


def test_what_a_decision_costs_does_not_grow_with_the_users(
    broker: SecuredBroker, root: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of the table for each user would be quadratic, in the broker's loop."""

    def copy(*_args: object) -> None:
        raise AssertionError("the table is copied for each change")

    accounts = [account(f"user-{one:02}", defaultTopicPerm="PUB") for one in range(20)]
    for method in ("with_user", "without_user", "with_policy"):
        monkeypatch.setattr(AccessTable, method, copy)
    give(broker, *accounts)
    give(broker, *(account(f"user-{one:02}", defaultTopicPerm="SUB") for one in range(20)))
    give(broker)
    assert len(broker.access.users) == 21
    assert not any(one.enabled for one in broker.access.users.values() if one.imported)


def test_what_stays_is_said_again_when_the_files_change(
    broker: SecuredBroker, root: Sender
) -> None:
    broker.create(root, "till-01", "reader")
    assert len(give(broker, TILL)) == 1
    assert give(broker, TILL) == []
    [said] = give(broker, account("till-01", defaultTopicPerm="SUB"))
    assert "till-01 was made or changed by hand" in said


def test_changes_of_a_file_are_changes_of_its_users(broker: SecuredBroker, root: Sender) -> None:
    give(broker, TILL)
    changed = {"secretKey": "another-secret", "topicPerms": ["orders=PUB|SUB"]}
    give(broker, {"accessKey": "till-01", **changed})
    assert shown(broker) == ["allow Pub,Sub on Topic:orders"]
    former = Sender(user="till-01", secret="secret-of-till-01")
    assert "Check signature failed" in broker.ask(former, send_to("orders"), b"x").remark
    latter = Sender(user="till-01", secret="another-secret")
    assert "Create on Topic:orders" in broker.ask(latter, send_to("orders"), b"x").remark


def test_a_user_that_the_files_drop_is_disabled_until_they_have_it_again(
    broker: SecuredBroker, root: Sender
) -> None:
    give(broker, TILL, account("bill-01"))
    give(broker, account("bill-01"))
    assert not broker.access.users["till-01"].enabled
    assert broker.access.users["bill-01"].enabled
    assert broker.access.users["root"].enabled
    till = Sender(user="till-01", secret="secret-of-till-01")
    assert "the user is disabled" in broker.ask(till, send_to("orders"), b"x").remark
    assert shown(broker) == ["allow Pub on Topic:*", "deny Pub on Topic:secret"]
    give(broker, TILL)
    assert broker.access.users["till-01"].enabled


def test_users_made_by_hand_are_never_changed(broker: SecuredBroker, root: Sender) -> None:
    made = broker.create(root, "till-01", "reader")
    before = broker.access.users["till-01"]
    said = give(broker, TILL)
    assert said == ["aclImportDir: user till-01 was made or changed by hand, and stays so"]
    assert give(broker, TILL) == []
    give(broker)
    assert broker.access.users["till-01"] == before
    assert shown(broker) == []
    assert broker.ask(made, GetBrokerClusterAclInfo()).code == Code.SUCCESS


@pytest.mark.parametrize(
    "change",
    [
        (AuthUpdateUser(username="till-01"), b'{"password":"by-hand-secret"}'),
        (AuthUpdateUser(username="till-01"), b'{"userStatus":"disable"}'),
        (UpdateAndCreateAclConfig(access_key="till-01", secret_key="by-hand-secret"),),
    ],
)
def test_who_changes_a_user_takes_it_over(
    broker: SecuredBroker, root: Sender, change: tuple[Any, ...]
) -> None:
    give(broker, TILL)
    assert broker.ask(root, *change).code == Code.SUCCESS
    before = broker.access.users["till-01"], broker.access.secrets["till-01"]
    assert not before[0].imported
    assert "stays so" in give(broker, TILL)[0]
    give(broker)
    assert (broker.access.users["till-01"], broker.access.secrets["till-01"]) == before


def test_policies_set_by_hand_stay(broker: SecuredBroker, root: Sender) -> None:
    give(broker, TILL)
    assert broker.allow(root, "till-01", "Topic:*", "Sub").code == Code.SUCCESS
    assert broker.allow(root, "till-01", "Topic:news", "Pub", effect="deny").code == Code.SUCCESS
    said = give(broker, account("till-01", defaultTopicPerm="PUB"))
    assert said == ["aclImportDir: the policy of till-01 for Topic:* was set by hand, and stays so"]
    assert shown(broker) == ["allow Sub on Topic:*", "deny Pub on Topic:news"]


def test_files_alone_can_make_the_first_administrator(broker: SecuredBroker) -> None:
    [said] = give(broker, TILL)
    assert "the first user must be an administrator" in said
    assert not broker.access.users
    assert give(broker, TILL) == [], "said once"
    assert give(broker, TILL, account("owner-1", admin=True)) == []
    assert set(broker.access.users) == {"owner-1", "till-01"}


def test_the_last_administrator_is_not_disabled_but_may_be_replaced(broker: SecuredBroker) -> None:
    give(broker, account("owner-1", admin=True))
    [said] = give(broker, account("till-01"))
    assert "would remove the last administrator; nothing was changed" in said
    assert set(broker.access.users) == {"owner-1"}
    assert give(broker, account("till-01"), account("owner-2", admin=True)) == []
    assert broker.access.table.administrators == ["owner-2"]


def test_without_keys_nothing_is_imported() -> None:
    broker = SecuredBroker(Engine())
    [said] = give(broker, account("owner-1", admin=True))
    assert "accessKeyFile is not set" in said
    assert not broker.access.users


def test_secrets_of_files_are_encrypted(broker: SecuredBroker, root: Sender) -> None:
    give(broker, TILL)
    events = [one.event for one in broker.events()]
    assert any(isinstance(one, UserSecretSet) and one.user == "till-01" for one in events)
    assert any(isinstance(one, UserPut) and one.user.imported for one in events)
    assert not any(b"secret-of-till-01" in raw for raw in broker.engine.store.records.values())
