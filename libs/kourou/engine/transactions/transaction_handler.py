"""Transactions: half messages are stored, and resolved by their position in the log.

State: the table of open half messages (a projection, see there); soft: the outcomes of the latest
ones, for producers that repeat a request.

A commit appends the message and the op record that ends its half message in one piece, the message
first. So a log that is truncated anywhere has neither, or both, or the message alone. To detect the
last case, the broker searches for the message by its unique key before it resolves or checks a half
message that was open at start; if it finds one, it writes only the op record. So nothing is stored
twice, and nothing committed is lost. Ends that share an append (class CoalescedEnds) follow one
another in it, so this holds for each of them.

A position in a request proves nothing, because a body may have bytes that look like a half message.
What is resolved is what the table, or the half topic's queue, has at that offset.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kourou.engine.admin.topic_table import decide_transaction_topics
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.sends.appends import AppendResult, Target
from kourou.engine.transactions.half_messages import (
    COMMIT,
    GIVEN_UP_TARGET,
    HALF_TARGET,
    OP_TARGET,
    ROLLBACK,
    HalfRecord,
    checked,
    committed,
    half_of,
    mark_of,
    operation,
    read_draft,
    read_half,
)
from kourou.engine.transactions.open_halves import OpenHalf, OpenHalves, open_halves
from kourou.errors import Corrupt, KourouError, NoPermission, Rejected, TopicNotFound
from kourou.events.control_events import Cause
from kourou.model.limits import BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX, RESOLVED_REMEMBERED_MAX
from kourou.model.message import Property, SysFlag
from kourou.model.names import HALF_TOPIC, TRANSACTION_GROUP
from kourou.protocol.messages.sends import EndTransaction, ResumeCheckHalfMessage
from kourou.protocol.record.layout import parts_of
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.request import Request
from kourou.runtime import Buffer, Received, Reply

GIVEN_UP = 0
"""The outcome of a half message that was not resolved; the others are COMMIT and ROLLBACK."""

_OUTCOMES = {COMMIT: "commit", ROLLBACK: "rollback", GIVEN_UP: "given_up"}
_FOREVER_MS = 2**62
_TICK_MS_MAX = 1_000
"""Ticks are more frequent than this, even if the wall clock was set and shows otherwise."""

_HALF_TOPIC = HALF_TOPIC.encode()
_SAME_KEY_MAX = 32
"""The most messages of one unique key that are examined; a producer's keys differ."""


class TransactionEnd(NamedTuple):
    """The end of an open half message: `final` is the message, if it is to be stored now."""

    half: OpenHalf
    record: HalfRecord
    outcome: int
    final: tuple[Target, bytes] | None

    @property
    def size_bytes(self) -> int:
        """The size of the message, which is nearly all that is appended."""
        return len(self.final[1]) if self.final is not None else 0


class TransactionHandler:
    """The half messages of one broker. `host` is the broker's own encoded address."""

    def __init__(self, context: BrokerContext) -> None:
        self._view = context.view
        self._control = context.control
        self._commits = context.commits
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._recorder = context.recorder
        self._pressure = context.pressure
        self._policy = context.policy
        self._host = context.host
        # Not a dict: to find its first entry, Python passes over all that were deleted before.
        self._ended: OrderedDict[int, int] = OrderedDict()
        self._touched = False
        self._now_ms = self._wall_ms = 0
        self.halves = OpenHalves()
        self.resolved = dict.fromkeys(_OUTCOMES.values(), 0)
        self.resolved_by_topic: Counter[tuple[str, str]] = Counter()

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {EndTransaction: self.end, ResumeCheckHalfMessage: self.resume}

    def start(self, now_ms: int, wall_ms: int) -> None:
        """Find the half messages that are open, before any request is served."""
        self.halves = open_halves(self._view, self._commits, now_ms, wall_ms)
        self._touched = self.halves.half_end > 0
        self.tick(now_ms, wall_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Note both clocks; the age of a half message that comes later counts from here."""
        self._now_ms, self._wall_ms = now_ms, wall_ms

    def commit_progress(self) -> None:
        """Commit the progress in the queues of transactions; recorded like any group's.

        Cheap if nothing has changed.
        """
        if self._touched:
            self._touched = False
            half, op = self.halves.done()
            self._commits.commit(TRANSACTION_GROUP, *HALF_TARGET, half)
            self._commits.commit(TRANSACTION_GROUP, *OP_TARGET, op)

    # -- phase one ----------------------------------------------------------------------------

    def half(self, draft: Buffer, target: Target, wall_ms: int) -> bytes:
        """Return the half message to store in HALF_TARGET instead of a checked draft for `target`.

        Raises NoPermission if this broker refuses transactions, and as recording does if the topics
        of transactions must be created.
        """
        if self._policy.reject_transactions:
            raise NoPermission("this broker does not accept transactional messages")
        half = half_of(draft, target)
        if HALF_TOPIC not in self._control.topics:
            self._make_topics(wall_ms)
        return half

    def _make_topics(self, wall_ms: int) -> None:
        events = decide_transaction_topics(self._control.topics)
        self._recorder.record(events, Cause("broker", "first transaction"), wall_ms)

    def stored(self, offset: int, position: int, half: Buffer, wall_ms: int) -> None:
        """Open a half message that was stored."""
        immunity_ms = None
        raw = bytes(half)
        mark = mark_of(raw)
        if mark is None and _IMMUNITY in raw:
            immunity_ms = read_half(raw).immunity_ms
        since_ms = self.touch(wall_ms)
        if mark is not None:
            self.halves.open_batch(mark, offset, position, since_ms)
        else:
            one = OpenHalf(offset, position, since_ms, immunity_ms=immunity_ms)
            self.halves.open(one)
            self.halves.keep(one, raw)

    @property
    def takes_halves(self) -> bool:
        """Whether half messages can be stored without creating anything first."""
        return not self._policy.reject_transactions and HALF_TOPIC in self._control.topics

    def touch(self, wall_ms: int) -> int:
        """Note that something was stored at this time; return the time as monotonic ms."""
        self._touched = True
        return self._now_ms + min(max(wall_ms - self._wall_ms, 0), _TICK_MS_MAX)

    # -- phase two ----------------------------------------------------------------------------

    def end(self, now_ms: int, received: Received, request: EndTransaction) -> list[Effect]:
        """Handle the outcome of a producer's half message (37), which may be unknown yet.

        Repeating the request changes nothing. A message that was given up may still be committed.
        Raises Rejected for positions that have no half message of that group, and for a half
        message that was resolved the other way before.
        """
        wanted = request.commit_or_rollback
        if wanted not in (COMMIT, ROLLBACK):
            return [Reply(received.to)]  # unknown yet: a check-back follows
        half, record = self._asked_about(request)
        if half is not None:
            self._resolve(half, record, wanted, received.wall_ms)
        else:
            self._resolve_again(record, wanted, received.wall_ms)
        return self.answer(now_ms, received, record)

    def prepare(self, request: EndTransaction) -> TransactionEnd | None:
        """Return what this end appends if it can share an append; changes nothing.

        None if it appends nothing, or if the log must be searched for the outcome. Raises as `end`.
        """
        wanted = request.commit_or_rollback
        if wanted not in (COMMIT, ROLLBACK):
            return None
        half, record = self._asked_about(request)
        if half is None or not half.proven:
            return None
        return TransactionEnd(
            half, record, wanted, self._final(record) if wanted == COMMIT else None
        )

    def answer(self, now_ms: int, received: Received, record: HalfRecord) -> list[Effect]:
        """Reply to the request that ended a half message, once everything appended is safe."""
        end = self._confirmations.appended
        return self._confirmations.defer(now_ms, end, Reply(received.to), wait=record.wait)

    def _asked_about(self, request: EndTransaction) -> tuple[OpenHalf | None, HalfRecord]:
        """Return the open half message that a request names (or None), and its record."""
        record = self._named(request)
        half = self.halves.at(record.queue_offset)
        if half is None:
            half = self.halves.copy_of(record)
            if half is not None:
                record = self.read(half.position)
        return half, record

    def _named(self, request: EndTransaction) -> HalfRecord:
        """Return the half message at a request's position, with RocketMQ's three checks."""
        missing = "Find prepared transaction message failed"
        offset, position = request.tran_state_table_offset, request.commit_log_offset
        half = self.halves.at(offset)
        if half is not None and half.position == position and half.draft is not None:
            record = read_draft(half.draft, offset, position)
        else:
            try:
                record = self.read(position)
            except (Rejected, Corrupt) as error:
                raise Rejected(f"{missing}: {error}") from error
            if not self._is_half(record):
                raise Rejected(f"{missing}: no half message at position {position}")
        if record.in_batch:
            raise Rejected(f"{missing}: it belongs to a batch, which is committed as a whole")
        if record.group != request.producer_group:
            raise Rejected(
                f"The producer group wrong: the half message at position {position} is not of "
                f"{request.producer_group}"
            )
        if record.queue_offset != offset:
            raise Rejected(
                f"The transaction state table offset wrong: {record.queue_offset}, not {offset}"
            )
        return record

    def _is_half(self, record: HalfRecord) -> bool:
        """Return whether the half queue has this record, and not just similar bytes."""
        half = self.halves.at(record.queue_offset)
        if half is not None:
            return half.position == record.position
        if self._view.offset_position(*HALF_TARGET, record.queue_offset) == record.position:
            return True
        raw = self._appends.unprojected_at(record.position)  # perhaps not in its queue yet
        if raw is None:
            return False
        parts = parts_of(raw, 0, len(raw))
        return bytes(raw[parts.topic_at : parts.topic_end]) == _HALF_TOPIC

    def read(self, position: int) -> HalfRecord:
        """Return the record at a position. Raises Rejected if there is none, Corrupt if damaged."""
        try:
            return read_half(self._view.record_at(position))
        except Rejected:
            # Appended, with its reply sent, and not in the log's files yet.
            raw = self._appends.unprojected_at(position)
            if raw is None:
                raise
            return read_half(raw)

    def _resolve(self, half: OpenHalf, record: HalfRecord, wanted: int, wall_ms: int) -> None:
        found = COMMIT if self.is_committed(half, record) else None
        final = self._final(record) if wanted == COMMIT and found is None else None
        self.resolve([TransactionEnd(half, record, found or wanted, final)], wall_ms)
        if found is not None:
            _require_same(found, wanted)

    def is_committed(self, half: OpenHalf, record: HalfRecord) -> bool:
        """Return whether the message of an open half is stored, and its op record was lost.

        Only a half message that was open when the broker started may be in that state.
        """
        if half.proven:
            return False
        half.proven = True
        return self.committed_copy(record)

    def resolve(self, endings: Sequence[TransactionEnd], wall_ms: int) -> None:
        """Append messages and op records in one piece, and close the half messages.

        The half messages are all different. Each message precedes its op record. Raises as
        Appends.write; then nothing has changed.
        """
        born_ms = max(self._appends.store_ms, wall_ms)
        drafts: list[tuple[Target, bytes]] = []
        ops: list[int] = []
        for one in endings:
            if one.final is not None:
                drafts.append(one.final)
            ops.append(len(drafts))
            drafts.append((OP_TARGET, operation(one.half.offset, born_ms, self._host)))
        offsets = self.append_placed(drafts, wall_ms).offsets
        for one, op in zip(endings, ops, strict=True):
            offset = one.half.offset
            self.halves.close(one.half, one.record.identity)
            self.halves.noted(offsets[op], offset)
            self.remember(offset, one.outcome, one.record)

    def remember(self, half_offset: int, outcome: int, record: HalfRecord | None) -> None:
        """Remember an outcome for repeated requests; `record` is None if it is lost."""
        self._touched = True
        result = _OUTCOMES[outcome]
        self.resolved[result] += 1
        if record is not None:
            self.resolved_by_topic[record.real_target[0], result] += 1
        ended = self._ended
        if len(ended) >= RESOLVED_REMEMBERED_MAX:
            ended.popitem(last=False)
        ended[half_offset] = outcome

    def count_batch(self, outcome: int, count: int, topics: Mapping[str, int]) -> None:
        """Count outcomes of a batch's half messages; `topics` are those of committed ones."""
        self._touched = True
        result = _OUTCOMES[outcome]
        self.resolved[result] += count
        for topic, number in topics.items():
            self.resolved_by_topic[topic, result] += number

    def put_back(self, half: OpenHalf, offset: int, position: int, record: HalfRecord) -> None:
        """Note that an open half message was appended again, and is now open there."""
        self._touched = True
        self.halves.move(half, offset, position, record.identity)

    def close_given_up(self, half: OpenHalf, record: HalfRecord) -> None:
        """Close a half message that was appended to the topic for operators."""
        self.halves.close(half, record.identity)
        self.remember(half.offset, GIVEN_UP, record)

    def forget(self, half: OpenHalf) -> None:
        """Close a half message whose record is lost, because it can never be resolved."""
        self.halves.close(half, None)
        self.remember(half.offset, GIVEN_UP, None)

    @property
    def store_ms(self) -> int:
        """The store time of the newest record."""
        return self._appends.store_ms

    def _resolve_again(self, record: HalfRecord, wanted: int, wall_ms: int) -> None:
        """Handle a half message that is not open: it was resolved, or given up."""
        offset = record.queue_offset
        outcome = self._ended.get(offset)
        if outcome is None:
            outcome = self._outcome_in_log(record)
        if outcome != GIVEN_UP:
            _require_same(outcome, wanted)
        elif wanted == COMMIT:
            self.append_placed([self._final(record)], wall_ms)
            self.remember(offset, COMMIT, record)

    def _outcome_in_log(self, record: HalfRecord) -> int:
        if self.committed_copy(record):
            return COMMIT
        return GIVEN_UP if self.has_copy(record, GIVEN_UP_TARGET[0], 0) else ROLLBACK

    def committed_copy(self, record: HalfRecord) -> bool:
        """Return whether the real topic has the committed message of this half message."""
        return self.has_copy(record, record.real_target[0], COMMIT)

    def has_copy(self, record: HalfRecord, topic: str, transaction: int) -> bool:
        """Return whether the topic has this message; False without a unique key or an index."""
        identity = record.identity
        if identity is None:
            return False
        try:
            found = self._view.find_by_key(
                topic, identity[1], max_count=_SAME_KEY_MAX, begin_ms=0, end_ms=_FOREVER_MS
            )
        except Rejected:  # messageIndexEnable=false: the outcome is uncertain, as in RocketMQ
            return False
        for raw in found:
            one = read_half(raw)
            bits = one.sys_flag & int(SysFlag.TRANSACTION_MASK)
            if one.identity == identity and bits == transaction:
                return True
        return False

    def _final(self, record: HalfRecord) -> tuple[Target, bytes]:
        """Return the message for its real topic, in its own queue if that still exists."""
        target = self.final_target(record)
        return target, committed(record, target[1])

    def final_target(self, record: HalfRecord) -> Target:
        """Return where a half message goes now. Raises TopicNotFound or DiskFull."""
        return self.target_now(*record.real_target)

    def target_now(self, topic: str, queue_id: int) -> Target:
        """Return where a message that was sent to this queue goes now. Raises as `final_target`."""
        self._pressure.check_writable()
        config = self._control.topics.get(topic)
        if config is None:
            raise TopicNotFound(
                f"topic {topic} was deleted in the meantime; the half message is kept",
                hint="create the topic again",
            )
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queue_id >= queues:
            queue_id %= max(config.write_queue_nums, 1)
        return topic, queue_id

    # -- operators ------------------------------------------------------------------------------

    def resume(
        self, now_ms: int, received: Received, request: ResumeCheckHalfMessage
    ) -> list[Effect]:
        """Restart the check-backs of a half message that was given up (323). Raises Rejected."""
        _, position = decode_offset_id(request.msg_id)
        record = self.read(position)
        offset = record.queue_offset
        if self._view.offset_position(*GIVEN_UP_TARGET, offset) != position:
            raise Rejected(
                f"{request.msg_id} is not a half message whose checks ended without an outcome"
            )
        if self.committed_copy(record):
            raise Rejected(f"the message {request.msg_id} was committed")
        if self.halves.copy_of(record) is not None:
            raise Rejected(f"the transaction of {request.msg_id} is still open")
        half = checked(record, 0)
        half_offset, half_position = self._appends.write_one(half, HALF_TARGET, received.wall_ms)
        self._confirmations.append(self._appends.end)
        one = OpenHalf(half_offset, half_position, now_ms)
        self.halves.open_copy(one, record.identity)
        self._touched = True
        return self._confirmations.defer(now_ms, self._confirmations.appended, Reply(received.to))

    # -- appending ------------------------------------------------------------------------------

    def append_placed(self, drafts: Sequence[tuple[Target, bytes]], wall_ms: int) -> AppendResult:
        """Append drafts in one piece. Raises as Appends.write; then nothing has changed."""
        written = self._appends.write_drafts(
            [draft for _, draft in drafts], [target for target, _ in drafts], wall_ms
        )
        self._confirmations.append(written.end)
        return written


_IMMUNITY = Property.CHECK_IMMUNITY_TIME.value.encode() + b"\x01"


def _require_same(outcome: int, wanted: int) -> None:
    if outcome == wanted:
        return
    if outcome == COMMIT:
        raise Rejected("the transaction is committed already; it cannot be rolled back")
    raise Rejected("the transaction is rolled back already; it cannot be committed")


Alone = Callable[[int, Received], Sequence[Effect]]
_Group = dict[int, tuple[Received, TransactionEnd]]
"""By the queue offsets of the half messages, in the order of the requests."""

_ENDS_MAX = BATCH_MESSAGES_MAX // 2
"""Each end appends two records at most."""


class CoalescedEnds:
    """Combines several ends into one append.

    A producer with many open transactions fills a batch with requests that resolve one half message
    each. Each is checked separately; then all their records are numbered, written and projected at
    once.

    Invariants:
    - records are in the order of the requests, and a committed message precedes its op record, so
      a log that is truncated anywhere has what it could have if the requests had come separately
    - every producer gets the reply that it would get separately
    - a request that cannot be combined is handled separately, in its place between the others: an
      end that is refused or whose outcome is unknown yet, one whose half message is not open or was
      open when the broker started, a traced request, one that names a half message of the group
    """

    def __init__(self, context: BrokerContext, transactions: TransactionHandler) -> None:
        self._transactions = transactions
        self._appends = context.appends

    def store(self, now_ms: int, ends: Sequence[Received], alone: Alone) -> list[Effect]:
        """Resolve these and reply, in their order; `alone` handles one separately."""
        effects: list[Effect] = []
        group: _Group = {}
        room_bytes = FRAME_RECORD_BYTES_MAX
        for received in ends:
            one = self._prepared(now_ms, received)
            goes_alone = one is None or one.half.offset in group
            if one is None or goes_alone or room_bytes < one.size_bytes or len(group) == _ENDS_MAX:
                effects += self._store(now_ms, group, alone)
                group, room_bytes = {}, FRAME_RECORD_BYTES_MAX
            if one is None or goes_alone:
                effects += alone(now_ms, received)
                continue
            room_bytes -= one.size_bytes
            group[one.half.offset] = received, one
        return effects + self._store(now_ms, group, alone)

    def _prepared(self, now_ms: int, received: Received) -> TransactionEnd | None:
        """Return what the end appends; None if it is handled separately."""
        request = received.request
        assert isinstance(request, EndTransaction)
        if received.to.traced or 0 < received.deadline_ms <= now_ms:
            return None
        try:
            return self._transactions.prepare(request)
        except KourouError:
            return None  # handled separately, it gets the error as a reply

    def _store(self, now_ms: int, group: _Group, alone: Alone) -> list[Effect]:
        if not group:
            return []
        wall_ms = max(received.wall_ms for received, _ in group.values())
        try:
            self._transactions.resolve([one for _, one in group.values()], wall_ms)
        except KourouError:  # no space, or a failed store: each gets its own error
            return [effect for received, _ in group.values() for effect in alone(now_ms, received)]
        effects = self._appends.take_done()
        for received, one in group.values():
            effects += self._transactions.answer(now_ms, received, one.record)
        return effects
