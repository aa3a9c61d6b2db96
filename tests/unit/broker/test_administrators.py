"""Who becomes an administrator by a file on the broker's machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.access.model import RoleGrant, SealedSecret, User, UserRole
from kourou.authorization.access_table import AccessAggregate, evolve
from kourou.broker.administrators import AdministratorFile
from kourou.errors import ConfigError
from kourou.events.control_events import AccessEventBase, UserPut

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


def applied(access: AccessAggregate, file: AdministratorFile) -> list[str]:
    events = file.events(access, Box())
    for event in events:
        assert isinstance(event, AccessEventBase)
        evolve(access, event)
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
    assert isinstance(created, UserPut)
    evolve(access, created)
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
