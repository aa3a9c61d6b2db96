"""Users that files on a broker's machine make: the first ones, and the owner's way back.

`initialAdminFile` is read while no administrator has a secret or a key. The file ADMINISTRATOR_FILE
in the store is written by `kourou user recover`, by who may write there; it is recorded at the next
start, whatever users there are, and then removed; it opens a broker that an unreadable event about
users has closed. Both have one line, `NAME:SECRET` or `NAME:curve:KEY`.

`initialUsersFile` is read at every start. Each of its users who does not exist is created, with
credentials and policies; those who exist stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from kourou.access.model import (
    Effect,
    Policy,
    RoleGrant,
    User,
    UserKind,
    UserRole,
    check_policy,
    check_user,
)
from kourou.authorization.access_table import AccessAggregate, decide_put_user, decide_recovery
from kourou.authorization.request_gate import SecretBox
from kourou.engine.admin.access_handler import set_secret
from kourou.errors import BadRequest, ConfigError, KourouError
from kourou.events.control_events import Event, PolicyPut
from kourou.protocol.bodies.access_bodies import parse_role, policy_from
from kourou.transport.curve_keys import read_public

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
        proved = any(map(access.can_prove, access.table.administrators))
        if not self.recovers and (proved or access.unreadable):
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
            events.append(set_secret(secrets, name, proof))
        return [*events, *decide_recovery(access, name)]


def recovery_file(store_root: Path) -> Path:
    """The file of `kourou user recover` in a store."""
    return store_root / "kourou" / ADMINISTRATOR_FILE


# -- initialUsersFile ------------------------------------------------------------------------------


class InitialUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """A table of `initialUsersFile`, whose name is the user's.

    Paths are relative to the file. `allow` and `deny` have policies, as `Pub,Sub Topic:orders-*`.
    """

    roles: tuple[str, ...] = ()
    node: str = ""
    curve_key_files: tuple[str, ...] = ()
    certificate_subjects: tuple[str, ...] = ()
    secret_file: str = ""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @property
    def administers(self) -> bool:
        """Whether it is an administrator: those come first, as the first user must be one."""
        return UserRole.ADMINISTRATOR in self.roles


@dataclass(frozen=True, slots=True)
class InitialUsersFile:
    """A TOML file of users: one table for each."""

    path: Path

    def users(self) -> dict[str, InitialUser]:
        """Return the users by name, administrators first. Raises ConfigError for a bad file."""
        try:
            found = msgspec.toml.decode(self.path.read_bytes(), type=dict[str, InitialUser])
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(
                f"{self.path} is not a file of users: {error}",
                hint="a table for each user, with roles, curve-key-files, secret-file, "
                "certificate-subjects, node, allow, deny (docs/security.md)",
            ) from error
        if not found:
            raise ConfigError(f"{self.path} has no users", hint="a table for each user")
        return dict(sorted(found.items(), key=lambda named: not named[1].administers))

    def events(
        self, name: str, entry: InitialUser, access: AccessAggregate, secrets: SecretBox | None
    ) -> list[Event]:
        """Return the events that create a user; none if the user exists. Raises ConfigError.

        The user comes last: credentials and policies of a user who does not exist have no effect,
        so that events of which the last are lost are repeated at the next start.
        """
        if name in access.users:
            return []
        try:
            return self._created(name, entry, access, secrets)
        except KourouError as error:
            raise ConfigError(f"{self.path}: user {name}: {error}") from error

    def _created(
        self, name: str, entry: InitialUser, access: AccessAggregate, secrets: SecretBox | None
    ) -> list[Event]:
        folder = self.path.parent
        user = User(
            name=name,
            kind=UserKind.NODE if entry.node else UserKind.SERVICE,
            roles=tuple(map(parse_role, entry.roles)),
            node=entry.node,
            curve_keys=tuple(
                public.key for one in entry.curve_key_files for public in read_public(folder / one)
            ),
            certificate_subjects=entry.certificate_subjects,
        )
        policies: dict[str, Policy] = {}
        for effect, texts in ((Effect.ALLOW, entry.allow), (Effect.DENY, entry.deny)):
            for policy in (_policy(name, effect, text) for text in texts):
                if policy.id in policies:
                    raise BadRequest(
                        f"{policy.resource} is there twice to {effect}",
                        hint="name all its actions in one entry",
                    )
                policies[policy.id] = policy
        events: list[Event] = [PolicyPut(one) for one in policies.values()]
        if entry.secret_file:
            events.append(set_secret(secrets, name, _secret_in(folder / entry.secret_file)))
        return [*events, *decide_put_user(access, user)]


def _secret_in(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _policy(user: str, effect: Effect, text: str) -> Policy:
    """Read `ACTION,ACTION RESOURCE`, as `kourou user allow` has them. Raises BadRequest."""
    actions, _, resource = text.partition(" ")
    if not resource.strip():
        raise BadRequest(f"{text!r} is not a policy", hint="Pub,Sub Topic:orders-*")
    return check_policy(policy_from(user, resource.strip(), actions.split(","), effect))
