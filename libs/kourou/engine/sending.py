"""May this message be stored, and what is its sender told?

Lives here: the checks of a send in RocketMQ's order (fact sheet §2.2), for coalesced batches of our
own client and for single and batch requests of any client; one path stores them all.
May not live here: numbering (engine.appends), releasing answers (engine.confirmations).

State: none; what is stored and who is answered is kept by appends, confirmations and repeats.

A coalesced send may span topics and queues. Each lane (topic, queue) is accepted or refused by
itself; the records of refused lanes are left out, those of the others are stored together.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kourou.engine.appends import Appends, Lane, Numbers, Written
from kourou.engine.confirmations import Confirmations
from kourou.engine.control import ControlState
from kourou.engine.disk_pressure import DiskPressure
from kourou.engine.effects import Effect, Reply
from kourou.engine.inputs import Buffer, Received
from kourou.engine.policy import BrokerPolicy
from kourou.engine.redirects import HALF_LANE, Redirects
from kourou.engine.repeats import Original, Repeats
from kourou.engine.send_frames import check_lane_bytes, open_send, without_refused
from kourou.engine.traffic import Traffic
from kourou.errors import BadRequest, Code, KourouError, NoPermission
from kourou.model.message import Property
from kourou.model.names import NOT_FOR_CLIENTS, check_topic
from kourou.model.permission import WRITE
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.sending import SendRecords, SendRecordsResponse
from kourou.protocol.properties import find_property
from kourou.protocol.record_batch import RecordColumns, check_drafts
from kourou.protocol.record_layout import parts_of

Ensure = Callable[[str, str, int, Received], TopicConfig]
"""(topic, default topic, default queue numbers, request) -> the topic, created if it may be."""


class Sending:
    """Accepts sends."""

    def __init__(
        self,
        control: ControlState,
        appends: Appends,
        confirmations: Confirmations,
        repeats: Repeats,
        policy: BrokerPolicy,
        traffic: Traffic,
        ensure_topic: Ensure,
        pressure: DiskPressure,
        redirects: Redirects,
    ) -> None:
        self._control = control
        self._appends = appends
        self._confirmations = confirmations
        self._repeats = repeats
        self._policy = policy
        self._traffic = traffic
        self._ensure_topic = ensure_topic
        self._pressure = pressure
        self._redirects = redirects

    def topic_for_send(
        self, name: str, default_topic: str, default_nums: int, received: Received
    ) -> TopicConfig:
        """The topic a client may send to, created if the broker allows it.

        Raises Rejected, and DiskFull while the disk is too full to take messages.
        """
        if not self._policy.permission & WRITE:
            raise NoPermission(
                f"broker {self._policy.broker_name} does not accept messages",
                hint="it has no write permission; send to another broker",
            )
        if self._pressure.refusing:
            self._pressure.check_writable()
        topic = self._control.topics.get(name)
        if topic is None or name in NOT_FOR_CLIENTS:
            check_topic(name)
            if name in NOT_FOR_CLIENTS:
                raise NoPermission(f"topic {name} is internal: clients cannot send to it")
            topic = self._ensure_topic(name, default_topic, default_nums, received)
        if not topic.writable:
            raise NoPermission(f"topic {name} is not writable (perm {topic.perm})")
        return topic

    # -- coalesced sends of our own client ----------------------------------------------------

    def records(self, now_ms: int, received: Received, request: SendRecords) -> list[Effect]:
        """Store a coalesced send and answer each lane."""
        frame = open_send(received, request)
        records, sizes, lane_of = frame
        drafts = check_drafts(records, sizes, self._policy.body_size_max)
        lanes = [(lane.topic, lane.queue_id) for lane in request.lanes]
        check_lane_bytes(drafts, lanes, lane_of)
        answers = [self._check_lane(received, request, lane) for lane in lanes]
        codes = [code for code, _ in answers]
        remarks = [remark for _, remark in answers]
        retried = request.attempt != 1
        if self._policy.deduplicate_retried_sends and (retried or self._repeats.watching):
            return self._records_once(
                now_ms, received, request, drafts, lane_of, (codes, remarks, lanes)
            )
        if drafts.elsewhere:
            return self._records_elsewhere(
                now_ms, received, request, drafts, lane_of, (codes, remarks, lanes)
            )
        if any(codes):
            kept = without_refused(drafts, lane_of, codes)
            if kept is None:
                return [_none_stored(received, codes, remarks)]
            records, sizes, lane_of = kept
        written = self._appends.write(bytearray(records), sizes, lanes, lane_of, received.wall_ms)
        self._confirmations.append(written.end)
        self.count(lanes, lane_of, sizes)
        header = SendRecordsResponse(
            lane_codes=codes,
            lane_remarks=remarks,
            lane_offsets=written.lane_offsets,
            runs=written.runs,
        )
        reply = Reply(received.to, Code.SUCCESS, "", header)
        return self._confirmations.owe(now_ms, written.end, reply, wait=request.wait)

    def _check_lane(self, received: Received, request: SendRecords, lane: Lane) -> tuple[int, str]:
        """SUCCESS, or the code and remark with which this lane is refused."""
        try:
            self.require_lane(received, request, lane)
        except KourouError as error:
            self._traffic.refuse(error.wire_code)
            return int(error.wire_code), str(error)
        return int(Code.SUCCESS), ""

    def knows(self, topic: str) -> bool:
        """Is the topic there already?"""
        return topic in self._control.topics

    def require_lane(self, received: Received, request: SendRecords, lane: Lane) -> None:
        """Raise Rejected or DiskFull if this lane is refused."""
        topic = self.topic_for_send(
            lane[0], request.default_topic, request.default_topic_queue_nums, received
        )
        _check_queue(topic, lane[1])

    def count(self, lanes: Sequence[Lane], lane_of: Numbers | None, sizes: Numbers) -> None:
        """Note what was taken, for statistics."""
        self._traffic.taken_many([lane[0] for lane in lanes], lane_of, sizes)

    # -- sends that may be repeats ------------------------------------------------------------

    def _records_once(
        self,
        now_ms: int,
        received: Received,
        request: SendRecords,
        drafts: RecordColumns,
        lane_of: Numbers | None,
        checked: tuple[list[int], list[str], list[Lane]],
    ) -> list[Effect]:
        """As `records`, message by message: a repeat is answered with its original's place."""
        codes, remarks, lanes = checked
        offsets: list[int] = []
        positions: list[int] = []
        queue_ids: list[int] = []
        moved = self._moved(received, drafts, lane_of, checked)
        for index in range(len(drafts)):
            number = 0 if lane_of is None else lane_of[index]
            if codes[number]:
                offsets.append(-1)
                positions.append(-1)
                queue_ids.append(-1)
                continue
            found = self._store_once(
                now_ms, received, request, drafts.record(index), lanes[number], moved.get(index)
            )
            offsets.append(found.offset)
            positions.append(found.position)
            queue_ids.append(found.queue_id)
        header = SendRecordsResponse(
            lane_codes=codes,
            lane_remarks=remarks,
            lane_offsets=[-1] * len(lanes),
            runs=[],
            offsets=offsets,
            positions=positions,
            queue_ids=queue_ids,
        )
        reply = Reply(received.to, Code.SUCCESS, "", header)
        # A repeat may be answered only when its original is confirmed; the log's end covers both.
        return self._confirmations.owe(
            now_ms, self._confirmations.appended, reply, wait=request.wait
        )

    def _store_once(
        self,
        now_ms: int,
        received: Received,
        request: SendRecords,
        draft: memoryview,
        lane: Lane,
        elsewhere: tuple[Buffer, Lane] | None,
    ) -> Original:
        """Store a draft, or what is stored `elsewhere` instead, unless it is stored already."""
        key, body_crc = _identity(draft)
        retried = request.attempt != 1
        wall_ms = received.wall_ms
        moved, place = elsewhere or (draft, lane)
        original = self._repeats.find(place[0], key, body_crc, wall_ms, retried=retried)
        if original is not None:
            self._traffic.repeats_removed += 1
            # What lies elsewhere is told by the queue that its sender knows.
            return original if place == lane else replace(original, queue_id=lane[1])
        offset, position = self._appends.write_one(moved, place, wall_ms)
        self._confirmations.append(self._appends.end)
        self._traffic.taken(lane[0], len(draft))
        if place != lane:
            self._redirects.stored(place, offset, position, moved, wall_ms)
            self._traffic.taken_to(place[0], lane[0], len(draft))
        placed = Original(lane[1], offset, position, len(draft))
        if request.attempt > 1:
            self._repeats.remember(now_ms, place[0], key, body_crc, placed)
        return placed

    # -- sends that are stored elsewhere ------------------------------------------------------

    def _moved(
        self,
        received: Received,
        drafts: RecordColumns,
        lane_of: Numbers | None,
        checked: tuple[list[int], list[str], list[Lane]],
    ) -> dict[int, tuple[Buffer, Lane]]:
        """Those drafts that may go elsewhere, as they are stored, and where.

        One that cannot be redirected refuses its lane, before anything is stored; if it is alone,
        what refuses it is raised.
        """
        codes, remarks, lanes = checked
        moved: dict[int, tuple[Buffer, Lane]] = {}
        if not drafts.elsewhere:
            return moved
        records = drafts.records()
        for row in drafts.elsewhere:
            number = 0 if lane_of is None else lane_of[row]
            if codes[number]:
                continue
            try:
                moved[row] = self._redirects.moved(records[row], lanes[number], received.wall_ms)
            except KourouError as error:
                if len(drafts) == 1:
                    raise
                self._traffic.refuse(error.wire_code)
                codes[number], remarks[number] = int(error.wire_code), str(error)
        return moved

    def _records_elsewhere(
        self,
        now_ms: int,
        received: Received,
        request: SendRecords,
        drafts: RecordColumns,
        lane_of: Numbers | None,
        checked: tuple[list[int], list[str], list[Lane]],
    ) -> list[Effect]:
        """As `records`, with some of them stored in other queues than they were sent to.

        They are one append all the same, and each message is placed by itself in the answer: by the
        queue its sender named, and offset and position of what was stored.
        """
        codes, remarks, lanes = checked
        wall_ms = received.wall_ms
        frames = self._redirects.half_frames
        if frames is not None and len(drafts.elsewhere) == len(drafts) and not any(codes):
            halves = frames.store(drafts, lanes, lane_of, wall_ms)
            if halves is not None:
                sizes = array("q", drafts.sizes)
                told = halves.offsets.tolist(), halves.positions.tolist()
                self.count(lanes, lane_of, sizes)
                self._traffic.taken_many_to(
                    HALF_LANE[0], [lane[0] for lane in lanes], lane_of, sizes
                )
                return self._told_places(now_ms, received, request, checked, lane_of, told)
        moved = self._moved(received, drafts, lane_of, checked)
        numbers = [0] * len(drafts) if lane_of is None else lane_of
        rows = [row for row, number in enumerate(numbers) if not codes[number]]
        if not rows:
            return [_none_stored(received, codes, remarks)]
        written = self.store_some(
            drafts, rows, [lanes[number] for number in numbers], moved, wall_ms
        )
        offsets, positions = [-1] * len(numbers), [-1] * len(numbers)
        for row, offset, position in zip(rows, written.offsets, written.positions, strict=True):
            offsets[row], positions[row] = offset, position
        return self._told_places(now_ms, received, request, checked, lane_of, (offsets, positions))

    def store_some(
        self,
        drafts: RecordColumns,
        rows: Sequence[int],
        lanes: Sequence[Lane],
        moved: Mapping[int, tuple[Buffer, Lane]],
        wall_ms: int,
    ) -> Written:
        """Store these rows of checked drafts in one append, those of `moved` elsewhere.

        `lanes[row]` is where a row was sent to. Raises as Appends.write; then nothing has changed.
        """
        records = drafts.records()
        stored = [moved.get(row) or (records[row], lanes[row]) for row in rows]
        written = self._appends.write_drafts(
            [draft for draft, _ in stored], [lane for _, lane in stored], wall_ms
        )
        self._confirmations.append(written.end)
        places = zip(rows, written.offsets, written.positions, strict=True)
        for row, offset, position in places:
            topic, size = lanes[row][0], len(records[row])
            self._traffic.taken(topic, size)
            if row in moved:
                draft, lane = moved[row]
                self._redirects.stored(lane, offset, position, draft, wall_ms)
                self._traffic.taken_to(lane[0], topic, size)
        return written

    def _told_places(
        self,
        now_ms: int,
        received: Received,
        request: SendRecords,
        checked: tuple[list[int], list[str], list[Lane]],
        lane_of: Numbers | None,
        places: tuple[list[int], list[int]],
    ) -> list[Effect]:
        """The answer to a send whose messages have these offsets and positions, one by one."""
        codes, remarks, lanes = checked
        count = len(places[0])
        numbers = [0] * count if lane_of is None else lane_of
        header = SendRecordsResponse(
            lane_codes=codes,
            lane_remarks=remarks,
            lane_offsets=[-1] * len(lanes),
            runs=[],
            offsets=places[0],
            positions=places[1],
            queue_ids=[lanes[number][1] for number in numbers],
        )
        reply = Reply(received.to, Code.SUCCESS, "", header)
        end = self._confirmations.appended
        return self._confirmations.owe(now_ms, end, reply, wait=request.wait)


def _check_queue(topic: TopicConfig, queue_id: int) -> None:
    queues = topic.write_queue_nums
    if not 0 <= queue_id < queues:
        raise BadRequest(
            f"queue ID {queue_id} is out of range: topic {topic.name} has {queues} write queues"
        )


def _none_stored(received: Received, codes: list[int], remarks: list[str]) -> Reply:
    header = SendRecordsResponse(
        lane_codes=codes, lane_remarks=remarks, lane_offsets=[-1] * len(codes), runs=[]
    )
    return Reply(received.to, Code.SUCCESS, "", header)


def _identity(draft: memoryview) -> tuple[str, int]:
    """A draft's unique key and body checksum."""
    parts = parts_of(draft, 0, len(draft))
    key = find_property(draft[parts.props_at :], Property.UNIQ_KEY.value.encode())
    return (key or b"").decode("ascii", "replace"), parts.crc
