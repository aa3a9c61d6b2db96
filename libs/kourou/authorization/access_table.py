"""The users of this broker, their policies and credentials, and what decisions are for.

State: projection of the access events; owned and changed in place by `evolve`.

Invariants:
- `version` grows by one with every event; `changed_ms` is the time of the last one
- a secret, a token and a policy belong to a user that exists; a policy may be about `anonymous`
- no two tokens have the same id, and what was revoked does not come back
- once there was an administrator, no decision removes the last one
- a CURVE key, and a subject of certificates, belongs to at most one user
- only `evolve` and `evolve_unread` change it, and each change empties `remembered`
- `mode` holds for all doors except those in `doors`, whose modes differ from it
- an event about users that this version cannot read closes the table: until the owner of the
  machine recovers it, or a version that can read the event replays it, everything is refused
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from kourou.access.api_token import ApiToken, check_token, id_of
from kourou.access.authorizer import AccessTable, check_user_of
from kourou.access.model import (
    ANONYMOUS,
    AccessMode,
    Door,
    Effect,
    Policy,
    SealedSecret,
    User,
    check_policy,
    check_user,
)
from kourou.access.signature import same_secret
from kourou.errors import BadRequest, Rejected
from kourou.events.control_events import (
    AccessEventBase,
    AccessModeSet,
    AccessRecovered,
    ApiTokenCreated,
    ApiTokenRevoked,
    Event,
    EventLost,
    PolicyPut,
    PolicyRemoved,
    UnknownEvent,
    UserDeleted,
    UserPasswordSet,
    UserPut,
    UserSecretSet,
)
from kourou.model.limits import (
    API_TOKENS_DROPPED_MAX,
    API_TOKENS_MAX,
    API_TOKENS_USER_MAX,
    POLICIES_MAX,
    USERS_BODY_BYTES_MAX,
    USERS_MAX,
)
from kourou.model.units import DAY_MS
from kourou.protocol.wire.json_bodies import Buffer, decoded, malformed


@dataclass(slots=True)
class AccessAggregate:
    """The table. Until the first user is created nothing is decided, whatever the mode.

    `tokens` have their names (USER:ID) as keys; `passwords` are encrypted hashes of passwords
    (kourou.access.api_token).
    `unreadable` names the first event about users that could not be read, "" without one: then
    it is not known who may do what.
    `uncopied`: a follower that began with an empty log has not copied enough to know its leader's
    users. It is no part of snapshots, because a follower's store says it (`Copies.uncopied`).
    `remembered` is for gates: what they conclude from the table. Every change empties it, so that
    nothing in it has to be compared with the table again.
    """

    users: dict[str, User] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    secrets: dict[str, SealedSecret] = field(default_factory=dict)
    mode: AccessMode = AccessMode.ENFORCE
    doors: dict[Door, AccessMode] = field(default_factory=dict)
    version: int = 0
    changed_ms: int = 0
    tokens: dict[str, ApiToken] = field(default_factory=dict)
    passwords: dict[str, SealedSecret] = field(default_factory=dict)
    unreadable: str = ""
    uncopied: bool = field(default=False, compare=False)
    remembered: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    _table: AccessTable | None = field(default=None, compare=False, repr=False)
    _keys: dict[str, str] | None = field(default=None, compare=False, repr=False)
    _subjects: dict[str, str] | None = field(default=None, compare=False, repr=False)
    _token_ids: dict[str, ApiToken] | None = field(default=None, compare=False, repr=False)

    @property
    def active(self) -> bool:
        """Whether requests are decided at all: there are users, or there may be."""
        return bool(self.users or self.unreadable)

    @property
    def effective_mode(self) -> AccessMode:
        """OFF without users, ENFORCE if an event about them could not be read."""
        if self.unreadable:
            return AccessMode.ENFORCE
        return self.mode if self.users else AccessMode.OFF

    def mode_of(self, door: Door | None) -> AccessMode:
        """Return the mode of a door; None is one that is not known. OFF without users.

        A request whose door is not known may have come through any: the strictest mode counts.
        """
        if self.unreadable or not self.users:
            return self.effective_mode
        if door is None:
            modes = {self.mode, *self.doors.values()}
            return next(mode for mode in reversed(AccessMode) if mode in modes)
        return self.doors.get(door, self.mode)

    @property
    def open_because(self) -> str:
        """Why requests of everybody are handled, at some door at least; "" if at none."""
        if self.unreadable or self.uncopied:
            return ""
        if not self.users:
            return "there are no users"
        modes = {door: self.mode_of(door) for door in Door}
        lax = [f"{door}={mode}" for door, mode in modes.items() if mode is not AccessMode.ENFORCE]
        return f"access mode {' '.join(lax)}" if lax else ""

    @property
    def table(self) -> AccessTable:
        """Users and policies as a value."""
        if self._table is None:
            self._table = AccessTable(
                self.version,
                MappingProxyType(dict(self.users)),
                MappingProxyType(dict(self.policies)),
                MappingProxyType(dict(self.tokens)),
            )
        return self._table

    @property
    def user_of_key(self) -> Mapping[str, str]:
        """CURVE public key -> user."""
        if self._keys is None:
            self._keys = {key: one.name for one in self.users.values() for key in one.curve_keys}
        return self._keys

    @property
    def mark(self) -> str:
        """A text that differs whenever the table of a broker does."""
        return f"{self.changed_ms}-{self.version}{'-unreadable' if self.unreadable else ''}"

    @property
    def user_of_subject(self) -> Mapping[str, str]:
        """Subject of certificates -> user."""
        if self._subjects is None:
            self._subjects = {
                subject: one.name
                for one in self.users.values()
                for subject in one.certificate_subjects
            }
        return self._subjects

    @property
    def token_of_id(self) -> Mapping[str, ApiToken]:
        """Id of a token -> token."""
        if self._token_ids is None:
            self._token_ids = {one.id: one for one in self.tokens.values()}
        return self._token_ids

    def token_of_digest(self, digest: str) -> ApiToken | None:
        """Return the token with a SHA-256 (hexadecimal), expired or not; None if there is none."""
        found = self.token_of_id.get(id_of(digest))
        return found if found is not None and same_secret(found.digest, digest) else None

    def can_prove(self, name: str) -> bool:
        """Return whether a user has a secret, a key or a certificate to prove who it is."""
        user = self.users[name]
        return name in self.secrets or bool(user.curve_keys or user.certificate_subjects)

    def copy(self) -> AccessAggregate:
        """Return an independent copy. O(users and policies)."""
        return AccessAggregate(
            dict(self.users),
            dict(self.policies),
            dict(self.secrets),
            self.mode,
            dict(self.doors),
            self.version,
            self.changed_ms,
            dict(self.tokens),
            dict(self.passwords),
            self.unreadable,
            self.uncopied,
        )

    def changed(self, at_ms: int) -> None:
        """Note that an event changed the table, and drop what was concluded from it before."""
        self.remembered.clear()
        self.version += 1
        self.changed_ms = max(self.changed_ms, at_ms)
        self._table = self._keys = self._subjects = self._token_ids = None


# -- evolve ---------------------------------------------------------------------------------------


def evolve(access: AccessAggregate, event: AccessEventBase, at_ms: int = 0) -> None:
    """Apply one event, in place."""
    match event:
        case UserPut(user):
            access.users[user.name] = user
        case UserDeleted(gone):
            access.users.pop(gone.name, None)
            access.secrets.pop(gone.name, None)
            access.passwords.pop(gone.name, None)
            for one in [one for one in access.policies.values() if one.user == gone.name]:
                del access.policies[one.id]
            for name in [one.name for one in access.tokens.values() if one.user == gone.name]:
                del access.tokens[name]
        case UserSecretSet(user, secret):
            access.secrets[user] = secret
        case UserPasswordSet(user, sealed):
            access.passwords.pop(user, None)
            if sealed is not None:
                access.passwords[user] = sealed
        case ApiTokenCreated(token):
            access.tokens[token.name] = token
        case ApiTokenRevoked(user, token_id):
            access.tokens.pop(f"{user}:{token_id}", None)
        case PolicyPut(policy):
            access.policies[policy.id] = policy
        case PolicyRemoved(removed):
            access.policies.pop(removed.id, None)
        case AccessModeSet(mode, _, doors):
            access.mode, access.doors = mode, dict(doors)
        case AccessRecovered():
            access.unreadable = ""
    access.changed(at_ms)


def why_closed(access: AccessAggregate) -> str:
    """Return what the owner of the machine must know about a closed table."""
    return (
        f"every request is refused: {access.unreadable} is about users, and cannot be read. Start "
        "the version of Kourou that wrote it, or a newer one. If its record is damaged: `kourou "
        "user recover`, which disables all other users"
    )


def evolve_unread(
    access: AccessAggregate, event: UnknownEvent | EventLost, offset: int, at_ms: int
) -> None:
    """Close the table for an event that could not be read, if it may be about users.

    If nothing is known of it, it closes only the table of a broker that has users.
    """
    about_users = event.about_users
    if about_users is None:
        about_users = bool(access.users)
    if about_users and not access.unreadable:
        access.unreadable = f"control event {offset} ({event.type} of {event.aggregate})"
        access.changed(at_ms)


# -- decide ---------------------------------------------------------------------------------------


def existing_user(access: AccessAggregate, name: str) -> User:
    """Return a user. Raises Rejected if it does not exist."""
    user = access.users.get(name)
    if user is None:
        raise Rejected(f"user {name!r} not found", hint="kourou user list")
    return user


def decide_put_user(access: AccessAggregate, wanted: User) -> list[Event]:
    """Create or change a user. Raises BadRequest. O(users)."""
    events = decide_put_one_of(access, wanted)
    if events:
        access.table.with_user(check_user(wanted))  # refuses to disable the last administrator
    return events


def decide_put_one_of(access: AccessAggregate, wanted: User) -> list[Event]:
    """Create or change one of many users, in a time that does not depend on their number.

    Whether an administrator stays is for `check_administrators` afterwards. Raises BadRequest.
    """
    user = check_user(wanted)
    before = access.users.get(user.name)
    if user == before:
        return []
    if before is None and len(access.users) >= USERS_MAX:
        raise BadRequest(f"there are {USERS_MAX} users; no more are possible")
    for key in user.curve_keys:
        owner = access.user_of_key.get(key, user.name)
        if owner != user.name:
            raise BadRequest(f"the CURVE key {key} belongs to user {owner}")
    for subject in user.certificate_subjects:
        owner = access.user_of_subject.get(subject, user.name)
        if owner != user.name:
            raise BadRequest(f"certificates of {subject} belong to user {owner}")
    if before is None and not access.users and not (user.administers and user.enabled):
        raise BadRequest(
            "the first user must be an administrator: from then on, requests are decided",
            hint="kourou user create NAME --admin",
        )
    return [UserPut(user, before)]


def decide_delete_user(access: AccessAggregate, name: str) -> list[Event]:
    """Delete a user with secret, tokens and policies. Raises Rejected or BadRequest."""
    user = existing_user(access, name)
    access.table.without_user(name)
    policies = tuple(one for one in access.policies.values() if one.user == name)
    return [UserDeleted(user, policies)]


def decide_remove_password(access: AccessAggregate, name: str) -> list[Event]:
    """Let a user have no password; one who has none is not an error."""
    return [UserPasswordSet(name)] if name in access.passwords else []


def decide_create_token(access: AccessAggregate, wanted: ApiToken, now_ms: int) -> list[Event]:
    """Give a user one more token; `now_ms` is epoch ms. Raises Rejected or BadRequest.

    Tokens that have expired make room; the oldest of them, of all users, are dropped.
    """
    token = check_token(wanted)
    if not existing_user(access, token.user).signs_in:
        raise BadRequest(
            f"user {token.user} uses no console: it is disabled, a node, or a console itself"
        )
    if abs(token.created_ms - now_ms) >= DAY_MS:
        raise BadRequest("the clocks of the client and of this broker differ by a day or more")
    known = access.token_of_digest(token.digest)
    if known is not None and (known.name, known.grant) == (token.name, token.grant):
        return []
    if token.id in access.token_of_id:
        raise BadRequest(f"there is a token {token.id} already", hint="create another one")
    all_tokens = sorted(access.tokens.values(), key=lambda one: one.expires_ms)
    living = [one for one in all_tokens if not one.has_expired(now_ms)]
    if sum(one.user == token.user for one in living) >= API_TOKENS_USER_MAX:
        raise BadRequest(
            f"user {token.user} has {API_TOKENS_USER_MAX} tokens; no more are possible",
            hint=f"revoke one: kourou user token list {token.user}",
        )
    if len(living) >= API_TOKENS_MAX:
        raise BadRequest(
            f"there are {API_TOKENS_MAX} tokens; no more are possible",
            hint="revoke one: kourou user token list",
        )
    expired = all_tokens[: len(all_tokens) - len(living)][:API_TOKENS_DROPPED_MAX]
    return [*(ApiTokenRevoked(one.user, one.id) for one in expired), ApiTokenCreated(token)]


def decide_revoke_token(access: AccessAggregate, user: str, token_id: str) -> list[Event]:
    """Revoke the token of a user with this id; one that does not exist is not an error."""
    return [ApiTokenRevoked(user, token_id)] if f"{user}:{token_id}" in access.tokens else []


def decide_put_policy(access: AccessAggregate, wanted: Policy) -> list[Event]:
    """Add or change a policy. Raises BadRequest."""
    policy = check_policy(wanted)
    before = access.policies.get(policy.id)
    if policy == before:
        return []
    if before is None and len(access.policies) >= POLICIES_MAX:
        raise BadRequest(f"there are {POLICIES_MAX} policies; no more are possible")
    check_user_of(policy, access.users)
    return [PolicyPut(policy, before)]


def decide_remove_policy(access: AccessAggregate, policy_id: str) -> list[Event]:
    """Remove a policy; one that does not exist is not an error."""
    before = access.policies.get(policy_id)
    return [] if before is None else [PolicyRemoved(before)]


def decide_mode(access: AccessAggregate, mode: AccessMode, door: Door | None = None) -> list[Event]:
    """Ignore, observe or enforce decisions, at one door or at all."""
    if door is None:
        return decide_modes(access, mode, {})
    doors = {one: its for one, its in access.doors.items() if one is not door}
    if mode is not access.mode:
        doors[door] = mode
    return decide_modes(access, access.mode, doors)


def decide_modes(
    access: AccessAggregate, mode: AccessMode, doors: dict[Door, AccessMode]
) -> list[Event]:
    """Set what happens with decisions: at all doors `mode`, except those that have their own."""
    if mode is access.mode and doors == access.doors:
        return []
    return [AccessModeSet(mode, access.mode, doors, dict(access.doors))]


def decide_recovery(access: AccessAggregate, administrator: str) -> list[Event]:
    """Open the table again for one administrator; nothing if it is not closed.

    What could not be read may have taken rights away. So every other user is disabled, what
    `anonymous` was allowed is removed, and every door enforces.
    """
    if not access.unreadable:
        return []
    return [
        *(
            UserPut(msgspec.structs.replace(user, enabled=False), user)
            for name, user in sorted(access.users.items())
            if user.enabled and name != administrator
        ),
        *(
            PolicyRemoved(policy)
            for _, policy in sorted(access.policies.items())
            if policy.user == ANONYMOUS and policy.effect is Effect.ALLOW
        ),
        *decide_modes(access, AccessMode.ENFORCE, {}),
        AccessRecovered(access.unreadable),
    ]


def decide_undo(access: AccessAggregate, event: AccessEventBase) -> list[Event]:
    """Return the events that restore what `event` replaced; none if nothing has to change.

    A deleted user comes back without secret, password and tokens, which are gone. Raises Rejected
    or BadRequest.
    """
    match event:
        case UserPut(user, before):
            if before is not None:
                return decide_put_user(access, before)
            return decide_delete_user(access, user.name) if user.name in access.users else []
        case UserDeleted(gone, policies):
            if gone.name in access.users:
                return []
            return [*decide_put_user(access, gone), *(PolicyPut(one) for one in policies)]
        case PolicyPut(policy, before):
            if before is not None:
                return decide_put_policy(access, before)
            return decide_remove_policy(access, policy.id)
        case PolicyRemoved(removed):
            return decide_put_policy(access, removed)
        case AccessModeSet(_, before, _, doors_before):
            return decide_modes(access, before, doors_before)
        case ApiTokenCreated(token):
            return decide_revoke_token(access, token.user, token.id)
        case _:
            raise Rejected(
                f"a {event.type} event cannot be undone",
                hint="set another secret or password, or create another token instead",
            )


# -- snapshot -------------------------------------------------------------------------------------


class AccessSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state as it is in a snapshot, and as name servers get it."""

    users: tuple[User, ...] = ()
    policies: tuple[Policy, ...] = ()
    secrets: dict[str, SealedSecret] = {}
    mode: AccessMode = AccessMode.ENFORCE
    version: int = 0
    changed_ms: int = 0
    doors: dict[Door, AccessMode] = {}
    tokens: tuple[ApiToken, ...] = ()
    sealed_passwords: dict[str, SealedSecret] = {}
    unreadable: str = ""


def snapshot(access: AccessAggregate) -> AccessSnapshot:
    """Return the state for a snapshot."""
    return AccessSnapshot(
        tuple(access.users[name] for name in sorted(access.users)),
        tuple(access.policies[one] for one in sorted(access.policies)),
        dict(sorted(access.secrets.items())),
        access.mode,
        access.version,
        access.changed_ms,
        dict(sorted(access.doors.items())),
        tuple(access.tokens[name] for name in sorted(access.tokens)),
        dict(sorted(access.passwords.items())),
        access.unreadable,
    )


def access_of(found: AccessSnapshot) -> AccessAggregate:
    """Return the state from a result of `snapshot`."""
    return AccessAggregate(
        {one.name: one for one in found.users},
        {one.id: one for one in found.policies},
        dict(found.secrets),
        found.mode,
        dict(found.doors),
        found.version,
        found.changed_ms,
        {one.name: one for one in found.tokens},
        dict(found.sealed_passwords),
        found.unreadable,
    )


# -- body of PUT_USERS ----------------------------------------------------------------------------

_WHAT = "table of users"
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AccessSnapshot)


def encode_access(access: AccessAggregate) -> bytes:
    """Return the table as a broker sends it to name servers: compressed JSON, no passwords."""
    return zlib.compress(_encode(msgspec.structs.replace(snapshot(access), sealed_passwords={})), 1)


def decode_access(body: Buffer) -> AccessAggregate:
    """Return the table from a result of `encode_access`. Raises DecodeError or BadRequest."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, USERS_BODY_BYTES_MAX)
    except zlib.error as error:
        raise malformed(_WHAT, error) from error
    if not inflater.eof:
        raise malformed(_WHAT, f"it is cut short, or longer than {USERS_BODY_BYTES_MAX} bytes")
    found = access_of(decoded(plain, _decoder, _WHAT))
    for user in found.users.values():
        check_user(user)
    for policy in found.policies.values():
        check_policy(policy)
    for token in found.tokens.values():
        check_token(token)
    return found
