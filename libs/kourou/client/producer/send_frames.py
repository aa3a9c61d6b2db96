"""Conversion of unsent messages to frames, and of a frame's reply to outcomes.

    targets    [T@q0: m1 m3] [T@q1: m2]        one frame: targets q0, q1; records m1 m3 m2
    reply    q0 at offset 7, q1 refused      m1 -> 7, m3 -> 8, m2 -> its target's error

Invariants: a target's messages keep their order, within a frame and across the frames of one burst;
a frame has one set of terms, one attempt number and one target per queue; a frame's records stay
within the two limits, except that a single record is accepted whatever its size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress
from itertools import count as count_from
from operator import attrgetter
from typing import cast

from kourou.client.producer.pending_sends import (
    BatchResult,
    Outcome,
    PendingBatch,
    PendingSend,
    SendTarget,
    Terms,
    draft_bytes,
    first_error,
)
from kourou.errors import Code, DecodeError, KourouError, UnknownOutcome, error_from_code
from kourou.model.limits import FRAME_RECORD_BYTES_MAX, FRAME_RECORDS_MAX
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou.protocol.messages.sends import Target as WireTarget

STORED: dict[int, SendStatus] = {
    Code.SUCCESS: SendStatus.SEND_OK,
    Code.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    Code.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    Code.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
"""The four reply codes after which the messages are stored."""


@dataclass(slots=True)
class SendFrame:
    """Sends in one frame: `messages` are grouped by target; each target has so many records.

    They are messages, or one batch. `counts` are the numbers of records. `attempt` is their attempt
    number; `spared` earlier attempts do not count, because no leader was available.
    """

    address: str
    terms: Terms
    attempt: int
    targets: list[SendTarget]
    counts: list[int]
    messages: list[PendingSend]
    spared: int = 0

    @property
    def deadline_ms(self) -> int:
        """The earliest deadline of all messages; the deadlines differ little."""
        earliest: int = min(map(_deadline_of, self.messages))
        return earliest

    @property
    def sizes(self) -> list[int]:
        """The size of each record."""
        first = self.messages[0]
        if isinstance(first, PendingBatch):
            return first.sizes
        return list(map(len, map(_draft_of, self.messages)))

    @property
    def unique_keys(self) -> Sequence[str]:
        """The unique key of each record."""
        first = self.messages[0]
        if isinstance(first, PendingBatch):
            return first.unique_keys
        return list(map(_key_of, self.messages))


_deadline_of = attrgetter("deadline_ms")
_draft_of, _key_of = attrgetter("draft"), attrgetter("unique_key")


def gather(messages: Sequence[PendingSend]) -> list[SendTarget]:
    """Put messages into their targets' buckets; returns the changed targets, in order."""
    touched = []
    for message in messages:
        target = message.target
        bucket = target.bucket
        if not bucket:
            touched.append(target)
        bucket.append(message)
    return touched


def frames(touched: Sequence[SendTarget], attempt: int = 1, spared: int = 0) -> Iterator[SendFrame]:
    """Empty the targets' buckets into frames."""
    if len(touched) == 1:
        yield from _cut([touched[0]], attempt, spared)
        return
    together: dict[tuple[str, int], dict[MessageQueue, SendTarget]] = {}
    for target in touched:
        targets = together.setdefault((target.address, id(target.terms)), {})
        same = targets.setdefault(target.queue, target)
        if same is not target:  # created before and after a route was refreshed
            same.bucket += target.bucket
            target.bucket = []
    for targets in together.values():
        yield from _cut(list(targets.values()), attempt, spared)


def _cut(targets: list[SendTarget], attempt: int, spared: int) -> Iterator[SendFrame]:
    address, terms = targets[0].address, targets[0].terms
    frame = SendFrame(address, terms, attempt, [], [], [], spared)
    room_count, room_bytes = FRAME_RECORDS_MAX, FRAME_RECORD_BYTES_MAX
    for target in targets:
        bucket, target.bucket = target.bucket, []
        size = draft_bytes(bucket)
        if len(bucket) <= room_count and size <= room_bytes:
            room_count -= len(bucket)
            room_bytes -= size
            _extend(frame, target, bucket)
            continue
        taken = 0
        for index, message in enumerate(bucket):
            room_count -= 1
            room_bytes -= len(message.draft)
            if (room_count < 0 or room_bytes < 0) and (frame.messages or index > taken):
                if index > taken:
                    _extend(frame, target, bucket[taken:index])
                yield frame
                frame = SendFrame(address, terms, attempt, [], [], [], spared)
                room_count = FRAME_RECORDS_MAX - 1
                room_bytes = FRAME_RECORD_BYTES_MAX - len(message.draft)
                taken = index
        _extend(frame, target, bucket[taken:])
    yield frame


def _extend(frame: SendFrame, target: SendTarget, messages: list[PendingSend]) -> None:
    frame.targets.append(target)
    frame.counts.append(records_of(messages))
    frame.messages.extend(messages)


def records_of(messages: Sequence[PendingSend]) -> int:
    """Return the number of records of messages, or of one batch."""
    first = messages[0]
    return len(first.sizes) if isinstance(first, PendingBatch) else len(messages)


def request_of(
    frame: SendFrame,
    *,
    producer_group: str,
    default_topic: str,
    default_topic_queue_nums: int,
    contexts: bytes = b"",
) -> tuple[SendRecords, bytes]:
    """Return the frame as a request and its body; `contexts` are additional trace contexts."""
    drafts, sizes = list(map(_draft_of, frame.messages)), frame.sizes
    target_of = b""
    if len(frame.targets) > 1:
        target_of = b"".join(
            number.to_bytes(2, "little") * count for number, count in enumerate(frame.counts)
        )
    request = SendRecords(
        targets=[WireTarget(target.queue.topic, target.queue.queue_id) for target in frame.targets],
        target_of=target_of,
        sizes=struct.pack(f"<{len(sizes)}I", *sizes),
        producer_group=producer_group,
        default_topic=default_topic,
        default_topic_queue_nums=default_topic_queue_nums,
        attempt=0 if frame.attempt == 1 and frame.terms.repeated else frame.attempt,
        wait=frame.terms.wait,
        contexts=contexts,
    )
    return request, drafts[0] if len(drafts) == 1 else b"".join(drafts)


def outcomes_of(
    frame: SendFrame,
    code: int,
    remark: str,
    answer: SendRecordsResponse | None,
    pause_ms: int = 0,
) -> list[Outcome]:
    """Return one outcome for each send of the frame, in order; `pause_ms` is in an error.

    If the reply does not match the frame, every outcome is unknown.
    """
    status = STORED.get(code)
    if status is None:
        return [error_from_code(code, remark, pause_ms) for _ in frame.messages]
    try:
        if answer is None:
            raise DecodeError("the reply to a send has no message positions")
        place = _placed_by_target if answer.offsets is None else _placed_one_by_one
        outcomes = place(frame, status, answer)
        return [_of_batch(outcomes)] if frame.terms.batch else outcomes
    except DecodeError as error:
        return [UnknownOutcome(f"{frame.address}: {error}") for _ in frame.messages]


def _refusals(frame: SendFrame, answer: SendRecordsResponse) -> list[KourouError | None]:
    """Return for each target the error that it was refused with, or None.

    The messages of a target share the error object, so a caller that awaits several sees one cause.
    """
    count = len(frame.targets)
    if (
        not len(answer.target_codes)
        == len(answer.target_remarks)
        == len(answer.target_offsets)
        == count
    ):
        raise DecodeError("the reply to a send has a different number of queues than the request")
    return [
        None if code == Code.SUCCESS else error_from_code(code, remark)
        for code, remark in zip(answer.target_codes, answer.target_remarks, strict=True)
    ]


def _of_batch(outcomes: list[Outcome]) -> Outcome:
    """Return the one outcome of a batch, from those of its records."""
    return first_error(outcomes) or BatchResult(cast("list[SendResult]", outcomes))


def _placed_by_target(
    frame: SendFrame, status: SendStatus, answer: SendRecordsResponse
) -> list[Outcome]:
    host_text = frame.targets[0].host_text
    refusals = _refusals(frame, answer)
    unique_keys, sizes = frame.unique_keys, frame.sizes
    if any(refusals):
        accepted = [
            error is None
            for error, count in zip(refusals, frame.counts, strict=True)
            for _ in range(count)
        ]
        sizes = list(compress(sizes, accepted))
    positions = iter(_positions(sizes, answer.runs))
    outcomes: list[Outcome] = []
    at = 0
    for target, count, error, first_offset in zip(
        frame.targets, frame.counts, refusals, answer.target_offsets, strict=True
    ):
        if error is not None:
            outcomes.extend([error] * count)
        else:
            queue = target.queue
            outcomes += [
                SendResult(status, unique_key, queue, offset, f"{host_text}{position:016X}")
                for offset, unique_key, position in zip(
                    count_from(first_offset), unique_keys[at : at + count], positions, strict=False
                )
            ]
        at += count
    return outcomes


def _positions(sizes: Sequence[int], runs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the positions of records of these sizes; a run is its first index and its position.

    The records of a run are adjacent in the log. Raises DecodeError if a record has no position.
    """
    ends = [*(first for first, _ in runs[1:]), len(sizes)]
    positions: list[int] = []
    for (first, position), end in zip(runs, ends, strict=False):
        positions += accumulate(sizes[first : end - 1], initial=position)
    if len(positions) != len(sizes) or (positions and min(positions) < 0):
        raise DecodeError("the reply to a send does not have a position for each message")
    return positions


def _placed_one_by_one(
    frame: SendFrame, status: SendStatus, answer: SendRecordsResponse
) -> list[Outcome]:
    offsets, positions, queue_ids = answer.offsets, answer.positions, answer.queue_ids
    unique_keys = frame.unique_keys
    count = len(unique_keys)
    if (
        offsets is None
        or positions is None
        or queue_ids is None
        or not len(offsets) == len(positions) == len(queue_ids) == count
    ):
        raise DecodeError("the reply to a send has positions for a different number of messages")
    host_text = frame.targets[0].host_text
    outcomes: list[Outcome] = []
    places = zip(unique_keys, offsets, positions, queue_ids, strict=True)
    for target, target_count, error in zip(
        frame.targets, frame.counts, _refusals(frame, answer), strict=True
    ):
        for _ in range(target_count):
            unique_key, offset, position, queue_id = next(places)
            if error is not None:
                outcomes.append(error)
                continue
            if position < 0:
                raise DecodeError("the reply to a send has no position for an accepted message")
            queue = target.queue
            if queue_id != queue.queue_id:  # it repeats a message that is stored in another queue
                queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
            outcomes.append(
                SendResult(status, unique_key, queue, offset, f"{host_text}{position:016X}")
            )
    return outcomes
