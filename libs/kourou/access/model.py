"""The values of access control: resources, actions, users, roles and policies.

They are stored, and sent to name servers, by builds of different ages. Fields that have their
default are left out, and a field that a build does not know is ignored. So a new field must not
restrict what is allowed: that takes a new type of event, or a new value of an enumeration, which
a build that does not know it cannot read; then it refuses everything (authorization.access_table).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from ipaddress import ip_address, ip_network
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from kourou.access.subject import parse_subject
from kourou.errors import BadRequest
from kourou.model.limits import (
    POLICY_NETWORKS_MAX,
    SECRET_LENGTH_MAX,
    SECRET_LENGTH_MIN,
    USER_NAME_LENGTH_MAX,
)
from kourou.model.names import RETRY_PREFIX

ANONYMOUS = "anonymous"
"""The user of a request without credentials."""

ALL = "*"
"""The name in a need for all resources of a type; no resource has this name."""

SOME = "?"
"""The name in a need for any one resource of a type; no resource has this name."""


class ResourceType(StrEnum):
    """What a request acts on. Settings, brokers and name servers belong to their cluster."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    FILTER = "Filter"
    USER = "User"


class Action(StrEnum):
    """What a request does. GET is configuration and figures; message content needs SUB."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


ALL_ACTIONS = frozenset(Action)


def in_order(actions: Iterable[Action]) -> tuple[Action, ...]:
    """The actions once each, in the order of Action."""
    wanted = set(actions)
    return tuple(one for one in Action if one in wanted)


class AccessMode(StrEnum):
    """What happens with the decisions, as soon as there are users."""

    OFF = "off"
    """Nothing is decided: everybody may do everything."""
    OBSERVE = "observe"
    """Refusals are counted and logged; the request is handled."""
    ENFORCE = "enforce"


class Door(StrEnum):
    """How a client's request reaches brokers and name servers; each may have a mode of its own."""

    REMOTING = "remoting"
    """RocketMQ's protocol."""
    ZEROMQ = "zeromq"
    """Kourou's protocol."""
    HTTP = "http"
    """A console, on behalf of a user."""


def parse_mode(mode: str, door: str = "") -> tuple[AccessMode, Door | None]:
    """Read a mode and the door that it is for, None for all; raises BadRequest."""
    try:
        found = AccessMode(mode)
    except ValueError:
        raise BadRequest(f"{mode!r} is not a mode", hint=", ".join(AccessMode)) from None
    try:
        return found, Door(door) if door else None
    except ValueError:
        raise BadRequest(f"{door!r} is not a door", hint=", ".join(Door)) from None


class Pattern(msgspec.Struct, frozen=True, array_like=True):
    """The resources of a policy: one by name, those with a prefix, all of a type, or all.

    `type` None stands for every type. `name` is compared as it is, not as a regular expression.
    """

    type: ResourceType | None
    name: str
    is_prefix: bool

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read `Topic:orders`, `Topic:orders-*`, `Topic:*` or `*`; raises BadRequest."""
        if text == "*":
            return cls(None, "", is_prefix=True)
        kind, colon, name = text.partition(":")
        try:
            found = ResourceType(kind)
        except ValueError:
            found = None
        if found is None or not colon or not name or "*" in name[:-1]:
            raise BadRequest(
                f"{text!r} is not a resource",
                hint="TYPE:NAME, TYPE:PREFIX*, TYPE:* or *; TYPE is one of "
                + ", ".join(ResourceType),
            )
        is_prefix = name.endswith("*")
        return cls(found, name.removesuffix("*"), is_prefix=is_prefix)

    def __str__(self) -> str:
        if self.type is None:
            return "*"
        return f"{self.type}:{self.name}{'*' if self.is_prefix else ''}"

    def covers(self, kind: ResourceType, name: str) -> bool:
        """True if a resource belongs to the pattern."""
        if self.type is not None and self.type is not kind:
            return False
        return name.startswith(self.name) if self.is_prefix else name == self.name


class Effect(StrEnum):
    """What a policy says about the requests that it matches."""

    ALLOW = "allow"
    DENY = "deny"


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`user` may, or must not, perform `actions` on the resources of a pattern.

    `actions` are in the order of Action, so that equal policies are equal bytes. `networks` (CIDR)
    restrict it to sources; empty: from everywhere. It ends at `until_ms`, epoch ms. `reason` is for
    the history.
    """

    id: str
    user: str
    resource: Pattern
    actions: tuple[Action, ...]
    effect: Effect = Effect.ALLOW
    networks: tuple[str, ...] = ()
    until_ms: int | None = None
    reason: str = ""


class UserRole(StrEnum):
    """Fixed sets of rights."""

    READER = "reader"
    VIEWER = "viewer"
    WRITER = "writer"
    OPERATOR = "operator"
    FILTER_AUTHOR = "filter-author"
    BACKUP = "backup"
    CONSOLE = "console"
    """No rights of its own: it checks the secrets of users, and sends requests on their behalf."""
    ADMINISTRATOR = "administrator"


_READ = frozenset({Action.GET, Action.LIST})
_CHANGE = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})
_READER = (
    (ResourceType.TOPIC, _READ),
    (ResourceType.GROUP, _READ),
    (ResourceType.CLUSTER, _READ),
    (ResourceType.FILTER, _READ),
)

ROLES: Mapping[UserRole, tuple[tuple[ResourceType, frozenset[Action]], ...]] = MappingProxyType(
    {
        UserRole.READER: _READER,
        UserRole.VIEWER: (*_READER, (ResourceType.TOPIC, frozenset({Action.SUB}))),
        UserRole.WRITER: (
            *_READER,
            (ResourceType.TOPIC, frozenset({Action.PUB, Action.SUB})),
            (ResourceType.GROUP, frozenset({Action.SUB})),
        ),
        UserRole.OPERATOR: (
            *_READER,
            (ResourceType.TOPIC, _CHANGE),
            (ResourceType.GROUP, _CHANGE),
            (ResourceType.CLUSTER, _CHANGE),
            (ResourceType.FILTER, frozenset({Action.UPDATE, Action.DELETE})),
        ),
        UserRole.FILTER_AUTHOR: ((ResourceType.FILTER, frozenset({Action.CREATE})),),
        UserRole.BACKUP: (
            (ResourceType.CLUSTER, frozenset({Action.GET})),
            (ResourceType.TOPIC, frozenset({Action.SUB})),
            (ResourceType.GROUP, frozenset({Action.GET})),
            (ResourceType.USER, frozenset({Action.GET})),
        ),
        UserRole.CONSOLE: (),
        UserRole.ADMINISTRATOR: tuple((kind, ALL_ACTIONS) for kind in ResourceType),
    }
)
"""The rights of each role. Content of messages is for those with Topic Sub."""


class RoleGrant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A role, on names with a prefix or on all; it ends at `until_ms`, epoch ms.

    With a prefix it has no rights on the cluster, which has no name to compare. A console acts for
    the users whose names have the prefix.
    """

    role: UserRole
    prefix: str = ""
    until_ms: int | None = None


class UserKind(StrEnum):
    """Whom a user stands for."""

    PERSON = "person"
    SERVICE = "service"
    NODE = "node"


class User(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An account. Credentials are kept apart from it.

    A NODE is a process of this suite. `node` names it, `cluster/broker/id` for a broker, and no
    other process may act for it. Its CURVE keys (public, Z85) prove who it is on ZeroMQ, and
    certificates with one of its subjects over TLS: a whole subject, as two authorities or units of
    one may give the same common name to different owners. An `imported` user is as the files of
    `aclImportDir` say, until a request changes it.
    """

    name: str
    kind: UserKind = UserKind.SERVICE
    enabled: bool = True
    roles: tuple[RoleGrant, ...] = ()
    node: str = ""
    curve_keys: tuple[str, ...] = ()
    certificate_subjects: tuple[str, ...] = ()
    imported: bool = False

    @property
    def administers(self) -> bool:
        """True for an administrator of everything, without an end."""
        return any(
            grant.role is UserRole.ADMINISTRATOR and not grant.prefix and grant.until_ms is None
            for grant in self.roles
        )

    @property
    def signs_in(self) -> bool:
        """True if a console may act for the user: not for processes of the suite."""
        consoles = any(grant.role is UserRole.CONSOLE for grant in self.roles)
        return self.enabled and self.kind is not UserKind.NODE and not consoles

    def is_console_of(self, name: str, now_ms: int) -> bool:
        """True if this user may check the secret of that one, and send requests on its behalf."""
        return any(name.startswith(prefix) for prefix in self.console_prefixes(now_ms))

    def console_prefixes(self, now_ms: int) -> list[str]:
        """The beginnings of the names of users of whom this one is a console; empty if of none."""
        return [
            grant.prefix
            for grant in self.roles
            if self.enabled
            and grant.role is UserRole.CONSOLE
            and (grant.until_ms is None or now_ms < grant.until_ms)
        ]


class SealedSecret(msgspec.Struct, frozen=True):
    """An encrypted secret: the id of its key, the nonce, and the ciphertext with its tag."""

    key_id: str
    nonce: bytes
    ciphertext: bytes


class Need(NamedTuple):
    """One of `actions` on one resource."""

    type: ResourceType
    name: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        which = f"any {self.type}" if self.name == SOME else f"{self.type}:{self.name}"
        return f"{' or '.join(self.actions)} on {which}"


class AnyOf(NamedTuple):
    """Needs of which one suffices: what the same resource is called.

    Their actions correspond one by one, and what one of them is denied, all are denied.
    """

    needs: tuple[Need, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.needs))


_CURVE_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
"""Z85, as in ZeroMQ's RFC 32."""


def check_user(user: User) -> User:
    """Return the user, with subjects in their normal form.

    Raises BadRequest if its name, its node or a credential is not valid.
    """
    name = user.name
    if (
        not 1 <= len(name) <= USER_NAME_LENGTH_MAX
        or not name.isprintable()
        or {":", "/"} & set(name)
    ):
        raise BadRequest(
            f"{name!r} is not a user name",
            hint=f"1 to {USER_NAME_LENGTH_MAX} printable characters without colon and slash",
        )
    if name == ANONYMOUS:
        raise BadRequest(f"the name {ANONYMOUS} stands for requests without credentials")
    if bool(user.node) != (user.kind is UserKind.NODE):
        raise BadRequest("a node, and only a node, names its process: cluster/broker/id")
    for key in user.curve_keys:
        if not _CURVE_KEY.fullmatch(key):
            raise BadRequest(
                f"{key!r} is not a CURVE public key",
                hint="40 characters, as `kourou keys make` writes them into NAME.key",
            )
    subjects = tuple(dict.fromkeys(map(parse_subject, user.certificate_subjects)))
    return msgspec.structs.replace(user, certificate_subjects=subjects)


def check_secret(secret: str) -> str:
    """Return the secret; raises BadRequest, without showing it, if it cannot be one."""
    if not SECRET_LENGTH_MIN <= len(secret) <= SECRET_LENGTH_MAX or not secret.isprintable():
        raise BadRequest(
            f"a secret has {SECRET_LENGTH_MIN} to {SECRET_LENGTH_MAX} printable characters",
            hint="leave it out, and a random one is made",
        )
    return secret


def check_policy(policy: Policy) -> Policy:
    """Return the policy; raises BadRequest if it can match nothing or a network is not valid."""
    _check_resource(policy.resource)
    if in_order(policy.actions) != policy.actions:
        policy = msgspec.structs.replace(policy, actions=in_order(policy.actions))
    if not policy.actions:
        raise BadRequest("a policy needs at least one action", hint=", ".join(Action))
    if len(policy.networks) > POLICY_NETWORKS_MAX:
        raise BadRequest(f"a policy has at most {POLICY_NETWORKS_MAX} networks")
    for text in policy.networks:
        try:
            network = ip_network(text)
        except ValueError as error:
            raise BadRequest(f"{text!r} is not a network: {error}", hint="10.0.0.0/8") from error
        if getattr(network.network_address, "ipv4_mapped", None):
            raise BadRequest(f"{text!r} is an IPv4 network in IPv6 form", hint="10.0.0.0/8")
    return policy


def _check_resource(resource: Pattern) -> None:
    """Raise BadRequest if no need names such a resource: a denial of it would deny nothing."""
    kind, name = resource.type, resource.name
    if kind is ResourceType.CLUSTER and not resource.covers(kind, ""):
        raise BadRequest(
            f"{resource} matches nothing: the cluster has no name in policies",
            hint=f"{kind}:*",
        )
    if kind is ResourceType.FILTER and not resource.is_prefix and "/" not in name:
        raise BadRequest(
            f"{resource} matches nothing: a filter is GROUP/NAME", hint=f"{kind}:GROUP/{name}"
        )
    if kind is ResourceType.TOPIC and name.startswith(RETRY_PREFIX):
        of_group = Pattern(ResourceType.GROUP, name[len(RETRY_PREFIX) :], resource.is_prefix)
        raise BadRequest(
            f"{resource} matches nothing: a retry topic belongs to its group", hint=str(of_group)
        )


def plain_address(address: str) -> str:
    """An IP address in its normal form; an IPv4 address in IPv6 becomes plain IPv4.

    Raises ValueError for anything else, octal parts included.
    """
    found = ip_address(address)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)
