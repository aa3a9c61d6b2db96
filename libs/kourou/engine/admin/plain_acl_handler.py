"""RocketMQ's accounts as users and policies: requests of RocketMQ 4.9, and files with users.

State: soft, the files as they were last read, what was said about them, and the mark of the table
in which there was nothing left to do for them.

An account is a user with a secret, a role if it is an administrator, and policies by the rules of
kourou.access.plain_acl. Roles without a counterpart in RocketMQ, and policies that no account can
have, stay as they are. An address never replaces credentials, so white addresses are refused.

A user of the files of `aclImportDir` is `imported` until a request changes it, and the files change
no other user. Of such a user's policies they change those that have their reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from kourou.access.authorizer import check_administrators
from kourou.access.model import Policy, ResourceType, RoleGrant, User, UserRole
from kourou.access.plain_acl import (
    ORIGIN,
    SECRET_CHARACTERS_MIN,
    SHIPPED,
    ImportedAcl,
    account_policies,
    changed_policies,
)
from kourou.access.signature import same_secret
from kourou.authorization import access_table as rules
from kourou.authorization.access_table import AccessAggregate
from kourou.authorization.request_gate import SecretBox
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.access_handler import set_secret
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.inputs import UsersRead
from kourou.errors import BadRequest, Code, DecodeError, KourouError, Rejected
from kourou.events.control_events import AccessEvent, Cause, Event
from kourou.model.topic import DataVersion
from kourou.protocol.bodies import acl_export
from kourou.protocol.bodies.config_bodies import encode_data_version
from kourou.protocol.messages.broker_admin import (
    DeleteAclConfig,
    GetBrokerClusterAclInfo,
    GetBrokerClusterAclInfoResponse,
    UpdateAndCreateAclConfig,
    UpdateGlobalWhiteAddrsConfig,
)
from kourou.protocol.request import Request
from kourou.runtime import LogWarning, Received, Reply

USERS_TABLE = "users"
"""Stands for a file in RocketMQ's list of versions by file."""

IMPORT_ACTOR = "import"
"""Who makes the changes that files cause."""

IMPORT_REASON = "aclImportDir"

_ORIGINS = frozenset({ORIGIN, acl_export.ORIGIN})
_NO_WHITE_ADDRESSES = "an address never replaces credentials, so there are no white addresses"
_OF_ADMIN = frozenset({UserRole.ADMINISTRATOR, UserRole.OPERATOR})


class PlainAclHandler:
    """Handles requests about accounts; only administrators change them."""

    def __init__(self, context: BrokerContext, gate: AccessGate, secrets: SecretBox | None) -> None:
        self._access = context.control.access
        self._pending_replies = context.pending_replies
        self._policy = context.policy
        self._address = "{}:{}".format(*context.store_host)
        self._gate = gate
        self._box = secrets
        self._recorder = context.recorder
        self._found: ImportedAcl | None = None
        self._said: frozenset[str] = frozenset()
        self._settled_mark = ""

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            UpdateAndCreateAclConfig: self.put_account,
            DeleteAclConfig: self.delete_account,
            GetBrokerClusterAclInfo: self.version,
            UpdateGlobalWhiteAddrsConfig: self.put_white_addresses,
        }

    def put_account(
        self, now_ms: int, received: Received, request: UpdateAndCreateAclConfig
    ) -> list[Effect]:
        """Create or change an account (50); what the request does not mention stays as it is."""
        self._gate.need_administrator(received)
        try:
            self._gate.check_replicas()
            events = self._put(request)
        except Rejected as error:
            raise _with_code(error, Code.ACL_UPDATE_FAILED) from error
        return self._pending_replies.decided(now_ms, received, events)

    def delete_account(
        self, now_ms: int, received: Received, request: DeleteAclConfig
    ) -> list[Effect]:
        """Delete an account (51)."""
        self._gate.need_administrator(received)
        try:
            events = rules.decide_delete_user(self._access, request.access_key)
        except Rejected as error:
            raise _with_code(error, Code.ACL_DELETE_FAILED) from error
        return self._pending_replies.decided(now_ms, received, events)

    def version(
        self, _now_ms: int, received: Received, _request: GetBrokerClusterAclInfo
    ) -> list[Effect]:
        """Reply with the number and the time of the last change of users (52)."""
        version = encode_data_version(DataVersion(self._access.changed_ms, self._access.version))
        header = GetBrokerClusterAclInfoResponse(
            version=version.decode(),
            all_acl_file_version=msgspec.json.encode({USERS_TABLE: msgspec.Raw(version)}).decode(),
            broker_name=self._policy.broker_name,
            broker_addr=self._address,
            cluster_name=self._policy.cluster_name,
        )
        return [Reply(received.to, header=header)]

    def put_white_addresses(
        self, _now_ms: int, received: Received, request: UpdateGlobalWhiteAddrsConfig
    ) -> list[Effect]:
        """Refuse addresses that need no account (53); an empty list is what there is already."""
        self._gate.need_administrator(received)
        if request.global_white_addrs.strip(" ,"):
            raise Rejected(
                f"{_NO_WHITE_ADDRESSES}; nothing was changed",
                hint="give the clients an account; its policies can name networks",
                code=Code.WHITE_ADDRS_UPDATE_FAILED,
            )
        return [Reply(received.to)]

    # -- accounts ---------------------------------------------------------------------------------

    def _put(self, request: UpdateAndCreateAclConfig) -> list[Event]:
        """Return the events of an account. Raises Rejected."""
        name = request.access_key
        _check_account(request, new=name not in self._access.users)
        policies = {
            ResourceType.TOPIC: self._changed(
                name, ResourceType.TOPIC, request.default_topic_perm, request.topic_perms
            ),
            ResourceType.GROUP: self._changed(
                name, ResourceType.GROUP, request.default_group_perm, request.group_perms
            ),
        }
        # Decided step by step on a draft: a policy needs its user, and limits count all of them.
        draft = _Draft(self._access.copy())
        has_policies = any(policies.values())
        draft.apply(rules.decide_put_user(draft.access, self._user(request, has_policies)))
        if request.secret_key and not self._has_secret(name, request.secret_key):
            draft.apply([set_secret(self._box, name, request.secret_key)])
        for kind, wanted in policies.items():
            for old in account_policies(self._of(name), kind):
                if all(one.id != old.id for one in wanted):
                    draft.apply(rules.decide_remove_policy(draft.access, old.id))
            for policy in wanted:
                draft.apply(rules.decide_put_policy(draft.access, policy))
        return draft.events

    def _changed(
        self, name: str, kind: ResourceType, default: str | None, entries: str | None
    ) -> list[Policy]:
        before = account_policies(self._of(name), kind)
        if not default and entries is None:
            return before
        wanted = changed_policies(name, kind, before, default=default, entries=entries)
        for policy in wanted:
            known = self._access.policies.get(policy.id)
            if known is not None and known not in before:
                raise BadRequest(
                    f"the policy of {name} for {policy.resource} says more than an account can",
                    hint="change it with `kourou user allow` and `kourou user deny`",
                )
        return wanted

    def _of(self, name: str) -> list[Policy]:
        return [one for one in self._access.policies.values() if one.user == name]

    def _user(self, request: UpdateAndCreateAclConfig, has_policies: bool) -> User:
        """An administrator with permissions is held to them, so it is an operator."""
        user = self._access.users.get(request.access_key, User(name=request.access_key))
        roles = tuple(one for one in user.roles if one.prefix or one.role not in _OF_ADMIN)
        if request.admin:
            role = UserRole.OPERATOR if has_policies else UserRole.ADMINISTRATOR
            roles = (RoleGrant(role), *roles)
        return msgspec.structs.replace(user, roles=roles, imported=False)

    def _has_secret(self, name: str, secret: str) -> bool:
        """True if it is the user's secret already: `mqadmin -c` may repeat itself."""
        sealed = self._access.secrets.get(name)
        if sealed is None or self._box is None:
            return False
        try:
            return same_secret(self._box.open(name, sealed), secret)
        except DecodeError:
            return False

    # -- files ------------------------------------------------------------------------------------

    def import_users(self, item: UsersRead) -> list[Effect]:
        """Make the users those of the files: all of them, or none with a warning.

        The core takes what was recorded. A warning is not repeated before the files change. Nor is
        the work for the same files and the same users: it decrypts all secrets.
        """
        if item.found != self._found:
            self._found, self._said, self._settled_mark = item.found, frozenset(), ""
        if self._settled_mark == self._access.mark:
            return []
        try:
            events, notes = self.decide_import(item.found)
            self._recorder.record(events, Cause(IMPORT_ACTOR, IMPORT_REASON), item.wall_ms)
            self._settled_mark = "" if events else self._access.mark
        except KourouError as error:
            notes = [
                LogWarning(
                    "acl-import-refused: aclImportDir: users are not imported: %(error)s",
                    {"error": error},
                )
            ]
        new: list[Effect] = [one for one in notes if str(one) not in self._said]
        self._said = frozenset(map(str, notes))
        return new

    def decide_import(self, found: ImportedAcl) -> tuple[list[Event], list[LogWarning]]:
        """Return the events that import users, and warnings about what stays as it is.

        An imported user that is not found is disabled. Raises Rejected; then nothing is imported.
        Nor is it while an event about users cannot be read: who was changed by hand is not known.
        """
        if self._access.unreadable:
            return [], []
        self._gate.check_replicas()
        draft = _Draft(self._access.copy())
        notes: list[LogWarning] = []
        wanted = _by_user(found.policies)
        present = _by_user(self._access.policies.values())
        # Administrators first: the first user must be one.
        for user in sorted(found.users, key=lambda one: not one.administers):
            known = self._access.users.get(user.name)
            if known is not None and not known.imported:
                notes.append(
                    LogWarning(
                        "user-kept: aclImportDir: user %(user)s was made or changed by hand, and "
                        "stays so",
                        {"user": user.name},
                    )
                )
                continue
            user = msgspec.structs.replace(user, imported=True)
            draft.apply(rules.decide_put_one_of(draft.access, user))
            secret = found.secrets.get(user.name)
            if secret is not None and not self._has_secret(user.name, secret):
                draft.apply([set_secret(self._box, user.name, secret)])
            notes += _put_policies(draft, wanted.get(user.name, []), present.get(user.name, []))
        names = {one.name for one in found.users}
        for user in self._access.users.values():
            if user.imported and user.enabled and user.name not in names:
                disabled = msgspec.structs.replace(user, enabled=False)
                draft.apply(rules.decide_put_one_of(draft.access, disabled))
        check_administrators(self._access.users, draft.access.users)
        return draft.events, notes


class _Draft:
    """A copy of the table, and the events that changed it."""

    def __init__(self, access: AccessAggregate) -> None:
        self.access = access
        self.events: list[Event] = []

    def apply(self, events: Sequence[Event]) -> None:
        """Apply events of a decision about the draft."""
        for event in events:
            assert isinstance(event, AccessEvent)
            rules.evolve(self.access, event, 0)
            self.events.append(event)


def _by_user(policies: Iterable[Policy]) -> dict[str, list[Policy]]:
    found: dict[str, list[Policy]] = {}
    for one in policies:
        found.setdefault(one.user, []).append(one)
    return found


def _put_policies(
    draft: _Draft, wanted: Iterable[Policy], present: Iterable[Policy]
) -> list[LogWarning]:
    """Make a user's policies from files those that are wanted; returns what stays as it is."""
    missing = {one.id: one for one in wanted}
    notes = []
    for old in present:
        if old.reason in _ORIGINS:
            if old.id not in missing:
                draft.apply(rules.decide_remove_policy(draft.access, old.id))
        elif missing.pop(old.id, None) is not None:
            notes.append(
                LogWarning(
                    "policy-kept: aclImportDir: the policy of %(user)s for %(resource)s was set by "
                    "hand, and stays so",
                    {"user": old.user, "resource": old.resource},
                )
            )
    for policy in missing.values():
        draft.apply(rules.decide_put_policy(draft.access, policy))
    return notes


def _check_account(request: UpdateAndCreateAclConfig, *, new: bool) -> None:
    """Raises BadRequest for what RocketMQ refuses, too, and for a white address."""
    name, secret = request.access_key, request.secret_key
    if len(name) < SECRET_CHARACTERS_MIN:
        raise BadRequest(f"the access key {name!r} needs {SECRET_CHARACTERS_MIN} characters")
    if new and not secret:
        raise BadRequest(f"the new account {name} needs a secret", hint="mqadmin: -s SECRET")
    if (name, secret) in SHIPPED:
        raise BadRequest(
            f"the secret of {name} is published with RocketMQ", hint="choose another one"
        )
    if request.white_remote_address:
        raise BadRequest(_NO_WHITE_ADDRESSES, hint="a policy of the user can name networks")


def _with_code(error: Rejected, code: Code) -> Rejected:
    return Rejected(error.message, hint=error.hint, code=code)
