"""Transactions: half messages are stored, and resolved by the place they have in the log (F252).

State: the table of open half messages (a projection, see there); soft: how the latest ones ended,
for producers that ask twice.

A commit appends the message and the op record that ends its half in one piece, the message first.
So a log that is cut anywhere has neither, or both, or the message alone; the last is found out by
its unique key before a half message that was open at start is resolved or asked about, and then
only the op record is written. Nothing is stored twice, nothing committed is lost. Ends that share
an append (engine.joint_ends) follow one another in it, so this holds for each of them.

A place that a request names proves nothing: a body may hold bytes that look like a half message.
What is resolved is what the table, or the half topic's queue, has at that offset.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kourou.engine.appends import Appends, Lane, Written
from kourou.engine.confirmations import Confirmations
from kourou.engine.control import ControlState
from kourou.engine.disk_pressure import DiskPressure
from kourou.engine.effects import Effect
from kourou.engine.half_messages import (
    COMMIT,
    GIVEN_UP_LANE,
    HALF_LANE,
    OP_LANE,
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
from kourou.engine.half_recovery import open_halves
from kourou.engine.open_halves import TRANSACTION_GROUP, OpenHalf, OpenHalves
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import StoreView
from kourou.engine.progress import Commits
from kourou.engine.recording import Recorder
from kourou.engine.topics import decide_transaction_topics
from kourou.errors import Corrupt, NoPermission, Rejected, TopicNotFound
from kourou.events.control_events import Cause
from kourou.model.limits import RESOLVED_REMEMBERED_MAX
from kourou.model.message import Property
from kourou.model.names import HALF_TOPIC
from kourou.model.sysflag import SysFlag
from kourou.protocol.message_id import decode_offset_id
from kourou.protocol.messages.transactions import EndTransaction, ResumeCheckHalfMessage
from kourou.protocol.record_layout import parts_of
from kourou.protocol.request import Request
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import Buffer, Received

GIVEN_UP = 0
"""How a half message ended that nobody resolved; COMMIT and ROLLBACK are the other two ways."""

_OUTCOMES = {COMMIT: "commit", ROLLBACK: "rollback", GIVEN_UP: "given_up"}
_FOREVER_MS = 2**62
_TICK_MS_MAX = 1_000
"""Ticks come oftener than that, whatever a wall clock says that somebody set."""

_HALF_TOPIC = HALF_TOPIC.encode()
_SAME_KEY_MAX = 32
"""So many messages of one unique key are looked at; a producer's keys differ."""


class Ending(NamedTuple):
    """How an open half message ends: `final` is the message, if it is to be stored now."""

    half: OpenHalf
    record: HalfRecord
    outcome: int
    final: tuple[Lane, bytes] | None

    @property
    def size_bytes(self) -> int:
        """Of the message, which is nearly all that is appended."""
        return len(self.final[1]) if self.final is not None else 0


class Transactions:
    """The half messages of one broker. `host` is the broker's own, encoded."""

    def __init__(
        self,
        view: StoreView,
        control: ControlState,
        commits: Commits,
        appends: Appends,
        confirmations: Confirmations,
        recorder: Recorder,
        pressure: DiskPressure,
        policy: BrokerPolicy,
        host: bytes,
    ) -> None:
        self._view = view
        self._control = control
        self._commits = commits
        self._appends = appends
        self._confirmations = confirmations
        self._recorder = recorder
        self._pressure = pressure
        self._policy = policy
        self._host = host
        # Not a dict: to find the oldest, it would pass over all that were taken out before.
        self._ended: OrderedDict[int, int] = OrderedDict()
        self._touched = False
        self._now_ms = self._wall_ms = 0
        self.halves = OpenHalves()
        self.resolved = dict.fromkeys(_OUTCOMES.values(), 0)
        self.resolved_by_topic: Counter[tuple[str, str]] = Counter()

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """The requests this desk answers."""
        return {EndTransaction: self.end, ResumeCheckHalfMessage: self.resume}

    def start(self, now_ms: int, wall_ms: int) -> None:
        """Find the half messages that are open, before anything is served."""
        self.halves = open_halves(self._view, self._commits, now_ms, wall_ms)
        self._touched = self.halves.half_end > 0
        self.tick(now_ms, wall_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """What the clocks say; a half message that comes later counts its age from here."""
        self._now_ms, self._wall_ms = now_ms, wall_ms

    def settle(self) -> None:
        """Commit how far the queues of transactions are done; recorded like any group's progress.

        Cheap while nothing happened.
        """
        if self._touched:
            self._touched = False
            half, op = self.halves.done()
            self._commits.commit(TRANSACTION_GROUP, *HALF_LANE, half)
            self._commits.commit(TRANSACTION_GROUP, *OP_LANE, op)

    # -- phase one ----------------------------------------------------------------------------

    def half(self, draft: Buffer, lane: Lane, wall_ms: int) -> bytes:
        """The half message to store instead of a checked draft for `lane`, in HALF_LANE.

        Raises NoPermission where this broker takes none, and whatever recording raises when the
        topics of transactions have to be made.
        """
        if self._policy.reject_transactions:
            raise NoPermission("this broker does not accept transactional messages")
        half = half_of(draft, lane)
        if HALF_TOPIC not in self._control.topics:
            self._make_topics(wall_ms)
        return half

    def _make_topics(self, wall_ms: int) -> None:
        events = decide_transaction_topics(self._control.topics)
        self._recorder.record(events, Cause("broker", "first transaction"), wall_ms)

    def stored(self, offset: int, position: int, half: Buffer, wall_ms: int) -> None:
        """A half message was stored: it is open."""
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
        """May half messages be stored, without anything to be made first?"""
        return not self._policy.reject_transactions and HALF_TOPIC in self._control.topics

    def touch(self, wall_ms: int) -> int:
        """Something is open that was stored at this time; returns it as monotonic ms."""
        self._touched = True
        return self._now_ms + min(max(wall_ms - self._wall_ms, 0), _TICK_MS_MAX)

    # -- phase two ----------------------------------------------------------------------------

    def end(self, now_ms: int, received: Received, request: EndTransaction) -> list[Effect]:
        """A producer knows what became of its half message (37), or does not know it yet.

        Asking again changes nothing. A message that was given up may still be committed. Raises
        Rejected for places that hold no half message of that group, and for what was decided the
        other way before.
        """
        wanted = request.commit_or_rollback
        if wanted not in (COMMIT, ROLLBACK):
            return [Reply(received.to)]  # not known yet: it will be asked again
        half, record = self._asked_about(request)
        if half is not None:
            self._resolve(half, record, wanted, received.wall_ms)
        else:
            self._resolve_again(record, wanted, received.wall_ms)
        return self.answer(now_ms, received, record)

    def prepare(self, request: EndTransaction) -> Ending | None:
        """What this end has to append if it may go with others; changes nothing. Raises as `end`.

        None where nothing follows from it, or where the log has to be asked what became of it.
        """
        wanted = request.commit_or_rollback
        if wanted not in (COMMIT, ROLLBACK):
            return None
        half, record = self._asked_about(request)
        if half is None or not half.proven:
            return None
        return Ending(half, record, wanted, self._final(record) if wanted == COMMIT else None)

    def answer(self, now_ms: int, received: Received, record: HalfRecord) -> list[Effect]:
        """Tell who resolved a half message, once all that was appended is safe."""
        end = self._confirmations.appended
        return self._confirmations.owe(now_ms, end, Reply(received.to), wait=record.wait)

    def _asked_about(self, request: EndTransaction) -> tuple[OpenHalf | None, HalfRecord]:
        """The half message a request names, its newest copy if it is open; None if it is not."""
        record = self._named(request)
        half = self.halves.at(record.queue_offset)
        if half is None:
            half = self.halves.copy_of(record)
            if half is not None:
                record = self.read(half.position)
        return half, record

    def _named(self, request: EndTransaction) -> HalfRecord:
        """The half message at the place a request names, with RocketMQ's three checks."""
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
        """Is this what the half queue has at its offset, and not bytes that look like it?"""
        half = self.halves.at(record.queue_offset)
        if half is not None:
            return half.position == record.position
        if self._view.offset_position(*HALF_LANE, record.queue_offset) == record.position:
            return True
        raw = self._appends.unprojected_at(record.position)  # perhaps not in its queue yet
        if raw is None:
            return False
        parts = parts_of(raw, 0, len(raw))
        return bytes(raw[parts.topic_at : parts.topic_end]) == _HALF_TOPIC

    def read(self, position: int) -> HalfRecord:
        """The record at a position. Raises Rejected if none starts there, Corrupt if it fails."""
        try:
            return read_half(self._view.record_at(position))
        except Rejected:
            # Appended, answered, and not in the log's files yet.
            raw = self._appends.unprojected_at(position)
            if raw is None:
                raise
            return read_half(raw)

    def _resolve(self, half: OpenHalf, record: HalfRecord, wanted: int, wall_ms: int) -> None:
        found = COMMIT if self.is_committed(half, record) else None
        final = self._final(record) if wanted == COMMIT and found is None else None
        self.resolve([Ending(half, record, found or wanted, final)], wall_ms)
        if found is not None:
            _require_same(found, wanted)

    def is_committed(self, half: OpenHalf, record: HalfRecord) -> bool:
        """Was the message of an open half stored, and the op record behind it lost?

        Only that of a half message that was open when the broker started may be.
        """
        if half.proven:
            return False
        half.proven = True
        return self.committed_copy(record)

    def resolve(self, endings: Sequence[Ending], wall_ms: int) -> None:
        """Append messages and op records in one piece; the half messages, all others, are closed.

        Each message stands before its op record. Raises as Appends.write; then nothing has
        changed.
        """
        born_ms = max(self._appends.store_ms, wall_ms)
        drafts: list[tuple[Lane, bytes]] = []
        ops: list[int] = []
        for one in endings:
            if one.final is not None:
                drafts.append(one.final)
            ops.append(len(drafts))
            drafts.append((OP_LANE, operation(one.half.offset, born_ms, self._host)))
        offsets = self.append_placed(drafts, wall_ms).offsets
        for one, op in zip(endings, ops, strict=True):
            offset = one.half.offset
            self.halves.close(one.half, one.record.identity)
            self.halves.noted(offsets[op], offset)
            self.remember(offset, one.outcome, one.record)

    def remember(self, half_offset: int, outcome: int, record: HalfRecord | None) -> None:
        """A half message ended so; kept for those who ask again. `record`: None if it is lost."""
        self._touched = True
        told = _OUTCOMES[outcome]
        self.resolved[told] += 1
        if record is not None:
            self.resolved_by_topic[record.real_lane[0], told] += 1
        ended = self._ended
        if len(ended) >= RESOLVED_REMEMBERED_MAX:
            ended.popitem(last=False)
        ended[half_offset] = outcome

    def count_batch(self, outcome: int, count: int, topics: Mapping[str, int]) -> None:
        """So many half messages of a batch ended so; `topics` are those of the committed ones."""
        self._touched = True
        told = _OUTCOMES[outcome]
        self.resolved[told] += count
        for topic, number in topics.items():
            self.resolved_by_topic[topic, told] += number

    def put_back(self, half: OpenHalf, offset: int, position: int, record: HalfRecord) -> None:
        """An open half message was appended once more: there it is open now."""
        self._touched = True
        self.halves.move(half, offset, position, record.identity)

    def close_given_up(self, half: OpenHalf, record: HalfRecord) -> None:
        """A half message was appended where operators find it, and is open no more."""
        self.halves.close(half, record.identity)
        self.remember(half.offset, GIVEN_UP, record)

    def forget(self, half: OpenHalf) -> None:
        """The record of an open half message is lost; nothing can come of it."""
        self.halves.close(half, None)
        self.remember(half.offset, GIVEN_UP, None)

    @property
    def store_ms(self) -> int:
        """The store time of what was appended last."""
        return self._appends.store_ms

    def _resolve_again(self, record: HalfRecord, wanted: int, wall_ms: int) -> None:
        """The half message is not open: it was resolved, or given up."""
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
        return GIVEN_UP if self.has_copy(record, GIVEN_UP_LANE[0], 0) else ROLLBACK

    def committed_copy(self, record: HalfRecord) -> bool:
        """Does the real topic have the committed message of this half message?"""
        return self.has_copy(record, record.real_lane[0], COMMIT)

    def has_copy(self, record: HalfRecord, topic: str, transaction: int) -> bool:
        """Does the topic have this very message? Without a unique key or an index nobody knows."""
        identity = record.identity
        if identity is None:
            return False
        try:
            found = self._view.find_by_key(
                topic, identity[1], max_count=_SAME_KEY_MAX, begin_ms=0, end_ms=_FOREVER_MS
            )
        except Rejected:  # messageIndexEnable=false: then RocketMQ's own uncertainty stays
            return False
        for raw in found:
            one = read_half(raw)
            bits = one.sys_flag & int(SysFlag.TRANSACTION_MASK)
            if one.identity == identity and bits == transaction:
                return True
        return False

    def _final(self, record: HalfRecord) -> tuple[Lane, bytes]:
        """The message for its real topic; its queue if it is still there."""
        lane = self.final_lane(record)
        return lane, committed(record, lane[1])

    def final_lane(self, record: HalfRecord) -> Lane:
        """Where a half message goes now. Raises TopicNotFound or DiskFull."""
        return self.lane_now(*record.real_lane)

    def lane_now(self, topic: str, queue_id: int) -> Lane:
        """Where a message that was sent to this queue goes now. Raises as `final_lane`."""
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

    # -- an operator ----------------------------------------------------------------------------

    def resume(
        self, now_ms: int, received: Received, request: ResumeCheckHalfMessage
    ) -> list[Effect]:
        """Begin anew to ask about a half message that was given up (323). Raises Rejected."""
        _, position = decode_offset_id(request.msg_id)
        record = self.read(position)
        offset = record.queue_offset
        if self._view.offset_position(*GIVEN_UP_LANE, offset) != position:
            raise Rejected(
                f"{request.msg_id} is not a half message whose checks ended without an outcome"
            )
        if self.committed_copy(record):
            raise Rejected(f"the message {request.msg_id} was committed")
        if self.halves.copy_of(record) is not None:
            raise Rejected(f"the transaction of {request.msg_id} is still open")
        half = checked(record, 0)
        half_offset, half_position = self._appends.write_one(half, HALF_LANE, received.wall_ms)
        self._confirmations.append(self._appends.end)
        one = OpenHalf(half_offset, half_position, now_ms)
        self.halves.open_copy(one, record.identity)
        self._touched = True
        return self._confirmations.owe(now_ms, self._confirmations.appended, Reply(received.to))

    # -- appending ------------------------------------------------------------------------------

    def append_placed(self, drafts: Sequence[tuple[Lane, bytes]], wall_ms: int) -> Written:
        """Append drafts in one piece. Raises as Appends.write; then nothing has changed."""
        written = self._appends.write_drafts(
            [draft for _, draft in drafts], [lane for lane, _ in drafts], wall_ms
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
