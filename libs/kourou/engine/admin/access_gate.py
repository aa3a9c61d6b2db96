"""Decides every request before a handler gets it, by the broker's own table of users.

State: soft, as that of kourou.authorization.request_gate, whose invariants hold here, too.

Invariants:
- what this process connected to is trusted
- on the listener for replicas nothing is handled unless it admits only the keys of curveMembers;
  then the requests of replicas are trusted, and those that they forward are decided as the client's
- whether a filter server's client may send a request is decided only for nodes of this broker
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kourou.access.api_token import sealed_for
from kourou.access.authorizer import Decision
from kourou.access.model import (
    ALL,
    ANONYMOUS,
    AccessMode,
    Action,
    AnyOf,
    Door,
    Need,
    ResourceType,
    UserKind,
)
from kourou.access.requirements import Facts, need_of_topic
from kourou.access.signature import same_secret
from kourou.authorization.access_uses import AccessUses, Needs, Use, UsesCounted
from kourou.authorization.audit import AccessDecided
from kourou.authorization.request_gate import (
    InvalidCredentials,
    RequestGate,
    SecretBox,
    is_about_users,
)
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.groups.membership import GroupClient
from kourou.errors import Code, DecodeError, KourouError, NoPermission, Rejected
from kourou.model.names import (
    CHECK_GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    reply_topic,
)
from kourou.protocol.bodies.access_bodies import ReportedRefusal
from kourou.protocol.bodies.config_bodies import decode_group_config
from kourou.protocol.bodies.heartbeat_body import decode_heartbeat, decode_subscription_check
from kourou.protocol.bodies.lists_body import decode_lock_batch
from kourou.protocol.messages import groups, pulls, replication, sends
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.record.message_record import decode_record, real_target
from kourou.protocol.record.properties import encode_properties
from kourou.protocol.request import Answerer, Request
from kourou.protocol.table import REQUESTS
from kourou.runtime import MEMBERS, OWN_LINKS, Notify, Origin, Received, Reply

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

USERS_UNCOPIED = (
    "this replica does not know who may do what: it began with an empty log, and has not copied "
    "enough of its leader's"
)

USES_INTERVAL_MS = 60_000
"""How often the counts of requests are written."""

_MOVED = frozenset({HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, CHECK_GIVEN_UP_TOPIC})
_PUB_ON_ALL = Need(ResourceType.TOPIC, ALL, (Action.PUB,))
_USERS = Need(ResourceType.USER, ALL, (Action.GET,))


class AccessGate(RequestGate):
    """Decides for one broker's core."""

    def __init__(
        self, context: BrokerContext, secrets: SecretBox | None, *, knows_replicas: bool
    ) -> None:
        """`knows_replicas`: the listener for replicas, if any, admits only their keys."""
        super().__init__(context.control.access, secrets)
        # What a former gate remembers is counted in the former gate.
        self._remembered.clear()
        self._knows_replicas = knows_replicas
        self._context = context
        self._rights: object = None
        self._uses = AccessUses()
        self._uses_taken_ms: int | None = None
        self._refused_later: list[AccessDecided] = []

    @property
    def examines(self) -> bool:
        """Whether `allows` has to be asked: requests are decided, or refused for now."""
        return self.active or self._access.uncopied

    def still_allows(self, received: Received, effects: list[Any]) -> bool:
        """As `allows`, for a request that was allowed and then waited.

        That it is handled was noted for the audit already; that it is not any more is added.
        """
        again: list[Any] = []
        allowed = self.allows(received, again)
        effects += [one for one in again if not (isinstance(one, AccessDecided) and one.handled)]
        return allowed

    def decides_for(self, node: Received, client: Received) -> bool:
        """Return whether the request of a client of a filter server is decided; else all may.

        `node` is the filter server's request about it. Raises NoPermission if its sender is not a
        node of this broker, unless refusals of the client's requests are only observed.
        """
        mode = self._mode(client)
        if not self.active or (mode is AccessMode.OFF and not client.on_behalf_of):
            return False
        try:
            self._identify(node)
            decision = self._decide_node(node.user)
        except InvalidCredentials as error:
            decision = Decision(False, str(error))
        if decision.allowed:
            return True
        if mode is AccessMode.ENFORCE or client.on_behalf_of:
            raise self._lacks(node, decision, decision.by)
        return False

    def rights_changed(self, wall_ms: int) -> bool:
        """Whether users, policies, or what is in force of them, changed since the last call."""
        if not self.active:
            return False
        before, self._rights = self._rights, self.authorizer.generation(wall_ms)
        return self._rights is not before

    def counted(self, wall_ms: int) -> list[Effect]:
        """Return which rights requests needed since the last time, once a minute."""
        if not self.active:
            return []
        if self._uses_taken_ms is None:
            self._uses_taken_ms = wall_ms
        if 0 <= wall_ms - self._uses_taken_ms < USES_INTERVAL_MS:
            return []
        self._uses_taken_ms = wall_ms
        counted = self.counted_last(wall_ms)
        if self._uses.full:
            self._uses.forget()
            self._remembered.clear()
        return counted

    def counted_last(self, wall_ms: int) -> list[Effect]:
        """Return the same at the end, whenever the last time was."""
        lines = self._uses.take()
        return [UsesCounted(lines, wall_ms)] if lines else []

    def may_act_as(self, received: Received, client_id: str, effects: list[Effect]) -> bool:
        """Return whether the sender may use a client ID; otherwise as `allows` does.

        It may not while another user is connected with that ID. A handler asks when it is about to
        use the ID, because an earlier request of the same batch may have connected that user.
        """
        user, members = received.user, self._context.members
        if not user or not members.is_of_other_user(client_id, received.to.peer, user):
            return True
        decision = Decision(False, f"another user is connected with the client ID {client_id}")
        observed = not self._enforces(received)
        return self._refuse(received, user, decision, effects, observed=observed)

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
            why = "a console does not change users"
            raise self._lacks(received, Decision(False, why), why, "use kourou user")
        try:
            self._identify(received)
        except InvalidCredentials as error:
            why = str(error)
            raise self._lacks(received, Decision(False, why), why) from error
        account = self._access.users.get(received.user)
        if account is None or not account.enabled or not account.administers:
            why = (
                "only an administrator may change roles, policies, credentials, and users who have"
                " rights"
            )
            hint = "a right to change users does not contain other rights"
            raise self._lacks(received, Decision(False, why), why, hint)

    def need(self, received: Received, need: Need | AnyOf) -> None:
        """Raise NoPermission unless the sender has a right, or decisions are not enforced."""
        decision = self.may(received, need)
        if not decision.allowed:
            text = f"user {received.user} has no right to {need} ({decision.by})"
            raise self._lacks(received, decision, text)

    def take_refused(self) -> list[AccessDecided]:
        """Return what handlers refused since the last call, for the audit."""
        taken, self._refused_later = self._refused_later, []
        return taken

    def _lacks(
        self, received: Received, decision: Decision, text: str, hint: str = ""
    ) -> NoPermission:
        """Count what a handler refuses; return the error that says so."""
        user = received.user or ANONYMOUS
        self._refused_later.append(self._refused(received, user, decision, observed=False))
        return NoPermission(text, hint=hint)

    def may(self, received: Received, need: Need | AnyOf) -> Decision:
        """Return whether the sender has a right, or decisions are not enforced.

        A right on users is needed in every mode.
        """
        if self.active and is_about_users(need):
            with suppress(InvalidCredentials):
                self._identify(received)
        elif not self._enforces(received):
            return Decision(True, "decisions are not enforced")
        return self._decided(received, need)

    def credential_of(self, name: str, secret: str | None) -> str:
        """Return the id of a user's secret; "" if the user may not sign in, or has another secret.

        With `secret` None any secret will do. An unknown name takes as long as a wrong secret.
        """
        key = self._signing_key(name)
        stored = None if key is None else key.secret
        given = stored if secret is None else secret
        same = same_secret(stored or "", given or "")
        account = self._access.users.get(name)
        if not same or stored is None or account is None or not account.signs_in:
            return ""
        return self._access.secrets[name].nonce.hex()

    def console_refused(self, received: Received, decision: Decision) -> AccessDecided:
        """Count that a console is about to refuse its user a right; return it for the audit."""
        return self._refused(received, received.user or ANONYMOUS, decision, observed=False)

    def sign_in_refused(
        self,
        received: Received,
        name: str,
        why: str = "the secret is wrong, or the user may not sign in",
    ) -> list[Effect]:
        """Note for the audit that a console asked about a credential that is wrong; needs users.

        The address is the console's; it does not tell that of its caller.
        """
        if not self.active:
            return []
        return [
            AccessDecided(
                name,
                received.address,
                type(received.request).__name__,
                "",
                why,
                received.wall_ms,
                handled=False,
                console=received.user,
                door=Door.HTTP,
            )
        ]

    def reported(
        self, received: Received, refusals: Iterable[ReportedRefusal]
    ) -> list[AccessDecided]:
        """Count what a console or a filter server refused itself; return it for the audit.

        Without users nothing is noted, and its sender is not known. A console that must not speak
        for a user does not name it here, either.
        """
        if not self.active:
            return []
        found = [
            AccessDecided(
                self._reported_user(received, one.user),
                one.source,
                one.request,
                "",
                one.by,
                received.wall_ms,
                handled=False,
                console=received.user,
                door=one.door or "",
                count=one.count,
            )
            for one in refusals
        ]
        for one in found:
            self._count(one)
        return found

    def _reported_user(self, received: Received, name: str) -> str:
        users, owner = self._access.users, name.partition(":")[0]
        reporter = users.get(received.user)
        if owner not in users or reporter is None or reporter.kind is UserKind.NODE:
            return name
        return name if reporter.is_console_of(owner, received.wall_ms) else ANONYMOUS

    def owner_of(self, subject: str) -> str:
        """Return the user who may sign in by certificates with a subject; "" if there is none."""
        name = self._access.user_of_subject.get(subject, "")
        account = self._access.users.get(name)
        return name if account is not None and account.signs_in else ""

    def password_of(self, name: str) -> str:
        """Return the hash of a password; "" if the user has none, or may not sign in."""
        account, sealed = self._access.users.get(name), self._access.passwords.get(name)
        if account is None or not account.signs_in or sealed is None or self._box is None:
            return ""
        try:
            return self._box.open(sealed_for(name), sealed)
        except DecodeError:
            return ""

    def token_of(self, digest: str, wall_ms: int) -> tuple[str, str]:
        """Return the name of the token with a SHA-256, and why it does not count ("": it does).

        Both are empty if there is no such token.
        """
        token = self._access.token_of_digest(digest)
        if token is None:
            return "", ""
        account = self._access.users.get(token.user)
        if account is None or not account.signs_in:
            return token.name, f"user {token.user} is disabled, or may not use a console"
        return token.name, "the token has expired" if token.has_expired(wall_ms) else ""

    def may_see_users(self, received: Received) -> bool:
        """True if the sender may see users and policies in the history."""
        if self.active and received.console:
            return False
        return self.may(received, _USERS).allowed

    def may_know(self, member: GroupClient, topic: str, wall_ms: int) -> bool:
        """True if a producer may get messages to a topic that the broker sends without a request.

        `topic` "" stands for all topics.
        """
        if self._access.mode_of(member.door) is not AccessMode.ENFORCE:
            return True
        if self._access.unreadable:
            return False
        need = need_of_topic(topic, Action.PUB) if topic else _PUB_ON_ALL
        user = member.user or ANONYMOUS
        return self.authorizer.decide(user, (need,), member.source, wall_ms).allowed

    # -- what only a broker knows -----------------------------------------------------------------

    def _user(self, received: Received) -> str:
        """Raises InvalidCredentials if they are not valid.

        A replica has checked those of the requests that it forwards.
        """
        if received.to.peer.listener == MEMBERS:
            origin = Origin.parse(received.on_behalf_of)
            received.forwarded_from = origin.address
            return origin.sender or ANONYMOUS
        return super()._user(received)

    def _named(self, received: Received) -> str:
        if received.to.peer.listener == MEMBERS:
            return Origin.parse(received.on_behalf_of).named
        return received.on_behalf_of

    def _refuse_replica(self, received: Received, effects: list[Any]) -> bool:
        """Refuse a request on the listener for replicas, with the reason; return False."""
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

    def _facts(self, received: Received) -> Facts:
        return _RequestFacts(self._context, received)

    def _used(self, user: str, needs: Needs, received: Received) -> Use:
        if not needs:
            return Use()
        use = self._uses.of(user, needs, received.source)
        use.count += 1
        use.last_ms, use.source = received.wall_ms, received.source
        return use

    def _decide_node(self, user: str) -> Decision:
        """Only a node of this broker: a filter server of another one brings no consumers here."""
        decision = super()._decide_node(user)
        policy = self._context.policy
        here = f"{policy.cluster_name}/{policy.broker_name}/"
        if decision.allowed and not (node := self._access.users[user].node).startswith(here):
            return Decision(False, f"user {user} is the node {node}, and this is {here}")
        return decision

    def _claim(self, received: Received) -> tuple[object, ...] | None:
        """Return it for a send to one topic that exists, and for a pull.

        A send to a topic that does not exist needs one more right, and is noted for the audit.
        """
        request, group = received.request, ""
        if type(request) is sends.SendMessage:
            topic = request.topic
            if topic not in self._context.control.topics.table:
                return None
        elif type(request) is sends.SendRecords:
            if len(request.targets) != 1:
                return None
            topic = request.targets[0].topic
            if topic not in self._context.control.topics.table:
                return None
        elif type(request) is pulls.PullMessage:
            topic, group = request.topic, request.consumer_group
        else:
            return None
        peer, signed = received.to.peer, received.to.signed
        return (
            type(request),
            topic,
            group,
            None if signed is None else signed.access_key,
            received.on_behalf_of,
            peer.listener,
            peer.protocol,
            peer.address[0],
            peer.key,
            peer.subject,
        )

    def _examine(self, received: Received, effects: list[Any], *, forged: bool = False) -> bool:
        peer = received.to.peer
        if peer.protocol in OWN_LINKS:
            return True
        if self._access.uncopied:
            if peer.listener == MEMBERS and type(received.request) in BETWEEN_REPLICAS:
                return True
            hint = "retry, or use another replica"
            effects.append(
                Reply(received.to, Code.SERVICE_NOT_AVAILABLE, f"{USERS_UNCOPIED}; {hint}")
            )
            return False
        if peer.listener == MEMBERS:
            if not self._knows_replicas:
                return self._refuse_replica(received, effects)
            if type(received.request) in BETWEEN_REPLICAS:
                return True
        return super()._examine(received, effects, forged=forged)

    def _identify(self, received: Received) -> None:
        """Set the user of a request that was not decided because of the mode.

        Raises InvalidCredentials if they are not valid.
        """
        if not received.user:
            received.user = self._user(received)


class _RequestFacts:
    """Implements kourou.access.requirements.Facts for a request at this broker."""

    __slots__ = ("_context", "_named", "_received")

    def __init__(self, context: BrokerContext, received: Received) -> None:
        self._context = context
        self._received = received
        self._named: tuple[list[str], list[str]] | None = None

    def has_credentials(self) -> bool:
        """True unless the sender is anonymous."""
        return self._received.user != ANONYMOUS

    def reply_topic(self) -> str:
        """The topic for replies of this cluster."""
        return reply_topic(self._context.policy.cluster_name)

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
        return self._in_body()[0]

    def topics(self) -> Iterable[str]:
        """The topics in the body."""
        return self._in_body()[1]

    def _in_body(self) -> tuple[list[str], list[str]]:
        """The groups and topics in the body, which is decoded once."""
        if self._named is None:
            self._named = _named_in(self._received)
        return self._named

    def has_body(self) -> bool:
        """True if the body is not empty."""
        return any(map(len, self._received.body))


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


def _named_in(received: Received) -> tuple[list[str], list[str]]:
    """The groups and the topics that a request's body names. Raises KourouError."""
    match received.request:
        case groups.HeartBeat():
            consumers = decode_heartbeat(b"".join(received.body)).consumers
            topics = [each.topic for one in consumers for each in one.subscriptions]
            return [one.group for one in consumers], topics
        case groups.CheckClientConfig():
            check = decode_subscription_check(b"".join(received.body))
            return [check.group], [check.subscription.topic]
        case groups.LockBatchMq() | groups.UnlockBatchMq():
            locks = decode_lock_batch(b"".join(received.body))
            return [locks.group], [one.topic for one in locks.queues]
        case groups.UpdateAndCreateSubscriptionGroup():
            return [decode_group_config(b"".join(received.body)).name], []
    return [], []
