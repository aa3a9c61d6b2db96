"""Decides requests by a table of users: who sends a request, what it needs, and whether it may.

RequestGate decides by one table; a broker's own is kourou.engine.admin.access_gate. PublishedGate
decides for a name server, by the tables that brokers send it.

State: soft: decrypted secrets and decisions of the current tables, counters of refusals. What a
request that comes often was allowed is in `AccessAggregate.remembered`, which every change empties.

Invariants:
- a request whose type declares no needs is refused, whatever the mode
- each door may have a mode of its own: no request chooses another door's
- what needs a right on users is enforced in every mode: users do not change, and no copy of their
  credentials leaves the process, while other decisions are off or observed
- while an event about users cannot be read, every request is refused
- the user comes from this request's signature, or from the key or certificate of its connection,
  and is looked up for every request: what is revoked is refused at once
- a signature is checked for every request, also where the decision is remembered
- a signature on a connection whose certificate belongs to a user must be that user's
- a decision uses the values that the handler will use, parsed from the bytes that were signed
- a list, and every total in its reply, has only what its handler gets from `sees`
- a request on behalf of a user is decided by the rights of that user; only a console of the user
  may send it, in every mode, and about users only where its requirement says so
- a request on behalf of a user's token needs the user's rights and those of the token's scope; a
  token that was revoked or has expired is refused in every mode
- what is kept of a refused request is bounded: a name in it that is longer than any valid one is
  refused without being remembered
- an allowed request that needs a right to change something is noted for the audit, once
- a request of a user about itself needs no right, and is decided in every mode; its sender is the
  user whom this process has identified, never one whom a console names
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kourou.access.api_token import owner_of
from kourou.access.authorizer import Authorizer, Decision
from kourou.access.model import (
    ANONYMOUS,
    AccessMode,
    Action,
    AnyOf,
    Need,
    ResourceType,
    SealedSecret,
    UserKind,
    UserRole,
)
from kourou.access.requirements import CallerKind, Facts, Requirement, need_of_topic
from kourou.access.signature import NO_KEY, SigningKey, verify
from kourou.authorization.access_table import AccessAggregate, decode_access
from kourou.authorization.access_uses import Needs, Use
from kourou.authorization.audit import AccessDecided
from kourou.errors import BadRequest, Code, DecodeError, KourouError, NoPermission
from kourou.model.limits import (
    ACCESS_DECISIONS_MAX,
    ACCESS_REFUSALS_MAX,
    AGGREGATE_LENGTH_MAX,
    AUDIT_TEXT_LENGTH_MAX,
    USER_NAME_LENGTH_MAX,
)
from kourou.protocol.bodies.access_bodies import Refusal
from kourou.protocol.messages import broker_admin, filter_server, groups, pulls, sends
from kourou.protocol.messages.namesrv import PutUsers
from kourou.protocol.request import Request
from kourou.protocol.table import REQUESTS, not_supported
from kourou.protocol.wire.remoting import VERSION_5_0_0
from kourou.runtime import Buffer, Peer, Received, Reply

_BY_POSITION = (
    sends.ConsumerSendMsgBack,
    pulls.ViewMessageById,
    sends.EndTransaction,
    sends.ResumeCheckHalfMessage,
    groups.ConsumeMessageDirectly,
)
_CREATE_OR_UPDATE = (
    broker_admin.UpdateAndCreateTopic,
    groups.UpdateAndCreateSubscriptionGroup,
    filter_server.PutFilter,
    filter_server.RegisterMessageFilterClass,
)
_OF_BATCH = (
    sends.GetBatchState,
    sends.PrepareBatch,
    sends.DecideBatch,
    sends.ResolveBatch,
    sends.AbortBatch,
)
_OTHERS = ("others", "", "others", "")

OF_ITSELF = "the user itself"
"""What allows a user to change its own password and tokens."""

USERS_UNREADABLE = (
    "everything is refused, because an event about users cannot be read; the broker's log says what"
    " to do"
)


def requirements_by_type() -> Mapping[type[Request], Requirement]:
    """The needs of each request type; requests that share a type have the same needs."""
    found: dict[type[Request], Requirement] = {}
    for spec in REQUESTS.values():
        known = found.setdefault(spec.header, spec.requirement)
        assert known.text == spec.requirement.text, (
            f"two different needs for {spec.header.__name__}"
        )
    return found


_REQUIREMENTS = requirements_by_type()
_CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})
_EVERYTHING = Need(ResourceType.CLUSTER, "", (Action.GET,))
_IN_EVERY_MODE = frozenset({CallerKind.CONSOLE, CallerKind.REPORTER, CallerKind.SELF})
_ANY_ACTION = tuple(Action)

Sees = Callable[[ResourceType, str], bool]
"""(TOPIC, GROUP or FILTER, name) -> whether a list that goes to a user may have it."""


def _everything(_kind: ResourceType, _name: str) -> bool:
    return True


class SecretBox(Protocol):
    """Encrypts the secrets of users; see kourou.service.secret_keys."""

    def seal(self, user: str, secret: str) -> SealedSecret:
        """Encrypt a user's secret."""
        ...

    def open(self, user: str, sealed: SealedSecret) -> str:
        """Decrypt a user's secret; raises DecodeError if it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What requests of one claim are allowed until `until_ms`, epoch ms: to be handled as those of
    `user`, if a signature that they bear was made with `key`. `console` and `forwarded_from` are
    those of the requests, which are counted in `use`.
    """

    user: str
    console: str
    forwarded_from: str
    key: SigningKey
    until_ms: int
    use: Use


class InvalidCredentials(Exception):
    """The credentials of a request are not valid."""


class _NotRepresented(Exception):
    """A request names a user on whose behalf its sender may not send it."""


class _NoFacts:
    """Implements kourou.access.requirements.Facts where only a request's fields are known."""

    def has_credentials(self) -> bool:
        """Not known."""
        return False

    def exists(self, kind: ResourceType, name: str) -> bool:
        """False."""
        return False

    def reply_topic(self) -> str:
        """Not known."""
        return ""

    def began(self, query: str) -> bool | None:
        """Not known."""
        return None

    def record_topic(self) -> str:
        """Not known."""
        return ""

    def groups(self) -> Iterable[str]:
        """None."""
        return ()

    def topics(self) -> Iterable[str]:
        """None."""
        return ()

    def has_body(self) -> bool:
        """Not known."""
        return False


NO_FACTS = _NoFacts()


class RequestGate:
    """Decides by one table of users. `secrets` None: no signature is right."""

    def __init__(self, access: AccessAggregate, secrets: SecretBox | None) -> None:
        self._access = access
        self._box = secrets
        self._authorizer = Authorizer()
        self._version = -1
        self._signing_keys: dict[str, SigningKey] = {}
        self._refusals: dict[tuple[str, str, str, str], Refusal] = {}
        self._remembered: dict[tuple[object, ...], _Allowed] = access.remembered
        self._use = Use()
        self.allowed = 0
        self.refused = 0

    @property
    def active(self) -> bool:
        """Whether requests are decided at all: there are users, or there may be."""
        return self._access.active

    @property
    def open_because(self) -> str:
        """Why requests of everybody are handled, at some door at least; "" if at none."""
        return self._access.open_because

    @property
    def authorizer(self) -> Authorizer:
        """The authorizer, with the current table."""
        if self._version != self._access.version:
            self._version = self._access.version
            self._authorizer = Authorizer(self._access.table)
            self._signing_keys.clear()
        return self._authorizer

    def refusals(self) -> list[Refusal]:
        """What was refused since the start, by kind; the most frequent first."""
        return sorted(self._refusals.values(), key=lambda one: -one.count)

    def allows(self, received: Received, effects: list[Any]) -> bool:
        """Return whether a request may be handled; otherwise its reply is added to `effects`.

        Sets the request's user, unless a replica sends it for itself.
        """
        claim = self._claim(received)
        known = None if claim is None else self._remembered.get(claim)
        if known is None or received.wall_ms >= known.until_ms:
            return self._examine(received, effects)
        signed = received.to.signed
        if signed is not None and not verify(signed, received.body, known.key):
            return self._examine(received, effects, forged=True)
        received.user, received.console = known.user, known.console
        received.forwarded_from = known.forwarded_from
        self.allowed += 1
        use = known.use
        use.count += 1
        use.last_ms = received.wall_ms
        return True

    def _examine(self, received: Received, effects: list[Any], *, forged: bool = False) -> bool:
        """As `allows`, whatever is remembered; `forged` if its signature is known to be wrong.

        So a wrong signature takes as long as that of a name that does not exist: it is checked
        once, and all else is done, too.
        """
        requirement = _REQUIREMENTS.get(type(received.request))
        if requirement is None or requirement.caller is CallerKind.SERVER:
            text = not_supported(received.request.code)
            effects.append(Reply(received.to, Code.REQUEST_CODE_NOT_SUPPORTED, text))
            return False
        if self._access.unreadable:
            closed = Decision(False, USERS_UNREADABLE)
            return self._refuse(received, ANONYMOUS, closed, effects, observed=False)
        mode = self._mode(received)
        if mode is not AccessMode.ENFORCE and self._concerns_users(requirement, received):
            mode = AccessMode.ENFORCE
        named = self._named(received)
        if mode is AccessMode.OFF and not named:
            return True
        user = ANONYMOUS
        try:
            if forged:
                raise _wrong_signature(received)
            user = received.user = self._user(received)
            if named:
                user = self._represent(received, named, requirement)
            if mode is AccessMode.OFF:
                return True
        except InvalidCredentials as error:
            decision = Decision(False, str(error))
        except _NotRepresented as error:
            decision = Decision(False, str(error))
            mode = AccessMode.ENFORCE
        else:
            decision = self._decide(user, requirement, received, effects)
            if decision.allowed:
                self._remember(received)
                self.allowed += 1
                return True
        return self._refuse(received, user, decision, effects, observed=mode is AccessMode.OBSERVE)

    def sees(self, received: Received) -> Sees:
        """Return what of a list is for the sender: topics and groups on which it has any right.

        Filters need Get, because a list may have their sources; nodes have all, to run them.
        Everything is for all where nothing is enforced; topics and groups are also for those with
        Get on the cluster.
        """
        if not self.sender(received):
            return _everything
        account = self._access.users.get(received.user)
        node = account is not None and account.kind is UserKind.NODE
        all_names = self._decided(received, _EVERYTHING).allowed

        def has_right(kind: ResourceType, name: str) -> bool:
            if kind is ResourceType.FILTER:
                return node or self._decided(received, Need(kind, name, (Action.GET,))).allowed
            if all_names:
                return True
            if kind is ResourceType.TOPIC:
                return self._decided(received, need_of_topic(name, *_ANY_ACTION)).allowed
            return self._decided(received, Need(kind, name, _ANY_ACTION)).allowed

        return has_right

    def sender(self, received: Received) -> str:
        """Return the user who sends a request; "" where decisions are not enforced."""
        return received.user if self._enforces(received) else ""

    def _enforces(self, received: Received) -> bool:
        """Return whether what the sender has no right to is refused."""
        return self._mode(received) is AccessMode.ENFORCE

    def _mode(self, received: Received) -> AccessMode:
        access = self._access
        return access.mode_of(received.door) if access.doors else access.effective_mode

    def _concerns_users(self, requirement: Requirement, received: Received) -> bool:
        """Return whether a request is decided in every mode: it needs a right on users.

        So is what a console asks about its users, what it reports, and what users do to themselves.
        """
        if requirement.caller is not CallerKind.USER:
            return requirement.caller in _IN_EVERY_MODE
        try:
            needs = requirement.needs(received.request, self._facts(received))
        except KourouError:
            return False  # its handler refuses it, too
        return any(map(is_about_users, needs))

    def node_of(self, key: str) -> str:
        """Return the process whose CURVE key it is, as cluster/broker/id; "" if it is of none."""
        account = self._access.users.get(self._access.user_of_key.get(key, ""))
        return "" if account is None else account.node

    def _decided(self, received: Received, need: Need | AnyOf) -> Decision:
        user = received.user or ANONYMOUS
        return self.authorizer.decide(user, (need,), received.source, received.wall_ms)

    def _remember(self, received: Received) -> None:
        """Remember that a request was allowed, if requests like it come often."""
        claim = self._claim(received)
        if claim is None:
            return
        signed = received.to.signed
        key = NO_KEY if signed is None else self._signing_key(signed.access_key)
        if key is None:
            return
        if len(self._remembered) >= ACCESS_DECISIONS_MAX:
            self._remembered.clear()
        self._remembered[claim] = _Allowed(
            received.user,
            received.console,
            received.forwarded_from,
            key,
            self._until_ms(received),
            self._use,
        )

    def _until_ms(self, received: Received) -> int:
        """Return until when an allowed request may be sent again, unless the table changes.

        A console, and a token, may have an end of their own.
        """
        until_ms = self.authorizer.until_ms
        if not received.console:
            return until_ms
        grants = self._access.users[received.console].roles
        ends = [one.until_ms for one in grants if one.until_ms is not None]
        if token := self._access.tokens.get(received.user):
            ends.append(token.expires_ms)
        return min((until_ms, *(one for one in ends if one > received.wall_ms)))

    # -- what only a broker knows -----------------------------------------------------------------

    def _named(self, received: Received) -> str:
        """Return the user on whose behalf the sender sends a request; "" for none."""
        return received.on_behalf_of

    def _facts(self, received: Received) -> Facts:
        """Return what is known about a request besides its fields: nothing here."""
        return NO_FACTS

    def _used(self, user: str, needs: Needs, received: Received) -> Use:
        """Count a decided request; return where requests of its kind are counted: nowhere here."""
        return self._use

    def _claim(self, received: Received) -> tuple[object, ...] | None:
        """Return all that the decision about a request that comes often depends on, as long as the
        table stays as it is; None for all other requests.

        It has who claims to send it and how; a signature has to be checked all the same.
        """
        return None

    # -- who --------------------------------------------------------------------------------------

    def _user(self, received: Received) -> str:
        """Raises InvalidCredentials if they are not valid."""
        peer, signed = received.to.peer, received.to.signed
        owner = ""
        if peer.key:
            owner = self._access.user_of_key.get(peer.key, "")
        elif peer.subject:
            owner = self._access.user_of_subject.get(peer.subject, "")
        if signed is not None:
            name = signed.access_key
            key = self._signing_key(name)
            # An unknown name takes as long as a wrong signature, and gets the same text.
            if not verify(signed, received.body, key or NO_KEY) or key is None:
                raise _wrong_signature(received)
            if owner and owner != name:
                raise InvalidCredentials(
                    f"the connection's certificate does not belong to user {name}"
                )
            return name
        return owner or ANONYMOUS

    def _represent(self, received: Received, name: str, requirement: Requirement) -> str:
        """Make a console's request one of the user `name`, or of the token of this name.

        Raises _NotRepresented if the sender may not send it on behalf of that user.
        """
        sender, owner = received.user, owner_of(name)
        account, named = self._access.users.get(sender), self._access.users.get(owner)
        if account is None or not account.is_console_of(owner, received.wall_ms):
            raise _NotRepresented(f"user {sender} may not send on behalf of user {name}")
        if requirement.caller is not CallerKind.USER:
            raise _NotRepresented("it is not sent on behalf of a user")
        if named is None or not named.signs_in:
            raise _NotRepresented(f"user {name} cannot sign in")
        if owner != name:
            token = self._access.tokens.get(name)
            if token is None or token.has_expired(received.wall_ms):
                raise _NotRepresented(f"the token {name} was revoked, or has expired")
        received.user, received.console = name, sender
        return name

    def _signing_key(self, name: str) -> SigningKey | None:
        """Return the key of a user's secret; None if it has none, or none that can be decrypted."""
        self.authorizer  # noqa: B018 - forgets the keys of an older table
        found = self._signing_keys.get(name)
        if found is None:
            sealed = self._access.secrets.get(name)
            if sealed is None or self._box is None:
                return None
            try:
                found = self._signing_keys[name] = SigningKey(self._box.open(name, sealed))
            except DecodeError:
                return None
        return found

    # -- whether ----------------------------------------------------------------------------------

    def _decide(
        self, user: str, requirement: Requirement, received: Received, effects: list[Any]
    ) -> Decision:
        """Decide a request; the note of an allowed change is added to `effects`."""
        if requirement.caller is CallerKind.NODE:
            return self._decide_node(user)
        if requirement.caller is CallerKind.CONSOLE:
            return self._decide_console(user, received)
        if requirement.caller is CallerKind.REPORTER:
            return self._decide_reporter(user, received)
        if requirement.caller is CallerKind.SELF:
            return self._decide_self(user, requirement, received, effects)
        try:
            needs: Sequence[Need | AnyOf] = requirement.needs(
                received.request, self._facts(received)
            )
            check_names(needs)
        except KourouError as error:
            return Decision(False, str(error))
        admitted = requirement.anonymous and self._anonymous_has_policies()
        if not needs and user == ANONYMOUS and not admitted:
            return Decision(False, "the request has no credentials")
        if received.console and not requirement.by_consoles and any(map(is_about_users, needs)):
            return Decision(False, "a console sends no requests about users")
        decision = self.authorizer.decide(user, needs, received.source, received.wall_ms)
        self._use = self._used(user, tuple(needs), received)
        changes = _changes(needs)
        if decision.allowed and changes:
            right = self.authorizer.decide(user, changes, received.source, received.wall_ms)
            effects.append(_allowed_change(received, user, changes, right.by))
        return decision

    def _decide_console(self, user: str, received: Received) -> Decision:
        account = self._access.users.get(user)
        name, subject, digest = (
            getattr(received.request, field, "") for field in ("username", "subject", "digest")
        )
        if subject:
            name = self._access.user_of_subject.get(subject, name)
        elif token := self._access.token_of_digest(digest):
            name = token.user
        if account is None or not account.is_console_of(name, received.wall_ms):
            return Decision(False, f"only a console of user {name} may send it")
        return Decision(True, f"role {UserRole.CONSOLE}")

    def _decide_reporter(self, user: str, received: Received) -> Decision:
        account = self._access.users.get(user)
        if account is not None and account.console_prefixes(received.wall_ms):
            return Decision(True, f"role {UserRole.CONSOLE}")
        return self._decide_node(user)

    def _decide_self(
        self, user: str, requirement: Requirement, received: Received, effects: list[Any]
    ) -> Decision:
        """Decide what a user does to itself; the note of an allowed change goes to `effects`."""
        if user == ANONYMOUS:
            return Decision(False, "the request has no credentials")
        decision = self.authorizer.decide(user, (), received.source, received.wall_ms)
        if not decision.allowed:
            return decision
        account = self._access.users.get(user)
        if account is None or not account.signs_in:
            return Decision(False, f"{user} is a node, a console or a token, not a user")
        does = [
            Need(ResourceType.USER, user, one.actions)
            for one in requirement.needs(received.request, NO_FACTS)
            if isinstance(one, Need)
        ]
        if changes := _changes(does):
            effects.append(_allowed_change(received, user, changes, OF_ITSELF))
        return Decision(True, OF_ITSELF)

    def _decide_node(self, user: str) -> Decision:
        account = self._access.users.get(user)
        if account is None or account.kind is not UserKind.NODE or not account.enabled:
            return Decision(False, "only a node of this cluster may send it")
        return Decision(True, f"node {account.node}")

    def _anonymous_has_policies(self) -> bool:
        return any(one.user == ANONYMOUS for one in self._access.policies.values())

    # -- refusals ---------------------------------------------------------------------------------

    def _refuse(
        self,
        received: Received,
        user: str,
        decision: Decision,
        effects: list[Any],
        *,
        observed: bool,
    ) -> bool:
        """Count a refusal, and reply unless it is only observed; return `observed`."""
        effects.append(self._refused(received, user, decision, observed=observed))
        if not observed:
            effects.append(_refusal(received, user, decision))
        return observed

    def _refused(
        self, received: Received, user: str, decision: Decision, *, observed: bool
    ) -> AccessDecided:
        """Count a refusal; returns it for the audit."""
        need = "" if decision.need is None else str(decision.need)
        refused = AccessDecided(
            user,
            received.address,
            type(received.request).__name__,
            need,
            decision.by[:AUDIT_TEXT_LENGTH_MAX],
            received.wall_ms,
            handled=observed,
            console=received.console,
            door=received.noted_door,
        )
        self._count(refused)
        return refused

    def _count(self, refused: AccessDecided) -> None:
        self.refused += refused.count
        kind = (refused.user, refused.source, refused.request, refused.need)
        if kind not in self._refusals and len(self._refusals) >= ACCESS_REFUSALS_MAX:
            kind = _OTHERS
        known = self._refusals.get(kind)
        self._refusals[kind] = Refusal(
            user=kind[0],
            source=kind[1],
            request=kind[2],
            need=kind[3],
            by=refused.by,
            count=refused.count + (0 if known is None else known.count),
            last_ms=refused.wall_ms,
            handled=refused.handled,
        )


def _wrong_signature(received: Received) -> InvalidCredentials:
    signed = received.to.signed
    shown = "" if signed is None else signed.access_key[:USER_NAME_LENGTH_MAX]
    return InvalidCredentials(f"Check signature failed for accessKey={shown}")


def is_about_users(need: Need | AnyOf) -> bool:
    """True if a right on users is needed, which is enforced in every mode."""
    return isinstance(need, Need) and need.type is ResourceType.USER


def _changes(needs: Iterable[Need | AnyOf]) -> list[Need | AnyOf]:
    """Return the needs of a request that changes administration; none for any other request.

    It needs Create, Update or Delete. A send needs Pub, and Create only for a topic that it
    creates; progress of consumers needs Sub.
    """
    return [
        need
        for need in needs
        if any(
            not _CHANGES.isdisjoint(one.actions)
            for one in (need.needs if isinstance(need, AnyOf) else (need,))
        )
    ]


def _allowed_change(
    received: Received, user: str, changes: Sequence[Need | AnyOf], by: str
) -> AccessDecided:
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return AccessDecided(
        user,
        received.address,
        type(received.request).__name__,
        f"{changes[0]}{more}",
        by[:AUDIT_TEXT_LENGTH_MAX],
        received.wall_ms,
        handled=True,
        console=received.console,
        allowed=True,
        door=received.noted_door,
    )


def check_names(needs: Iterable[Need | AnyOf]) -> None:
    """Raise BadRequest if a name is longer than that of any resource: decisions are remembered."""
    for need in needs:
        longest = max(len(one.name) for one in (need.needs if isinstance(need, AnyOf) else (need,)))
        if longest > AGGREGATE_LENGTH_MAX:
            raise BadRequest(
                f"a name has {longest} characters; at most {AGGREGATE_LENGTH_MAX} are allowed"
            )


def _refusal(received: Received, user: str, decision: Decision) -> Reply:
    """The reply to a refused request.

    Clients of RocketMQ 5 know code 16; older ones know code 1 and look for the exception's name.

    Its text does not say what the sender must not know: see `_text`.
    """
    text = _text(received.request, user, decision)
    to = received.to
    if to.peer.protocol == "tcp" and to.version < VERSION_5_0_0:
        name = "org.apache.rocketmq.acl.common.AclException"
        return Reply(to, Code.SYSTEM_ERROR, f"{name}: {text}")
    return Reply(to, Code.NO_PERMISSION, text)


def _text(request: Request, user: str, decision: Decision) -> str:
    """The text of a refusal, without what only its audit has.

    It does not name the topic of a message that the request names by its position: who may not read
    messages must not learn from positions which topics there are. Nor does it tell whether what the
    request would create exists.
    """
    need = decision.need
    if need is None:
        return decision.by
    if isinstance(request, _BY_POSITION) and need.type is not ResourceType.GROUP:
        return f"user {user} has no right to {' or '.join(need.actions)} on the message's topic"
    lacking = f"user {user} has no right to {need} ({decision.by})"
    if isinstance(request, _CREATE_OR_UPDATE) and need.actions[0] in (Action.CREATE, Action.UPDATE):
        either = need._replace(actions=(Action.CREATE, Action.UPDATE))
        return f"user {user} has no right to {either} ({decision.by})"
    if isinstance(request, _OF_BATCH) and need.type is ResourceType.CLUSTER:
        return f"no batch of query {request.query} was prepared by user {user}, and {lacking}"
    return lacking


# -- the gate of a name server --------------------------------------------------------------------

MEMBER = "a key of curveMembers"
NOT_A_MEMBER = "only the keys of curveMembers may register brokers"
NOT_YET = "no broker has sent its users since this name server started; repeat it in some seconds"


class MemberKeys(Protocol):
    """The CURVE keys of brokers; see kourou.transport.curve_keys."""

    def allows(self, key: str, /) -> bool:
        """Return whether a key is one of them."""
        ...

    @property
    def admits_all(self) -> bool:
        """Whether every key is one of them."""
        ...


class PublishedGate:
    """Decides for a name server, by the users of the brokers that registered with it.

    `members` None: there are no such keys, and nothing is decided. Members may send everything, and
    only they register brokers and send users; a member whose key is that of a node registers only
    its own broker. Any other request is handled if the users of one broker allow it. Until the
    first users arrive, what changes something is refused, and everything else is handled.

    Users are kept while their broker is away: what was decided once does not become open again.
    """

    def __init__(self, members: MemberKeys | None, secrets: SecretBox | None = None) -> None:
        self._members = members
        self._box = secrets
        self._tables: dict[tuple[str, str], tuple[str, RequestGate]] = {}
        self._sees: Sees = _everything
        self.allowed = 0
        self.refused = 0

    @property
    def open_because(self) -> str:
        """Why it handles requests of everybody; "" if it decides, or will.

        One broker that lets everybody in is enough, as one is enough to allow a request.
        """
        if self._members is None:
            return "curveMembers is not set"
        if self._members.admits_all:
            return "curveMembers=any"
        active = [(key, gate) for key, (_, gate) in self._tables.items() if gate.active]
        if self._tables and not active:
            return "no broker has users"
        for (cluster, broker), gate in active:
            if gate.open_because:
                return f"{gate.open_because} of broker {cluster}/{broker}"
        return ""

    def mark_of(self, peer: Peer, cluster: str, broker: str) -> str | None:
        """Return the mark of a broker's users, "" without any; None if `peer` must not send any."""
        if self._members is None or not peer.key:
            return None
        mark, _ = self._tables.get((cluster, broker), ("", None))
        return mark

    def publish(self, request: PutUsers, body: Buffer) -> None:
        """Replace the users of a broker. Raises NoPermission, DecodeError or BadRequest."""
        if self._members is None:
            raise NoPermission(
                "this name server takes no users: every client could send them",
                hint="set curveMembers",
            )
        access = decode_access(body)
        gate = RequestGate(access, self._box)
        self._tables[request.cluster_name, request.broker_name] = access.mark, gate

    def allows(self, received: Received, effects: list[Any]) -> bool:
        """Return whether a request may be handled; otherwise its reply is added to `effects`.

        Sets the request's user.
        """
        self._sees = _everything
        if self._members is None:
            return True
        requirement = _REQUIREMENTS.get(type(received.request))
        if requirement is None:
            text = not_supported(received.request.code)
            return self._refuse(received, effects, Code.REQUEST_CODE_NOT_SUPPORTED, text)
        for_brokers = requirement.caller is CallerKind.NODE
        if self._members.allows(received.to.peer.key):
            why = self._why_not_itself(received) if for_brokers else ""
            if why:
                return self._refuse(received, effects, Code.NO_PERMISSION, why)
            self._note_change(requirement, received, effects)
            return True
        if for_brokers:
            return self._refuse(received, effects, Code.NO_PERMISSION, NOT_A_MEMBER)
        if not self._tables and _changes(requirement.needs(received.request, NO_FACTS)):
            return self._refuse(received, effects, Code.SERVICE_NOT_AVAILABLE, NOT_YET)
        gates = [gate for _, gate in self._tables.values() if gate.active]
        return not gates or self._allows_one_of(gates, received, effects)

    def _note_change(
        self, requirement: Requirement, received: Received, effects: list[Any]
    ) -> None:
        """Note a change by a broker for the audit, if there are users."""
        if not any(gate.active for _, gate in self._tables.values()):
            return
        if changes := _changes(requirement.needs(received.request, NO_FACTS)):
            effects.append(_allowed_change(received, ANONYMOUS, changes, MEMBER))

    def _why_not_itself(self, received: Received) -> str:
        """Why a member must not send what is for brokers: its key is that of another one."""
        request: Any = received.request
        ours = f"{request.cluster_name}/{request.broker_name}/"
        for _, gate in self._tables.values():
            node = gate.node_of(received.to.peer.key)
            if node and not node.startswith(ours):
                return f"the key is that of node {node}, which is not one of {ours}"
        return ""

    def _allows_one_of(
        self, gates: Sequence[RequestGate], received: Received, effects: list[Any]
    ) -> bool:
        """Decide by each table in turn, until one allows it.

        The refusal is that of a table which knows the user, if there is one.
        """
        refusal: list[Any] = []
        for gate in gates:
            received.user = received.console = ""
            replies: list[Any] = []
            if gate.allows(received, replies):
                self.allowed += 1
                self._sees = gate.sees(received)
                effects += replies  # notes for the audit
                return True
            if not refusal or received.user not in ("", ANONYMOUS):
                refusal = replies
        self.refused += 1
        effects += refusal
        return False

    def _refuse(self, received: Received, effects: list[Any], code: int, why: str) -> bool:
        self.refused += 1
        effects.append(
            AccessDecided(
                ANONYMOUS,
                received.to.peer.address[0],
                type(received.request).__name__,
                "",
                why,
                received.wall_ms,
                handled=False,
                door=received.noted_door,
            )
        )
        effects.append(Reply(received.to, code, why))
        return False

    def seen(self, topics: Iterable[str]) -> list[str]:
        """Return what of a list of topics the sender of the last allowed request may see."""
        return [one for one in topics if self._sees(ResourceType.TOPIC, one)]


class DecisionCounts(Protocol):
    """How many requests were allowed and refused."""

    @property
    def allowed(self) -> int:
        """Requests that were allowed."""
        ...

    @property
    def refused(self) -> int:
        """Requests that were refused."""
        ...


def decision_counts(
    labels: Mapping[str, str], gate: DecisionCounts
) -> list[tuple[dict[str, str], int]]:
    """Return the samples of the metric of decisions."""
    return [
        ({"decision": "allowed", **labels}, gate.allowed),
        ({"decision": "refused", **labels}, gate.refused),
    ]
