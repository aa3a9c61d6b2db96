"""Decides the reply to a pull, and when it is sent.

State: soft (the parked pulls). Every reply is a function of the request, the configuration and the
log.

A pull that finds nothing new and may wait is parked. It is evaluated again from the start when its
queue advances, when its time is up, or when its topic changes; when rights change, it ends.
Consumers see committed messages only.

If the filter of a parked pull matches none of the new messages, the pull is parked again at the
offset after them, so that rare messages of a busy queue need no round trips; its reply has the
offset reached. RocketMQ replies every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from kourou.engine.admin.quota_gate import QuotaGate
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.filters.filter_servers import FilterServerTable
from kourou.engine.groups.member_handler import EnsureGroup
from kourou.engine.groups.subscriptions import check_pull
from kourou.engine.ports import QueueRead
from kourou.engine.pulls.moved_offsets import MovedOffsets
from kourou.errors import BadRequest, Code, KourouError, NoPermission, Rejected, TopicNotFound
from kourou.filtering.sql import Predicate
from kourou.filtering.subscriptions import check_allowed, filter_of, heartbeat_subscription
from kourou.filtering.tags import wanted_codes
from kourou.model.limits import (
    FILTERS_REMEMBERED_MAX,
    HOLDS_MAX,
    PULL_MESSAGES_MAX,
    PULL_SIZE_BYTES_MAX,
    REPAIR_MS,
    REPAIRS_MAX,
)
from kourou.model.subscription import TAG, Subscription
from kourou.model.topic import READ
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.runtime import LogWarning, Peer, Received, Reply

Target = tuple[str, int]
_NEVER_MS = 2**63


@dataclass(slots=True, eq=False)
class ParkedPull:
    """A parked pull: it waits until its queue advances beyond its offset, or `deadline_ms`."""

    received: Received
    request: PullMessage
    deadline_ms: int
    live: bool = True

    @property
    def target(self) -> Target:
        """The queue that it waits for."""
        return self.request.topic, self.request.queue_id


class ParkedPulls:
    """Parked pulls by queue; all operations are O(pulls touched), expiry O(log pulls).

    State: soft. A client whose parked pull is lost retries when its own timeout fires.

    Invariants:
    - a parked pull is in the table exactly once, and in its peer's set
    - the table never has more than limits.HOLDS_MAX entries
    """

    __slots__ = ("_by_deadline", "_by_peer", "_by_target", "_count", "_sequence")

    def __init__(self) -> None:
        self._by_target: dict[Target, list[ParkedPull]] = {}
        self._by_peer: dict[int, set[ParkedPull]] = {}
        self._by_deadline: list[tuple[int, int, ParkedPull]] = []
        self._sequence = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether no further pull can be parked."""
        return self._count >= HOLDS_MAX

    def wait_for(self, targets: Sequence[Target]) -> bool:
        """Return whether a pull waits for one of these queues to advance."""
        waiting = self._by_target
        return bool(waiting) and any(target in waiting for target in targets)

    def add(self, hold: ParkedPull) -> None:
        """Park a pull; the caller has checked `full`."""
        assert not self.full
        self._sequence += 1
        self._count += 1
        self._by_target.setdefault(hold.target, []).append(hold)
        self._by_peer.setdefault(hold.received.to.peer.id, set()).add(hold)
        heapq.heappush(self._by_deadline, (hold.deadline_ms, self._sequence, hold))

    def take_advanced(self, queues: Iterable[tuple[str, int, int]]) -> list[ParkedPull]:
        """Remove and return the pulls whose queue's maximum offset now exceeds their own."""
        taken: list[ParkedPull] = []
        for topic, queue_id, max_offset in queues:
            waiting = self._by_target.get((topic, queue_id))
            if not waiting:
                continue
            ready = [hold for hold in waiting if hold.request.queue_offset < max_offset]
            for hold in ready:
                self._remove(hold)
            taken += ready
        return taken

    def take_topic(self, topic: str) -> list[ParkedPull]:
        """Remove and return all pulls of a topic (deleted, or its permission changed)."""
        targets = [target for target in self._by_target if target[0] == topic]
        taken = [hold for target in targets for hold in self._by_target[target]]
        for hold in taken:
            self._remove(hold)
        return taken

    def take_expired(self, now_ms: int) -> list[ParkedPull]:
        """Remove and return the pulls whose deadline has passed."""
        taken: list[ParkedPull] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            hold = heapq.heappop(self._by_deadline)[2]
            if hold.live:
                self._remove(hold)
                taken.append(hold)
        return taken

    def drop_peer(self, peer: Peer) -> None:
        """Remove the pulls of a closed connection."""
        for hold in list(self._by_peer.get(peer.id, ())):
            self._remove(hold)

    def _remove(self, hold: ParkedPull) -> None:
        assert hold.live
        hold.live = False
        self._count -= 1
        waiting = self._by_target[hold.target]
        waiting.remove(hold)
        if not waiting:
            del self._by_target[hold.target]
        mine = self._by_peer[hold.received.to.peer.id]
        mine.discard(hold)
        if not mine:
            del self._by_peer[hold.received.to.peer.id]
        if len(self._by_deadline) > 64 and len(self._by_deadline) > 4 * self._count:
            # Dead entries would otherwise stay until their deadline, 20 s each.
            self._by_deadline = [entry for entry in self._by_deadline if entry[2].live]
            heapq.heapify(self._by_deadline)


class PullHandler:
    """Replies to pulls, at once or when there is a result."""

    def __init__(
        self,
        context: BrokerContext,
        ensure_group: EnsureGroup,
        moved: MovedOffsets,
        filter_servers: FilterServerTable,
        quotas: QuotaGate,
    ) -> None:
        self._view = context.view
        self._control = context.control
        self._members = context.members
        self._commits = context.commits
        self._confirmations = context.confirmations
        self._policy = context.policy
        self._traffic = context.traffic
        self._ensure_group = ensure_group
        self._moved = moved
        self._filter_servers = filter_servers
        self._quotas = quotas
        self._holds = ParkedPulls()
        self._reported: set[tuple[str, str, str]] = set()
        self.follows = False
        """A follower may lack what its leader has: an offset beyond its end is not an error."""
        self.repairs = False
        """Other replicas have intact copies of bytes that are damaged here: pulls wait for them."""
        self._repairing: dict[tuple[str, int, int], int] = {}

    @property
    def held(self) -> int:
        """The number of parked pulls."""
        return len(self._holds)

    def wait_for(self, targets: Sequence[Target]) -> bool:
        """Return whether a pull is parked for one of these queues."""
        return self._holds.wait_for(targets)

    def answer(self, now_ms: int, received: Received, request: PullMessage) -> list[Effect]:
        """Handle a pull: reply to it, or park it."""
        may_hold = (
            bool(request.sys_flag & PullFlag.SUSPEND)
            and request.suspend_timeout_millis > 0
            and self._policy.long_polling
            and not received.to.oneway
        )
        effects = self._attempt(now_ms, received, request, may_hold=may_hold)
        commits = request.sys_flag & PullFlag.COMMIT_OFFSET and request.commit_offset >= 0
        # Only for a pull that passed the checks: a refused one must not commit an offset.
        if commits and (not effects or _is_answer(effects[0])):
            self._commits.commit(
                request.consumer_group, request.topic, request.queue_id, request.commit_offset
            )
        return effects

    def advanced(self, now_ms: int, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        """Evaluate the parked pulls of queues with committed messages up to these maxima."""
        return self._answer_again(now_ms, self._holds.take_advanced(queues))

    def expire(self, now_ms: int) -> list[Effect]:
        """Reply to the parked pulls whose deadline has passed."""
        return self._end(now_ms, self._holds.take_expired(now_ms))

    def release(self, now_ms: int) -> list[Effect]:
        """Reply to all parked pulls: rights have changed, and new pulls are decided by them."""
        return self._end(now_ms, self._holds.take_expired(_NEVER_MS))

    def _end(self, now_ms: int, holds: list[ParkedPull]) -> list[Effect]:
        effects: list[Effect] = []
        for hold in holds:
            effects += self._attempt(now_ms, hold.received, hold.request, may_hold=False)
        return effects

    def topic_changed(self, now_ms: int, topic: str) -> list[Effect]:
        """Evaluate the parked pulls of a topic that was deleted or whose permission changed."""
        return self._answer_again(now_ms, self._holds.take_topic(topic))

    def drop_peer(self, peer: Peer) -> None:
        """Remove the parked pulls of a closed connection."""
        self._holds.drop_peer(peer)

    def _answer_again(self, now_ms: int, holds: list[ParkedPull]) -> list[Effect]:
        effects: list[Effect] = []
        for hold in holds:
            effects += self._attempt(
                now_ms,
                hold.received,
                hold.request,
                may_hold=True,
                deadline_ms=hold.deadline_ms,
            )
        return effects

    def _attempt(
        self,
        now_ms: int,
        received: Received,
        request: PullMessage,
        *,
        may_hold: bool,
        deadline_ms: int = 0,
    ) -> list[Effect]:
        try:
            subscription = self._check(received, request)
            by_tags = subscription.expression_type == TAG
            predicate = None if by_tags else self._predicate(request, subscription)
            code, read = self._read(now_ms, request, subscription, predicate)
        except KourouError as error:
            return [Reply(received.to, error.wire_code, str(error), self._header(0, 0, 0))]
        warnings: list[Effect] = []
        if subscription.codes or predicate is not None:
            warnings = self._count(request, subscription, predicate, read)
        if not code:
            return [self._reply(now_ms, received, request, code, read), *warnings]
        if may_hold and deadline_ms and _nothing_let_through(code, read) and not self._holds.full:
            later = msgspec.structs.replace(request, queue_offset=read.next_offset)
            self._hold(now_ms, received, later, deadline_ms)
            return warnings
        if code == Code.PULL_NOT_FOUND and may_hold:
            if self._holds.full:
                # A RocketMQ client does not know this code, so it gets PULL_NOT_FOUND.
                code = Code.POLLING_FULL if request.max_msg_bytes is not None else code
            else:
                self._hold(now_ms, received, request, deadline_ms)
                return []
        reply = self._reply(now_ms, received, request, code, read)
        if code == Code.PULL_OFFSET_MOVED:
            return [reply, *self._moved.note(now_ms, received, request, read.next_offset)]
        return [reply, *warnings]

    def _hold(
        self, now_ms: int, received: Received, request: PullMessage, deadline_ms: int
    ) -> None:
        # Keep nothing that a client may make large: a pull has no body, and was decided.
        received.to.drop_signed()
        received.body = ()
        if not request.sys_flag & PullFlag.SUBSCRIPTION:
            request = msgspec.structs.replace(request, subscription=None, expression_type=None)
        wait_ms = min(request.suspend_timeout_millis, self._policy.hold_ms_max)
        self._holds.add(ParkedPull(received, request, deadline_ms or now_ms + wait_ms))

    # -- the checks, in RocketMQ's order ------------------------------------------------------

    def _check(self, received: Received, request: PullMessage) -> Subscription:
        if not self._policy.permission & READ:
            raise NoPermission(f"broker {self._policy.broker_name} is not readable")
        group = self._control.groups.get(request.consumer_group)
        if group is None:
            group = self._ensure_group(request.consumer_group, received, "first pull of a consumer")
        if not group.consume_enable:
            raise NoPermission(f"consumer group {request.consumer_group} may not consume")
        topic = self._control.topics.get(request.topic)
        if topic is None:
            raise TopicNotFound(f"topic {request.topic} does not exist")
        if not topic.readable:
            raise NoPermission(f"topic {request.topic} is not readable (perm {topic.perm})")
        if not 0 <= request.queue_id < topic.read_queue_nums:
            raise BadRequest(
                f"queue ID {request.queue_id} is out of range: topic {request.topic} has "
                f"{topic.read_queue_nums} read queues"
            )
        if request.max_msg_nums <= 0:
            raise BadRequest(f"maxMsgNums is {request.max_msg_nums}; it must be at least 1")
        if request.sys_flag & PullFlag.CLASS_FILTER:
            raise self._judged_elsewhere(received, request)
        if request.sys_flag & PullFlag.SUBSCRIPTION:
            return heartbeat_subscription(
                request.topic,
                request.subscription,
                request.expression_type,
                version=request.sub_version,
            )
        consuming = self._members.consumer_group(request.consumer_group)
        if consuming is None:
            raise Rejected(
                f"consumer group {request.consumer_group} is unknown: this broker has "
                "received no heartbeat of it",
                code=Code.SUBSCRIPTION_NOT_EXIST,
            )
        wanted = consuming.subscription(request.topic, received.to.peer)
        if wanted is not None and wanted.class_filter_mode:
            raise self._judged_elsewhere(received, request)
        return check_pull(
            request.consumer_group,
            request.topic,
            wanted,
            wanted_version=request.sub_version,
            model=consuming.message_model,
            broadcast_enabled=group.consume_broadcast_enable,
        )

    def _judged_elsewhere(self, received: Received, request: PullMessage) -> Rejected:
        """Return the error for a Python filter, which only filter servers run; never skip it."""
        addresses = self._filter_servers.addresses_for(received.to.peer)
        if addresses:
            where = f"pull from one of these: {', '.join(addresses)}"
        else:
            where = (
                "no filter server is registered at this broker: start one with `kourou "
                "filter-server`"
            )
        return Rejected(
            f"group {request.consumer_group} uses a filter for {request.topic}, which "
            "only filter servers can run",
            hint=where,
        )

    # -- property filters ---------------------------------------------------------------------

    def _predicate(self, request: PullMessage, subscription: Subscription) -> Predicate:
        """Return the predicate of this pull; raises Rejected with 1, 23 or 27, as 4.9 does."""
        check_allowed(subscription.expression_type, property_filter=self._policy.property_filter)
        try:
            return filter_of(subscription).predicate()
        except Rejected as error:
            if request.sys_flag & PullFlag.SUBSCRIPTION:
                raise
            raise Rejected(
                error.message, hint=error.hint, code=Code.FILTER_DATA_NOT_EXIST
            ) from error

    def _count(
        self,
        request: PullMessage,
        subscription: Subscription,
        predicate: Predicate | None,
        read: QueueRead,
    ) -> list[Effect]:
        """Count the messages that do not match; log once that a filter cannot compare."""
        topic, group = request.topic, request.consumer_group
        looked_at = read.next_offset - request.queue_offset if read.max_offset else 0
        left = max(0, looked_at - len(read.sizes) - len(read.corrupt_offsets))
        failed = 0 if predicate is None else predicate.failed
        if left:
            self._traffic.passed_over(topic, group, left, failed)
        key = (group, topic, subscription.expression)
        if predicate is None or not failed or key in self._reported:
            return []
        if len(self._reported) >= FILTERS_REMEMBERED_MAX:
            self._reported.clear()
        self._reported.add(key)
        return [
            LogWarning(
                "filter-unevaluable: filter %(filter)r of group %(group)s cannot be evaluated for "
                "some messages of %(topic)s, so the group does not receive them: %(reason)s",
                {
                    "filter": subscription.expression[:200],
                    "group": group,
                    "topic": topic,
                    "reason": predicate.reason,
                },
            )
        ]

    # -- reading ------------------------------------------------------------------------------

    def _read(
        self,
        now_ms: int,
        request: PullMessage,
        subscription: Subscription,
        predicate: Predicate | None,
    ) -> tuple[Code, QueueRead]:
        offset = request.queue_offset
        span = self._view.queue_range(request.topic, request.queue_id)
        low, high = span if span is not None else (0, 0)
        if offset > high and self.follows:
            return Code.PULL_NOT_FOUND, QueueRead(
                next_offset=offset, min_offset=low, max_offset=high
            )
        if not low <= offset <= high:
            nearest = low if offset < low else high
            return Code.PULL_OFFSET_MOVED, QueueRead(
                next_offset=nearest, min_offset=low, max_offset=high
            )
        if offset == high:
            return Code.PULL_NOT_FOUND, QueueRead(next_offset=high, min_offset=low, max_offset=high)
        read = self._look(request, subscription, predicate, self._confirmations.confirmed)
        if read.corrupt_offsets and self.repairs:
            below = self._wait_below(now_ms, request, read.corrupt_offsets)
            if below >= 0:
                read = self._look(request, subscription, predicate, below)
        if read.sizes:
            return Code.SUCCESS, read
        if read.corrupt_offsets:
            # Kourou's client gets the error and decides; a RocketMQ client can only skip the gap.
            states_budget = request.max_msg_bytes is not None
            return Code.MESSAGE_CORRUPT if states_budget else Code.PULL_RETRY_IMMEDIATELY, read
        if read.next_offset > offset:
            return Code.PULL_RETRY_IMMEDIATELY, read
        return Code.PULL_NOT_FOUND, read

    def _look(
        self,
        request: PullMessage,
        subscription: Subscription,
        predicate: Predicate | None,
        below: int,
    ) -> QueueRead:
        """Read what fits into a reply.

        Kourou's own client states its byte budget and gets what it requests within the protocol's
        limits. For other clients, RocketMQ's limits apply: one pair for recent data and one for
        data on disk, which is known when it was found.
        """
        policy, asked = self._policy, request.max_msg_nums
        budget = request.max_msg_bytes
        if budget is not None:
            size = max(1, min(budget, policy.pull_bytes_max, PULL_SIZE_BYTES_MAX))
            limits = min(asked, PULL_MESSAGES_MAX), size
            return self._look_within(request, subscription, predicate, below, limits)
        recent = min(asked, policy.transfer_count_in_memory), policy.transfer_bytes_in_memory
        read = self._look_within(request, subscription, predicate, below, recent)
        cold = min(asked, policy.transfer_count_on_disk), policy.transfer_bytes_on_disk
        if read.first_position < 0 or cold == recent or self._view.is_recent(read.first_position):
            return read
        if predicate is not None:
            predicate.failed = 0
        return self._look_within(request, subscription, predicate, below, cold)

    def _look_within(
        self,
        request: PullMessage,
        subscription: Subscription,
        predicate: Predicate | None,
        below: int,
        limits: tuple[int, int],
    ) -> QueueRead:
        return self._view.read_queue(
            request.topic,
            request.queue_id,
            request.queue_offset,
            max_messages=limits[0],
            max_bytes=limits[1],
            codes=wanted_codes(subscription),
            below=below,
            wanted=predicate,
        )

    def _wait_below(self, now_ms: int, request: PullMessage, damaged: Sequence[int]) -> int:
        """Return the position of the first message to wait for; -1 if all are given up.

        An offset whose record is lost for good has no position.
        """
        for offset in damaged:
            position = self._view.offset_position(request.topic, request.queue_id, offset)
            if position < 0:
                continue
            if len(self._repairing) >= REPAIRS_MAX:
                self._repairing.clear()
            since_ms = self._repairing.setdefault((request.topic, request.queue_id, offset), now_ms)
            if now_ms < since_ms + REPAIR_MS:
                return position
        return -1

    # -- the reply ----------------------------------------------------------------------------

    def _reply(
        self, now_ms: int, received: Received, request: PullMessage, code: Code, read: QueueRead
    ) -> Reply:
        body: Sequence[bytes | memoryview] = ()
        if read.sizes:
            # One piece: a separate part of a frame for every record costs more than copying it.
            body = (read.run,)
            topic, group, count = request.topic, request.consumer_group, len(read.sizes)
            self._traffic.out(topic, group, count, len(read.run))
            if self._quotas.active:
                self._quotas.fetched(now_ms, received, topic, group, count, len(read.run))
        else:
            self._traffic.pulls_empty += 1
        remark = _REMARKS.get(code, "")
        if read.corrupt_offsets:
            remark = f"unreadable offsets: {', '.join(map(str, read.corrupt_offsets))}"
        member = self._member_to_ask(request, read) if self._policy.slave_read else 0
        header = self._header(read.next_offset, read.min_offset, read.max_offset, member)
        return Reply(received.to, code, remark, header, body)

    def _member_to_ask(self, request: PullMessage, read: QueueRead) -> int:
        """Return the broker to pull from next: cold data is read from a follower's disk."""
        group = self._control.groups.get(request.consumer_group)
        if group is None:
            return 0
        cold = read.last_position >= 0 and not self._view.is_recent(read.last_position)
        return group.which_broker_when_consume_slowly if cold else group.broker_id

    @staticmethod
    def _header(
        next_offset: int, min_offset: int, max_offset: int, member: int = 0
    ) -> PullResponse:
        return PullResponse(
            suggest_which_broker_id=member,
            next_begin_offset=next_offset,
            min_offset=min_offset,
            max_offset=max_offset,
        )


def _nothing_let_through(code: Code, read: QueueRead) -> bool:
    """Return whether all available messages were examined, and the filter matches none."""
    return (
        code == Code.PULL_RETRY_IMMEDIATELY
        and read.next_offset == read.max_offset
        and not read.corrupt_offsets
    )


def _is_answer(effect: Effect) -> bool:
    """Return whether this is a reply to a pull that passed all checks."""
    return isinstance(effect, Reply) and effect.code in _REMARKS


_REMARKS: dict[int, str] = {
    Code.SUCCESS: "FOUND",
    Code.PULL_NOT_FOUND: "NO_NEW_MESSAGE",
    Code.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MESSAGE",
    Code.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}
