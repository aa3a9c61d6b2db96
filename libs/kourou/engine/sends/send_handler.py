"""Decides whether messages may be stored, stores them, and replies to their sender.

State: none; appends, confirmations and deduplication keep what is stored and which replies are
pending.

A coalesced send may span topics and queues. Each queue is accepted or refused separately. The
records of refused queues are omitted, those of the others are stored together. A record that is
invalid by itself, such as one above maxMessageSize, has the whole send refused.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from kourou.engine.admin.storage_quotas import StorageQuotas
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.sends.appends import AppendResult, Numbers, Target
from kourou.engine.sends.deduplication import Original, identities_of
from kourou.engine.transactions.half_messages import HALF_TARGET
from kourou.errors import (
    BadRequest,
    Code,
    DiskFull,
    KourouError,
    MessageIllegal,
    NoPermission,
    Throttled,
)
from kourou.model.limits import BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
from kourou.model.names import NOT_FOR_CLIENTS, check_topic
from kourou.model.topic import WRITE, TopicConfig
from kourou.protocol import kernel
from kourou.protocol.kernel_python import OTHER_QUEUE
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou.protocol.record.columns import RecordColumns, check_drafts
from kourou.runtime import Buffer, Received, Reply


class FrameRecords(NamedTuple):
    """The records of a send, back to back, and their sizes.

    `target_of` has the index of each record's queue, None if there is only one queue.
    """

    records: Buffer
    sizes: Numbers
    target_of: Numbers | None


def open_send(received: Received, request: SendRecords) -> FrameRecords:
    """Return the records of a send. Raises BadRequest if the header contradicts itself.

    The records are not checked.
    """
    if len(received.body) != 1:
        raise BadRequest(f"a send must have one body part, this one has {len(received.body)}")
    if not request.targets:
        raise BadRequest("a send must name at least one queue")
    sizes = _numbers(request.sizes, "I", 4, "sizes")
    count, targets = len(sizes), len(request.targets)
    if not 0 < count <= BATCH_MESSAGES_MAX:
        raise BadRequest(
            f"a send must have 1 to {BATCH_MESSAGES_MAX} records, this one has {count}"
        )
    if targets > count or (targets > 1 and len(set(request.targets)) < targets):
        # Each queue is numbered separately: one listed twice would assign offsets twice.
        raise BadRequest("a send must name each of its queues once, and only queues with records")
    if request.target_of:
        target_of = _numbers(request.target_of, "H", 2, "laneOf")
        if len(target_of) != count or max(target_of) >= targets:
            raise BadRequest("laneOf must assign each record to one of the queues")
        return FrameRecords(received.body[0], sizes, target_of)
    if targets != 1:
        raise BadRequest(
            "a send to several queues must have laneOf, which assigns each record to a queue"
        )
    return FrameRecords(received.body[0], sizes, None)


def check_target_bytes(
    drafts: RecordColumns, targets: Sequence[Target], target_of: Numbers | None
) -> None:
    """Raise MessageIllegal if a record's topic or queue ID differs from its queue's."""
    topics = [topic.encode() for topic, _ in targets]
    queue_ids = array("q", [queue_id for _, queue_id in targets])
    problem = kernel.check_targets(drafts.raw, drafts.raw_table, topics, queue_ids, target_of)
    if problem:
        what = "queue id" if problem == OTHER_QUEUE else "topic"
        raise MessageIllegal(
            f"the {what} of a record differs from that of its queue; nothing was stored"
        )


def _numbers(raw: bytes, kind: str, size: int, name: str) -> Numbers:
    if len(raw) % size:
        raise BadRequest(f"{name} is not a whole number of {size}-byte integers")
    return array("q", struct.unpack(f"<{len(raw) // size}{kind}", raw))


def without_refused(
    drafts: RecordColumns, target_of: Numbers | None, codes: Sequence[int]
) -> FrameRecords | None:
    """Return only the records of accepted queues, back to back; None if there are none."""
    if target_of is None:
        return None
    kept = [row for row, number in enumerate(target_of) if not codes[number]]
    if not kept:
        return None
    pieces = [drafts.record(row) for row in kept]
    targets = array("q", [target_of[row] for row in kept])
    return FrameRecords(b"".join(pieces), array("q", map(len, pieces)), targets)


Ensure = Callable[[str, str, int, Received], TopicConfig]
"""(topic, default topic, default queue numbers, request) -> the topic, created if allowed."""

_NOWHERE = Original(-1, -1, -1)


class _Checked(NamedTuple):
    """A coalesced send whose records and queues were checked.

    A queue's code is SUCCESS, or the reason why the queue is refused.
    """

    received: Received
    request: SendRecords
    drafts: RecordColumns
    targets: list[Target]
    target_of: Numbers | None
    codes: list[int]
    remarks: list[str]

    @property
    def numbers(self) -> Sequence[int]:
        """The index of each record's queue."""
        return [0] * len(self.drafts) if self.target_of is None else self.target_of


class SendHandler:
    """Handles sends."""

    def __init__(
        self, context: BrokerContext, ensure_topic: Ensure, storage_quotas: StorageQuotas
    ) -> None:
        self._control = context.control
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._deduplication = context.deduplication
        self._policy = context.policy
        self._traffic = context.traffic
        self._ensure_topic = ensure_topic
        self._storage_quotas = storage_quotas
        self._pressure = context.pressure
        self._redirects = context.redirects

    def topic_for_send(
        self, name: str, default_topic: str, default_nums: int, received: Received
    ) -> TopicConfig:
        """Return the topic a client may send to, created if the broker allows it.

        Raises Rejected, also if the topic is over its quota of stored bytes, and DiskFull while the
        disk is too full to accept messages.
        """
        if not self._policy.permission & WRITE:
            raise NoPermission(
                f"broker {self._policy.broker_name} does not accept messages",
                hint="it has no write permission; send to another broker",
            )
        if self._pressure.refusing:
            self._pressure.check_writable()
        if self._storage_quotas.full:
            self._storage_quotas.check(name)
        topic = self._control.topics.get(name)
        if topic is None or name in NOT_FOR_CLIENTS:
            check_topic(name)
            if name in NOT_FOR_CLIENTS:
                raise NoPermission(f"topic {name} is internal: clients cannot send to it")
            topic = self._ensure_topic(name, default_topic, default_nums, received)
        if not topic.writable:
            raise NoPermission(f"topic {name} is not writable (perm {topic.perm})")
        return topic

    # -- coalesced sends of Kourou's own client -----------------------------------------------

    def records(self, now_ms: int, received: Received, request: SendRecords) -> list[Effect]:
        """Store a coalesced send, and reply for each queue."""
        frame = open_send(received, request)
        records, sizes, target_of = frame
        drafts = check_drafts(records, sizes, self._policy.body_size_max)
        targets = [(target.topic, target.queue_id) for target in request.targets]
        check_target_bytes(drafts, targets, target_of)
        answers = [self._check_target(received, request, target) for target in targets]
        codes = [code for code, _ in answers]
        remarks = [remark for _, remark in answers]
        watched = self._policy.deduplicate_retried_sends and (
            request.attempt != 1 or self._deduplication.watching
        )
        if watched or drafts.elsewhere:
            send = _Checked(received, request, drafts, targets, target_of, codes, remarks)
            effects = self._store_placed(now_ms, send, watched=watched)
            if effects is not None:
                return effects
        refused = any(codes)
        if refused:
            kept = without_refused(drafts, target_of, codes)
            if kept is None:
                return [_none_stored(received, codes, remarks)]
            records, sizes, target_of = kept
        written = self._appends.write(
            bytearray(records), sizes, targets, target_of, received.wall_ms
        )
        self._confirmations.append(written.end)
        self.count(targets, target_of, sizes)
        offsets = written.target_offsets
        if refused:
            offsets = [-1 if code else at for code, at in zip(codes, offsets, strict=True)]
        header = SendRecordsResponse(
            target_codes=codes,
            target_remarks=remarks,
            target_offsets=offsets,
            runs=written.runs,
        )
        reply = Reply(received.to, Code.SUCCESS, "", header)
        return self._confirmations.defer(now_ms, written.end, reply, wait=request.wait)

    def _check_target(
        self, received: Received, request: SendRecords, target: Target
    ) -> tuple[int, str]:
        """Return SUCCESS, or the code and remark with which this queue is refused."""
        try:
            self.require_target(received, request, target)
        except KourouError as error:
            self._traffic.refuse(error.wire_code)
            return int(error.wire_code), str(error)
        return int(Code.SUCCESS), ""

    def knows(self, topic: str) -> bool:
        """Return whether the topic exists."""
        return topic in self._control.topics

    def require_target(self, received: Received, request: SendRecords, target: Target) -> None:
        """Raise Rejected or DiskFull if this queue is refused."""
        topic = self.topic_for_send(
            target[0], request.default_topic, request.default_topic_queue_nums, received
        )
        _check_queue(topic, target[1])

    def count(self, targets: Sequence[Target], target_of: Numbers | None, sizes: Numbers) -> None:
        """Count what was accepted, for statistics."""
        self._traffic.taken_many([target[0] for target in targets], target_of, sizes)

    # -- sends with redirected or repeated messages -------------------------------------------

    def _store_placed(self, now_ms: int, send: _Checked, *, watched: bool) -> list[Effect] | None:
        """Like `records`, for messages that are redirected or may be repeats (`watched`).

        Returns None if there are neither; then nothing has changed. The messages are one append all
        the same. The reply has a place for each message: the queue that its sender named, and the
        offset and position of what was stored. A repeat gets its original's place.
        """
        places = self._store_watched(now_ms, send) if watched else self._store_moved(send)
        return None if places is None else self._placed(now_ms, send, places)

    def _store_moved(self, send: _Checked) -> dict[int, Original] | None:
        """Store a frame that has redirected messages; None if it has none."""
        halves = self._store_halves(send)
        if halves is not None:
            return halves
        moved = self._moved(send)
        if not moved:
            return None
        numbers = send.numbers
        targets = [send.targets[number] for number in numbers]
        rows = [row for row, number in enumerate(numbers) if not send.codes[number]]
        if not rows:
            return {}
        _, places = self.store_some(send.drafts, rows, targets, moved, send.received.wall_ms)
        return dict(zip(rows, places, strict=True))

    def _store_watched(self, now_ms: int, send: _Checked) -> dict[int, Original] | None:
        """Store what is not a repeat; None if nothing is, on a first attempt without redirects."""
        received, request, drafts = send.received, send.request, send.drafts
        moved = self._moved(send)
        targets = [send.targets[number] for number in send.numbers]
        rows = [row for row, number in enumerate(send.numbers) if not send.codes[number]]
        identities = identities_of(drafts, targets, moved)
        duplicates = self._deduplication.duplicate_rows(
            identities, rows, received.wall_ms, retried=request.attempt != 1
        )
        stored_before = duplicates.rows
        if not moved and not stored_before and request.attempt <= 1:
            return None
        places = {
            row: original._replace(queue_id=targets[row][1]) if row in moved else original
            for row, original in duplicates.originals.items()
        }
        rows = [row for row in rows if row not in stored_before]
        at, step = 0, len(rows)
        while at < len(rows):
            part = rows[at : at + step]
            try:
                _, stored = self.store_some(drafts, part, targets, moved, received.wall_ms)
            except (Throttled, DiskFull):
                # What fits of a retried send is stored all the same, and the next attempt finds it.
                # Otherwise a send that is larger than the available space would never be stored.
                if request.attempt <= 1 or step == 1:
                    raise
                step //= 2
                continue
            at += step
            for row, place in zip(part, stored, strict=True):
                places[row] = place
                if request.attempt > 1:
                    self._deduplication.remember(now_ms, identities[row], place)
        for row, first in duplicates.in_same_frame.items():
            places[row] = places[first]
        self._traffic.repeats_removed += len(stored_before)
        return places

    def _store_halves(self, send: _Checked) -> dict[int, Original] | None:
        """Store a frame that has only half messages of batches; otherwise return None."""
        drafts, frames = send.drafts, self._redirects.half_frames
        if frames is None or len(drafts.elsewhere) < len(drafts) or any(send.codes):
            return None
        halves = frames.store(drafts, send.targets, send.target_of, send.received.wall_ms)
        if halves is None:
            return None
        sizes = array("q", drafts.sizes)
        self.count(send.targets, send.target_of, sizes)
        topics = [target[0] for target in send.targets]
        self._traffic.taken_many_to(HALF_TARGET[0], topics, send.target_of, sizes)
        stored = zip(send.numbers, halves.offsets, halves.positions, strict=True)
        return {
            row: Original(send.targets[number][1], offset, position)
            for row, (number, offset, position) in enumerate(stored)
        }

    def _moved(self, send: _Checked) -> dict[int, tuple[Buffer, Target]]:
        """Return the drafts that are redirected, as they are stored, and their queues.

        If a draft cannot be redirected, its queue is refused before anything is stored; if it is
        the only one, its error is raised.
        """
        moved: dict[int, tuple[Buffer, Target]] = {}
        numbers = send.numbers
        for row in send.drafts.elsewhere:
            number = numbers[row]
            if send.codes[number]:
                continue
            draft, wall_ms = send.drafts.record(row), send.received.wall_ms
            try:
                moved[row] = self._redirects.moved(draft, send.targets[number], wall_ms)
            except KourouError as error:
                if len(send.drafts) == 1:
                    raise
                self._traffic.refuse(error.wire_code)
                send.codes[number], send.remarks[number] = int(error.wire_code), str(error)
        return moved

    def _placed(self, now_ms: int, send: _Checked, places: Mapping[int, Original]) -> list[Effect]:
        """Return the reply to a send whose messages have these places; others were refused."""
        if not places:
            return [_none_stored(send.received, send.codes, send.remarks)]
        rows = [places.get(row, _NOWHERE) for row in range(len(send.drafts))]
        header = SendRecordsResponse(
            target_codes=send.codes,
            target_remarks=send.remarks,
            target_offsets=[-1] * len(send.targets),
            runs=[],
            offsets=[place.offset for place in rows],
            positions=[place.position for place in rows],
            queue_ids=[place.queue_id for place in rows],
        )
        reply = Reply(send.received.to, Code.SUCCESS, "", header)
        # A repeat gets its reply when its original is committed; the log's end covers both.
        end = self._confirmations.appended
        return self._confirmations.defer(now_ms, end, reply, wait=send.request.wait)

    def store_some(
        self,
        drafts: RecordColumns,
        rows: Sequence[int],
        targets: Sequence[Target],
        moved: Mapping[int, tuple[Buffer, Target]],
        wall_ms: int,
    ) -> tuple[AppendResult, list[Original]]:
        """Store these rows of checked drafts in one append, those of `moved` in other queues.

        `targets[row]` is where a row was sent to. The second result is the place of each row, with
        that queue. Raises as Appends.write; then nothing has changed.
        """
        records = drafts.records()
        stored = [moved.get(row) or (records[row], targets[row]) for row in rows]
        written = self._appends.write_drafts(
            [draft for draft, _ in stored], [target for _, target in stored], wall_ms
        )
        self._confirmations.append(written.end)
        places: list[Original] = []
        for row, offset, position in zip(rows, written.offsets, written.positions, strict=True):
            (topic, queue_id), size = targets[row], len(records[row])
            places.append(Original(queue_id, offset, position))
            self._traffic.taken(topic, size)
            if row in moved:
                draft, target = moved[row]
                self._redirects.stored(target, offset, position, draft, wall_ms)
                self._traffic.taken_to(target[0], topic, size)
        return written, places


def _check_queue(topic: TopicConfig, queue_id: int) -> None:
    queues = topic.write_queue_nums
    if not 0 <= queue_id < queues:
        raise BadRequest(
            f"queue ID {queue_id} is out of range: topic {topic.name} has {queues} write queues"
        )


def _none_stored(received: Received, codes: list[int], remarks: list[str]) -> Reply:
    header = SendRecordsResponse(
        target_codes=codes, target_remarks=remarks, target_offsets=[-1] * len(codes), runs=[]
    )
    return Reply(received.to, Code.SUCCESS, "", header)


class CoalescedSends:
    """Combines several sends into one append.

    Most of the cost of a small send does not depend on its number of messages. So the sends of one
    batch share it: their records are checked, numbered, stamped and written together.

    Invariants:
    - records are stored in the order in which their sends arrived
    - every sender gets the reply that it would get separately
    - if anything is wrong with one of them, nothing is stored, and each is handled separately

    State: none of its own.
    """

    def __init__(self, context: BrokerContext, sending: SendHandler) -> None:
        self._sending = sending
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._deduplication = context.deduplication
        self._policy = context.policy
        self._redirects = context.redirects

    def groups(self, now_ms: int, sends: Sequence[Received]) -> Iterator[list[Received]]:
        """Yield the sends in order, split into groups that may be stored together."""
        group: list[Received] = []
        room_count = room_bytes = 0
        for received in sends:
            request = received.request
            assert isinstance(request, SendRecords)
            count = len(request.sizes) // 4
            size = len(received.body[0]) if len(received.body) == 1 else 0
            alone = (
                not size
                or request.attempt != 1
                or received.to.traced
                or 0 < received.deadline_ms <= now_ms
            )
            if group and (alone or count > room_count or size > room_bytes):
                yield group
                group = []
            if alone:
                yield [received]
                continue
            if not group:
                room_count, room_bytes = BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
            group.append(received)
            room_count -= count
            room_bytes -= size
        if group:
            yield group

    def store(self, now_ms: int, group: Sequence[Received]) -> list[Effect] | None:
        """Store a group in one append and reply to each; None if they must go separately."""
        if len(group) < 2:
            return None
        try:
            return self._store(now_ms, group)
        except KourouError:
            return None  # handling each separately finds the one at fault

    def _store(self, now_ms: int, group: Sequence[Received]) -> list[Effect] | None:
        numbers: dict[Target, int] = {}
        parts = [_part(received, numbers) for received in group]
        targets = list(numbers)
        if not all(self._sending.knows(topic) for topic, _ in targets):
            return None  # the first of them creates the topic, in its place in the order
        sizes, target_of = array("q"), array("q")
        for part in parts:
            sizes += part.frame.sizes
            target_of += part.target_of
        records = bytearray().join([part.frame.records for part in parts])
        drafts = check_drafts(records, sizes, self._policy.body_size_max)
        check_target_bytes(drafts, targets, target_of)
        for target in targets:
            self._sending.require_target(group[0], parts[0].request, target)
        wall_ms = max(received.wall_ms for received in group)
        own_targets = [targets[number] for number in target_of]
        moved: dict[int, tuple[Buffer, Target]] = {}
        if drafts.elsewhere:
            single = drafts.records()
            if not self._redirects.are_ready(single[row] for row in drafts.elsewhere):
                return None
            for row in drafts.elsewhere:
                moved[row] = self._redirects.moved(single[row], own_targets[row], wall_ms)
        if self._watching and self._deduplication.remembers(
            identities_of(drafts, own_targets, moved)
        ):
            return None
        if moved:
            written, _ = self._sending.store_some(
                drafts, range(len(drafts)), own_targets, moved, wall_ms
            )
        else:
            written = self._appends.write(records, sizes, targets, target_of, wall_ms)
            self._confirmations.append(written.end)
            self._sending.count(targets, target_of, sizes)
        effects = self._appends.take_done()
        for part, header in zip(parts, _headers(parts, written, moved.keys()), strict=True):
            reply = Reply(part.received.to, Code.SUCCESS, "", header)
            wait = part.request.wait
            effects += self._confirmations.defer(now_ms, written.end, reply, wait=wait)
        return effects

    @property
    def _watching(self) -> bool:
        return self._policy.deduplicate_retried_sends and self._deduplication.watching


class _Part(NamedTuple):
    """One send of a group. `target_of` has the index of each record's queue in the group."""

    received: Received
    request: SendRecords
    frame: FrameRecords
    target_of: Numbers


def _part(received: Received, numbers: dict[Target, int]) -> _Part:
    request = received.request
    assert isinstance(request, SendRecords)
    frame = open_send(received, request)
    targets = [
        numbers.setdefault((target.topic, target.queue_id), len(numbers))
        for target in request.targets
    ]
    if frame.target_of is None:
        target_of = array("q", targets) * len(frame.sizes)
    else:
        target_of = array("q", [targets[number] for number in frame.target_of])
    return _Part(received, request, frame, target_of)


def _headers(
    parts: Sequence[_Part], written: AppendResult, moved: Set[int]
) -> Iterator[SendRecordsResponse]:
    """Yield each sender's response: its part of the append, counted from its first record.

    A part that includes `moved` records lists the offset and position of each record.
    """
    offsets, positions = written.offsets.tolist(), written.positions.tolist()
    first = 0
    for part in parts:
        end = first + len(part.target_of)
        targets = part.request.targets
        if moved and not moved.isdisjoint(range(first, end)):
            queue_ids = [target.queue_id for target in targets]
            numbers = part.frame.target_of or [0] * (end - first)
            yield SendRecordsResponse(
                target_codes=[int(Code.SUCCESS)] * len(targets),
                target_remarks=[""] * len(targets),
                target_offsets=[-1] * len(targets),
                runs=[],
                offsets=offsets[first:end],
                positions=positions[first:end],
                queue_ids=[queue_ids[number] for number in numbers],
            )
        else:
            own = part.frame.target_of
            rows = [0] if own is None else map(own.index, range(len(targets)))
            runs = [(0, positions[first])]
            if len(written.runs) > 1:
                runs += [(at - first, place) for at, place in written.runs if first < at < end]
            yield SendRecordsResponse(
                target_codes=[int(Code.SUCCESS)] * len(targets),
                target_remarks=[""] * len(targets),
                target_offsets=[offsets[first + row] for row in rows],
                runs=runs,
            )
        first = end
