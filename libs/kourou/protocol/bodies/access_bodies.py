"""JSON bodies about users and policies, as RocketMQ 5.3 has them, with a few fields more.

A policy of RocketMQ is one entry for a subject and a resource. The fields `roles`, `kind`,
`passwordHash`, `curveKeys`, `certificateSubjects`, `node`, `kept` and `untilMs` are Kourou's own.
No reply contains a secret; `kept` says whether there is one, or a password.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec

from kourou.access.api_token import ApiToken
from kourou.access.model import (
    ALL,
    Action,
    Door,
    Effect,
    Need,
    Pattern,
    Policy,
    ResourceType,
    RoleGrant,
    User,
    UserKind,
    UserRole,
    in_order,
    plain_address,
)
from kourou.access.plain_acl import networks_of
from kourou.errors import BadRequest
from kourou.model.limits import (
    AUDIT_TEXT_LENGTH_MAX,
    POLICY_CHANGES_MAX,
    REPORTED_COUNT_MAX,
    REPORTED_REFUSALS_MAX,
)
from kourou.protocol.request import Int64
from kourou.protocol.wire.json_bodies import Buffer, Shape, decoded, reply_decoder, shape_decoder

_encode = msgspec.json.Encoder().encode
SUBJECT_PREFIX = "User:"
T = TypeVar("T")
_CUSTOM = "Custom"


class _UserShape(Shape, kw_only=True, omit_defaults=True):
    username: str | None = None
    password: str | None = None
    password_hash: str | None = None
    user_type: str | None = None
    user_status: str | None = None
    kind: str | None = None
    roles: list[str] | None = None
    curve_keys: list[str] | None = None
    certificate_subjects: list[str] | None = None
    node: str | None = None
    kept: list[str] | None = None


@dataclass(frozen=True, slots=True)
class UserChange:
    """What a request says about a user; None leaves it as it is.

    `super_user` is RocketMQ's user type Super: the role administrator. `secret` is RocketMQ's
    password; the `password_hash` of a person's own is "" for none.
    """

    secret: str | None = field(default=None, repr=False)
    password_hash: str | None = field(default=None, repr=False)
    super_user: bool | None = None
    enabled: bool | None = None
    kind: UserKind | None = None
    roles: tuple[RoleGrant, ...] | None = None
    curve_keys: tuple[str, ...] | None = None
    certificate_subjects: tuple[str, ...] | None = None
    node: str | None = None

    def applied(self, user: User) -> User:
        """The user with these changes."""
        roles = user.roles if self.roles is None else self.roles
        if self.super_user is not None:
            roles = tuple(one for one in roles if one.role is not UserRole.ADMINISTRATOR)
            if self.super_user:
                roles = (RoleGrant(UserRole.ADMINISTRATOR), *roles)
        return User(
            name=user.name,
            kind=user.kind if self.kind is None else self.kind,
            enabled=user.enabled if self.enabled is None else self.enabled,
            roles=roles,
            node=user.node if self.node is None else self.node,
            curve_keys=user.curve_keys if self.curve_keys is None else self.curve_keys,
            certificate_subjects=user.certificate_subjects
            if self.certificate_subjects is None
            else self.certificate_subjects,
        )


_decode_user = shape_decoder(_UserShape, "user")
_decode_users = reply_decoder(list[_UserShape], "list of users")


def decode_user_change(body: Buffer) -> UserChange:
    """The body of AUTH_CREATE_USER (3001) and AUTH_UPDATE_USER (3002); raises BadRequest."""
    shape = _decode_user(body)
    return UserChange(
        secret=shape.password or None,
        password_hash=shape.password_hash,
        super_user=_one_of(shape.user_type, {"super": True, "normal": False}, "userType"),
        enabled=_one_of(shape.user_status, {"enable": True, "disable": False}, "userStatus"),
        kind=_one_of(shape.kind, _KINDS, "kind"),
        roles=None if shape.roles is None else tuple(map(parse_role, shape.roles)),
        curve_keys=_tuple(shape.curve_keys),
        certificate_subjects=_tuple(shape.certificate_subjects),
        node=shape.node,
    )


def encode_user_change(change: UserChange) -> bytes:
    """The body of the same requests."""
    kinds = {None: None, True: "Super", False: "Normal"}
    states = {None: None, True: "enable", False: "disable"}
    return _encode(
        _UserShape(
            password=change.secret,
            password_hash=change.password_hash,
            user_type=kinds[change.super_user],
            user_status=states[change.enabled],
            kind=change.kind,
            roles=None if change.roles is None else [role_text(one) for one in change.roles],
            curve_keys=_list(change.curve_keys),
            certificate_subjects=_list(change.certificate_subjects),
            node=change.node,
        )
    )


def _tuple(texts: list[str] | None) -> tuple[str, ...] | None:
    return None if texts is None else tuple(texts)


def _list(texts: tuple[str, ...] | None) -> list[str] | None:
    return None if texts is None else list(texts)


_KINDS = {one.value: one for one in UserKind}


def _one_of(given: str | None, known: Mapping[str, T], what: str) -> T | None:
    if given is None or not given:
        return None
    found = known.get(given.lower())
    if found is None:
        raise BadRequest(f"{what} is {given!r}", hint=f"one of {', '.join(known)}")
    return found


def parse_role(text: str) -> RoleGrant:
    """Read `writer`, or `writer:orders-` for names with that prefix; raises BadRequest."""
    name, _, prefix = text.partition(":")
    try:
        return RoleGrant(UserRole(name), prefix.removesuffix("*"))
    except ValueError:
        raise BadRequest(f"{name!r} is not a role", hint=f"one of {', '.join(UserRole)}") from None


def role_text(grant: RoleGrant) -> str:
    """The same role as text."""
    return f"{grant.role}:{grant.prefix}" if grant.prefix else grant.role.value


def _user_shape(user: User, kept: Iterable[str]) -> _UserShape:
    return _UserShape(
        username=user.name,
        user_type="Super" if user.administers else "Normal",
        user_status="enable" if user.enabled else "disable",
        kind=user.kind,
        roles=[role_text(one) for one in user.roles],
        curve_keys=list(user.curve_keys) or None,
        certificate_subjects=list(user.certificate_subjects) or None,
        node=user.node or None,
        kept=list(kept) or None,
    )


def encode_user(user: User, kept: Iterable[str]) -> bytes:
    """The reply of AUTH_GET_USER (3004); `kept` are the kinds of credentials that it has not."""
    return _encode(_user_shape(user, kept))


def encode_users(users: Mapping[User, Iterable[str]]) -> bytes:
    """The reply of AUTH_LIST_USER (3005), with what is kept of each user."""
    return _encode([_user_shape(user, kept) for user, kept in users.items()])


def decode_users(body: Buffer) -> list[User]:
    """The same reply as users."""
    return [
        User(
            name=one.username or "",
            kind=_one_of(one.kind, _KINDS, "kind") or UserKind.SERVICE,
            enabled=one.user_status != "disable",
            roles=tuple(map(parse_role, one.roles or ())),
            node=one.node or "",
            curve_keys=tuple(one.curve_keys or ()),
            certificate_subjects=tuple(one.certificate_subjects or ()),
        )
        for one in _decode_users(body)
    ]


def decode_kept(body: Buffer) -> dict[str, tuple[str, ...]]:
    """The kinds of credentials that the same reply does not show, by user: secret, password."""
    return {one.username or "": tuple(one.kept or ()) for one in _decode_users(body)}


# -- tokens ---------------------------------------------------------------------------------------


class _TokenShape(Shape, kw_only=True):
    username: str
    id: str
    scope: str
    created_ms: Int64
    expires_ms: Int64


_decode_tokens = reply_decoder(list[_TokenShape], "list of tokens")


def encode_tokens(tokens: Iterable[ApiToken]) -> bytes:
    """The reply of LIST_API_TOKENS (30071), without what could prove anything."""
    return _encode(
        [
            _TokenShape(
                username=one.user,
                id=one.id,
                scope=role_text(one.scope),
                created_ms=one.created_ms,
                expires_ms=one.expires_ms,
            )
            for one in tokens
        ]
    )


def decode_tokens(body: Buffer) -> list[ApiToken]:
    """The same reply as tokens; their digests are empty."""
    return [
        ApiToken(
            id=one.id,
            user=one.username,
            digest="",
            scope=parse_role(one.scope),
            created_ms=one.created_ms,
            expires_ms=one.expires_ms,
        )
        for one in _decode_tokens(body)
    ]


# -- policies -------------------------------------------------------------------------------------


class _EntryShape(Shape, kw_only=True, omit_defaults=True):
    resource: str = ""
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str = "Allow"
    until_ms: Int64 | None = None


class _PoliciesShape(Shape, kw_only=True):
    policy_type: str | None = _CUSTOM
    entries: list[_EntryShape] | None = None


class _AclShape(Shape, kw_only=True):
    subject: str | None = None
    policies: list[_PoliciesShape] | None = None


_decode_acl = shape_decoder(_AclShape, "list of policies")
_decode_acls = reply_decoder(list[_AclShape], "list of policies")


def user_of_subject(subject: str) -> str:
    """The name in `User:NAME`; raises BadRequest for anything else."""
    name = subject.removeprefix(SUBJECT_PREFIX)
    if name == subject or not name:
        raise BadRequest(f"{subject!r} is not a subject", hint="User:NAME")
    return name


def policy_id(user: str, resource: Pattern, effect: Effect) -> str:
    """The id of a user's policy for a resource: there is one that allows and one that denies."""
    return f"{user}/{resource}/{effect}"


def decode_policies(user: str, body: Buffer) -> list[Policy]:
    """The body of AUTH_CREATE_ACL (3006) and AUTH_UPDATE_ACL (3007); raises BadRequest."""
    found = []
    for group in _decode_acl(body).policies or ():
        if (group.policy_type or _CUSTOM) != _CUSTOM:
            raise BadRequest(
                f"policies of type {group.policy_type} are not known",
                hint="Custom: every policy counts, and one that denies wins",
            )
        found += [_policy(user, entry) for entry in group.entries or ()]
    return found


def _policy(user: str, entry: _EntryShape) -> Policy:
    effect = _one_of(entry.decision, {one.value: one for one in Effect}, "decision")
    return policy_from(
        user,
        entry.resource,
        entry.actions or (),
        effect or Effect.ALLOW,
        networks=entry.source_ips or (),
        until_ms=entry.until_ms,
    )


def policy_from(
    user: str,
    resource: str,
    actions: Iterable[str],
    effect: Effect,
    *,
    networks: Iterable[str] = (),
    until_ms: int | None = None,
) -> Policy:
    """A policy from texts. Raises BadRequest for one that is not valid.

    Whether it can match anything is checked by `check_policy`.
    """
    pattern = Pattern.parse(resource)
    return Policy(
        id=policy_id(user, pattern, effect),
        user=user,
        resource=pattern,
        actions=parse_actions(actions),
        effect=effect,
        networks=tuple(
            network
            for text in networks
            for network in ((text,) if "/" in text else networks_of(text))
        ),
        until_ms=until_ms,
    )


def parse_actions(texts: Iterable[str]) -> tuple[Action, ...]:
    """Read names of actions in any case; `All` and `Any` are every action. Raises BadRequest."""
    known = {one.value.lower(): {one} for one in Action} | {
        "all": set(Action),
        "any": set(Action),
    }
    wanted: set[Action] = set()
    for text in texts:
        actions = known.get(text.strip().lower())
        if actions is None:
            raise BadRequest(f"{text!r} is not an action", hint=f"All, {', '.join(Action)}")
        wanted |= actions
    return in_order(wanted)


def parse_need(action: str, resource: str) -> Need:
    """Read one action, and one resource or all of a type: `Pub`, `Topic:*`. Raises BadRequest."""
    pattern = Pattern.parse(resource)
    actions = parse_actions([action])
    if pattern.type is None or len(actions) != 1:
        raise BadRequest("one action on one resource", hint="Pub Topic:orders")
    name = pattern.name
    if pattern.type is ResourceType.CLUSTER:
        name = ""
    elif pattern.is_prefix and not name:
        name = ALL
    return Need(pattern.type, name, actions)


def check_source(address: str) -> str:
    """Return the IP address of a client, "" for none; raises BadRequest for anything else."""
    if address:
        try:
            plain_address(address)
        except ValueError as error:
            raise BadRequest(f"{address!r} is not an IP address") from error
    return address


def _acl_shape(user: str, policies: Iterable[Policy]) -> _AclShape:
    entries = [
        _EntryShape(
            resource=str(one.resource),
            actions=[action.value for action in one.actions],
            source_ips=list(one.networks) or None,
            decision=one.effect.value.capitalize(),
            until_ms=one.until_ms,
        )
        for one in policies
    ]
    return _AclShape(
        subject=SUBJECT_PREFIX + user,
        policies=[_PoliciesShape(policy_type=_CUSTOM, entries=entries)],
    )


def encode_policies(user: str, policies: Iterable[Policy]) -> bytes:
    """The body of 3006 and 3007, and the reply of AUTH_GET_ACL (3009)."""
    return _encode(_acl_shape(user, policies))


def encode_policies_of_users(policies: Iterable[Policy]) -> bytes:
    """The reply of AUTH_LIST_ACL (3010), by user."""
    by_user: dict[str, list[Policy]] = {}
    for one in policies:
        by_user.setdefault(one.user, []).append(one)
    return _encode([_acl_shape(user, group) for user, group in by_user.items()])


def decode_policies_of_users(body: Buffer) -> list[Policy]:
    """The same reply as policies."""
    return [
        _policy(user_of_subject(one.subject or ""), entry)
        for one in _decode_acls(body)
        for group in one.policies or ()
        for entry in group.entries or ()
    ]


# -- the past -------------------------------------------------------------------------------------


class _UserState(msgspec.Struct, frozen=True):
    user: User | None
    policies: tuple[Policy, ...]


_user_state = msgspec.json.Decoder(_UserState | None)


def decode_user_state(body: Buffer) -> tuple[User | None, tuple[Policy, ...]]:
    """A user and its policies in a reply of GET_STATE_AT (30012) about `user/NAME`."""
    found = decoded(body, _user_state, "state of a user")
    return (None, ()) if found is None else (found.user, found.policies)


# -- audit and refusals ---------------------------------------------------------------------------


class AuditDecision(StrEnum):
    """What was decided about a request of the audit."""

    REFUSED = "refused"
    ALLOWED = "allowed"


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the audit: `count` requests up to `at_ms` (epoch ms), each with this `need`.

    Refused requests, and those that were allowed to change something. `need` is what a refused one
    lacks, or the right to the change; `by` is what decided. `handled`: its handler got it; if it is
    refused, decisions were only observed. `console` is the user who sent it on behalf of `user`; of
    several the last. So is `door`, by which clients sent them: remoting, zeromq, or http for those
    through a console; "" where clients have no door, and in lines of earlier versions. In a line
    that counts requests, names may be shortened, and without `need` they are several kinds.
    """

    at_ms: int
    user: str
    source: str
    request: str
    need: str
    by: str
    count: int = 1
    handled: bool = False
    console: str = ""
    decision: AuditDecision = AuditDecision.REFUSED
    door: str = ""


decode_audit = reply_decoder(list[AuditLine], "list of lines of the audit")


_Noted = Annotated[str, msgspec.Meta(max_length=AUDIT_TEXT_LENGTH_MAX)]


class ReportedRefusal(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """Requests of a kind that a console or a filter server refused itself: so many, `count`.

    `user` is whom they named, which is not proved; `source` is the IP address they came from, ""
    if it is not known. `request` is what they asked for, `by` is why they were refused, and `door`
    how clients sent them.
    """

    user: _Noted
    source: _Noted
    request: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_]{1,64}$")]
    by: _Noted
    door: Door | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=REPORTED_COUNT_MAX)] = 1


_reported = msgspec.json.Decoder(
    Annotated[list[ReportedRefusal], msgspec.Meta(max_length=REPORTED_REFUSALS_MAX)]
)


def encode_reported(refusals: Iterable[ReportedRefusal]) -> bytes:
    """The body of REPORT_REFUSALS (30078)."""
    return _encode(list(refusals))


def decode_reported(body: Buffer) -> list[ReportedRefusal]:
    """The same body; raises DecodeError or BadRequest."""
    found: list[ReportedRefusal] = decoded(body, _reported, "list of refusals")
    for one in found:
        check_source(one.source)
    return found


class PolicyChangeKind(StrEnum):
    """What a change of policies does, as the commands of `kourou user` of these names."""

    ALLOW = "allow"
    DENY = "deny"
    REVOKE = "revoke"


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A change of a user's policies that is tried: what it has for exactly this resource.

    To revoke, `resource` "" stands for all policies. `networks` are CIDR or addresses.
    """

    user: str
    change: PolicyChangeKind
    resource: str = ""
    actions: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    until_ms: int | None = None

    @property
    def replaced(self) -> Pattern | None:
        """The resource whose policies end; None for all. Raises BadRequest."""
        if self.change is PolicyChangeKind.REVOKE and not self.resource:
            return None
        return Pattern.parse(self.resource)

    def policy(self) -> Policy:
        """The policy that is added. Raises BadRequest."""
        return policy_from(
            self.user,
            self.resource,
            self.actions,
            Effect(self.change.value),
            networks=self.networks,
            until_ms=self.until_ms,
        )


_policy_changes = msgspec.json.Decoder(
    Annotated[list[PolicyChange], msgspec.Meta(max_length=POLICY_CHANGES_MAX)]
)


def encode_policy_changes(changes: Iterable[PolicyChange]) -> bytes:
    """The body of TRY_POLICIES (30079)."""
    return _encode(list(changes))


def decode_policy_changes(body: Buffer) -> list[PolicyChange]:
    """The same body; an empty one is no change. Raises DecodeError."""
    if not len(body):
        return []
    found: list[PolicyChange] = decoded(body, _policy_changes, "list of changes of policies")
    return found


class TriedUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Recorded requests of a kind, and what policies do with them.

    `need` is the right that decides, `by` the policy or role; `source` is the address of one of the
    last requests, None through a console. `was_allowed` is what the present policies do with them.
    """

    user: str
    network: str
    source: str | None
    need: str
    by: str
    allowed: bool
    was_allowed: bool
    count: int
    last_ms: int


def encode_tried(uses: Iterable[TriedUse]) -> bytes:
    """The reply of TRY_POLICIES (30079)."""
    return _encode(list(uses))


decode_tried = reply_decoder(list[TriedUse], "list of tried requests")


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests that were refused, or would have been: how many of a kind since the start."""

    user: str
    source: str
    request: str
    need: str
    by: str
    count: int
    last_ms: int
    handled: bool
    """True if they were handled nevertheless, because decisions were only observed."""


def encode_refusals(refusals: Iterable[Refusal]) -> bytes:
    """The reply of GET_ACCESS_STATUS (30061)."""
    return _encode(list(refusals))


decode_refusals = reply_decoder(list[Refusal], "list of refusals")
