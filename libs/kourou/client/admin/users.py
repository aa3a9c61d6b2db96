"""Administration of users, their policies, and what is done with decisions.

Each broker keeps users and policies itself, so a change goes to the leader of every broker. A
broker that fails does not stop the others: the error names those that failed, and repeating the
call completes the change. Reads return what each broker has.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from kourou.access.api_token import ApiToken, check_token, id_of, token_digest, token_of
from kourou.access.authorizer import AccessTable, Authorizer
from kourou.access.model import (
    ANONYMOUS,
    AccessMode,
    Action,
    Door,
    Effect,
    Pattern,
    Policy,
    ResourceType,
    RoleGrant,
    User,
    UserKind,
    check_policy,
    check_secret,
    check_user,
    in_order,
    parse_mode,
    plain_address,
)
from kourou.client.admin.base_api import ByBroker, EveryBrokerApi
from kourou.client.session.connections import body_of, header_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import BadRequest, KourouError, Rejected, Unavailable, UnknownOutcome
from kourou.model.limits import AUDIT_READ_LINES_MAX
from kourou.model.names import check_stateful
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import (
    SUBJECT_PREFIX,
    AuditLine,
    PolicyChange,
    Refusal,
    ReportedRefusal,
    TriedUse,
    UserChange,
    check_source,
    decode_audit,
    decode_kept,
    decode_policies_of_users,
    decode_refusals,
    decode_tokens,
    decode_tried,
    decode_user_state,
    decode_users,
    encode_policies,
    encode_policy_changes,
    encode_reported,
    encode_user_change,
    parse_need,
    parse_role,
    policy_from,
    role_text,
)
from kourou.protocol.messages.access import (
    AuthCreateAcl,
    AuthCreateUser,
    AuthDeleteAcl,
    AuthDeleteUser,
    AuthListAcl,
    AuthListUser,
    AuthUpdateUser,
    CheckCredential,
    CheckCredentialResponse,
    CreateApiToken,
    CreateOwnToken,
    ExplainAccess,
    ExplainAccessResponse,
    GetAccessStatus,
    GetAccessStatusResponse,
    GetAudit,
    GetAuditResponse,
    ListApiTokens,
    ListOwnTokens,
    ReportRefusals,
    RevokeApiToken,
    RevokeOwnToken,
    SetAccessMode,
    SetOwnPassword,
    TryPolicies,
    TryPoliciesResponse,
)
from kourou.protocol.messages.broker_admin import GetStateAt
from kourou.protocol.request import Request
from kourou.telemetry.logs import printable
from kourou.transport.zmq_client import WireReply

CHECK_TIMEOUT_MS = 3_000
"""How long a broker may take to check a secret; its client waits for it."""

_NO_ID = "none"
"""The id of no secret."""

Users: TypeAlias = list[User]
Policies: TypeAlias = list[Policy]
AuditLines: TypeAlias = list[AuditLine]
ApiTokens: TypeAlias = list[ApiToken]
Texts: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccessStatus:
    """What a broker does with decisions, and what it refused since its start.

    `mode` is the one that was set; `effective` is `off` as long as there are no users. `doors` has
    the modes of the doors that have one of their own.
    """

    mode: str
    effective: str
    version: int
    users: int
    allowed: int
    refused: int
    refusals: tuple[Refusal, ...]
    doors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """What policies would do with the `requests` that a broker counted since `since_ms`, epoch ms.

    They would refuse `refused` of them. `untried` were counted without the rights that they need.
    `uses` has what would be refused, then what would be allowed and is not now, the most frequent
    first; `more`: there are further kinds.
    """

    uses: tuple[TriedUse, ...]
    requests: int
    refused: int
    untried: int
    since_ms: int
    more: bool


@dataclass(frozen=True, slots=True)
class AccessAnswer:
    """Whether a user may do something, and what decided it.

    `nearest`: for a refusal, the rights of the user that come nearest to allowing it.
    """

    allowed: bool
    by: str
    nearest: Texts = ()


class UsersApi(EveryBrokerApi):
    """Administration of users and their rights: `client.admin.users`.

    `reason` of a change is recorded in the brokers' history.
    """

    # -- users ------------------------------------------------------------------------------------

    @on_io_thread
    async def create(
        self,
        name: str,
        *,
        secret: str | None = None,
        password_hash: str | None = None,
        admin: bool = False,
        enabled: bool = True,
        roles: Iterable[str | RoleGrant] = (),
        kind: UserKind | None = None,
        curve_keys: Iterable[str] = (),
        certificate_subjects: Iterable[str] = (),
        node: str = "",
        reason: str = "",
    ) -> None:
        """Create a user at every broker; the first user must be an administrator.

        `secret` is for clients of RocketMQ's protocol, `password_hash` for people at a console
        (kourou.service.passwords), `curve_keys` (public, Z85) for clients of Kourou's protocol, and
        `certificate_subjects` (RFC 4514) for clients with TLS certificates. `roles` are `writer`,
        or `writer:orders-` for names with that prefix. A `node` is a process of the cluster,
        `cluster/broker/id`. All requests of a user that is not `enabled` are refused. If
        only some brokers have the user, the others get it, and these values
        replace those there.
        Raises Rejected if all have it.
        """
        change = _change(
            secret=secret,
            password_hash=password_hash,
            admin=admin or None,
            enabled=None if enabled else False,
            roles=roles,
            kind=kind or (UserKind.NODE if node else UserKind.SERVICE),
            curve_keys=curve_keys,
            certificate_subjects=certificate_subjects,
            node=node,
        )
        check_user(change.applied(User(name=name)))
        known = await self._having(name)
        if known and all(known.values()) and not known.missing:
            raise Rejected(f"user {name!r} exists", hint=f"change it: kourou user set {name}")

        def request(broker: str) -> Request:
            kind = AuthUpdateUser if known.get(broker) else AuthCreateUser
            return kind(username=name, reason=reason)

        await self._change(request, encode_user_change(change), known.missing)

    @on_io_thread
    async def set(
        self,
        name: str,
        *,
        secret: str | None = None,
        password_hash: str | None = None,
        admin: bool | None = None,
        enabled: bool | None = None,
        roles: Iterable[str | RoleGrant] | None = None,
        kind: UserKind | None = None,
        curve_keys: Iterable[str] | None = None,
        certificate_subjects: Iterable[str] | None = None,
        node: str | None = None,
        reason: str = "",
    ) -> None:
        """Change a user at every broker; None leaves a value as it is.

        `roles`, `curve_keys` and `certificate_subjects` replace all former ones; the
        `password_hash` "" is none.
        """
        change = _change(
            secret=secret,
            password_hash=password_hash,
            admin=admin,
            enabled=enabled,
            roles=roles,
            kind=kind,
            curve_keys=curve_keys,
            certificate_subjects=certificate_subjects,
            node=node,
        )
        request = AuthUpdateUser(username=name, reason=reason)
        await self._change(lambda _: request, encode_user_change(change))

    @on_io_thread
    async def delete(self, name: str, *, reason: str = "") -> None:
        """Delete a user with the secret and the policies at every broker that has it.

        Raises Rejected if none has it.
        """
        await self._where_known(name, AuthDeleteUser(username=name, reason=reason))

    async def _where_known(self, name: str, request: Request) -> None:
        """Send a change to the brokers that have a user; raises Rejected if none has it."""
        known = await self._having(name)
        if not any(known.values()) and not known.missing:
            raise Rejected(f"user {name!r} not found", hint="kourou user list")
        await self._change(
            lambda broker: request if known.get(broker) else None, b"", known.missing
        )

    async def _having(self, name: str) -> ByBroker[bool]:
        """Which brokers have a user."""
        users = await self._users(name)
        return ByBroker(
            {broker: any(one.name == name for one in found) for broker, found in users.items()},
            users.missing,
        )

    @on_io_thread
    async def get(self, name: str) -> ByBroker[User]:
        """Return a user as each broker has it; raises Rejected if no broker has it."""
        users = await self._users(name)
        found = {
            broker: one for broker, known in users.items() for one in known if one.name == name
        }
        absent = Rejected(f"user {name!r} not found", hint="kourou user list")
        if not found and not users.missing:
            raise absent
        missing = {broker: absent for broker in users if broker not in found}
        return ByBroker(found, {**missing, **users.missing})

    @on_io_thread
    async def kept(self, name: str) -> ByBroker[Texts]:
        """Return the kinds of credentials that brokers keep of a user and never show.

        They are `secret` and `password`; `get` and `tokens` have the others.
        """
        request = AuthListUser(filter=name)
        return await self._read(request, lambda reply: decode_kept(body_of(reply)).get(name, ()))

    @on_io_thread
    async def list(self) -> ByBroker[Users]:
        """Return all users of each broker, by name; no secrets."""
        return await self._users()

    async def _users(self, part: str = "") -> ByBroker[Users]:
        """The users whose name contains `part`."""
        request = AuthListUser(filter=part or None)
        return await self._read(request, lambda reply: decode_users(body_of(reply)))

    # -- tokens -----------------------------------------------------------------------------------

    @on_io_thread
    async def create_token(
        self, user: str, *, scope: str | RoleGrant, days: int, reason: str = ""
    ) -> str:
        """Create an API token of a user at every broker, and return it, for the only time.

        It may do what both the user and `scope` may do, `writer` or `writer:orders-`, and expires
        after so many days. Brokers keep its SHA-256 only. If it fails at some brokers, it is valid
        at none: revoke what `tokens` returns, and create another one.
        """
        text, token = self._new_token(scope, days)
        request = CreateApiToken(
            username=user,
            digest=token.digest,
            scope=role_text(token.scope),
            created_ms=token.created_ms,
            expires_ms=token.expires_ms,
            reason=reason,
        )
        await self._change(lambda _: request)
        return text

    def _new_token(self, scope: str | RoleGrant, days: int) -> tuple[str, ApiToken]:
        """A random token as a text, and what brokers keep of it, without its user."""
        text = token_of(secrets.token_bytes(32))
        digest, now_ms = token_digest(text), self._session.clock.now_ms()
        return text, check_token(
            ApiToken(
                id=id_of(digest),
                user="",
                digest=digest,
                scope=parse_role(scope) if isinstance(scope, str) else scope,
                created_ms=now_ms,
                expires_ms=now_ms + days * DAY_MS,
            )
        )

    @on_io_thread
    async def revoke_token(self, user: str, token_id: str, *, reason: str = "") -> None:
        """Revoke the token of a user with this id; raises Rejected if no broker has it."""
        known = await self._tokens(ListApiTokens(username=user))
        request = RevokeApiToken(username=user, token_id=token_id, reason=reason)
        absent = Rejected(
            f"user {user!r} has no token {token_id!r}", hint=f"kourou user token list {user}"
        )
        await self._revoke(known, token_id, request, absent)

    async def _revoke(
        self, known: ByBroker[ApiTokens], token_id: str, request: Request, absent: Rejected
    ) -> None:
        """Send a request to the brokers that have a token; raises `absent` if there is none."""
        having = {
            broker for broker, found in known.items() if any(one.id == token_id for one in found)
        }
        if not having and not known.missing:
            raise absent
        await self._change(lambda broker: request if broker in having else None, b"", known.missing)

    @on_io_thread
    async def tokens(self, user: str = "") -> ByBroker[ApiTokens]:
        """Return the tokens of a user, or of all, at each broker; expired ones, too. No digests."""
        return await self._tokens(ListApiTokens(username=user))

    async def _tokens(self, request: ListApiTokens | ListOwnTokens) -> ByBroker[ApiTokens]:
        return await self._read(request, lambda reply: decode_tokens(body_of(reply)))

    # -- oneself ----------------------------------------------------------------------------------

    @on_io_thread
    async def set_own_password(self, password_hash: str, *, reason: str = "") -> None:
        """Give the user of this client's CURVE key a password at every broker; "" is none.

        It needs no right. `password_hash` is as in `create`.
        """
        request = SetOwnPassword(reason=reason)
        body = encode_user_change(UserChange(password_hash=password_hash))
        await self._change(lambda _: request, body)

    @on_io_thread
    async def create_own_token(self, *, scope: str | RoleGrant, days: int, reason: str = "") -> str:
        """Create an API token of the user of this client's CURVE key; see `create_token`.

        It needs no right.
        """
        text, token = self._new_token(scope, days)
        request = CreateOwnToken(
            digest=token.digest,
            scope=role_text(token.scope),
            created_ms=token.created_ms,
            expires_ms=token.expires_ms,
            reason=reason,
        )
        await self._change(lambda _: request)
        return text

    @on_io_thread
    async def revoke_own_token(self, token_id: str, *, reason: str = "") -> None:
        """Revoke a token of the user of this client's CURVE key; raises as `revoke_token`."""
        known = await self._tokens(ListOwnTokens())
        absent = Rejected(f"you have no token {token_id!r}", hint="kourou user token list --own")
        request = RevokeOwnToken(token_id=token_id, reason=reason)
        await self._revoke(known, token_id, request, absent)

    @on_io_thread
    async def own_tokens(self) -> ByBroker[ApiTokens]:
        """Return the tokens of the user of this client's CURVE key; see `tokens`."""
        return await self._tokens(ListOwnTokens())

    # -- policies ---------------------------------------------------------------------------------

    @on_io_thread
    async def allow(
        self,
        user: str,
        resource: str,
        actions: str | Iterable[str],
        *,
        networks: Iterable[str] = (),
        until_ms: int | None = None,
        reason: str = "",
    ) -> None:
        """Allow actions (`Pub,Sub`) on a resource (`Topic:orders`, `Topic:orders-*`, `Group:*`).

        It replaces the user's policy for exactly that resource. `networks` (CIDR, or one address)
        restrict it to sources; it ends at `until_ms`, epoch ms.
        """
        policy = _policy(user, resource, actions, Effect.ALLOW, networks, until_ms)
        await self._put(user, [policy], reason)

    @on_io_thread
    async def deny(
        self,
        user: str,
        resource: str,
        actions: str | Iterable[str],
        *,
        networks: Iterable[str] = (),
        until_ms: int | None = None,
        reason: str = "",
    ) -> None:
        """Deny actions on a resource, whatever other policies and roles allow; see `allow`."""
        policy = _policy(user, resource, actions, Effect.DENY, networks, until_ms)
        await self._put(user, [policy], reason)

    @on_io_thread
    async def put_policies(
        self, user: str, policies: Iterable[Policy], *, reason: str = ""
    ) -> None:
        """Add several policies of a user, or replace those of the same resources; all or none.

        A resource may have one policy that allows and one that denies.
        """
        await self._put(user, policies, reason)

    async def _put(self, user: str, policies: Iterable[Policy], reason: str) -> None:
        request = AuthCreateAcl(subject=SUBJECT_PREFIX + user, reason=reason)
        await self._change(lambda _: request, encode_policies(user, map(check_policy, policies)))

    @on_io_thread
    async def revoke(self, user: str, resource: str | None = None, *, reason: str = "") -> None:
        """Remove a user's policies for exactly this resource, or all of them.

        Raises Rejected if no broker has the user; one that has it not has no policies of it.
        """
        request = AuthDeleteAcl(
            subject=SUBJECT_PREFIX + user,
            resource=None if resource is None else str(Pattern.parse(resource)),
            reason=reason,
        )
        if user == ANONYMOUS:
            await self._change(lambda _: request)
        else:
            await self._where_known(user, request)

    @on_io_thread
    async def policies(self, user: str | None = None) -> ByBroker[Policies]:
        """Return the policies of each broker: of one user, or of all."""
        request = AuthListAcl(subject_filter=None if user is None else SUBJECT_PREFIX + user)
        return await self._read(
            request,
            lambda reply: [
                one
                for one in decode_policies_of_users(body_of(reply))
                if user is None or one.user == user
            ],
        )

    # -- decisions --------------------------------------------------------------------------------

    @on_io_thread
    async def mode(
        self, mode: str | AccessMode, door: str | Door = "", *, reason: str = ""
    ) -> None:
        """Ignore (`off`), count (`observe`) or enforce (`enforce`) refusals at every broker.

        `door` restricts it to requests by `remoting`, `zeromq` or `http`. Without it the mode is
        that of all doors, and none has one of its own any more.
        """
        parse_mode(mode, door)
        request = SetAccessMode(mode=mode, door=door, reason=reason)
        await self._change(lambda _: request)

    @on_io_thread
    async def status(self) -> ByBroker[AccessStatus]:
        """Return what each broker does with decisions, and its refusals since its start."""
        return await self._read(GetAccessStatus(), _status)

    @on_io_thread
    async def audit(
        self,
        *,
        user: str = "",
        request: str = "",
        since_ms: int | None = None,
        until_ms: int | None = None,
        decision: str = "",
        max_count: int = 100,
    ) -> ByBroker[AuditLines]:
        """Return the newest lines of each broker's audit, at most `max_count` of each.

        They are refused requests and allowed changes; `decision` is `refused` or `allowed` for one
        of the two. The newest is first; a line that counts the rest of a minute was written after
        the lines of that minute. `user` and `request` (such as `SendMessage`) are exact, times are
        epoch ms; `until_ms` is excluded.
        """
        found: dict[str, AuditLines] = {}
        missing: dict[str, KourouError] = {}
        for name, address in (await self._leaders()).items():
            lines = found.setdefault(name, [])
            asked = GetAudit(
                user=user,
                request=request,
                since_ms=since_ms,
                until_ms=until_ms,
                decision=decision,
            )
            try:
                while len(lines) < max_count:
                    page, asked = await self._audit_page(address, asked, max_count - len(lines))
                    lines += page
                    if not asked.before:
                        break
            except KourouError as error:
                missing[name] = error
        if len(missing) == len(found) and missing:
            raise next(reversed(missing.values()))
        return ByBroker(found, missing)

    @on_io_thread
    async def audit_page(
        self, broker: str, question: GetAudit, max_count: int
    ) -> tuple[AuditLines, GetAudit]:
        """Return lines of one broker's audit, at most `max_count`, and the next page's question.

        There is no next page if `before` of that is "". A page may be empty and not the last.
        """
        return await self._audit_page(await self._leader(broker), question, max_count)

    async def _audit_page(
        self, address: str, question: GetAudit, max_count: int
    ) -> tuple[AuditLines, GetAudit]:
        asked = msgspec.structs.replace(question, max_count=min(max_count, AUDIT_READ_LINES_MAX))
        reply = await self._ask(address, asked)
        before = header_of(reply, GetAuditResponse).before
        return decode_audit(body_of(reply)), msgspec.structs.replace(question, before=before)

    @on_io_thread
    async def why(
        self, user: str, action: str, resource: str, source: str = "", *, at_ms: int | None = None
    ) -> ByBroker[AccessAnswer]:
        """Return whether a user may perform one action on one resource, and what decides it.

        `source` is the IP address of a client; without it, policies that are restricted to networks
        do not count. With `at_ms`, epoch ms, it is decided by the user and the policies of that
        time, from each broker's history; raises MetadataUnavailable as `admin.history` does.
        """
        if at_ms is None:
            request = ExplainAccess(username=user, action=action, resource=resource, source=source)
            return await self._read(request, _access_answer)
        need = parse_need(action, resource)
        check_source(source)

        def decide(reply: WireReply) -> AccessAnswer:
            account, policies = decode_user_state(body_of(reply))
            table = AccessTable(
                users={} if account is None else {account.name: account},
                policies={one.id: one for one in policies},
            )
            authorizer = Authorizer(table)
            decision = authorizer.decide(user, [need], source, at_ms)
            nearest = () if decision else tuple(authorizer.would_allow(user, need))
            return AccessAnswer(decision.allowed, decision.by, nearest)

        then = GetStateAt(aggregate=check_stateful(f"user/{user}"), at_ms=at_ms)
        return await self._read(then, decide)

    @on_io_thread
    async def try_policies(
        self, changes: Iterable[PolicyChange] = (), *, since_ms: int | None = None
    ) -> ByBroker[PolicyTrial]:
        """Return what changes of policies would do with the requests that each broker counted.

        Without changes the present policies are tried, whatever the mode. `since_ms` is epoch ms;
        without it all counts are used, those of the last seven days. Nothing is changed.
        """
        body = encode_policy_changes(changes)
        return await self._read(TryPolicies(since_ms=since_ms), _trial, body)

    @on_io_thread
    async def may(self, action: str, resource: str) -> ByBroker[AccessAnswer]:
        """Return whether this client itself may perform one action on one resource."""
        request = ExplainAccess(username="", action=action, resource=resource)
        return await self._read(request, _access_answer)

    @on_io_thread
    async def credential(self, name: str, secret: str) -> dict[str, str]:
        """Return the id of a user's secret at each broker; empty if it is wrong at one of them.

        For consoles. Brokers that have no users, or do not reply, do not count. Raises Unavailable
        or UnknownOutcome if none replies, NoPermission if this client is no console of the user.
        """
        body = encode_user_change(UserChange(secret=secret))
        found = await self._checked(lambda _: CheckCredential(username=name), body)
        return {broker: one.credential for broker, one in found.items()}

    @on_io_thread
    async def has_credential(self, name: str, credential: Mapping[str, str]) -> bool:
        """Return whether a user may still sign in, and has the secret of `credential` everywhere.

        False if a broker that has users is not in it. Raises as `credential`.
        """

        def request(broker: str) -> CheckCredential:
            return CheckCredential(username=name, credential=credential.get(broker, _NO_ID))

        return bool(await self._checked(request))

    @on_io_thread
    async def password_hash(self, name: str) -> str:
        """Return the hash of a user's password; "" if there is none, or brokers do not agree.

        For consoles; "" as well if the user may not sign in. Raises as `credential`.
        """
        found = await self._checked(lambda _: CheckCredential(username=name, password=True))
        hashes = {one.password_hash for one in found.values()}
        return hashes.pop() if len(hashes) == 1 else ""

    @on_io_thread
    async def user_of_certificate(self, subject: str) -> str:
        """Return the user to whom certificates with a subject belong; "" if brokers do not agree.

        For consoles; "" as well if the user may not sign in. Raises as `credential`.
        """
        found = await self._checked(lambda _: CheckCredential(username="", subject=subject))
        names = {one.username for one in found.values()}
        return names.pop() if len(names) == 1 else ""

    @on_io_thread
    async def sender_of_token(self, digest: str) -> str:
        """Return the name (USER:ID) of the token with a SHA-256; "" if brokers know none.

        For consoles. Raises Rejected if the token has expired, or its user may not sign in; and as
        `credential`.
        """
        found = await self._checked(lambda _: CheckCredential(username="", digest=digest))
        names = {one.username for one in found.values()}
        return names.pop() if len(names) == 1 else ""

    @on_io_thread
    async def report_refusals(self, refusals: Iterable[ReportedRefusal]) -> None:
        """Have what this client refused itself noted in the audit of one broker.

        For consoles. Raises NoPermission if this client is none, Unavailable or UnknownOutcome if
        no broker replies.
        """
        body = encode_reported(refusals)
        failure: KourouError | None = None
        for address in (await self._leaders()).values():
            try:
                await self._ask(address, ReportRefusals(), body=body)
            except (Unavailable, UnknownOutcome) as error:
                failure = error
            else:
                return
        assert failure is not None, "there is a leader"
        raise failure

    async def _checked(
        self, request_of: Callable[[str], CheckCredential], body: bytes = b""
    ) -> dict[str, CheckCredentialResponse]:
        """Return what each broker with users replies; empty if it is not valid at one of them.

        Raises Rejected if that broker says why.
        """
        leaders = await self._leaders()
        replies = await asyncio.gather(
            *(
                self._session.connections.ask(
                    address, request_of(broker), body=body, timeout_ms=CHECK_TIMEOUT_MS
                )
                for broker, address in leaders.items()
            ),
            return_exceptions=True,
        )
        silent = [one for one in replies if isinstance(one, Unavailable | UnknownOutcome)]
        if len(silent) == len(replies):
            raise silent[-1]
        found: dict[str, CheckCredentialResponse] = {}
        for broker, reply in zip(leaders, replies, strict=True):
            if isinstance(reply, Unavailable | UnknownOutcome):
                continue
            if isinstance(reply, BaseException):
                raise reply
            header = header_of(reply, CheckCredentialResponse)
            if header.has_users and not header.valid:
                if header.refusal:
                    raise Rejected(header.refusal)
                return {}
            if header.valid:
                found[broker] = header
        return found


# -- values ---------------------------------------------------------------------------------------


def _change(
    *,
    secret: str | None,
    admin: bool | None,
    roles: Iterable[str | RoleGrant] | None,
    kind: UserKind | None,
    curve_keys: Iterable[str] | None,
    node: str | None,
    password_hash: str | None = None,
    certificate_subjects: Iterable[str] | None = None,
    enabled: bool | None = None,
) -> UserChange:
    return UserChange(
        secret=None if secret is None else check_secret(secret),
        password_hash=password_hash,
        super_user=admin,
        enabled=enabled,
        kind=kind,
        roles=None
        if roles is None
        else tuple(parse_role(one) if isinstance(one, str) else one for one in roles),
        curve_keys=None if curve_keys is None else tuple(curve_keys),
        certificate_subjects=None if certificate_subjects is None else tuple(certificate_subjects),
        node=node,
    )


def _policy(
    user: str,
    resource: str,
    actions: str | Iterable[str],
    effect: Effect,
    networks: Iterable[str],
    until_ms: int | None,
) -> Policy:
    texts = actions.split(",") if isinstance(actions, str) else actions
    return check_policy(
        policy_from(user, resource, texts, effect, networks=networks, until_ms=until_ms)
    )


def _trial(reply: WireReply) -> PolicyTrial:
    header = header_of(reply, TryPoliciesResponse)
    return PolicyTrial(
        tuple(decode_tried(body_of(reply))),
        header.requests,
        header.refused,
        header.untried,
        header.since_ms,
        header.more,
    )


def _access_answer(reply: WireReply) -> AccessAnswer:
    header = header_of(reply, ExplainAccessResponse)
    return AccessAnswer(header.allowed, header.by, tuple(header.nearest))


def _status(reply: WireReply) -> AccessStatus:
    header = header_of(reply, GetAccessStatusResponse)
    return AccessStatus(
        header.mode,
        header.effective,
        header.version,
        header.users,
        header.allowed,
        header.refused,
        tuple(decode_refusals(body_of(reply))),
        header.doors,
    )


# -- proposals -------------------------------------------------------------------------------------

_NEED = re.compile(rf"(\w+(?: or \w+)*) on ({'|'.join(ResourceType)}):(.*)", re.DOTALL)


@dataclass(slots=True)
class _MissingRights:
    """The actions that a user lacks on one resource, and from where they were requested."""

    actions: set[Action] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    count: int = 0


def proposals(
    refusals: Iterable[Refusal], users: Collection[str], policies: Iterable[Policy]
) -> list[str]:
    """Return commands that allow what was refused, then comments about what they cannot allow.

    Names in refused requests come from clients. A name that is not plain text, or could be read as
    a pattern, is therefore never part of a command, and what is part of one is quoted.
    """
    known = {(one.user, one.resource, one.effect): one for one in policies}
    wanted: dict[tuple[str, Pattern], _MissingRights] = {}
    comments: dict[str, int] = {}
    for one in refusals:
        found = _resource_of(one, users)
        if isinstance(found, str):
            comments[found] = comments.get(found, 0) + one.count
            continue
        pattern, action = found
        deny = known.get((one.user, pattern, Effect.DENY))
        if deny is not None:
            text = f"{one.user} is denied {', '.join(deny.actions)} on {pattern} by a policy"
            comments[text] = comments.get(text, 0) + one.count
            continue
        proposal = wanted.setdefault((one.user, pattern), _MissingRights())
        proposal.actions.add(action)
        proposal.sources.add(one.source)
        proposal.count += one.count
    commands = [
        _command(user, pattern, wanted[user, pattern], known.get((user, pattern, Effect.ALLOW)))
        for user, pattern in sorted(wanted, key=lambda key: (key[0], str(key[1])))
    ]
    return commands + [
        f"# {_times(count)}: {printable(text)}" for text, count in sorted(comments.items())
    ]


def _resource_of(one: Refusal, users: Collection[str]) -> tuple[Pattern, Action] | str:
    """The resource and the action that were missing, or why no policy can be proposed."""
    need = _NEED.fullmatch(one.need)
    if need is None:
        who = one.user or "a client"
        return f"{who} from {one.source}: {one.request}: {one.by}"
    if ":" in one.user:
        return f"{one.user} needs {one.need}: its user and the token's scope must both have it"
    if one.user == ANONYMOUS or one.user not in users:
        return (
            f"{one.user} from {one.source} needs {one.need}: give these clients a user and"
            " credentials"
        )
    if one.by.endswith(f"/{Effect.DENY}"):
        return f"{one.user} from {one.source} needs {one.need}, denied by {one.by}"
    actions, kind, name = need[1], ResourceType(need[2]), need[3]
    if kind is ResourceType.USER:
        return f"{one.user} from {one.source} needs {one.need}: only administrators change users"
    if not name.isprintable() or "*" in name:
        return f"{one.user} from {one.source} needs {one.need}: decide that yourself"
    try:
        pattern = Pattern.parse(f"{kind}:{name or '*'}")
        return pattern, Action(actions.split(" or ")[0])
    except (BadRequest, ValueError):
        return f"{one.user} from {one.source} needs {one.need}"


def _command(user: str, pattern: Pattern, lack: _MissingRights, before: Policy | None) -> str:
    """The command for one resource. It replaces the policy `before`, so it repeats its rights."""
    actions, networks = set(lack.actions), list[str]()
    if before is not None:
        actions |= set(before.actions)
        if before.networks:
            networks = [*before.networks, *_networks(lack.sources)]
    words = ["kourou", "user", "allow", user, ",".join(in_order(actions)), str(pattern)]
    for network in dict.fromkeys(networks):
        words += ["--from", network]
    if before is not None and before.until_ms is not None:
        words += ["--until", str(before.until_ms)]
    return f"{shlex.join(words)}  # {_times(lack.count)}"


def _networks(sources: Iterable[str]) -> list[str]:
    """Addresses as networks; other sources have none."""
    found = []
    for source in sorted(sources):
        with suppress(ValueError):
            address = plain_address(source)
            found.append(f"{address}/{128 if ':' in address else 32}")
    return found


def _times(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
