"""Decides every request before a handler gets it: who sends it, what it needs, and whether it may.

State: soft: decrypted secrets and decisions of the current table, counters of refusals.

Invariants:
- a request whose type declares no needs is refused
- what this process connected to is trusted
- on the listener for replicas nothing is handled unless it admits only the keys of curveMembers;
  then the requests of replicas are trusted, and those that they forward are decided as the client's
- the user comes from this request's signature, or from the key of its connection, and is looked up
  for every request: what is revoked is refused at once
- a decision uses the values that the handler will use, parsed from the bytes that were signed
- a list, and every total in its reply, has only what its handler gets from `sees`
- a request on behalf of a user is decided by the rights of that user; only a console of the user
  may send it, in every mode, and never about users
- what is kept of a refused request is bounded: a name in it that is longer than any valid one is
  refused without being remembered
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from kourou.access.authorizer import Authorizer, Decision
from kourou.access.model import (
    ALL,
    ANONYMOUS,
    AccessMode,
    Action,
    AnyOf,
    Need,
    ResourceType,
    UserKind,
    UserRole,
)
from kourou.access.requirements import CallerKind, Requirement, need_of_topic
from kourou.access.signature import ACCESS_KEY, verify
from kourou.engine.context import BrokerContext
from kourou.engine.effects import AccessRefused, Effect
from kourou.engine.groups.membership import GroupClient
from kourou.engine.ports import SecretBox
from kourou.errors import BadRequest, Code, DecodeError, KourouError, NoPermission, Rejected
from kourou.model.limits import (
    ACCESS_DECISIONS_MAX,
    ACCESS_REFUSALS_MAX,
    AGGREGATE_LENGTH_MAX,
    AUDIT_TEXT_LENGTH_MAX,
    USER_NAME_LENGTH_MAX,
)
from kourou.model.names import CHECK_GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from kourou.protocol.bodies.access_bodies import Refusal
from kourou.protocol.bodies.config_bodies import decode_group_config
from kourou.protocol.bodies.heartbeat_body import decode_heartbeat, decode_subscription_check
from kourou.protocol.bodies.lists_body import decode_lock_batch
from kourou.protocol.messages import broker_admin, filter_server, groups, pulls, replication, sends
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.record.message_record import decode_record, real_target
from kourou.protocol.record.properties import encode_properties
from kourou.protocol.request import Answerer, Request
from kourou.protocol.table import REQUESTS, not_supported
from kourou.protocol.wire.remoting import VERSION_5_0_0
from kourou.runtime.core import MEMBERS, OWN_LINKS, Notify, Origin, Received, Reply

BETWEEN_REPLICAS = frozenset(
    spec.header for spec in REQUESTS.values() if Answerer.MEMBER in spec.answered_by
)
"""The requests that replicas of a log send for themselves."""

REPLICAS_UNKNOWN = (
    "this log has users, and curveMembers does not name the keys of its replicas, which would read "
    "all of it"
)
REPLICAS_UNKNOWN_HINT = (
    "set curveMembers to a folder with the public keys of this broker and its replicas, at each of "
    "them; without replicas set replicationEnable=false"
)
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
_MOVED = frozenset({HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, CHECK_GIVEN_UP_TOPIC})
_OTHERS = ("others", "", "others", "")


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
_PUB_ON_ALL = Need(ResourceType.TOPIC, ALL, (Action.PUB,))
_USERS = Need(ResourceType.USER, ALL, (Action.GET,))
_EVERYTHING = Need(ResourceType.CLUSTER, "", (Action.GET,))
_ANY_ACTION = tuple(Action)

Sees = Callable[[ResourceType, str], bool]
"""(TOPIC or GROUP, name) -> whether a list that goes to a user may have it."""


def _everything(_kind: ResourceType, _name: str) -> bool:
    return True


class _Credentials(Exception):
    """The credentials of a request are not valid."""


class _NotRepresented(Exception):
    """A request names a user on whose behalf its sender may not send it."""


class AccessGate:
    """Decides for one broker's core."""

    def __init__(
        self, context: BrokerContext, secrets: SecretBox | None, *, knows_replicas: bool
    ) -> None:
        """`knows_replicas`: the listener for replicas, if any, admits only their keys."""
        self._context = context
        self._access = context.control.access
        self._box = secrets
        self._knows_replicas = knows_replicas
        self._authorizer = Authorizer()
        self._version = -1
        self._secrets: dict[str, str] = {}
        self._refusals: dict[tuple[str, str, str, str], Refusal] = {}
        self._usually_allowed: set[tuple[object, ...]] = set()
        self._generation: object = None
        self._rights: object = None
        self.allowed = 0
        self.refused = 0

    @property
    def active(self) -> bool:
        """Whether requests are decided at all: there are users."""
        return bool(self._access.users)

    @property
    def authorizer(self) -> Authorizer:
        """The authorizer, with the current table."""
        if self._version != self._access.version:
            self._version = self._access.version
            self._authorizer = Authorizer(self._access.table)
            self._secrets.clear()
        return self._authorizer

    def rights_changed(self, wall_ms: int) -> bool:
        """Whether users, policies, or what is in force of them, changed since the last call."""
        if not self.active:
            return False
        before, self._rights = self._rights, self.authorizer.generation(wall_ms)
        return self._rights is not before

    def refusals(self) -> list[Refusal]:
        """What was refused since the start, by kind; the most frequent first."""
        return sorted(self._refusals.values(), key=lambda one: -one.count)

    def allows(self, received: Received, effects: list[Effect]) -> bool:
        """Return whether a request may be handled; otherwise its reply is added to `effects`.

        Sets the request's user.
        """
        peer = received.to.peer
        if peer.protocol in OWN_LINKS:
            return True
        if peer.listener == MEMBERS:
            if not self._knows_replicas:
                return self._refuse_replica(received, effects)
            if type(received.request) in BETWEEN_REPLICAS:
                return True
        requirement = _REQUIREMENTS.get(type(received.request))
        if requirement is None or requirement.caller is CallerKind.SERVER:
            text = not_supported(received.request.code)
            effects.append(Reply(received.to, Code.REQUEST_CODE_NOT_SUPPORTED, text))
            return False
        mode = AccessMode.ENFORCE if requirement.always else self._access.mode
        if mode is AccessMode.OFF and not received.on_behalf_of:
            return True
        user = ANONYMOUS
        try:
            user = received.user = self._user(received)
            if named := self._named(received):
                user = self._represent(received, named, requirement)
            if mode is AccessMode.OFF:
                return True
        except _Credentials as error:
            decision = Decision(False, str(error))
        except _NotRepresented as error:
            decision = Decision(False, str(error))
            mode = AccessMode.ENFORCE
        else:
            usual = self._usual(user, received)
            if usual in self._usually_allowed:
                self.allowed += 1
                return True
            decision = self._decide(user, requirement, received)
            if decision.allowed:
                if usual is not None:
                    self._remember(usual)
                self.allowed += 1
                return True
        return self._refuse(received, user, decision, effects, observed=mode is AccessMode.OBSERVE)

    def may_act_as(self, received: Received, client_id: str, effects: list[Effect]) -> bool:
        """Return whether the sender may use a client ID; otherwise as `allows` does.

        It may not while another user is connected with that ID. A handler asks when it is about to
        use the ID, because an earlier request of the same batch may have connected that user.
        """
        user, members = received.user, self._context.members
        if not user or not members.is_of_other_user(client_id, received.to.peer, user):
            return True
        decision = Decision(False, f"another user is connected with the client ID {client_id}")
        observed = self._access.effective_mode is not AccessMode.ENFORCE
        return self._refuse(received, user, decision, effects, observed=observed)

    def sees(self, received: Received) -> Sees:
        """Return what of a list is for the sender: topics and groups on which it has any right.

        Everything is for those with Get on the cluster, and where nothing is enforced.
        """
        if not self.sender(received) or self._decided(received, _EVERYTHING).allowed:
            return _everything

        def has_right(kind: ResourceType, name: str) -> bool:
            if kind is ResourceType.TOPIC:
                return self._decided(received, need_of_topic(name, *_ANY_ACTION)).allowed
            return self._decided(received, Need(kind, name, _ANY_ACTION)).allowed

        return has_right

    def sender(self, received: Received) -> str:
        """Return the user who sends a request; "" where decisions are not enforced."""
        enforced = self._access.effective_mode is AccessMode.ENFORCE
        return received.user if enforced else ""

    def check_replicas(self) -> None:
        """Raise Rejected if the first user would cut off the replicas, whose keys are not known."""
        if not self.active and not self._knows_replicas and self._context.control.replicas.epochs:
            raise Rejected(
                "the first user cannot be created: from then on, replicas prove who they are, and "
                "curveMembers does not name their keys",
                hint=REPLICAS_UNKNOWN_HINT,
            )

    def need_administrator(self, received: Received) -> None:
        """Raise NoPermission unless an administrator sends it, or nothing is decided."""
        if not self.active:
            return
        if received.console:
            raise NoPermission("a console does not change users", hint="use kourou user")
        try:
            self._identify(received)
        except _Credentials as error:
            raise NoPermission(str(error)) from error
        account = self._access.users.get(received.user)
        if account is None or not account.enabled or not account.administers:
            raise NoPermission(
                "only an administrator may change roles, policies, and users who have them",
                hint="a right to change users does not contain other rights",
            )

    def need(self, received: Received, need: Need) -> None:
        """Raise NoPermission unless the sender has a right, or decisions are not enforced."""
        decision = self.may(received, need)
        if not decision.allowed:
            raise NoPermission(f"user {received.user} has no right to {need} ({decision.by})")

    def may(self, received: Received, need: Need) -> Decision:
        """Return whether the sender has a right, or decisions are not enforced."""
        if self._access.effective_mode is not AccessMode.ENFORCE:
            return Decision(True, "decisions are not enforced")
        return self._decided(received, need)

    def credential_of(self, name: str, secret: str | None) -> str:
        """Return the id of a user's secret; "" if the user may not sign in, or has another secret.

        With `secret` None any secret will do. An unknown name takes as long as a wrong secret.
        """
        stored = self._secret(name)
        given = stored if secret is None else secret
        same = hmac.compare_digest(
            hmac.digest(b"", (stored or "").encode(), "sha256"),
            hmac.digest(b"", (given or "").encode(), "sha256"),
        )
        account = self._access.users.get(name)
        if not same or stored is None or account is None or not account.signs_in:
            return ""
        return self._access.secrets[name].nonce.hex()

    def may_see_users(self, received: Received) -> bool:
        """True if the sender may see users and policies in the history."""
        if not self.active:
            return True
        if received.console:
            return False
        with suppress(_Credentials):
            self._identify(received)
        return self._decided(received, _USERS).allowed

    def _decided(self, received: Received, need: Need | AnyOf) -> Decision:
        user = received.user or ANONYMOUS
        return self.authorizer.decide(user, (need,), received.source, received.wall_ms)

    def may_know(self, member: GroupClient, topic: str, wall_ms: int) -> bool:
        """True if a producer may get messages to a topic that the broker sends without a request.

        `topic` "" stands for all topics.
        """
        if self._access.effective_mode is not AccessMode.ENFORCE:
            return True
        need = need_of_topic(topic, Action.PUB) if topic else _PUB_ON_ALL
        user = member.user or ANONYMOUS
        return self.authorizer.decide(user, (need,), member.source, wall_ms).allowed

    # -- the requests of every second -------------------------------------------------------------

    def _usual(self, user: str, received: Received) -> tuple[object, ...] | None:
        """Return what alone decides a send to an existing topic, or a pull; None for all others.

        Forgets what was allowed if the table has changed, or a grant has ended.
        """
        generation = self.authorizer.generation(received.wall_ms)
        if generation is not self._generation:
            self._generation = generation
            self._usually_allowed.clear()
        request, source = received.request, received.source
        match request:
            case sends.SendMessage(topic=topic) if topic in self._context.control.topics:
                return (sends.SendMessage, user, source, topic)
            case sends.SendRecords(targets=[target]) if (
                target.topic in self._context.control.topics
            ):
                return (sends.SendRecords, user, source, target.topic)
            case pulls.PullMessage(consumer_group=group, topic=topic):
                return (pulls.PullMessage, user, source, topic, group)
        return None

    def _remember(self, usual: tuple[object, ...]) -> None:
        if len(self._usually_allowed) >= ACCESS_DECISIONS_MAX:
            self._usually_allowed.clear()
        self._usually_allowed.add(usual)

    # -- who ------------------------------------------------------------------------------------

    def _identify(self, received: Received) -> None:
        """Set the user of a request that was not decided because of the mode.

        Raises _Credentials if they are not valid.
        """
        if not received.user:
            received.user = self._user(received)

    def _user(self, received: Received) -> str:
        """Raises _Credentials if they are not valid.

        A replica has checked those of the requests that it forwards.
        """
        if received.to.peer.listener == MEMBERS:
            origin = Origin.parse(received.on_behalf_of)
            received.forwarded_from = origin.address
            return origin.sender or ANONYMOUS
        fields = received.to.signed
        if fields is not None:
            name = fields.get(ACCESS_KEY) or ""
            secret = self._secret(name)
            # An unknown name takes as long as a wrong signature, and gets the same text.
            if not verify(fields, received.body, secret or "") or secret is None:
                shown = name[:USER_NAME_LENGTH_MAX]
                raise _Credentials(f"Check signature failed for accessKey={shown}")
            return name
        key = received.to.peer.key
        if key:
            return self._access.user_of_key.get(key, ANONYMOUS)
        return ANONYMOUS

    @staticmethod
    def _named(received: Received) -> str:
        """The user on whose behalf the sender sends it; "" for none."""
        if received.to.peer.listener == MEMBERS:
            return Origin.parse(received.on_behalf_of).named
        return received.on_behalf_of

    def _represent(self, received: Received, name: str, requirement: Requirement) -> str:
        """Make a console's request one of the user `name`.

        Raises _NotRepresented if the sender may not send it on behalf of that user.
        """
        sender = received.user
        account, named = self._access.users.get(sender), self._access.users.get(name)
        if account is None or not account.is_console_of(name, received.wall_ms):
            raise _NotRepresented(f"user {sender} may not send on behalf of user {name}")
        if requirement.caller is not CallerKind.USER:
            raise _NotRepresented("it is not sent on behalf of a user")
        if named is None or not named.signs_in:
            raise _NotRepresented(f"user {name} cannot sign in")
        received.user, received.console = name, sender
        return name

    def _secret(self, name: str) -> str | None:
        self.authorizer  # noqa: B018 - forgets the secrets of an older table
        found = self._secrets.get(name)
        if found is None:
            sealed = self._access.secrets.get(name)
            if sealed is None or self._box is None:
                return None
            try:
                found = self._secrets[name] = self._box.open(name, sealed)
            except DecodeError:
                return None
        return found

    # -- whether ----------------------------------------------------------------------------------

    def _decide(self, user: str, requirement: Requirement, received: Received) -> Decision:
        if requirement.caller is CallerKind.NODE:
            return self._decide_node(user)
        if requirement.caller is CallerKind.CONSOLE:
            return self._decide_console(user, received)
        try:
            facts = _RequestFacts(self._context, received)
            needs: Sequence[Need | AnyOf] = requirement.needs(received.request, facts)
            _check_names(needs)
        except KourouError as error:
            return Decision(False, str(error))
        if not needs and user == ANONYMOUS and not self._anonymous_has_policies():
            return Decision(False, "the request has no credentials")
        if received.console and any(map(_is_about_users, needs)):
            return Decision(False, "a console sends no requests about users")
        return self.authorizer.decide(user, needs, received.source, received.wall_ms)

    def _decide_console(self, user: str, received: Received) -> Decision:
        account = self._access.users.get(user)
        name = getattr(received.request, "username", "")
        if account is None or not account.is_console_of(name, received.wall_ms):
            return Decision(False, f"only a console of user {name} may send it")
        return Decision(True, f"role {UserRole.CONSOLE}")

    def _decide_node(self, user: str) -> Decision:
        account = self._access.users.get(user)
        if account is None or account.kind is not UserKind.NODE or not account.enabled:
            return Decision(False, "only a node of this cluster may send it")
        policy = self._context.policy
        here = f"{policy.cluster_name}/{policy.broker_name}/"
        if not account.node.startswith(here):
            return Decision(False, f"user {user} is the node {account.node}, and this is {here}")
        return Decision(True, f"node {account.node}")

    def _anonymous_has_policies(self) -> bool:
        return any(one.user == ANONYMOUS for one in self._access.policies.values())

    # -- refusals ---------------------------------------------------------------------------------

    def _refuse_replica(self, received: Received, effects: list[Effect]) -> bool:
        """Refuse a request on the listener for replicas; a follower is told why. Returns False."""
        decision = Decision(False, REPLICAS_UNKNOWN)
        if isinstance(received.request, replication.Attach):
            refusal = replication.Attached(
                broker_name=self._context.policy.broker_name,
                broker_id=received.request.broker_id,
                epoch=0,
                refusal=f"{REPLICAS_UNKNOWN} ({REPLICAS_UNKNOWN_HINT})",
            )
            effects.append(Notify(received.to.peer, refusal))
        return self._refuse(received, ANONYMOUS, decision, effects, observed=False)

    def _refuse(
        self,
        received: Received,
        user: str,
        decision: Decision,
        effects: list[Effect],
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
    ) -> AccessRefused:
        """Count a refusal; returns it for the audit."""
        self.refused += 1
        need = "" if decision.need is None else str(decision.need)
        refused = AccessRefused(
            user,
            received.address,
            type(received.request).__name__,
            need,
            decision.by[:AUDIT_TEXT_LENGTH_MAX],
            received.wall_ms,
            handled=observed,
            console=received.console,
        )
        kind = (user, refused.source, refused.request, need)
        if kind not in self._refusals and len(self._refusals) >= ACCESS_REFUSALS_MAX:
            kind = _OTHERS
        known = self._refusals.get(kind)
        self._refusals[kind] = Refusal(
            user=kind[0],
            source=kind[1],
            request=kind[2],
            need=kind[3],
            by=refused.by,
            count=1 if known is None else known.count + 1,
            last_ms=refused.wall_ms,
            handled=observed,
        )
        return refused


def _is_about_users(need: Need | AnyOf) -> bool:
    return isinstance(need, Need) and need.type is ResourceType.USER


def _check_names(needs: Iterable[Need | AnyOf]) -> None:
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


class _RequestFacts:
    """Implements kourou.access.requirements.Facts for a request at this broker."""

    __slots__ = ("_context", "_received")

    def __init__(self, context: BrokerContext, received: Received) -> None:
        self._context = context
        self._received = received

    def exists(self, kind: ResourceType, name: str) -> bool:
        """True if the topic, group or filter exists here."""
        control = self._context.control
        if kind is ResourceType.TOPIC:
            return name in control.topics
        if kind is ResourceType.GROUP:
            return name in control.groups
        group, _, own = name.partition("/")
        return control.filters.get(group, own) is not None

    def began(self, query: str) -> bool | None:
        """Whether the sender prepared the first batch of a query; None if that is not known."""
        known = self._context.control.batches.table.get(query)
        return known.user == self._received.user if known is not None and known.user else None

    def record_topic(self) -> str:
        """The topic of the message that the request names; "" if there is none."""
        position = _position(self._received.request)
        if position is None or not 0 <= position < self._context.confirmations.confirmed:
            return ""
        try:
            record = decode_record(self._stored(position), decompress=False)
        except KourouError:
            return ""
        if record.topic in _MOVED:
            target = real_target(encode_properties(record.properties))
            return "" if target is None else target[0]
        return record.topic

    def _stored(self, position: int) -> memoryview:
        """The record at a position. Raises KourouError if there is none."""
        try:
            return self._context.view.record_at(position)
        except Rejected:
            # Appended, with its reply sent, and not in the log's files yet.
            raw = self._context.appends.unprojected_at(position)
            if raw is None:
                raise
            return raw

    def groups(self) -> Iterable[str]:
        """The consumer groups in the body."""
        body = b"".join(self._received.body)
        match self._received.request:
            case groups.HeartBeat():
                return [one.group for one in decode_heartbeat(body).consumers]
            case groups.CheckClientConfig():
                return [decode_subscription_check(body).group]
            case groups.LockBatchMq() | groups.UnlockBatchMq():
                return [decode_lock_batch(body).group]
            case groups.UpdateAndCreateSubscriptionGroup():
                return [decode_group_config(body).name]
        return ()

    def topics(self) -> Iterable[str]:
        """The topics in the body."""
        body = b"".join(self._received.body)
        match self._received.request:
            case groups.HeartBeat():
                return [
                    subscription.topic
                    for consumer in decode_heartbeat(body).consumers
                    for subscription in consumer.subscriptions
                ]
            case groups.CheckClientConfig():
                return [decode_subscription_check(body).subscription.topic]
            case groups.LockBatchMq() | groups.UnlockBatchMq():
                return [one.topic for one in decode_lock_batch(body).queues]
        return ()


def _position(request: Request) -> int | None:
    """The log position of the message that a request names; None if it names none."""
    match request:
        case sends.ConsumerSendMsgBack() | pulls.ViewMessageById():
            return request.offset
        case sends.EndTransaction():
            return request.commit_log_offset
        case sends.ResumeCheckHalfMessage() | groups.ConsumeMessageDirectly():
            if not request.msg_id:
                return None
            return decode_offset_id(request.msg_id)[1]
    return None
