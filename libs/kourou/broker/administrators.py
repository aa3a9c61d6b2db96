"""The first administrator of a broker, and the way back for the owner of its machine.

`initialAdminFile` is read while no administrator has a secret or a key. The file ADMINISTRATOR_FILE
in the store is written by `kourou user recover`, by who may write there; it is recorded at the next
start, whatever users there are, and then removed. Both have one line, `NAME:SECRET` or
`NAME:curve:KEY`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kourou.access.model import RoleGrant, User, UserRole, check_secret, check_user
from kourou.authorization.access_table import AccessAggregate, decide_put_user
from kourou.authorization.request_gate import SecretBox
from kourou.errors import ConfigError, KourouError
from kourou.events.control_events import Event, UserSecretSet

ADMINISTRATOR_FILE = "administrator"
"""In the directory `kourou` of a store."""

_CURVE = "curve:"


@dataclass(frozen=True, slots=True)
class AdministratorFile:
    """A file with one administrator. `recovers`: it counts although there are administrators."""

    path: Path
    recovers: bool

    def events(self, access: AccessAggregate, secrets: SecretBox | None) -> list[Event]:
        """Return the events that make the administrator; raises ConfigError for a bad file."""
        if not self.recovers and any(map(access.can_prove, access.table.administrators)):
            return []
        try:
            line = self.path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} cannot be read: {error}") from error
        name, colon, proof = line.partition(":")
        if not colon or not proof or "\n" in line:
            raise ConfigError(
                f"{self.path} is not NAME:SECRET or NAME:curve:KEY in one line",
                hint="kourou user recover, or kourou keys make for a CURVE key",
            )
        try:
            return self._events(access, secrets, name, proof)
        except KourouError as error:
            raise ConfigError(f"{self.path}: {error}") from error

    def _events(
        self, access: AccessAggregate, secrets: SecretBox | None, name: str, proof: str
    ) -> list[Event]:
        known = access.users.get(name, User(name=name))
        keys = known.curve_keys
        if proof.startswith(_CURVE):
            key = proof.removeprefix(_CURVE)
            keys = (*(one for one in keys if one != key), key)
        roles = tuple(one for one in known.roles if one.role is not UserRole.ADMINISTRATOR)
        user = check_user(
            User(
                name=name,
                kind=known.kind,
                roles=(RoleGrant(UserRole.ADMINISTRATOR), *roles),
                node=known.node,
                curve_keys=keys,
                certificate_subjects=known.certificate_subjects,
            )
        )
        events = decide_put_user(access, user)
        if not proof.startswith(_CURVE):
            if secrets is None:
                raise ConfigError(
                    "a secret needs accessKeyFile, which is not set",
                    hint="kourou keys access FILE",
                )
            events.append(UserSecretSet(name, secrets.seal(name, check_secret(proof))))
        return events


def recovery_file(store_root: Path) -> Path:
    """The file of `kourou user recover` in a store."""
    return store_root / "kourou" / ADMINISTRATOR_FILE
