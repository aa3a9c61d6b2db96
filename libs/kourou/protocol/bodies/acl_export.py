"""Reads users and ACLs of RocketMQ 5.3 (ACL 2.0) into users and policies.

A file has the shape of the bodies of kourou.protocol.bodies.access_bodies, as JSON or YAML, or is
what `mqadmin listUser` and `mqadmin listAcl` print:

    users: [{username: till, password: …, userType: Normal, userStatus: enable}]
    acls: [{subject: 'User:till', policies: [{policyType: Custom, entries: [{resource: 'Topic:a*',
            actions: [Pub], sourceIps: [10.0.0.0/8], decision: Allow}]}]}]

The list `users` must be there: a file that was cut before it stands for no users otherwise.

In RocketMQ the most specific entry decides, and an entry of type Custom before one of type Default.
Here a denial always wins. So a denial with a stronger permission inside is left out if nothing else
allows what it denies, because then it says nothing; otherwise the file is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

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
    check_secret,
    check_user,
    in_order,
)
from kourou.access.plain_acl import SHIPPED, ImportedAcl, networks_of, read_plain_acl
from kourou.access.signature import same_secret
from kourou.errors import BadRequest
from kourou.model.names import RETRY_PREFIX
from kourou.protocol.bodies.access_bodies import parse_actions, policy_id, user_of_subject

ORIGIN = "RocketMQ ACL 2.0"
"""The reason of the policies and changes."""

_USERS, _ACLS = "users", "acls"
_COLUMNS = {
    "#UserName": "username",
    "#Password": "password",
    "#UserType": "userType",
    "#UserStatus": "userStatus",
    "#Subject": "subject",
    "#PolicyType": "policyType",
    "#Resource": "resource",
    "#Actions": "actions",
    "#SourceIp": "sourceIps",
    "#Decision": "decision",
}
_TABLE = re.compile(r"#(UserName|Subject)\b")
_AFTER_TABLE = re.compile(r"(get|list) .* success\.|there is no .* found\.")
_USER_KEYS = frozenset({"username", "password", "userType", "userStatus"})
_ENTRY_KEYS = frozenset({"resource", "actions", "sourceIps", "decision"})
_KINDS = {one.lower(): one for one in ResourceType}


def read_acl(
    document: Any, *, cluster: str | None = None, accept_whitelist: bool = False
) -> ImportedAcl:
    """Convert a parsed file: one of ACL 2.0, or a plain_acl.yml. Raises BadRequest.

    `cluster` is the name of the cluster that gets the users: entries about another one are left
    out. None if it is not known: entries that name a cluster are refused. `accept_whitelist` is for
    a plain_acl.yml; see kourou.access.plain_acl.
    """
    if not isinstance(document, Mapping) or not {_USERS, _ACLS} & set(document):
        return read_plain_acl(document, accept_whitelist=accept_whitelist)
    _check_keys("the file", document, {_USERS, _ACLS})
    if not isinstance(document.get(_USERS), list | tuple):
        raise BadRequest("users is not a list", hint="`users: []` stands for no users")
    found = ImportedAcl(origin=ORIGIN)
    users: dict[str, User] = {}
    for one in _list(document, _USERS):
        _read_user(found, users, one)
    problems: list[str] = []
    for name, entries in _entries_by_user(found, _list(document, _ACLS), cluster).items():
        found.policies += _settled(found, problems, name, entries)
    if problems:
        raise BadRequest(
            "; ".join(problems), hint="change these entries in the file; nothing was imported"
        )
    return found


def tables_of(text: str) -> dict[str, Any] | None:
    """The users and ACLs in what mqadmin printed; None if it is no such text. Raises BadRequest.

    A comment of YAML may begin like a header, whose cells are all names of columns.
    """
    lines = text.splitlines()
    if not any(map(_columns_of, lines)):
        return None
    found: dict[str, Any] = {}
    columns: list[str] = []
    for number, line in enumerate(lines, 1):
        cells = _cells(line)
        if _TABLE.match(line):
            columns = _columns_of(line)
            if not columns:
                raise BadRequest(f"line {number} is a header with unknown columns")
        elif not columns or not line.strip() or _AFTER_TABLE.fullmatch(line.strip()):
            continue
        elif len(cells) == len(columns):
            texts = ["" if cell == "null" else cell for cell in cells]
            row = dict(zip(columns, texts, strict=True))
            if columns[0] == "username":
                found.setdefault(_USERS, []).append(row)
            else:
                found.setdefault(_ACLS, []).append(_acl_of(row))
        elif len(cells) > 1 or columns[0] == "username":  # a subject alone has no policies
            raise BadRequest(f"line {number} has {len(cells)} columns, not {len(columns)}")
    if _USERS not in found:
        raise BadRequest(
            "the text has no user of mqadmin listUser", hint="append what mqadmin listAcl prints"
        )
    return found


def _cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def _columns_of(line: str) -> list[str]:
    """The keys of the columns below a header; none if the line is something else."""
    if _TABLE.match(line) is None:
        return []
    cells = _cells(line)
    known = [_COLUMNS[cell] for cell in cells if cell in _COLUMNS]
    return known if len(known) == len(cells) > 1 else []


def _acl_of(row: Mapping[str, str]) -> dict[str, Any]:
    lists = {
        key: [one for one in row[key].strip("[]").split(",") if one]
        for key in ("actions", "sourceIps")
        if key in row
    }
    entry = {key: row[key] for key in row if key not in ("subject", "policyType")} | lists
    policies = [{"policyType": row.get("policyType"), "entries": [entry]}]
    return {"subject": row["subject"], "policies": policies}


# -- users ----------------------------------------------------------------------------------------


def _read_user(found: ImportedAcl, users: dict[str, User], one: Any) -> None:
    name = _text(_mapping("a user", one), "username")
    _check_keys(f"user {name!r}", one, _USER_KEYS)
    secret = _text(one, "password")
    is_super = _choice(one, "userType", {"super": True, "normal": False}, otherwise=False)
    enabled = _choice(one, "userStatus", {"enable": True, "disable": False}, otherwise=True)
    roles = (RoleGrant(UserRole.ADMINISTRATOR),) if is_super else ()
    user = check_user(User(name=name, enabled=enabled, roles=roles))
    known = users.setdefault(name, user)
    if known is not user:
        if known != user or not same_secret(found.secrets.get(name, ""), secret):
            found.notes.append(f"user {name} occurs twice; the first one counts")
        return
    found.users.append(user)
    if not secret:
        found.notes.append(
            f"user {name} has no password in the file: `kourou user set {name} --new-secret`"
        )
        return
    try:
        found.secrets[name] = check_secret(secret)
    except BadRequest as error:
        raise BadRequest(f"the password of user {name!r} is refused: {error.message}") from error
    if (name, secret) in SHIPPED:
        found.shipped.append(name)


# -- entries --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of an ACL. `custom`: it counts before those of type Default."""

    custom: bool
    policy: Policy

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Of two entries that match a request, the one with the higher rank decides."""
        pattern = self.policy.resource
        length = len(pattern.name)
        return self.custom, pattern.type is not None, not pattern.is_prefix, length


def _entries_by_user(
    found: ImportedAcl, acls: Iterable[Any], cluster: str | None
) -> dict[str, Collection[_Entry]]:
    """The entries of each user of the file, each once."""
    users = {one.name: one for one in found.users}
    entries: dict[str, dict[_Entry, None]] = {}
    for acl in acls:
        name = user_of_subject(_text(_mapping("an ACL", acl), "subject"))
        _check_keys(f"the ACL of {name!r}", acl, {"subject", "policies"})
        user = users.get(name)
        if user is None or user.administers:
            why = "is not in the file" if user is None else "is an administrator, who may do all"
            _note(found, f"the ACL of {name} is not imported: the user {why}")
            continue
        for group in _list(acl, "policies"):
            of_user = f"policies of {name!r}"
            _check_keys(of_user, _mapping(of_user, group), {"policyType", "entries"})
            custom = _choice(
                group, "policyType", {"custom": True, "default": False}, otherwise=True
            )
            for one in _list(group, "entries"):
                one = _mapping(f"an entry of {name!r}", one)
                entry = _entry(found, name, one, cluster, custom=custom)
                if entry is not None:
                    entries.setdefault(name, {})[entry] = None
    return {name: tuple(of_user) for name, of_user in entries.items()}


def _entry(
    found: ImportedAcl, user: str, one: Mapping[str, Any], cluster: str | None, *, custom: bool
) -> _Entry | None:
    """An entry; None, with a note, if it says nothing here. Raises BadRequest."""
    text = _text(one, "resource")
    what = f"{text} of {user}"
    _check_keys(what, one, _ENTRY_KEYS)
    kind, colon, name = text.partition(":")
    if kind.lower() == "namespace":
        _note(found, f"{what} is not imported: there are no namespaces")
        return None
    if kind.lower() == "topic" and name.startswith(RETRY_PREFIX):
        _note(found, f"{what} is not imported: a retry topic belongs to its group")
        return None
    kind = _KINDS.get(kind.lower(), kind)
    effects = {each.value: each for each in Effect}
    try:
        resource = Pattern.parse(f"{kind}{colon}{name}")
        if resource.type is ResourceType.CLUSTER and resource.name:
            if not _names_cluster(resource, cluster):
                _note(found, f"{what} is not imported: the cluster is {cluster}")
                return None
            _note(found, f"{what} is imported as Cluster:*, the cluster of the brokers")
            resource = Pattern(ResourceType.CLUSTER, "", is_prefix=True)
        effect = _choice(one, "decision", effects, otherwise=Effect.ALLOW)
        policy = check_policy(
            Policy(
                id=policy_id(user, resource, effect),
                user=user,
                resource=resource,
                actions=parse_actions(map(str, _list(one, "actions"))),
                effect=effect,
                networks=tuple(
                    network
                    for address in map(str.strip, map(str, _list(one, "sourceIps")))
                    if address
                    for network in ((address,) if "/" in address else networks_of(address))
                ),
                reason=ORIGIN,
            )
        )
    except BadRequest as error:
        raise BadRequest(f"{what}: {error.message}", hint=error.hint) from error
    return _Entry(custom, policy)


def _names_cluster(resource: Pattern, cluster: str | None) -> bool:
    """Whether a resource is this cluster. Raises BadRequest if the name is not known."""
    if cluster is None:
        raise BadRequest(
            "policies are about the cluster of a broker, and it is not known whether this is its"
            " name",
            hint="--cluster NAME, the cluster that gets the users",
        )
    return resource.covers(ResourceType.CLUSTER, cluster)


def _settled(
    found: ImportedAcl, problems: list[str], user: str, entries: Collection[_Entry]
) -> list[Policy]:
    """The policies that decide as these entries of a user do, one for each resource and effect."""
    allowing = [one for one in entries if one.policy.effect is Effect.ALLOW]
    merged: dict[str, Policy] = {}
    for one in entries:
        policy = one.policy
        if policy.effect is Effect.DENY:
            rivals = [each for each in allowing if _overlap(each.policy.resource, policy.resource)]
            denied = [
                action for action in policy.actions if _denies(found, problems, one, action, rivals)
            ]
            policy = msgspec.structs.replace(policy, actions=tuple(denied))
        elif _reads_content(policy):
            _note(
                found,
                f"Get of {user} on {policy.resource} is imported without content of messages,"
                " which needs Sub",
            )
        known = merged.get(policy.id)
        if not policy.actions:
            continue
        if known is None:
            merged[policy.id] = policy
        elif known.networks == policy.networks:
            actions = in_order({*known.actions, *policy.actions})
            merged[policy.id] = msgspec.structs.replace(known, actions=actions)
        else:
            problems.append(
                f"{user} has two entries for {policy.resource} with different sourceIps, and a"
                " user has one policy for a resource"
            )
    return list(merged.values())


def _denies(
    found: ImportedAcl,
    problems: list[str],
    denial: _Entry,
    action: Action,
    overlapping: Iterable[_Entry],
) -> bool:
    """Whether a denial of an action is a policy here, next to these permissions."""
    policy = denial.policy
    rivals = [one for one in overlapping if action in one.policy.actions]
    stronger = [one for one in rivals if one.rank > denial.rank]
    others = [one for one in rivals if one.rank <= denial.rank]
    of_user = f"{action} of {policy.user} on {policy.resource}"
    if not stronger:
        if any(one.rank == denial.rank for one in others):
            _note(found, f"{of_user} is allowed and denied: here the denial counts")
        return True
    inner = ", ".join(str(one.policy.resource) for one in stronger)
    if not others:
        _note(
            found,
            f"the denial of {of_user} is not imported: {inner} is allowed, and nothing else is",
        )
        return False
    outer = ", ".join(str(one.policy.resource) for one in others)
    problems.append(
        f"the denial of {of_user} has an exception, {inner}, and one itself from {outer}: here a"
        " denial has no exceptions"
    )
    return True


def _overlap(one: Pattern, other: Pattern) -> bool:
    """True if a resource can match both: then one of them is within the other."""
    if None not in (one.type, other.type) and one.type is not other.type:
        return False
    longer, shorter = (one, other) if len(one.name) >= len(other.name) else (other, one)
    if not shorter.is_prefix:
        return longer.name == shorter.name
    return longer.name.startswith(shorter.name)


def _reads_content(policy: Policy) -> bool:
    """True if RocketMQ would let Get alone read messages."""
    return (
        policy.resource.type in (None, ResourceType.TOPIC)
        and Action.GET in policy.actions
        and Action.SUB not in policy.actions
    )


# -- values ---------------------------------------------------------------------------------------


def _note(found: ImportedAcl, text: str) -> None:
    """Add a note once: several brokers may have printed the same entry."""
    if text not in found.notes:
        found.notes.append(text)


def _mapping(what: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{what} is not a mapping")
    return value


def _check_keys(what: str, value: Mapping[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(map(str, set(value) - set(known)))
    if unknown:
        raise BadRequest(f"{what} has unknown keys: {', '.join(unknown)}")


def _list(value: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = value.get(key) or ()
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise BadRequest(f"{key} is not a list")
    return found


def _text(value: Mapping[str, Any], key: str) -> str:
    """A scalar of any YAML type as text: a password of digits is a number in YAML."""
    found = value.get(key)
    return "" if found is None else str(found).strip()


def _choice(value: Mapping[str, Any], key: str, known: Mapping[str, Any], *, otherwise: Any) -> Any:
    text = _text(value, key).lower()
    if not text:
        return otherwise
    if text not in known:
        raise BadRequest(f"{key} is {text!r}", hint=f"one of {', '.join(known)}")
    return known[text]
