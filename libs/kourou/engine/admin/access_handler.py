"""Requests about users, policies and what decisions are for.

State: soft: how often users changed their own credentials in this minute.

No reply contains a secret. A secret that a request brings is encrypted before it becomes an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kourou.access.api_token import ApiToken, check_hash, id_of, sealed_for
from kourou.access.model import (
    ANONYMOUS,
    Effect,
    Pattern,
    Policy,
    User,
    UserKind,
    check_secret,
    parse_mode,
)
from kourou.access.signature import same_secret
from kourou.authorization import access_table as rules
from kourou.authorization.access_table import AccessAggregate
from kourou.authorization.request_gate import SecretBox, check_names
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect as BrokerEffect
from kourou.errors import BadRequest, NoPermission, Throttled
from kourou.events.control_events import Event, UserPasswordSet, UserPut, UserSecretSet
from kourou.model.limits import OWN_CHANGES_HOUR_MAX, USER_NAME_LENGTH_MAX
from kourou.protocol.bodies.access_bodies import (
    UserChange,
    check_source,
    decode_policies,
    decode_reported,
    decode_user_change,
    encode_policies,
    encode_policies_of_users,
    encode_refusals,
    encode_tokens,
    encode_user,
    encode_users,
    parse_need,
    parse_role,
    policy_id,
    user_of_subject,
)
from kourou.protocol.messages.access import (
    AuthCreateAcl,
    AuthCreateUser,
    AuthDeleteAcl,
    AuthDeleteUser,
    AuthGetAcl,
    AuthGetUser,
    AuthListAcl,
    AuthListUser,
    AuthUpdateAcl,
    AuthUpdateUser,
    CheckCredential,
    CheckCredentialResponse,
    CreateApiToken,
    CreateOwnToken,
    ExplainAccess,
    ExplainAccessResponse,
    GetAccessStatus,
    GetAccessStatusResponse,
    ListApiTokens,
    ListOwnTokens,
    ReportRefusals,
    RevokeApiToken,
    RevokeOwnToken,
    SetAccessMode,
    SetOwnPassword,
)
from kourou.protocol.request import Request
from kourou.runtime import Received, Reply


def set_secret(box: SecretBox | None, user: str, secret: str) -> UserSecretSet:
    """Return the event that gives a user a secret. Raises BadRequest or NoPermission."""
    if box is None:
        raise NoPermission(
            "this broker cannot keep secrets: accessKeyFile is not set",
            hint="kourou keys access FILE, then accessKeyFile=FILE; or give the user a CURVE key",
        )
    return UserSecretSet(user, box.seal(user, check_secret(secret)))


def set_password(
    box: SecretBox | None, access: AccessAggregate, user: str, hashed: str
) -> list[Event]:
    """Return the events that give a user a password by its hash, or none ("").

    Raises BadRequest or NoPermission.
    """
    if not hashed:
        return rules.decide_remove_password(access, user)
    check_hash(hashed)
    if box is None:
        raise NoPermission(
            "this broker cannot keep passwords: accessKeyFile is not set",
            hint="kourou keys access FILE, then accessKeyFile=FILE",
        )
    return [UserPasswordSet(user, box.seal(sealed_for(user), hashed))]


class AccessHandler:
    """Handles the requests about access control."""

    def __init__(self, context: BrokerContext, gate: AccessGate, secrets: SecretBox | None) -> None:
        self._access = context.control.access
        self._pending_replies = context.pending_replies
        self._gate = gate
        self._box = secrets
        self._hour = 0
        self._own_changes: Counter[str] = Counter()

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[BrokerEffect]]]:
        """Return the handler of each request type."""
        return {
            AuthCreateUser: self.create_user,
            AuthUpdateUser: self.update_user,
            AuthDeleteUser: self.delete_user,
            AuthGetUser: self.get_user,
            AuthListUser: self.list_users,
            AuthCreateAcl: self.put_policies,
            AuthUpdateAcl: self.put_policies,
            AuthDeleteAcl: self.delete_policies,
            AuthGetAcl: self.get_policies,
            AuthListAcl: self.list_policies,
            SetAccessMode: self.set_mode,
            GetAccessStatus: self.status,
            ExplainAccess: self.explain,
            CheckCredential: self.check_credential,
            CreateApiToken: self.create_token,
            RevokeApiToken: self.revoke_token,
            ListApiTokens: self.list_tokens,
            SetOwnPassword: self.set_own_password,
            CreateOwnToken: self.create_own_token,
            RevokeOwnToken: self.revoke_own_token,
            ListOwnTokens: self.list_own_tokens,
            ReportRefusals: self.report_refusals,
        }

    # -- users ------------------------------------------------------------------------------------

    def create_user(
        self, now_ms: int, received: Received, request: AuthCreateUser
    ) -> list[BrokerEffect]:
        """Create a user (3001)."""
        if request.username in self._access.users:
            raise BadRequest(f"user {request.username} exists", hint="kourou user set")
        self._gate.check_replicas()
        return self._put(now_ms, received, User(name=request.username))

    def update_user(
        self, now_ms: int, received: Received, request: AuthUpdateUser
    ) -> list[BrokerEffect]:
        """Change a user (3002)."""
        return self._put(now_ms, received, rules.existing_user(self._access, request.username))

    def _put(self, now_ms: int, received: Received, user: User) -> list[BrokerEffect]:
        change = decode_user_change(b"".join(received.body))
        events = rules.decide_put_user(self._access, change.applied(user))
        if change.secret is not None:
            events.append(set_secret(self._box, user.name, change.secret))
        if change.password_hash is not None:
            events += set_password(self._box, self._access, user.name, change.password_hash)
        self._check_rank(received, events)
        return self._pending_replies.decided(now_ms, received, events)

    def _check_rank(self, received: Received, events: Sequence[Event]) -> None:
        """Only an administrator gives credentials, and changes users with rights.

        So no other right leads to more rights, also not to those that a user gets later: who gave
        the user a credential would have them.
        """
        touched = [
            one
            for event in events
            if isinstance(event, UserPut)
            for one in (event.user, event.before)
            if one is not None
        ]
        if any(map(_gives_credential, events)) or any(map(self._has_rights, touched)):
            self._gate.need_administrator(received)

    def _has_rights(self, user: User) -> bool:
        """True if the user may do more than one who was just created."""
        policies = self._access.policies.values()
        return (
            bool(user.roles)
            or user.kind is UserKind.NODE
            or any(one.user == user.name for one in policies)
        )

    def delete_user(
        self, now_ms: int, received: Received, request: AuthDeleteUser
    ) -> list[BrokerEffect]:
        """Delete a user (3003)."""
        self._check_rank_of(received, request.username)
        events = rules.decide_delete_user(self._access, request.username)
        return self._pending_replies.decided(now_ms, received, events)

    def get_user(
        self, _now_ms: int, received: Received, request: AuthGetUser
    ) -> list[BrokerEffect]:
        """Reply with a user, or without a body if it does not exist (3004), as RocketMQ 5.3 does.

        Its `mqadmin copyUser` creates at another broker what is not there.
        """
        user = self._access.users.get(request.username)
        if user is None:
            return [Reply(received.to)]
        return [Reply(received.to, body=(encode_user(user, self._kept_of(user.name)),))]

    def _kept_of(self, name: str) -> list[str]:
        """The kinds of a user's credentials that no reply shows."""
        kept = {"secret": self._access.secrets, "password": self._access.passwords}
        return [kind for kind, by_user in kept.items() if name in by_user]

    def list_users(
        self, _now_ms: int, received: Received, request: AuthListUser
    ) -> list[BrokerEffect]:
        """Reply with users (3005)."""
        wanted = request.filter or ""
        found = {
            self._access.users[name]: self._kept_of(name)
            for name in sorted(self._access.users)
            if wanted in name
        }
        return [Reply(received.to, body=(encode_users(found),))]

    # -- tokens -----------------------------------------------------------------------------------

    def create_token(
        self, now_ms: int, received: Received, request: CreateApiToken
    ) -> list[BrokerEffect]:
        """Give a user a token (30069)."""
        self._gate.need_administrator(received)
        return self._create_token(now_ms, received, request, request.username)

    def _create_token(
        self,
        now_ms: int,
        received: Received,
        request: CreateApiToken | CreateOwnToken,
        name: str,
    ) -> list[BrokerEffect]:
        token = ApiToken(
            id=id_of(request.digest),
            user=name,
            digest=request.digest,
            scope=parse_role(request.scope),
            created_ms=request.created_ms,
            expires_ms=request.expires_ms,
        )
        events = rules.decide_create_token(self._access, token, received.wall_ms)
        return self._pending_replies.decided(now_ms, received, events)

    def revoke_token(
        self, now_ms: int, received: Received, request: RevokeApiToken
    ) -> list[BrokerEffect]:
        """Revoke a token of a user (30070)."""
        self._check_rank_of(received, request.username)
        events = rules.decide_revoke_token(self._access, request.username, request.token_id)
        return self._pending_replies.decided(now_ms, received, events)

    def _check_rank_of(self, received: Received, name: str) -> None:
        """Only an administrator deletes users with rights, or takes their tokens away."""
        if self._has_rights(rules.existing_user(self._access, name)):
            self._gate.need_administrator(received)

    def list_tokens(
        self, _now_ms: int, received: Received, request: ListApiTokens
    ) -> list[BrokerEffect]:
        """Reply with the tokens of a user, or of all (30071)."""
        return [Reply(received.to, body=(self._tokens_of(request.username),))]

    def _tokens_of(self, user: str) -> bytes:
        """Return the body with the tokens of a user, or of all ("")."""
        tokens = self._access.tokens
        return encode_tokens(
            tokens[name] for name in sorted(tokens) if user in ("", tokens[name].user)
        )

    # -- a user about itself ----------------------------------------------------------------------

    def set_own_password(
        self, now_ms: int, received: Received, _request: SetOwnPassword
    ) -> list[BrokerEffect]:
        """Give the sender a password by its hash, or none (30074)."""
        name = self._spent(received)
        change = decode_user_change(b"".join(received.body))
        hashed = change.password_hash
        if hashed is None or change != UserChange(password_hash=hashed):
            raise BadRequest(
                "the body is the hash of a password, and nothing else", hint="kourou user password"
            )
        events = set_password(self._box, self._access, name, hashed)
        return self._pending_replies.decided(now_ms, received, events)

    def create_own_token(
        self, now_ms: int, received: Received, request: CreateOwnToken
    ) -> list[BrokerEffect]:
        """Give the sender a token (30075)."""
        return self._create_token(now_ms, received, request, self._spent(received))

    def revoke_own_token(
        self, now_ms: int, received: Received, request: RevokeOwnToken
    ) -> list[BrokerEffect]:
        """Revoke a token of the sender (30076): one that it created, so this is not limited."""
        name = self._oneself(received)
        events = rules.decide_revoke_token(self._access, name, request.token_id)
        return self._pending_replies.decided(now_ms, received, events)

    def list_own_tokens(
        self, _now_ms: int, received: Received, _request: ListOwnTokens
    ) -> list[BrokerEffect]:
        """Reply with the tokens of the sender (30077)."""
        return [Reply(received.to, body=(self._tokens_of(self._oneself(received)),))]

    def _oneself(self, received: Received) -> str:
        """Return the user who sends a request about itself. Raises BadRequest without users."""
        if not received.user:
            raise BadRequest("this broker has no users", hint="kourou user create NAME --admin")
        return received.user

    def _spent(self, received: Received) -> str:
        """Return the user who gives itself a credential; who has no right must not fill the log.

        Raises Throttled after OWN_CHANGES_HOUR_MAX of them in an hour, and as `_oneself`.
        """
        name, hour = self._oneself(received), received.wall_ms // 3_600_000
        if hour != self._hour:
            self._hour = hour
            self._own_changes.clear()
        self._own_changes[name] += 1
        if self._own_changes[name] > OWN_CHANGES_HOUR_MAX:
            raise Throttled(
                f"user {name} set passwords and created tokens {OWN_CHANGES_HOUR_MAX} times in "
                "this hour, the maximum"
            )
        return name

    # -- policies ---------------------------------------------------------------------------------

    def put_policies(
        self, now_ms: int, received: Received, request: AuthCreateAcl | AuthUpdateAcl
    ) -> list[BrokerEffect]:
        """Add policies, or replace those of the same resources (3006, 3007); all or none."""
        self._gate.need_administrator(received)
        name = self._subject(request.subject)
        policies = decode_policies(name, b"".join(received.body))
        if not policies:
            raise BadRequest("the request has no policies", hint="entries with resource, actions")
        events: list[Event] = []
        for policy in policies:
            if request.reason:
                policy = msgspec.structs.replace(policy, reason=request.reason)
            events += rules.decide_put_policy(self._access, policy)
            opposite = Effect.DENY if policy.effect is Effect.ALLOW else Effect.ALLOW
            events += self._opposite(policy, opposite, policies)
        return self._pending_replies.decided(now_ms, received, events)

    def _opposite(self, policy: Policy, effect: Effect, policies: Sequence[Policy]) -> list[Event]:
        """Return the removal of the policy for the same resource that it replaces."""
        other = policy_id(policy.user, policy.resource, effect)
        if any(one.id == other for one in policies):
            return []
        return rules.decide_remove_policy(self._access, other)

    def delete_policies(
        self, now_ms: int, received: Received, request: AuthDeleteAcl
    ) -> list[BrokerEffect]:
        """Remove the policies of a subject for one resource, or all of them (3008).

        A user that does not exist is an error: with a mistyped name the rights would stay.
        """
        self._gate.need_administrator(received)
        name = self._subject(request.subject)
        resource = Pattern.parse(request.resource) if request.resource else None
        events = [
            event
            for one in self._of(name)
            if resource is None or one.resource == resource
            for event in rules.decide_remove_policy(self._access, one.id)
        ]
        return self._pending_replies.decided(now_ms, received, events)

    def _subject(self, subject: str) -> str:
        """Return the name in `User:NAME`. Raises BadRequest, or Rejected if there is no such user.

        Policies may be about `anonymous`, which is no user.
        """
        name = user_of_subject(subject)
        if name != ANONYMOUS:
            rules.existing_user(self._access, name)
        return name

    def _of(self, name: str) -> list[Policy]:
        policies = self._access.policies
        return [policies[one] for one in sorted(policies) if policies[one].user == name]

    def get_policies(
        self, _now_ms: int, received: Received, request: AuthGetAcl
    ) -> list[BrokerEffect]:
        """Reply with the policies of a subject, or without a body if it has none (3009).

        So does RocketMQ 5.3, whose `mqadmin copyAcl` copies nothing then.
        """
        name = self._subject(request.subject)
        policies = self._of(name)
        body = (encode_policies(name, policies),) if policies else ()
        return [Reply(received.to, body=body)]

    def list_policies(
        self, _now_ms: int, received: Received, request: AuthListAcl
    ) -> list[BrokerEffect]:
        """Reply with policies by parts of their subject and resource (3010)."""
        policies = self._access.policies
        found = [
            policies[one]
            for one in sorted(policies)
            if (request.subject_filter or "") in f"User:{policies[one].user}"
            and (request.resource_filter or "") in str(policies[one].resource)
        ]
        return [Reply(received.to, body=(encode_policies_of_users(found),))]

    # -- decisions --------------------------------------------------------------------------------

    def set_mode(
        self, now_ms: int, received: Received, request: SetAccessMode
    ) -> list[BrokerEffect]:
        """Ignore, observe or enforce decisions, at one door or at all (30060)."""
        self._gate.need_administrator(received)
        mode, door = parse_mode(request.mode, request.door)
        events = rules.decide_mode(self._access, mode, door)
        return self._pending_replies.decided(now_ms, received, events)

    def status(
        self, _now_ms: int, received: Received, _request: GetAccessStatus
    ) -> list[BrokerEffect]:
        """Reply with the mode and what was refused since the start (30061)."""
        access, gate = self._access, self._gate
        header = GetAccessStatusResponse(
            mode=access.mode,
            effective=access.effective_mode,
            version=access.version,
            users=len(access.users),
            allowed=gate.allowed,
            refused=gate.refused,
            doors={str(door): str(mode) for door, mode in sorted(access.doors.items())},
        )
        return [Reply(received.to, header=header, body=(encode_refusals(gate.refusals()),))]

    def explain(
        self, _now_ms: int, received: Received, request: ExplainAccess
    ) -> list[BrokerEffect]:
        """Reply whether a user may do something, and why (30062)."""
        need = parse_need(request.action, request.resource)
        check_source(request.source)
        check_names([need])
        authorizer = self._gate.authorizer
        name = request.username or received.user
        if request.username:
            decision = authorizer.decide(name, [need], request.source, received.wall_ms)
        else:
            decision = self._gate.may(received, need)
        header = ExplainAccessResponse(
            allowed=decision.allowed,
            by=decision.by,
            nearest=[] if decision else authorizer.would_allow(name, need),
        )
        asked_by_console = bool(received.console) and not request.username
        refused = asked_by_console and not decision.allowed
        noted = [self._gate.console_refused(received, decision)] if refused else []
        return [*noted, Reply(received.to, header=header)]

    def check_credential(
        self, _now_ms: int, received: Received, request: CheckCredential
    ) -> list[BrokerEffect]:
        """Reply whether a secret is that of a user who may sign in, or whose a subject is (30063).

        Or whose token has a SHA-256; or reply with the hash of a user's password.

        Neither the reply nor the audit tells an unknown user from a wrong secret.
        """
        gate = self._gate
        refused: list[BrokerEffect] = []
        if request.subject:
            name = gate.owner_of(request.subject)
            header = CheckCredentialResponse(valid=bool(name), has_users=gate.active, username=name)
            return [Reply(received.to, header=header)]
        if request.digest:
            name, refusal = gate.token_of(request.digest, received.wall_ms)
            if not name or refusal:
                why = refusal or f"the token {id_of(request.digest)} is unknown, or was revoked"
                refused = gate.sign_in_refused(received, name or ANONYMOUS, why)
            header = CheckCredentialResponse(
                valid=bool(name) and not refusal,
                has_users=gate.active,
                username=name,
                refusal=refusal,
            )
            return [*refused, Reply(received.to, header=header)]
        if request.password:
            hashed = gate.password_of(request.username)
            header = CheckCredentialResponse(
                valid=bool(hashed), has_users=gate.active, password_hash=hashed
            )
            return [Reply(received.to, header=header)]
        if request.credential:
            found = gate.credential_of(request.username, None)
            found = found if same_secret(found, request.credential) else ""
        else:
            secret = decode_user_change(b"".join(received.body)).secret or ""
            found = gate.credential_of(request.username, secret)
            name = request.username[:USER_NAME_LENGTH_MAX]
            refused = [] if found else gate.sign_in_refused(received, name)
        header = CheckCredentialResponse(valid=bool(found), has_users=gate.active, credential=found)
        return [*refused, Reply(received.to, header=header)]

    def report_refusals(
        self, _now_ms: int, received: Received, _request: ReportRefusals
    ) -> list[BrokerEffect]:
        """Note for the audit what a console or a filter server refused itself (30078)."""
        reported = decode_reported(b"".join(received.body))
        return [*self._gate.reported(received, reported), Reply(received.to)]


def _gives_credential(event: Event) -> bool:
    """True if the event adds or replaces something that proves who the user is."""
    if not isinstance(event, UserPut):
        return isinstance(event, UserSecretSet | UserPasswordSet)
    before = event.before or User(name=event.user.name)
    return not (
        set(event.user.curve_keys) <= set(before.curve_keys)
        and set(event.user.certificate_subjects) <= set(before.certificate_subjects)
    )
