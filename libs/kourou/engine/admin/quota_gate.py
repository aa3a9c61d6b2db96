"""Enforces quotas: who used more than its share waits, or is refused for a moment.

A key is one unit of one user, topic or group. What it uses is charged to it as time: 100 messages
are 100 ms at 1000 messages/s. A key that has used more than QUOTA_BURST_MS owes the rest:

    owes nothing                  the request is handled
    owes up to QUOTA_DEBT_MS_MAX  the request is handled, and its sender waits that long
    owes more                     the request is refused with code 215 and the time to try again

So a client that sends one request after the other is slowed down, and only one that does not wait
for its replies is refused. A send is stored at once, and its reply waits; any other request waits
itself. A pull is charged when it returns messages, so the next one waits. Nothing waits for more
than a third of the request's time.

A user's connections are not owed: a connection belongs to each user that sends requests on it,
until it closes, and requests on one too many are refused.

State: soft: what each key owes, the connections of users that may have so many only, and the
requests and replies that wait. It is lost with the process; debts and connections are forgotten at
each change of a quota.

Invariants:
- in any period, a key gets at most its limit times (the period, QUOTA_BURST_MS and
  QUOTA_DEBT_MS_MAX together), and the request with which it went over
- what one user, topic or group owes delays only requests of it
- at most QUOTA_HELD_MAX requests and replies wait; without quotas nothing is computed
"""

from __future__ import annotations

import heapq
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from kourou.access.api_token import owner_of
from kourou.access.model import ANONYMOUS, AccessMode, UserKind
from kourou.engine.admin.access_gate import BETWEEN_REPLICAS, AccessGate
from kourou.engine.admin.config_table import ConfigTable
from kourou.engine.admin.quota_table import decide_put, decide_remove
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.inputs import Input
from kourou.errors import Code, Rejected
from kourou.model.limits import (
    BATCH_MESSAGES_MAX,
    QUOTA_BURST_MS,
    QUOTA_CONNECTION_RETRY_MS,
    QUOTA_DEBT_MS_MAX,
    QUOTA_DEBTS_MIN,
    QUOTA_HELD_MAX,
)
from kourou.model.quota import Quota, QuotaKind, QuotaUnit, quota_kind
from kourou.protocol.bodies.quota_bodies import encode_quotas
from kourou.protocol.messages.filter_server import CheckAccess
from kourou.protocol.messages.groups import HeartBeat, LockBatchMq, UnlockBatchMq, UnregisterClient
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.messages.quotas import FlowControlled, ListQuotas, RemoveQuota, SetQuota
from kourou.protocol.messages.sends import SendMessage, SendRecords, SendReplyMessage
from kourou.protocol.request import Request
from kourou.runtime import (
    MEMBERS,
    OWN_LINKS,
    Buffer,
    Disconnected,
    Received,
    Reply,
    ReplyTo,
    Tick,
)

_REPLY_WAITS = frozenset({SendMessage, SendRecords, SendReplyMessage, CheckAccess})
_ABOUT_QUOTAS = frozenset({SetQuota, RemoveQuota, ListQuotas})
_UNCOUNTED = _ABOUT_QUOTAS | {HeartBeat, UnregisterClient, LockBatchMq, UnlockBatchMq}
"""Not counted as requests: without heartbeats a client is taken for dead, RocketMQ's clients wait
for a lock for 1 s only, and who set a quota that is too small must be able to change it."""

_ENDS = "this broker stops, or has another role now; nothing was done"

_PUBLISHED = (QuotaUnit.PUBLISH_BYTES, QuotaUnit.PUBLISH_MESSAGES)
_FETCHED = (QuotaUnit.FETCH_BYTES, QuotaUnit.FETCH_MESSAGES)
_ITEM_MIN = 4


class QuotaOutcome(StrEnum):
    """What happens to a request of a key that owes something."""

    DELAYED = "delayed"
    REFUSED = "refused"
    DROPPED = "dropped"
    """Refused, and without a reply because it is one-way."""


class LimitKey(NamedTuple):
    """One unit of one user, topic or group."""

    kind: QuotaKind
    name: str
    unit: QuotaUnit


class RateLimiter:
    """What keys owe (GCRA: one time for each key, at which all that it used is paid).

    State: soft, bounded by the keys that were used in their last seconds: a key whose time has
    passed is the same as an unknown one.
    """

    __slots__ = ("_look_at", "_paid_ms")

    def __init__(self) -> None:
        self._paid_ms: dict[LimitKey, float] = {}
        self._look_at = QUOTA_DEBTS_MIN

    def __len__(self) -> int:
        return len(self._paid_ms)

    def owes_ms(self, now_ms: int, key: LimitKey) -> float:
        """Return what a key owes, in ms; 0 as long as it has used less than the burst."""
        return max(0.0, self._paid_ms.get(key, 0.0) - now_ms - QUOTA_BURST_MS)

    def charge(self, now_ms: int, key: LimitKey, amount: int, per_s: int) -> None:
        """Charge what a key used of its limit per second."""
        if amount <= 0:
            return
        if len(self._paid_ms) >= self._look_at:
            self._forget_paid(now_ms)
        paid_ms = self._paid_ms.get(key, 0.0)
        self._paid_ms[key] = max(paid_ms, float(now_ms)) + amount * 1_000 / per_s

    def clear(self) -> None:
        """Forget all debts."""
        self._paid_ms.clear()

    def _forget_paid(self, now_ms: int) -> None:
        """Drop the keys that owe nothing and have their whole burst. Amortized O(1) a charge."""
        self._paid_ms = {key: at for key, at in self._paid_ms.items() if at > now_ms}
        self._look_at = max(QUOTA_DEBTS_MIN, 2 * len(self._paid_ms))


class UserConnections:
    """Which connections users have open, as far as they are counted.

    State: soft, bounded by the connections that are open and the limits of their users.
    """

    __slots__ = ("_counts", "_users_of")

    def __init__(self) -> None:
        self._users_of: dict[int, set[str]] = {}
        self._counts: Counter[str] = Counter()

    def open(self, peer_id: int, user: str, limit: int) -> bool:
        """Return whether the user has this connection, or may have one more; then it is counted."""
        if user in self._users_of.get(peer_id, ()):
            return True
        if self._counts[user] >= limit:
            return False
        self._users_of.setdefault(peer_id, set()).add(user)
        self._counts[user] += 1
        return True

    def close(self, peer_id: int) -> None:
        """Forget a connection."""
        for user in self._users_of.pop(peer_id, ()):
            self._counts[user] -= 1
            if not self._counts[user]:
                del self._counts[user]

    def clear(self) -> None:
        """Forget all connections."""
        self._users_of.clear()
        self._counts.clear()


class _Charge(NamedTuple):
    """An amount that a request uses of a limit."""

    key: LimitKey
    amount: int
    per_s: int


_Use = tuple[QuotaKind, str, QuotaUnit, int]


class QuotaGate:
    """Enforces the quotas of one broker's core, and handles the requests about them."""

    def __init__(self, context: BrokerContext, access_gate: AccessGate) -> None:
        self._control = context.control
        self._access_gate = access_gate
        self._quotas = context.control.quotas
        self._access = context.control.access
        self._traffic = context.traffic
        self._pending_replies = context.pending_replies
        self._limiter = RateLimiter()
        self._connections = UserConnections()
        self._changes = self._quotas.changes
        self._due: dict[tuple[int, int], int] = {}
        self._held: list[tuple[int, int, Received | Reply]] = []
        self._sequence = 0
        self.counts: defaultdict[tuple[QuotaUnit, QuotaOutcome], int] = defaultdict(int)
        """Requests by unit of the largest debt, and what happened to them."""

    @property
    def active(self) -> bool:
        """Whether there are quotas, or something waits for one that was removed."""
        return bool(self._quotas.table or self._held)

    @property
    def configured(self) -> int:
        """The number of quotas."""
        return len(self._quotas.table)

    @property
    def held(self) -> int:
        """The number of requests and replies that wait."""
        return len(self._held)

    # -- requests about quotas --------------------------------------------------------------------

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            SetQuota: self.put_quota,
            RemoveQuota: self.remove_quota,
            ListQuotas: self.list_quotas,
        }

    def put_quota(self, now_ms: int, received: Received, request: SetQuota) -> list[Effect]:
        """Add or replace a quota (30064)."""
        limits: dict[str, int | None] = {one.value: getattr(request, one) for one in QuotaUnit}
        quota = Quota(kind=quota_kind(request.kind), name=request.name, **limits)
        events = decide_put(self._quotas, quota)
        return self._pending_replies.decided(now_ms, received, events)

    def remove_quota(self, now_ms: int, received: Received, request: RemoveQuota) -> list[Effect]:
        """Remove a quota (30065)."""
        events = decide_remove(self._quotas, quota_kind(request.kind), request.name)
        return self._pending_replies.decided(now_ms, received, events)

    def list_quotas(self, _now_ms: int, received: Received, _request: ListQuotas) -> list[Effect]:
        """Get all quotas (30066)."""
        return [Reply(received.to, body=(encode_quotas(self._quotas.table.values()),))]

    # -- requests of clients ----------------------------------------------------------------------

    def admit(self, now_ms: int, inputs: Sequence[Input], effects: list[Effect]) -> list[Input]:
        """Return what is handled now: requests whose time has come, and `inputs` but for those that
        wait or are refused. Replies of both kinds are added to `effects`.
        """
        if self._changes != self._quotas.changes:
            self._changes = self._quotas.changes
            self._limiter.clear()
            self._connections.clear()
        admitted: list[Input] = []
        while self._held and self._held[0][0] <= now_ms:
            waited = heapq.heappop(self._held)[2]
            if isinstance(waited, Reply):
                effects.append(waited)
            elif not self._access_gate.active or self._access_gate.still_allows(waited, effects):
                admitted.append(waited)
        for item in inputs:
            if type(item) is Received:
                if not self._admits(now_ms, item, effects):
                    continue
            elif type(item) is Disconnected:
                self._connections.close(item.peer.id)
                if self._held:
                    self._drop_peer(item.peer.id)
            elif type(item) is Tick and len(self._due) > QUOTA_DEBTS_MIN:
                # What has not got a reply by now does not have to wait for it any more.
                self._due = {name: due for name, due in self._due.items() if due > now_ms}
            admitted.append(item)
        return admitted

    def pace(self, now_ms: int, effects: list[Effect]) -> list[Effect]:
        """Return `effects` without the replies that must wait."""
        if not self._due:
            return effects
        passed: list[Effect] = []
        for effect in effects:
            if type(effect) is Reply:
                due_ms = self._due.pop(_name(effect.to), 0)
                if due_ms > now_ms and not effect.code and self._hold(due_ms, effect):
                    continue
            passed.append(effect)
        return passed

    def release(self) -> list[Effect]:
        """Return the replies that wait, and refusals of the requests that wait; the last call."""
        held, self._held = self._held, []
        return [
            waiting
            if isinstance(waiting, Reply)
            else Reply(waiting.to, Code.SERVICE_NOT_AVAILABLE, _ENDS)
            for _, _, waiting in sorted(held, key=lambda one: one[:2])
        ]

    def fetched(
        self, now_ms: int, received: Received, topic: str, group: str, messages: int, size: int
    ) -> None:
        """Charge a pull that returns messages; `size` is in bytes."""
        user = self._user(received)
        if user is None:
            return
        used = _uses(((user, topic, group),), _FETCHED, ((size, messages),))
        for key, amount, per_s in self._charges(used):
            self._limiter.charge(now_ms, key, amount, per_s)

    def check_new_topic(self, received: Received, name: str) -> None:
        """Raise Rejected if there is no such topic, and its sender may not create one more."""
        self._check_new(received, "topic", name, self._control.topics, QuotaUnit.TOPICS)

    def check_new_group(self, received: Received, name: str) -> None:
        """Raise Rejected if there is no such group, and its sender may not create one more."""
        self._check_new(received, "group", name, self._control.groups, QuotaUnit.GROUPS)

    def _check_new(
        self, received: Received, kind: str, name: str, table: ConfigTable[Any], unit: QuotaUnit
    ) -> None:
        user = None if name in table else self._user(received)
        limit = self._limit(QuotaKind.USER, user, unit) if user else None
        if user is None or limit is None:
            return
        count = table.created_by(user)
        if count >= limit:
            self.counts[unit, QuotaOutcome.REFUSED] += 1
            raise Rejected(
                f"{kind} {name} is not created: user {user} has created {count} "
                f"{unit.text} at this broker, and its quota is {unit.amount(limit)}",
                hint="delete one, or raise the quota: kourou quota set",
            )

    # -- deciding ---------------------------------------------------------------------------------

    def _admits(self, now_ms: int, received: Received, effects: list[Effect]) -> bool:
        """Return whether a request is handled now; otherwise it is held, or refused."""
        user = self._user(received)
        if user is None:
            return True
        limit = self._limit(QuotaKind.USER, user, QuotaUnit.CONNECTIONS)
        if (
            limit is not None
            and not self._connections.open(received.to.peer.id, user, limit)
            and type(received.request) not in _ABOUT_QUOTAS
        ):
            self._refuse_connection(received, user, limit, effects)
            return False
        return self._charged(now_ms, received, self._charges(_used(received, user)), effects)

    def admits_client(
        self,
        now_ms: int,
        question: Received,
        client: Received,
        fetched: tuple[int, int],
        effects: list[Effect],
    ) -> bool:
        """Return whether a client of a filter server may send it a request, as far as quotas go.

        `question` is the filter server's request about it: its reply waits for what the client
        owes, or is added to `effects` if the client owes too much. `fetched` are the bytes and the
        messages that its former pulls returned there, which count as those of the broker do: also
        if the request is refused. Connections are not counted.
        """
        user = self._user(client)
        if user is not None and isinstance(client.request, PullMessage) and any(fetched):
            request = client.request
            names = ((user, request.topic, request.consumer_group),)
            for key, amount, per_s in self._charges(_uses(names, _FETCHED, (fetched,))):
                self._limiter.charge(now_ms, key, amount, per_s)
        used = () if user is None else _used(client, user)
        return self._charged(now_ms, question, self._charges(used), effects)

    def _charged(
        self,
        now_ms: int,
        received: Received,
        charges: Sequence[_Charge],
        effects: list[Effect],
    ) -> bool:
        """Charge a request; return whether it is handled now, else it is held, or refused."""
        if not charges:
            return True
        owes_ms = self._limiter.owes_ms
        worst = max(charges, key=lambda one: owes_ms(now_ms, one.key))
        if owes_ms(now_ms, worst.key) > QUOTA_DEBT_MS_MAX:
            self._refuse(now_ms, received, worst, effects)
            return False
        for key, amount, per_s in charges:
            self._limiter.charge(now_ms, key, amount, per_s)
        worst = max(charges, key=lambda one: owes_ms(now_ms, one.key))
        wait_ms = self._wait_ms(now_ms, received, owes_ms(now_ms, worst.key))
        if not wait_ms or received.to.oneway or len(self._due) >= QUOTA_HELD_MAX:
            return True
        self.counts[worst.key.unit, QuotaOutcome.DELAYED] += 1
        if type(received.request) in _REPLY_WAITS:
            self._due[_name(received.to)] = now_ms + wait_ms
            return True
        return not self._hold(now_ms + wait_ms, received)

    def _refuse(
        self, now_ms: int, received: Received, over: _Charge, effects: list[Effect]
    ) -> None:
        """Refuse a request.

        The refusal of a pull waits as well, because consumers pull again at once. A one-way request
        is dropped.
        """
        key = over.key
        retry_ms = math.ceil(self._limiter.owes_ms(now_ms, key) - QUOTA_DEBT_MS_MAX)
        if not self._count_refused(received, key.unit):
            return
        text = (
            f"{key.kind} {key.name} is over its quota of {key.unit.amount(over.per_s)} at this"
            f" broker; nothing was done; retry in {retry_ms} ms"
        )
        header = FlowControlled(retry_after_ms=retry_ms)
        reply = Reply(received.to, Code.FLOW_CONTROL, text, header)
        if type(received.request) is PullMessage:
            wait_ms = self._wait_ms(now_ms, received, retry_ms)
            if wait_ms and self._hold(now_ms + wait_ms, reply):
                return
        effects.append(reply)

    def _refuse_connection(
        self, received: Received, user: str, limit: int, effects: list[Effect]
    ) -> None:
        """Refuse a request on a connection more than its user may have."""
        if not self._count_refused(received, QuotaUnit.CONNECTIONS):
            return
        text = (
            f"user {user} has {QuotaUnit.CONNECTIONS.amount(limit)} to this broker, which is its"
            " quota; nothing was done; close one, or raise the quota: kourou quota set"
        )
        header = FlowControlled(retry_after_ms=QUOTA_CONNECTION_RETRY_MS)
        effects.append(Reply(received.to, Code.FLOW_CONTROL, text, header))

    def _count_refused(self, received: Received, unit: QuotaUnit) -> bool:
        """Count a refused request; return whether it gets a reply."""
        dropped = received.to.oneway
        self.counts[unit, QuotaOutcome.DROPPED if dropped else QuotaOutcome.REFUSED] += 1
        self._traffic.refuse(Code.FLOW_CONTROL)
        return not dropped

    @staticmethod
    def _wait_ms(now_ms: int, received: Received, owes_ms: float) -> int:
        """Return how long a request waits for its debt: a third of its time at most."""
        left_ms = received.deadline_ms - now_ms if received.deadline_ms else 3 * QUOTA_DEBT_MS_MAX
        return max(0, min(math.ceil(owes_ms), QUOTA_DEBT_MS_MAX, left_ms // 3))

    def _user(self, received: Received) -> str | None:
        """Return the user; "" where users are not known, None for processes of this suite.

        A request that a replica forwards is its client's, one with a token that of its user.
        """
        peer = received.to.peer
        if peer.protocol in OWN_LINKS:
            return None
        if peer.listener == MEMBERS and type(received.request) in BETWEEN_REPLICAS:
            return None
        account = self._access.users.get(received.user)
        if account is not None and account.kind is UserKind.NODE:
            return None
        if received.user or self._access.mode_of(received.door) is AccessMode.OFF:
            return owner_of(received.user)
        return ANONYMOUS  # observed, with credentials that are not valid

    def _charges(self, used: Iterable[_Use]) -> list[_Charge]:
        """Return what is limited of that."""
        charges: list[_Charge] = []
        for kind, name, unit, amount in used:
            limit = self._limit(kind, name, unit)
            if limit is not None:
                charges.append(_Charge(LimitKey(kind, name, unit), amount, limit))
        return charges

    def _limit(self, kind: QuotaKind, name: str, unit: QuotaUnit) -> int | None:
        """Return a limit. Names that do not exist have no quota: they are bounded by nothing."""
        quota = self._quotas.of(kind, name)
        limit: int | None = None if quota is None else getattr(quota, unit.value)
        return limit if limit is not None and self._exists(kind, name) else None

    def _exists(self, kind: QuotaKind, name: str) -> bool:
        if kind is QuotaKind.TOPIC:
            return name in self._control.topics
        return bool(name) if kind is QuotaKind.USER else name in self._control.groups

    # -- what waits -------------------------------------------------------------------------------

    def _hold(self, due_ms: int, waiting: Received | Reply) -> bool:
        """Keep a request or a reply until its time; False if too many wait already."""
        if len(self._held) >= QUOTA_HELD_MAX:
            return False
        self._sequence += 1
        heapq.heappush(self._held, (due_ms, self._sequence, waiting))
        return True

    def _drop_peer(self, peer_id: int) -> None:
        """Drop what a closed connection waits for."""
        self._held = [entry for entry in self._held if entry[2].to.peer.id != peer_id]
        heapq.heapify(self._held)


def _name(to: ReplyTo) -> tuple[int, int]:
    return to.peer.id, to.correlation


# -- what requests use ----------------------------------------------------------------------------


def _used(received: Received, user: str) -> list[_Use]:
    """Return what a request uses. A pull uses nothing yet, but waits for what its group owes."""
    request = received.request
    used: list[_Use] = []
    if type(request) not in _UNCOUNTED:
        used.append((QuotaKind.USER, user, QuotaUnit.REQUESTS, 1))
    match request:
        case PullMessage(topic=topic, consumer_group=group):
            used += _uses(((user, topic, group),), _FETCHED, ((0, 0),))
        case SendMessage(topic=topic) | SendReplyMessage(topic=topic):
            count = _batch_messages(received.body) if request.batch else 1
            used += _uses(((user, topic, ""),), _PUBLISHED, ((_size(received.body), count),))
        case SendRecords():
            parts = _by_topic(request, _size(received.body))
            names = [(user, topic, "") for topic in parts]
            used += _uses(names, _PUBLISHED, list(parts.values()))
    return used


def _uses(
    names: Sequence[tuple[str, str, str]],
    units: tuple[QuotaUnit, QuotaUnit],
    amounts: Sequence[tuple[int, int]],
) -> list[_Use]:
    """Return the bytes and messages of each (user, topic, group); a group "" has no part in it."""
    used: list[_Use] = []
    for (user, topic, group), both in zip(names, amounts, strict=True):
        for unit, amount in zip(units, both, strict=True):
            used.append((QuotaKind.USER, user, unit, amount))
            used.append((QuotaKind.TOPIC, topic, unit, amount))
            if group:
                used.append((QuotaKind.GROUP, group, unit, amount))
    return used


def _by_topic(request: SendRecords, size_bytes: int) -> dict[str, tuple[int, int]]:
    """Return bytes and messages by topic.

    A header that contradicts itself is refused by the handler; here all counts for one topic.
    """
    topics = [target.topic for target in request.targets]
    count = len(request.sizes) // 4
    if not topics:
        return {}
    if len(set(topics)) == 1 or len(request.target_of) != 2 * count or len(request.sizes) % 4:
        return {topics[0]: (size_bytes, count)}
    numbers = struct.unpack(f"<{count}H", request.target_of)
    found: dict[str, tuple[int, int]] = {}
    for number, size in zip(numbers, struct.unpack(f"<{count}I", request.sizes), strict=True):
        topic = topics[number] if number < len(topics) else topics[0]
        size_before, before = found.get(topic, (0, 0))
        found[topic] = (size_before + size, before + 1)
    return found


def _size(body: Sequence[Buffer]) -> int:
    return sum(map(len, body))


def _batch_messages(body: Sequence[Buffer]) -> int:
    """Return how many messages RocketMQ's encoded batch says that it has; at least one."""
    raw = b"".join(body)
    at = count = 0
    while at + _ITEM_MIN <= len(raw) and count < BATCH_MESSAGES_MAX:
        at += max(_ITEM_MIN, int.from_bytes(raw[at : at + _ITEM_MIN], "big"))
        count += 1
    return max(1, count)
