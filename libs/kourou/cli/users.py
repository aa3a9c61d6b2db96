"""`kourou user`: users, their roles and policies, and what brokers do with decisions.

A change goes to all brokers of the cluster; an error names those that failed. Tables have a column
with the brokers that a row is true for: `all`, or their names if they differ.

A secret is read from a file or made here, never taken from the command line's arguments, and
printed only when it was made.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.command import command, moment
from kourou.cli.admin.command import user as user
from kourou.cli.admin.report import Report, local_time
from kourou.errors import BadRequest, ConfigError, NoPermission, Rejected
from kourou.telemetry.logs import printable

if TYPE_CHECKING:
    from kourou.access.api_token import ApiToken
    from kourou.access.model import Policy, User, UserKind
    from kourou.access.plain_acl import ImportedAcl
    from kourou.client.admin.base_api import ByBroker
    from kourou.client.admin.users import AccessStatus, PolicyTrial
    from kourou.protocol.bodies.access_bodies import AuditLine, PolicyChange
    from kourou.sync import Client

USER_COLUMNS = (
    *("user", "kind", "enabled", "roles", "CURVE keys", "certificates", "node", "brokers"),
)
POLICY_COLUMNS = ("user", "effect", "actions", "resource", "from", "until", "brokers")
REFUSAL_COLUMNS = (
    *("count", "user", "from", "request", "needs", "decided by", "last", "handled", "broker"),
)
AUDIT_COLUMNS = (
    *("time", "decision", "user", "from", "request", "needs", "decided by"),
    *("count", "handled", "door", "console", "broker"),
)
DECISIONS = {"all": "", "refused": "refused", "allowed": "allowed"}
"""What --decision takes, and what a broker is asked for."""
TRIAL_COLUMNS = (
    *("count", "would be", "now", "user", "from", "needs", "decided by", "last", "broker"),
)
TOKEN_COLUMNS = ("user", "token", "scope", "created", "expires", "brokers")
PRIVATE = 0o600

UserName = Annotated[str, typer.Argument(metavar="USER", help="The user.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Actions = Annotated[
    str,
    typer.Argument(
        metavar="ACTIONS",
        help="Joined by commas: Pub, Sub, Create, Update, Delete, Get, List; or All.",
    ),
]
Resource = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="Topic:NAME, Group:NAME, Filter:GROUP/NAME, TYPE:PREFIX*, Topic:*, Cluster:*, or *.",
    ),
]
Roles = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        metavar="ROLE[:PREFIX]",
        help="reader, viewer, writer, operator, filter-author, backup, console, administrator "
        "(repeatable); with a prefix for such names only.",
    ),
]
CurveKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--curve-key",
        metavar="KEY|FILE",
        help="A CURVE public key, or its file NAME.key (repeatable).",
    ),
]
Subjects = Annotated[
    list[str] | None,
    typer.Option(
        "--certificate-subject",
        metavar="SUBJECT",
        help="The subject of its TLS certificates, as CN=till,O=Example (repeatable).",
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="Read the secret from this file."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", metavar="FILE", help="Read a password for consoles from this file."
    ),
]
AskPassword = Annotated[
    bool, typer.Option("--ask-password", help="Ask for a password for consoles, without echo.")
]
Kind = Annotated[str, typer.Option("--kind", metavar="KIND", help="person, service or node.")]
Node = Annotated[
    str, typer.Option("--node", metavar="CLUSTER/BROKER/ID", help="The process of a node.")
]
Networks = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="CIDR", help="Only from this network (repeatable)."),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Until this time (ISO or ms); then it ends."),
]
Reason = Annotated[str, typer.Option("--reason", help="The reason, kept in the history.")]
Own = Annotated[
    bool, typer.Option("--own", help="Your own tokens, by your CURVE key; needs no right.")
]


@dataclass(slots=True)
class Chain(Report):
    """Two reports, one after the other."""

    following: Report = field(default_factory=Report)

    def show(self, *, as_json: bool) -> None:
        """Print both."""
        Report.show(self, as_json=as_json)
        if not as_json and self.rows and self.following.rows:
            print()
        self.following.show(as_json=as_json)


# -- users ----------------------------------------------------------------------------------------


@command("user create", "Create a user.")
def create(
    client: Client,
    name: NewName,
    *,
    admin: Annotated[
        bool, typer.Option("--admin", help="An administrator; the first user must be one.")
    ] = False,
    roles: Roles = None,
    curve_keys: CurveKeys = None,
    subjects: Subjects = None,
    secret_file: SecretFile = None,
    no_secret: Annotated[
        bool, typer.Option("--no-secret", help="No secret: only CURVE keys and certificates.")
    ] = False,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    kind: Kind = "",
    node: Node = "",
    reason: Reason = "",
) -> Report:
    """Create a user at all brokers; a random secret is made and printed once.

    The secret is the SecretKey of RocketMQ clients, the user's name their AccessKey. Clients of
    Kourou's own protocol prove who they are by a CURVE key, others by a certificate, too.
    """
    keys = _keys_of(curve_keys or ())
    if no_secret and secret_file is not None:
        raise BadRequest("--no-secret and --secret-file exclude each other")
    if admin:
        _check_own_key(client, keys)
    secret, made = (None, False) if no_secret else _secret(secret_file)
    try:
        client.admin.users.create(
            name,
            secret=secret,
            password_hash=_password_hash(password_file, ask=ask_password),
            admin=admin,
            roles=roles or (),
            kind=_kind(kind),
            curve_keys=keys,
            certificate_subjects=subjects or (),
            node=node,
            reason=reason,
        )
    except NoPermission as error:
        raise _explained(error) from error
    return _with_secret(f"created {printable(name)}", name, secret if made else None)


@command("user set", "Change a user.")
def change(
    client: Client,
    name: UserName,
    *,
    admin: Annotated[
        bool | None, typer.Option("--admin/--no-admin", help="Make it an administrator, or not.")
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Accept or refuse all its requests.")
    ] = None,
    roles: Roles = None,
    no_roles: Annotated[bool, typer.Option("--no-roles", help="Remove all roles.")] = False,
    curve_keys: CurveKeys = None,
    no_curve_keys: Annotated[
        bool, typer.Option("--no-curve-keys", help="Remove all CURVE keys.")
    ] = False,
    subjects: Subjects = None,
    no_subjects: Annotated[
        bool, typer.Option("--no-certificate-subjects", help="Remove all subjects.")
    ] = False,
    secret_file: SecretFile = None,
    new_secret: Annotated[
        bool, typer.Option("--new-secret", help="Make a new random secret and print it once.")
    ] = False,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Remove the password.")
    ] = False,
    kind: Kind = "",
    node: Node = "",
    reason: Reason = "",
) -> Report:
    """Change a user at all brokers; what is not given stays as it is.

    --role, --curve-key and --certificate-subject replace all former roles, keys and subjects.
    """
    for options, removes, given in (
        ("roles and --role", no_roles, roles),
        ("curve-keys and --curve-key", no_curve_keys, curve_keys),
        ("certificate-subjects and --certificate-subject", no_subjects, subjects),
        ("password and --password-file", no_password, password_file),
        ("password and --ask-password", no_password, ask_password),
    ):
        if removes and given:
            raise BadRequest(f"--no-{options} exclude each other")
    if new_secret and secret_file is not None:
        raise BadRequest("--new-secret and --secret-file exclude each other")
    wanted: dict[str, Any] = {
        "admin": admin,
        "enabled": enabled,
        "roles": [] if no_roles else roles or None,
        "kind": _kind(kind),
        "curve_keys": [] if no_curve_keys else _keys_of(curve_keys or ()) or None,
        "certificate_subjects": [] if no_subjects else subjects or None,
        "node": node or None,
        "password_hash": "" if no_password else _password_hash(password_file, ask=ask_password),
    }
    secret = _secret(secret_file)[0] if new_secret or secret_file is not None else None
    if secret is None and all(value is None for value in wanted.values()):
        raise BadRequest("nothing to change", hint="kourou user set --help")
    client.admin.users.set(name, secret=secret, reason=reason, **wanted)
    return _with_secret(f"changed {printable(name)}", name, secret if new_secret else None)


@command("user delete", "Delete a user with secret and policies.")
def delete(client: Client, name: UserName, *, reason: Reason = "") -> Report:
    """Delete a user with the secret and the policies at all brokers."""
    client.admin.users.delete(name, reason=reason)
    return Report(remarks=[f"deleted {printable(name)}"])


@command("user list", "List users.")
def list_users(client: Client) -> Report:
    """List all users with their roles; no secrets."""
    found: ByBroker[list[User]] = client.admin.users.list()
    rows = rows_by_broker(found, _user_row)
    return report_of(USER_COLUMNS, rows, found, "no users: nothing is decided yet")


@command("user show", "Show a user, its credentials and policies.")
def show(client: Client, name: UserName) -> Report:
    """Show a user with its API tokens and policies; `anonymous` has policies only.

    `kept`: brokers have a secret of the user, or a password, which they do not show.
    """
    from kourou.access.model import ANONYMOUS

    policies: ByBroker[list[Policy]] = client.admin.users.policies(name)
    rows = rows_by_broker(policies, _policy_row)
    of_user = report_of(POLICY_COLUMNS, rows, policies, "no policies")
    if name == ANONYMOUS:
        return of_user
    found: ByBroker[User] = client.admin.users.get(name)
    kept: ByBroker[tuple[str, ...]] = client.admin.users.kept(name)
    tokens: ByBroker[list[ApiToken]] = client.admin.users.tokens(name)
    listed = {broker: [(one, kept.get(broker, ()))] for broker, one in found.items()}
    missing = {**tokens.missing, **kept.missing, **found.missing}
    following = Report(of_user.columns, of_user.rows, of_user.remarks)
    if token_rows := rows_by_broker(tokens, _token_row):
        following = Chain(TOKEN_COLUMNS, token_rows, following=following)
    return Chain(
        (*USER_COLUMNS[:-1], "kept", USER_COLUMNS[-1]),
        rows_by_broker(
            listed,
            lambda pair: (*_user_row(pair[0]), _texts(pair[1]) or None),
            all_brokers=not found.missing,
        ),
        failed=of_user.failed or bool(missing),
        missing=missing,
        following=following,
    )


@command("user password", "Change your own password.")
def own_password(
    client: Client,
    *,
    password_file: PasswordFile = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Remove the password.")
    ] = False,
    reason: Reason = "",
) -> Report:
    """Change your own password for consoles at all brokers; it is asked for, without echo.

    You are the user who has the CURVE key that this command line uses. It needs no right.
    """
    if no_password and password_file is not None:
        raise BadRequest("--no-password and --password-file exclude each other")
    hashed = None if no_password else _password_hash(password_file, ask=password_file is None)
    client.admin.users.set_own_password(hashed or "", reason=reason)
    return Report(remarks=[f"{'removed' if no_password else 'changed'} your password"])


# -- tokens ---------------------------------------------------------------------------------------


@command("user token create", "Create an API token of a user.")
def create_token(
    client: Client,
    name: Annotated[
        str, typer.Argument(metavar="USER", help="The user; left out with --own.")
    ] = "",
    *,
    own: Own = False,
    scope: Annotated[
        str,
        typer.Option(
            "--scope",
            metavar="ROLE[:PREFIX]",
            help="A role, as of `kourou user create`: what it may do, if its user may, too.",
        ),
    ],
    days: Annotated[int, typer.Option("--days", min=1, help="It expires after so many days.")] = 90,
    reason: Reason = "",
) -> Report:
    """Create a random token at all brokers and print it once; brokers keep only its SHA-256.

    Programs send it to a console: Authorization: Bearer TOKEN.
    """
    if own is bool(name):
        raise BadRequest("give either a user, or --own")
    users = client.admin.users
    if own:
        text = users.create_own_token(scope=scope, days=days, reason=reason)
    else:
        text = users.create_token(name, scope=scope, days=days, reason=reason)
    whose = "of yours" if own else f"of {printable(name)}"
    return Report(("token",), [(text,)], [f"created a token {whose}; it is not shown again"])


@command("user token list", "List API tokens.")
def list_tokens(
    client: Client,
    name: Annotated[
        str, typer.Argument(metavar="USER", help="Of this user (default: of all).")
    ] = "",
    *,
    own: Own = False,
) -> Report:
    """List API tokens by their ids, with scope and expiry; expired ones, too."""
    if own and name:
        raise BadRequest("give either a user, or --own")
    users = client.admin.users
    found: ByBroker[list[ApiToken]] = users.own_tokens() if own else users.tokens(name)
    return report_of(TOKEN_COLUMNS, rows_by_broker(found, _token_row), found, "no tokens")


@command("user token revoke", "Revoke an API token.")
def revoke_token(
    client: Client,
    name: Annotated[
        str, typer.Argument(metavar="USER", help="The user; with --own the token's id.")
    ],
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="The token's id, from `kourou user token list`.")
    ] = "",
    *,
    own: Own = False,
    reason: Reason = "",
) -> Report:
    """Revoke a token of a user at all brokers; that cannot be undone."""
    if own is bool(identity):
        raise BadRequest("give a user and the id of a token, or --own and the id")
    if own:
        client.admin.users.revoke_own_token(name, reason=reason)
        return Report(remarks=[f"revoked your token {printable(name)}"])
    client.admin.users.revoke_token(name, identity, reason=reason)
    return Report(remarks=[f"revoked {printable(f'{name}:{identity}')}"])


# -- policies -------------------------------------------------------------------------------------


@command("user allow", "Allow a user actions on a resource.")
def allow(
    client: Client,
    name: UserName,
    actions: Actions,
    resource: Resource,
    *,
    networks: Networks = None,
    until: Until = None,
    reason: Reason = "",
) -> Report:
    """Allow a user, or `anonymous`, actions on a resource.

    It replaces the user's policy for exactly that resource.
    """
    client.admin.users.allow(
        name,
        resource,
        actions,
        networks=networks or (),
        until_ms=None if until is None else moment(until),
        reason=reason,
    )
    return Report(remarks=[f"allowed {printable(f'{name}: {actions} on {resource}')}"])


@command("user deny", "Deny a user actions on a resource.")
def deny(
    client: Client,
    name: UserName,
    actions: Actions,
    resource: Resource,
    *,
    networks: Networks = None,
    until: Until = None,
    reason: Reason = "",
) -> Report:
    """Deny a user actions on a resource, whatever other policies and roles allow.

    It replaces the user's policy for exactly that resource. Administrators cannot be denied.
    """
    client.admin.users.deny(
        name,
        resource,
        actions,
        networks=networks or (),
        until_ms=None if until is None else moment(until),
        reason=reason,
    )
    return Report(remarks=[f"denied {printable(f'{name}: {actions} on {resource}')}"])


@command("user revoke", "Remove policies of a user.")
def revoke(
    client: Client,
    name: UserName,
    resource: Annotated[
        str | None,
        typer.Argument(metavar="RESOURCE", help="Exactly this resource (default: all)."),
    ] = None,
    *,
    reason: Reason = "",
) -> Report:
    """Remove a user's policies for a resource, or all of them; roles stay."""
    from kourou.access.model import Pattern

    pattern = None if resource is None else Pattern.parse(resource)
    found: ByBroker[list[Policy]] = client.admin.users.policies(name)
    gone = {one for known in found.values() for one in known if pattern in (None, one.resource)}
    if not gone and not found.missing:
        what = "policies" if resource is None else f"policy for {resource}"
        raise Rejected(
            f"{name} has no {what}; nothing was removed", hint=f"kourou user show {name}"
        )
    client.admin.users.revoke(name, resource, reason=reason)
    lines = sorted(
        f"revoked {printable(f'{name}: {one.effect} {_texts(one.actions)} on {one.resource}')}"
        for one in gone
    )
    return Report(remarks=lines)


# -- decisions ------------------------------------------------------------------------------------


@command("user mode", "Set what brokers do with refusals.")
def mode(
    client: Client,
    wanted: Annotated[
        str, typer.Argument(metavar="off|observe|enforce", help="The mode of all brokers.")
    ],
    *,
    door: Annotated[
        str,
        typer.Option(
            "--door",
            metavar="remoting|zeromq|http",
            help="Only for RocketMQ's protocol, Kourou's, or users of consoles.",
        ),
    ] = "",
    reason: Reason = "",
) -> Report:
    """Ignore decisions (off), count refusals (observe), or refuse (enforce).

    Without --door the mode is that of all doors, and none has one of its own any more. Requests
    about users are always enforced, as long as there are users.
    """
    client.admin.users.mode(wanted, door, reason=reason)
    return Report(remarks=[f"access mode is {wanted}" + (f" for {door}" if door else "")])


@command("user status", "Show mode and refusals of each broker.", repeats=True)
def status(client: Client) -> Report:
    """Show each broker's mode and version of its users, and what it refused since its start.

    `doors`: those with a mode of their own.
    `handled`: the mode was observe, so that the request was handled nevertheless.
    """
    found: ByBroker[AccessStatus] = client.admin.users.status()
    columns = ("broker", "mode", "doors", "effective", "version", "users", "allowed", "refused")
    rows = [
        (
            *(name, one.mode, " ".join(f"{door}={its}" for door, its in one.doors.items())),
            *(one.effective, one.version, one.users, one.allowed, one.refused),
        )
        for name, one in found.items()
    ]
    refusals = [
        (
            one.count,
            *(one.user, one.source, one.request, one.need, one.by),
            local_time(one.last_ms),
            one.handled,
            name,
        )
        for name, state in found.items()
        for one in state.refusals
    ]
    return Chain(
        columns,
        rows,
        failed=bool(found.missing),
        missing=found.missing,
        following=Report(REFUSAL_COLUMNS, sorted(refusals, key=lambda row: -row[0])),
    )


@command("user audit", "Show refused requests and allowed changes.")
def audit(
    client: Client,
    *,
    name: Annotated[
        str, typer.Option("--user", metavar="USER", help="Of this user; anonymous is one, too.")
    ] = "",
    request: Annotated[
        str,
        typer.Option("--request", metavar="NAME", help="This request, for example SendMessage."),
    ] = "",
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From this time on (ISO or ms).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Before this time (ISO or ms).")
    ] = None,
    decision: Annotated[
        str,
        typer.Option(
            "--decision",
            metavar="refused|allowed|all",
            help="Only refused requests, or only allowed changes.",
        ),
    ] = "all",
    most: Annotated[
        int, typer.Option("--max", metavar="N", min=1, help="At most so many lines of each broker.")
    ] = 100,
) -> Report:
    """Show refused requests and allowed changes of all brokers, the newest first; --json exports.

    A change needs Create, Update or Delete; `needs` is that right, `decided by` what allowed it. Of
    each kind, the first ten of a minute have a line each; then one line counts the rest. `handled`
    but refused: the mode was observe. What a follower decided is in its own store.
    """
    if decision not in DECISIONS:
        raise BadRequest(f"{decision!r} is not a decision", hint=f"one of {', '.join(DECISIONS)}")
    found: ByBroker[list[AuditLine]] = client.admin.users.audit(
        user=name,
        request=request,
        since_ms=None if since is None else moment(since),
        until_ms=None if until is None else moment(until),
        decision=DECISIONS[decision],
        max_count=most,
    )
    rows = [
        (
            local_time(one.at_ms),
            one.decision.value,
            *(one.user, one.source, one.request, one.need, one.by),
            one.count,
            one.handled,
            one.door or None,
            one.console or None,
            broker,
        )
        for one, broker in sorted(
            ((one, broker) for broker, lines in found.items() for one in lines),
            key=lambda pair: -pair[0].at_ms,
        )
    ]
    nothing = [] if rows or found.missing else ["nothing was found"]
    return Report(AUDIT_COLUMNS, rows, nothing, failed=bool(found.missing), missing=found.missing)


@command("user observe", "Propose policies for what was refused.")
def observe(client: Client) -> Report:
    """Print the smallest policies that would have allowed what was counted as refused.

    They are printed as commands, for you to check and to run; what no policy can solve follows as
    comments. Only the first missing right of a request is counted: repeat it after a while.
    """
    from kourou.client.admin.users import proposals

    found: ByBroker[AccessStatus] = client.admin.users.status()
    users = {one.name for known in client.admin.users.list().values() for one in known}
    policies = {one.id: one for known in client.admin.users.policies().values() for one in known}
    refusals = [one for state in found.values() for one in state.refusals]
    lines = proposals(refusals, users, policies.values())
    return Report(
        remarks=lines or ["# nothing was refused since the brokers started"],
        failed=bool(found.missing),
        missing=found.missing,
    )


@command("user try", "Try policies on the requests of the last days.")
def try_policies(
    client: Client,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Lines as of kourou user allow, deny and revoke (default: the present policies).",
        ),
    ] = None,
    *,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=7, help="Requests of so many days.")
    ] = 7,
) -> Report:
    """Show what changes of policies would refuse and allow of the requests of the last days.

    Nothing is changed. FILE has a command a line, as kourou user observe prints them; without it,
    what the present policies refuse is shown, whatever the mode. Exit code 1 if any request would
    be refused that is allowed now. Brokers count requests by user, rights and network (/24, or
    /64), so a policy for a smaller network is tried with one address of it.
    """
    try:
        changes = changes_of("" if file is None else file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    since_ms = int(time.time() * 1_000) - days * 86_400_000
    found: ByBroker[PolicyTrial] = client.admin.users.try_policies(changes, since_ms=since_ms)
    rows = [
        (
            one.count,
            "allowed" if one.allowed else "refused",
            "allowed" if one.was_allowed else "refused",
            *(one.user, one.network, one.need, one.by),
            local_time(one.last_ms),
            broker,
        )
        for one, broker in sorted(
            ((one, broker) for broker, trial in found.items() for one in trial.uses),
            key=lambda pair: (pair[0].allowed, not pair[0].was_allowed, -pair[0].count),
        )
    ]
    worse = any(one.was_allowed and not one.allowed for each in found.values() for one in each.uses)
    remarks = [
        f"{broker}: {trial.refused} of {trial.requests} requests would be refused"
        + (f", {trial.untried} could not be tried" if trial.untried else "")
        + (f"; counted since {local_time(trial.since_ms)}" if trial.since_ms else "")
        + ("; there are more kinds" if trial.more else "")
        for broker, trial in sorted(found.items())
    ]
    failed = worse or bool(found.missing)
    return Report(TRIAL_COLUMNS, rows, remarks, failed=failed, missing=found.missing)


def changes_of(text: str) -> list[PolicyChange]:
    """Read commands that change policies, one a line. Raises BadRequest, which names the line."""
    from kourou.protocol.bodies.access_bodies import PolicyChange, PolicyChangeKind

    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
            if words[:2] == ["kourou", "user"]:
                del words[:2]
            if not words:
                continue
            options = _options_of(words)
            kind, user, *rest = words
            change = PolicyChangeKind(kind)
            revokes = change is PolicyChangeKind.REVOKE
            actions, resource = ("", *rest, "")[:2] if revokes else rest
            if len(rest) > (1 if revokes else 2):
                raise ValueError
        except ValueError as error:
            raise BadRequest(
                f"line {number} does not change policies: {line.strip()[:80]!r}",
                hint="allow USER ACTIONS RESOURCE, deny USER ACTIONS RESOURCE, or revoke USER "
                "[RESOURCE], as the commands of kourou user",
            ) from error
        until = options.get("--until", [])
        found.append(
            PolicyChange(
                user=user,
                change=change,
                resource=resource,
                actions=tuple(filter(None, actions.split(","))),
                networks=tuple(options.get("--from", [])),
                until_ms=moment(until[-1]) if until else None,
            )
        )
    return found


def _options_of(words: list[str]) -> dict[str, list[str]]:
    """Take the options out of the words of a command. Raises ValueError for another one."""
    options: dict[str, list[str]] = {}
    while (at := next((i for i, one in enumerate(words) if one.startswith("--")), -1)) >= 0:
        name, value = words[at : at + 2]
        if name not in ("--from", "--until", "--reason"):
            raise ValueError(name)
        options.setdefault(name, []).append(value)
        del words[at : at + 2]
    return options


@command("user why", "Explain whether a user may do something.")
def why(
    client: Client,
    name: UserName,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="One action, for example Pub.")],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="One resource, for example Topic:orders.")
    ],
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="IP", help="From this address (default: anywhere).")
    ] = "",
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="As of this time (ISO or ms; default: now)."),
    ] = None,
) -> Report:
    """Explain whether a user may do something, and by which policy or role; exit code 1 if not.

    Without --from, policies that are restricted to networks do not count. --at decides by the
    user's roles and policies of that time.
    """
    at_ms = None if at is None else moment(at)
    found = client.admin.users.why(name, action, resource, source, at_ms=at_ms)
    answers = {broker: [one] for broker, one in found.items()}
    rows = rows_by_broker(
        answers,
        lambda one: (
            "allowed" if one.allowed else "refused",
            one.by,
            "; ".join(one.nearest) or None,
        ),
        all_brokers=not found.missing,
    )
    refused = any(not one.allowed for one in found.values())
    columns = ("answer", "decided by", "nearest right", "brokers")
    return Report(columns, rows, failed=refused or bool(found.missing), missing=found.missing)


# -- import ---------------------------------------------------------------------------------------


@command("user import", "Import users and permissions of RocketMQ.")
def import_users(
    client: Client,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="RocketMQ's plain_acl.yml, or users and acls of its ACL 2.0 as JSON, YAML, or "
            "printed by mqadmin listUser and listAcl.",
        ),
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be imported; change nothing.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="The cluster that gets the users, if the file has entries about clusters by name.",
        ),
    ] = None,
    accept_whitelist: Annotated[
        bool,
        typer.Option(
            "--accept-whitelist",
            help="Restrict an account's policies to its whiteRemoteAddress.",
        ),
    ] = False,
    accept_shipped: Annotated[
        bool,
        typer.Option(
            "--accept-shipped", help="Also the accounts that RocketMQ ships, with known secrets."
        ),
    ] = False,
) -> Report:
    """Import RocketMQ's accounts, or its users of ACL 2.0, with secrets and policies.

    Users that exist keep their secret, roles and keys; their policies are set as in the file.
    """
    from kourou.broker.acl_import import read_acl_file

    imported = read_acl_file(file, cluster=cluster, accept_whitelist=accept_whitelist)
    notes = [f"note: {printable(one)}" for one in imported.notes]
    if imported.shipped and not accept_shipped:
        raise BadRequest(
            f"{file} has accounts that RocketMQ ships ({', '.join(imported.shipped)}): their"
            " secrets are public; nothing was imported",
            hint="give them other secrets in the file, remove them, or use --accept-shipped",
        )
    if not dry_run and any(one.users == 0 for one in client.admin.users.status().values()):
        raise BadRequest(
            "there is no administrator yet; nothing was imported",
            hint="kourou user create NAME --admin --curve-key FILE",
        )
    users: ByBroker[list[User]] = client.admin.users.list()
    lacking = [
        one for one in imported.users
        if any(one.name not in {known.name for known in found} for found in users.values())
    ]  # fmt: skip
    rows = _imported_rows(imported, lacking)
    if not dry_run:
        _import(client, imported, {one.name for one in lacking})
    else:
        notes.append("dry run: nothing was changed")
    return Report(("user", "roles", "policies", "result"), rows, notes)


def _imported_rows(imported: ImportedAcl, lacking: list[User]) -> list[tuple[Any, ...]]:
    return [
        (
            one.name,
            _texts(role.role for role in one.roles) or None,
            sum(policy.user == one.name for policy in imported.policies),
            "created" if one in lacking else "exists",
        )
        for one in imported.users
    ]


def _import(client: Client, imported: ImportedAcl, lacking: set[str]) -> None:
    reason = imported.origin
    for one in imported.users:
        if one.name in lacking:
            try:
                client.admin.users.create(
                    one.name,
                    secret=imported.secrets.get(one.name),
                    enabled=one.enabled,
                    roles=one.roles,
                    reason=reason,
                )
            except NoPermission as error:
                raise _explained(error) from error
        policies = [policy for policy in imported.policies if policy.user == one.name]
        if policies:
            client.admin.users.put_policies(one.name, policies, reason=reason)


# -- the way back ---------------------------------------------------------------------------------


@user.command("recover", short_help="Make an administrator at the next start of a broker.")
def recover(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The broker's storePathRootDir.")],
    name: NewName,
    curve_key: Annotated[
        str, typer.Option("--curve-key", metavar="KEY|FILE", help="Its CURVE public key.")
    ] = "",
    secret_file: SecretFile = None,
) -> int:
    """Make a user an administrator of a broker at its next start, if all administrators are lost.

    Run it on the broker's machine, as a user who may write to the store. Without --curve-key and
    --secret-file a random secret is made and printed once.
    """
    from kourou.access.model import User, check_user
    from kourou.broker.administrators import recovery_file

    if curve_key and secret_file is not None:
        raise BadRequest("--curve-key and --secret-file exclude each other")
    keys = _keys_of([curve_key] if curve_key else [])
    if len(keys) > 1:
        raise BadRequest(f"{curve_key} has {len(keys)} keys; one is needed")
    check_user(User(name=name, curve_keys=tuple(keys)))
    secret, made = ("", False) if keys else _secret(secret_file)
    path = recovery_file(store)
    if not path.parent.is_dir():
        raise ConfigError(f"{store} is not the store of a broker: it has no folder kourou")
    proof = f"curve:{keys[0]}" if keys else secret
    _write_private(path, f"{name}:{proof}\n")
    print(f"wrote {path}; restart the broker: {printable(name)} is an administrator then")
    if made:
        print(f"AccessKey={name}\nSecretKey={secret}\nthe secret is not shown again")
    return 0


def _write_private(path: Path, text: str) -> None:
    """Write a new file with mode 0600, for the owner of its folder."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} exists already", hint="start the broker, or remove the file"
        ) from error
    with os.fdopen(number, "w", encoding="utf-8") as file:
        owner = path.parent.stat()
        if owner.st_uid != os.geteuid():
            os.fchown(number, owner.st_uid, owner.st_gid)
        file.write(text)


# -- values ---------------------------------------------------------------------------------------


def _keys_of(texts: Iterable[str]) -> list[str]:
    """CURVE public keys, given as such or as their files."""
    found: list[str] = []
    for text in texts:
        path = Path(text)
        if not path.is_file():
            found.append(text)  # the user's values are checked as a whole
            continue
        from kourou.transport.curve_keys import SECRET, read_public

        if path.suffix == SECRET:
            raise BadRequest(f"{path} is a secret key", hint="give its public key: NAME.key")
        found += [one.key for one in read_public(path)]
    return list(dict.fromkeys(found))


def _kind(text: str) -> UserKind | None:
    from kourou.access.model import UserKind

    if not text:
        return None
    try:
        return UserKind(text)
    except ValueError:
        raise BadRequest(f"{text!r} is not a kind of user", hint=", ".join(UserKind)) from None


def _secret(file: Path | None) -> tuple[str, bool]:
    """The secret in a file, or a new one; and whether it was made."""
    if file is None:
        from kourou.service.secret_keys import new_secret

        return new_secret(), True
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r"), False
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not text in UTF-8") from error


def _password_hash(file: Path | None, *, ask: bool) -> str | None:
    """The hash of the password in a file, or of one that is typed twice; None without either."""
    if file is not None and ask:
        raise BadRequest("--password-file and --ask-password exclude each other")
    if file is not None:
        password = _secret(file)[0]
    elif ask:
        from kourou.access.signature import same_secret

        password = getpass("password: ")
        if not same_secret(password, getpass("the same again: ")):
            raise BadRequest("the two passwords differ; nothing was changed")
    else:
        return None
    from kourou.service.passwords import new_hash

    return new_hash(password)


def _check_own_key(client: Client, keys: Sequence[str]) -> None:
    """Refuse a first administrator who could not use this command line.

    From the first user on, only administrators may manage users, and this command line proves by
    its CURVE key who uses it.
    """
    from kourou.client.session.client_keys import KEY_FILE, client_curve
    from kourou.client.settings.client_settings import ClientSettings

    found: ByBroker[AccessStatus] = client.admin.users.status()
    if all(one.users for one in found.values()):
        return
    curve = client_curve(ClientSettings(), os.environ)
    if curve is not None and curve.own.pair.public in keys:
        return
    lack = (
        "has no CURVE key"
        if curve is None
        else f"uses the CURVE key {curve.own.pair.public}, which the administrator would not have"
    )
    raise BadRequest(
        "with this first administrator you could not manage users any more: this command line "
        + lack,
        hint=f"set {KEY_FILE}=NAME.ring and add --curve-key NAME.key, or set the brokers'"
        " initialAdminFile",
    )


def _explained(error: NoPermission) -> NoPermission:
    """The same error; if the brokers cannot keep secrets, with what to do here."""
    if "cannot keep secrets" not in error.message:
        return error
    return NoPermission(error.message, hint="--no-secret creates a user with CURVE keys only")


# -- output ---------------------------------------------------------------------------------------


def _with_secret(done: str, name: str, secret: str | None) -> Report:
    """What was done, and a secret that was made, for the only time."""
    if secret is None:
        return Report(remarks=[done])
    remarks = [done, "the secret is not shown again; RocketMQ clients sign with both keys"]
    return Report(("AccessKey", "SecretKey"), [(name, secret)], remarks)


def _user_row(one: User) -> tuple[Any, ...]:
    from kourou.protocol.bodies.access_bodies import role_text

    return (
        one.name,
        one.kind.value,
        one.enabled,
        _texts(map(role_text, one.roles)) or None,
        _texts(one.curve_keys) or None,
        "; ".join(one.certificate_subjects) or None,
        one.node or None,
    )


def _token_row(one: ApiToken) -> tuple[Any, ...]:
    from kourou.protocol.bodies.access_bodies import role_text

    return (
        one.user,
        one.id,
        role_text(one.scope),
        local_time(one.created_ms),
        local_time(one.expires_ms),
    )


def _policy_row(one: Policy) -> tuple[Any, ...]:
    return (
        one.user,
        one.effect.value,
        _texts(one.actions),
        str(one.resource),
        _texts(one.networks) or None,
        None if one.until_ms is None else local_time(one.until_ms),
    )


def _texts(values: Iterable[str]) -> str:
    return ", ".join(values)


def rows_by_broker(
    found: Any, row_of: Any, *, all_brokers: bool | None = None
) -> list[tuple[Any, ...]]:
    """The rows of all brokers, each once, with the brokers that have it."""
    where: dict[tuple[Any, ...], list[str]] = {}
    for broker, values in found.items():
        for one in values:
            where.setdefault(row_of(one), []).append(broker)
    complete = not getattr(found, "missing", None) if all_brokers is None else all_brokers
    return [
        (*row, "all" if complete and len(brokers) == len(found) else ", ".join(brokers))
        for row, brokers in where.items()
    ]


def report_of(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], found: ByBroker[Any], otherwise: str
) -> Report:
    """The rows, or `otherwise`; failed if a broker is missing."""
    return Report(
        columns,
        rows,
        [] if rows else [otherwise],
        failed=bool(found.missing),
        missing=found.missing,
    )
