"""Who becomes an administrator by a file on the broker's machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kourou.access.authorizer import Authorizer
from kourou.access.model import (
    Action,
    Effect,
    Need,
    ResourceType,
    RoleGrant,
    SealedSecret,
    User,
    UserKind,
    UserRole,
)
from kourou.authorization.access_table import AccessAggregate, evolve, evolve_unread
from kourou.broker.administrators import AdministratorFile, InitialUsersFile
from kourou.errors import ConfigError
from kourou.events.control_events import AccessEventBase, Event, UnknownEvent, UserPut
from kourou.transport.curve_keys import make_pair, read_public

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


class Box:
    def seal(self, user: str, secret: str) -> SealedSecret:
        return SealedSecret("one", user.encode(), secret.encode())

    def open(self, user: str, sealed: SealedSecret) -> str:
        return sealed.ciphertext.decode()


def file_with(tmp_path: Path, text: str, *, recovers: bool = False) -> AdministratorFile:
    path = tmp_path / "administrator"
    path.write_text(text)
    return AdministratorFile(path, recovers)


def record(access: AccessAggregate, events: Iterable[Event]) -> None:
    for event in events:
        assert isinstance(event, AccessEventBase)
        evolve(access, event)


def applied(access: AccessAggregate, file: AdministratorFile) -> list[str]:
    events = file.events(access, Box())
    record(access, events)
    return [type(event).__name__ for event in events]


def test_the_first_administrator_has_a_secret_and_all_rights(tmp_path: Path) -> None:
    access = AccessAggregate()
    file = file_with(tmp_path, "root:a long secret\n")
    assert applied(access, file) == ["UserPut", "UserSecretSet"]
    assert access.table.administrators == ["root"]
    assert access.secrets["root"].ciphertext == b"a long secret"
    assert applied(access, file) == []  # while there is one, the file is not read


def test_an_administrator_whose_secret_was_not_recorded_gets_it_at_the_next_start(
    tmp_path: Path,
) -> None:
    """The broker was killed between the two events."""
    access = AccessAggregate()
    file = file_with(tmp_path, "root:a long secret")
    created, _ = file.events(access, Box())
    record(access, [created])
    assert applied(access, file) == ["UserSecretSet"]
    assert applied(access, file) == []


def test_a_curve_key_is_a_proof_as_well(tmp_path: Path) -> None:
    access = AccessAggregate()
    assert applied(access, file_with(tmp_path, f"root:curve:{KEY}")) == ["UserPut"]
    assert access.user_of_key == {KEY: "root"}


def test_recovery_counts_although_there_are_administrators(tmp_path: Path) -> None:
    access = AccessAggregate()
    evolve(access, UserPut(User(name="root", roles=(RoleGrant(UserRole.ADMINISTRATOR),))))
    evolve(access, UserPut(User(name="owner", enabled=False, roles=(RoleGrant(UserRole.READER),))))
    events = applied(access, file_with(tmp_path, "owner:a new secret", recovers=True))
    assert events == ["UserPut", "UserSecretSet"]
    assert access.users["owner"].enabled
    assert {one.role for one in access.users["owner"].roles} == {
        UserRole.ADMINISTRATOR,
        UserRole.READER,
    }
    assert "root" in access.users


@pytest.mark.parametrize("recovers", [False, True])
def test_only_recovery_opens_a_broker_that_could_not_read_its_users(
    tmp_path: Path, recovers: bool
) -> None:
    access = AccessAggregate()
    for user in (User(name="till"), User(name="owner", enabled=False)):
        evolve(access, UserPut(user))
    evolve_unread(access, UnknownEvent("UserSuspended", "user/till", b"{}"), 7, 9)
    file = file_with(tmp_path, "owner:a new secret", recovers=recovers)
    events = applied(access, file)
    assert bool(access.unreadable) is not recovers
    if recovers:
        assert events == ["UserPut", "UserSecretSet", "UserPut", "AccessRecovered"]
        assert [one.name for one in access.users.values() if one.enabled] == ["owner"]
    else:
        assert events == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("root", "is not NAME:SECRET"),
        ("root:", "is not NAME:SECRET"),
        ("root:secret-one\nother:secret-two", "is not NAME:SECRET"),
        ("root:short", "7 to 256 printable characters"),
        ("ro/ot:a long secret", "is not a user name"),
        ("root:curve:short", "is not a CURVE public key"),
    ],
)
def test_a_bad_file_is_refused_without_showing_the_secret(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        file_with(tmp_path, text).events(AccessAggregate(), Box())
    assert "short" not in str(error.value) or "curve" in text


def test_a_secret_needs_the_file_of_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="accessKeyFile"):
        file_with(tmp_path, "root:a long secret").events(AccessAggregate(), None)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing-here cannot be read"):
        AdministratorFile(tmp_path / "nothing-here", recovers=False).events(AccessAggregate(), None)


# -- initialUsersFile


USERS = """
[orders]
roles = ["writer:orders-"]
secret-file = "orders.secret"
certificate-subjects = ["CN=orders,O=Example"]
allow = ["Sub Group:orders", "Get,List Topic:*"]
deny = ["Sub Topic:orders-secret*"]

[root]
roles = ["administrator"]
curve-key-files = ["keys/root.key"]

[filters]
node = "Cluster/broker-a/fs-0"
roles = ["reader"]
"""


def users_file(tmp_path: Path, text: str = USERS) -> InitialUsersFile:
    if not (tmp_path / "keys").exists():
        make_pair(tmp_path / "keys", "root")
    (tmp_path / "orders.secret").write_text("a long secret\n")
    path = tmp_path / "users.toml"
    path.write_text(text)
    return InitialUsersFile(path)


def started(access: AccessAggregate, file: InitialUsersFile) -> list[str]:
    """A start of a broker; the users that it made."""
    made = []
    for name, entry in file.users().items():
        events = file.events(name, entry, access, Box())
        made += [name] if events else []
        record(access, events)
    return made


def test_users_of_a_file_exist_with_credentials_and_rights(tmp_path: Path) -> None:
    access = AccessAggregate()
    file = users_file(tmp_path)
    assert started(access, file) == ["root", "orders", "filters"]  # the first is an administrator
    (key,) = read_public(tmp_path / "keys" / "root.key")
    assert access.user_of_key == {key.key: "root"}
    assert access.secrets["orders"].ciphertext == b"a long secret"
    assert access.user_of_subject == {"CN=orders,O=Example": "orders"}
    assert (access.users["filters"].kind, access.users["filters"].node) == (
        UserKind.NODE,
        "Cluster/broker-a/fs-0",
    )
    assert [
        (str(one.resource), ",".join(one.actions), one.effect) for one in access.policies.values()
    ] == [
        ("Group:orders", "Sub", Effect.ALLOW),
        ("Topic:*", "Get,List", Effect.ALLOW),
        ("Topic:orders-secret*", "Sub", Effect.DENY),
    ]


def test_later_starts_create_who_is_missing_and_change_nobody(tmp_path: Path) -> None:
    access = AccessAggregate()
    file = users_file(tmp_path)
    started(access, file)
    evolve(access, UserPut(User(name="orders", enabled=False), access.users["orders"]))
    assert started(access, file) == []
    assert not access.users["orders"].enabled
    assert started(access, users_file(tmp_path, USERS + "[late]\n")) == ["late"]


@pytest.mark.fault
def test_a_start_that_breaks_off_in_a_user_is_completed_by_the_next_one(tmp_path: Path) -> None:
    """Whatever was recorded until then gives no right: least of all a role without its denials."""
    file = users_file(tmp_path)
    whole = AccessAggregate()
    started(whole, file)
    root, orders = (file.users()[name] for name in ("root", "orders"))
    for cut in range(5):
        access = AccessAggregate()
        record(access, file.events("root", root, access, Box()))
        events = file.events("orders", orders, access, Box())
        assert len(events) == 5
        record(access, events[:cut])
        need = Need(ResourceType.TOPIC, "orders-a", (Action.PUB,))
        assert not Authorizer(access.table).decide("orders", [need], "", 0)
        started(access, file)
        assert (access.users, access.policies) == (whole.users, whole.policies)
        assert access.secrets.keys() == whole.secrets.keys()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("root", "is not a file of users"),
        ("", "has no users"),
        (
            "[root]\nroles = ['administrator']\ndeny = ['Pub Topic:a', 'Sub Topic:a']",
            "user root: Topic:a is there twice to deny",
        ),
        ("[root]\nrole = 'writer'", "is not a file of users.*`role`"),
        ("[reader]\nroles = ['reader']", "user reader: the first user must be an administrator"),
        ("[root]\nroles = ['king']", "user root: 'king' is not a role"),
        ("[root]\nroles = ['administrator']\nallow = ['Sub']", "'Sub' is not a policy"),
        ("[root]\nroles = ['administrator']\nallow = ['Eat Topic:a']", "is not an action"),
        ("[root]\nroles = ['administrator']\nsecret-file = 'none'", "none cannot be read"),
        ("[root]\nroles = ['administrator']\ncurve-key-files = ['none']", "none"),
    ],
)
def test_a_bad_file_of_users_is_refused_with_what_is_wrong(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?s){why}"):
        started(AccessAggregate(), users_file(tmp_path, text))


def test_a_file_of_users_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing-here cannot be read"):
        InitialUsersFile(tmp_path / "nothing-here").users()
