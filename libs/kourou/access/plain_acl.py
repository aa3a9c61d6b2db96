"""Reads RocketMQ's plain_acl.yml (ACL 1.0) into users and policies.

RocketMQ's permissions become so:

    admin: true, without topicPerms and groupPerms     role administrator
    admin: true, with entries                          role operator, and the entries
    default PUB, t=DENY                                allow Pub on Topic:*, deny Pub, Sub on t
    default PUB|SUB, t=SUB                             also deny Pub on t
    default DENY, t=PUB                                allow Pub on t
    groupPerms g=SUB                                   allow Sub on Group:g

A white address skips RocketMQ's checks altogether. Here it never does: with `accept_whitelist` it
becomes the network of the account's policies, else it is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address, summarize_address_range
from typing import Any

from kourou.access.model import (
    Action,
    Effect,
    Pattern,
    Policy,
    ResourceType,
    RoleGrant,
    User,
    UserRole,
    check_policy,
    check_user,
    in_order,
)
from kourou.errors import BadRequest
from kourou.model.names import RETRY_PREFIX

SECRET_CHARACTERS_MIN = 7
"""RocketMQ wants access key and secret to be longer than 6 characters."""

SHIPPED = frozenset({("RocketMQ", "12345678"), ("rocketmq2", "12345678"), ("rocketmq", "12345678")})
"""The accounts in files that RocketMQ ships, and in its manual: everybody knows them."""

ORIGIN = "plain_acl.yml"
"""The reason of the policies and changes."""

_TOP = ["accounts", "dataVersion", "globalWhiteRemoteAddresses"]
_KNOWN = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)
_PERMS = {
    "PUB": frozenset({Action.PUB}),
    "SUB": frozenset({Action.SUB}),
    "PUB|SUB": frozenset({Action.PUB, Action.SUB}),
    "SUB|PUB": frozenset({Action.PUB, Action.SUB}),
    "DENY": frozenset[Action](),
}
_MEANT = {ResourceType.TOPIC: _PERMS["PUB|SUB"], ResourceType.GROUP: _PERMS["SUB"]}


@dataclass(slots=True)
class ImportedAcl:
    """Users with their secrets (kept out of any output), policies, and what needs attention."""

    users: list[User] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    policies: list[Policy] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shipped: list[str] = field(default_factory=list)
    """Users that have a published secret: refuse them on addresses other than loopback."""
    origin: str = ORIGIN
    """The kind of file."""


def read_plain_acl(document: Any, *, accept_whitelist: bool = False) -> ImportedAcl:
    """Convert a parsed file (mapping of YAML). Raises BadRequest and converts nothing if it is bad.

    Scalars may be of any YAML type: RocketMQ reads a secret of digits as text.
    """
    if not isinstance(document, Mapping):
        raise BadRequest(
            "the file is not a mapping", hint="accounts: [{accessKey: …, secretKey: …}]"
        )
    unknown = sorted(map(str, set(document).difference(_TOP)))
    if unknown:
        raise BadRequest(
            f"the file has unknown keys: {', '.join(unknown)}",
            hint=f"known: {_texts(_TOP)}",
        )
    accounts = document.get("accounts")
    if not isinstance(accounts, list | tuple):
        # A file that was cut, or whose key is misspelt, must not stand for no users.
        raise BadRequest("accounts is not a list", hint="`accounts: []` stands for no users")
    found = ImportedAcl()
    addresses = document.get("globalWhiteRemoteAddresses") or ()
    if addresses:
        found.notes.append(
            f"globalWhiteRemoteAddresses {_texts(addresses)} is not imported: no address replaces"
            " credentials"
        )
    for account in accounts:
        _read_account(found, account, accept_whitelist=accept_whitelist)
    return found


def _read_account(found: ImportedAcl, account: Any, *, accept_whitelist: bool) -> None:
    if not isinstance(account, Mapping):
        raise BadRequest("an account is not a mapping")
    name, secret = _text(account, "accessKey"), _text(account, "secretKey")
    unknown = sorted(map(str, set(account) - _KNOWN))
    if unknown:
        raise BadRequest(f"account {name!r} has unknown keys: {', '.join(unknown)}")
    if min(len(name), len(secret)) < SECRET_CHARACTERS_MIN:
        raise BadRequest(
            f"access key and secret of {name!r} need {SECRET_CHARACTERS_MIN} characters or more"
        )
    if name in found.secrets:
        found.notes.append(f"account {name} occurs twice; the first one counts")
        return
    topics, groups = _perms(account, "topicPerms"), _perms(account, "groupPerms")
    for one in [name for name in topics if name.startswith(RETRY_PREFIX)]:
        groups.setdefault(one.removeprefix(RETRY_PREFIX), topics.pop(one))
    roles: tuple[RoleGrant, ...] = ()
    if _on(account.get("admin")):
        roles = (RoleGrant(UserRole.OPERATOR if topics or groups else UserRole.ADMINISTRATOR),)
    user = check_user(User(name=name, roles=roles))
    networks: tuple[str, ...] = ()
    white = _text(account, "whiteRemoteAddress")
    if white and accept_whitelist:
        networks = networks_of(white)
    elif white:
        found.notes.append(
            f"whiteRemoteAddress {white!r} of {name} is not imported: as a network of its policies"
            " with --accept-whitelist"
        )
    found.users.append(user)
    found.secrets[name] = secret
    if (name, secret) in SHIPPED:
        found.shipped.append(name)
    for kind, default, entries in (
        (ResourceType.TOPIC, _text(account, "defaultTopicPerm"), topics),
        (ResourceType.GROUP, _text(account, "defaultGroupPerm"), groups),
    ):
        perms = {one: _actions(perm) for one, perm in entries.items()}
        found.policies += _policies(name, kind, _actions(default), perms, networks)


def account_policies(policies: Iterable[Policy], kind: ResourceType) -> list[Policy]:
    """Those of a user's policies about topics, or groups, that an account of RocketMQ can have."""
    return [
        one
        for one in policies
        if one.resource.type is kind
        and (not one.resource.is_prefix or not one.resource.name)
        and _MEANT[kind].issuperset(one.actions)
        and not one.networks
        and one.until_ms is None
    ]


def changed_policies(
    user: str,
    kind: ResourceType,
    before: Iterable[Policy],
    *,
    default: str | None,
    entries: str | None,
) -> list[Policy]:
    """The policies about topics, or groups, that an account has after mqadmin's updateAclConfig.

    `before` are its `account_policies`. `default` and `entries` (`name=PERM,name=PERM`) replace
    what they stand for; None leaves it. Raises BadRequest, also for a permission that RocketMQ does
    not have: a file may contain one, and then it means DENY.
    """
    usual, perms = _perms_of(before)
    if default:
        usual = _known(default)
    if entries is not None:
        listed = [one for one in entries.split(",") if one.strip()]
        perms = {name: _known(perm) for name, perm in _perms({"list": listed}, "list").items()}
    return _policies(user, kind, usual, perms, (), reason="updateAclConfig")


def _perms_of(
    policies: Iterable[Policy],
) -> tuple[frozenset[Action], dict[str, frozenset[Action]]]:
    """The default and the entries from which these policies were made."""
    usual = frozenset[Action]()
    allowed: dict[str, frozenset[Action]] = {}
    denied: dict[str, frozenset[Action]] = {}
    for one in policies:
        if not one.resource.name and one.effect is Effect.ALLOW:
            usual = frozenset(one.actions)
        else:
            side = allowed if one.effect is Effect.ALLOW else denied
            side[one.resource.name or "*"] = frozenset(one.actions)
    none = frozenset[Action]()
    return usual, {
        name: (usual | allowed.get(name, none)) - denied.get(name, none)
        for name in sorted(allowed.keys() | denied.keys())
    }


def _known(perm: str) -> frozenset[Action]:
    found = _PERMS.get(perm.strip())
    if found is None:
        raise BadRequest(f"{perm!r} is not a permission", hint=", ".join(_PERMS))
    return found


def _policies(
    user: str,
    kind: ResourceType,
    default: frozenset[Action],
    entries: Mapping[str, frozenset[Action]],
    networks: tuple[str, ...],
    reason: str = ORIGIN,
) -> list[Policy]:
    meant = _MEANT[kind]
    usual = default & meant
    found = []

    def add(name: str, actions: frozenset[Action], effect: Effect) -> None:
        if actions:
            pattern = Pattern(kind, "" if name == "*" else name, is_prefix=name == "*")
            found.append(
                check_policy(
                    Policy(
                        id=f"{user}/{kind}:{name}/{effect}",
                        user=user,
                        resource=pattern,
                        actions=in_order(actions),
                        effect=effect,
                        networks=networks if effect is Effect.ALLOW else (),
                        reason=reason,
                    )
                )
            )

    add("*", usual, Effect.ALLOW)
    for name, perm in entries.items():
        allowed = perm & meant
        add(name, allowed - usual, Effect.ALLOW)
        add(name, usual - allowed, Effect.DENY)
    return found


def _actions(perm: str) -> frozenset[Action]:
    """RocketMQ takes an unknown text as DENY."""
    return _PERMS.get(perm.strip(), frozenset())


def _perms(account: Mapping[str, Any], key: str) -> dict[str, str]:
    entries = account.get(key) or ()
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise BadRequest(f"{key} is not a list", hint="- orders=PUB|SUB")
    found: dict[str, str] = {}
    for entry in entries:
        name, sign, perm = str(entry).partition("=")
        if not sign or not name.strip():
            raise BadRequest(f"{entry!r} of {key} is not NAME=PERMISSION", hint="orders=PUB|SUB")
        found[name.strip()] = perm
    return found


def _text(account: Mapping[str, Any], key: str) -> str:
    value = account.get(key)
    return "" if value is None else str(value).strip()


def _texts(values: Any) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


def _on(value: Any) -> bool:
    return value is True or str(value).strip().lower() == "true"


def networks_of(address: str) -> tuple[str, ...]:
    """RocketMQ's notation of remote addresses as networks; raises BadRequest.

    One address; several with commas; `10.0.0.{1,2}`, `10.0.0.*`, `10.0.0.1-9`; `*` for all.
    """
    if address.strip() == "*":
        return ("0.0.0.0/0", "::/0")
    braces = re.fullmatch(r"(\d+\.\d+\.\d+\.)\{([\d, ]+)\}", address.strip())
    parts = (
        [braces[1] + last.strip() for last in braces[2].split(",")]
        if braces
        else [part.strip() for part in address.split(",")]
    )
    return tuple(network for part in parts for network in _networks(part))


def _networks(part: str) -> list[str]:
    four = r"(\d{1,3})\.(\d{1,3}|\*|\d{1,3}-\d{1,3})\.(\d{1,3}|\*|\d{1,3}-\d{1,3})"
    try:
        if "*" not in part and "-" not in part:
            found = ip_address(part)
            return [f"{found}/{found.max_prefixlen}"]
        if not re.fullmatch(rf"{four}\.(\d{{1,3}}|\*|\d{{1,3}}-\d{{1,3}})", part):
            raise ValueError("not one of RocketMQ's notations")
        ranges = [
            (0, 255) if one == "*" else tuple(map(int, (one.split("-") * 2)[:2]))
            for one in part.split(".")
        ]
        open_places = [place for place, (low, high) in enumerate(ranges) if low != high]
        if any(ranges[place] != (0, 255) for place in range(open_places[0] + 1, 4)):
            raise ValueError("a range may only be followed by *")
        low = IPv4Address(".".join(str(first) for first, _ in ranges))
        high = IPv4Address(".".join(str(last) for _, last in ranges))
        return [str(one) for one in summarize_address_range(low, high)]
    except ValueError as error:
        raise BadRequest(
            f"{part!r} is not an address: {error}", hint="10.0.0.1, 10.0.0.*, 10.0.0.1-9 or *"
        ) from error
