"""Sends drafts to their brokers in large frames.

One frame is in flight for each broker, so that the rows of a queue keep their order; the next frame
is filled in the meantime. A frame whose outcome is unknown is sent again with a higher attempt
number, and the broker deduplicates by the unique keys. There is no failover to another broker: the
first one might have stored the frame already, and Spark repeats a failed task anyway.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kourou.client.producer.sender import worth_another_attempt
from kourou.client.session.client_session import Session
from kourou.client.session.connections import header_of
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import DecodeError, KourouError, Unavailable, error_from_code
from kourou.model.limits import FRAME_RECORD_BYTES_MAX, FRAME_RECORDS_MAX
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou.protocol.messages.sends import Target as FrameTarget
from kourou.protocol.table import STORED_BUT
from kourou_spark_etl.sink.draft_columns import Drafts
from kourou_spark_etl.sink.messages import GROUP, Target
from kourou_spark_etl.source.network import OpenClient

ATTEMPT_MS = 10_000
PAUSE_MS = 50
LONGEST_PAUSE_MS = 2_000
_QUEUE_TARGETS_MAX = 65_535


class _Frame:
    """The drafts of one request to a broker."""

    __slots__ = ("address", "drafts", "queue_target_of", "queue_targets", "size_bytes")

    def __init__(self, address: str) -> None:
        self.address = address
        self.queue_targets: dict[tuple[str, int], int] = {}
        self.queue_target_of: list[int] = []
        self.drafts: list[bytes] = []
        self.size_bytes = 0

    def add(self, queue_target: tuple[str, int], draft: bytes) -> None:
        self.queue_target_of.append(
            self.queue_targets.setdefault(queue_target, len(self.queue_targets))
        )
        self.drafts.append(draft)
        self.size_bytes += len(draft)

    def extend(
        self,
        queue_targets: Sequence[tuple[str, int]],
        queue_target_of: npt.NDArray[np.int64],
        drafts: Sequence[bytes],
        size_bytes: int,
    ) -> None:
        """Add drafts of `size_bytes` in total; `lane_of[i]` is the index in `queue_targets` of
        draft i.
        """
        used, which = np.unique(queue_target_of, return_inverse=True)
        own = [
            self.queue_targets.setdefault(queue_targets[number], len(self.queue_targets))
            for number in used.tolist()
        ]
        self.queue_target_of += np.asarray(own)[which].tolist()
        self.drafts += drafts
        self.size_bytes += size_bytes

    def has_room(self, size_bytes: int) -> bool:
        if not self.drafts:
            return True
        return (
            len(self.drafts) < FRAME_RECORDS_MAX
            and len(self.queue_targets) < _QUEUE_TARGETS_MAX
            and self.size_bytes + size_bytes <= FRAME_RECORD_BYTES_MAX
        )


class Sender:
    """Sends the drafts of one task. `counts` is the number of drafts for each broker."""

    def __init__(self, client: OpenClient, timeout_ms: int) -> None:
        self._client = client
        self._session = client.session
        self._timeout_ms = timeout_ms
        self._filling: dict[str, _Frame] = {}
        self._under_way: dict[str, Callable[[], None]] = {}
        self.counts: Counter[str] = Counter()

    def put(self, target: Target, draft: bytes) -> None:
        """Add a draft to a frame; blocks while its broker is slow. Raises KourouError."""
        name = target.broker_name
        frame = self._filling.get(name)
        if frame is None:
            frame = self._filling[name] = _Frame(target.address)
        elif not frame.has_room(len(draft)):
            self._send(name, frame)
            frame = self._filling[name] = _Frame(target.address)
        frame.add((target.topic, target.queue_id), draft)
        self.counts[name] += 1

    def put_many(self, made: Drafts) -> None:
        """Add drafts of one broker, in their order."""
        name, number = made.broker_name, 0
        sizes = np.fromiter(map(len, made.drafts), np.int64, len(made.drafts))
        ends = sizes.cumsum()
        self.counts[name] += len(made.drafts)
        while number < len(made.drafts):
            frame = self._filling.get(name)
            if frame is None:
                frame = self._filling[name] = _Frame(made.address)
            before = int(ends[number - 1]) if number else 0
            room = FRAME_RECORD_BYTES_MAX - frame.size_bytes
            end = int(ends.searchsorted(before + room, "right"))
            end = min(end, number + FRAME_RECORDS_MAX - len(frame.drafts))
            if end <= number and frame.drafts:
                self._send(name, self._filling.pop(name))
                continue
            end = max(end, number + 1)
            size_bytes = int(ends[end - 1]) - before
            frame.extend(
                made.queue_targets,
                made.queue_target_of[number:end],
                made.drafts[number:end],
                size_bytes,
            )
            number = end

    def finish(self) -> None:
        """Send the remaining drafts and wait until brokers have stored all. Raises KourouError."""
        for name, frame in self._filling.items():
            self._send(name, frame)
        self._filling = {}
        for name in list(self._under_way):
            self._under_way.pop(name)()

    def _send(self, name: str, frame: _Frame) -> None:
        before = self._under_way.pop(name, None)
        if before is not None:
            before()
        self._under_way[name] = self._client.submit(_sent(self._session, frame, self._timeout_ms))


async def _sent(session: Session, frame: _Frame, timeout_ms: int) -> None:
    """Send a frame until all of it is stored. Raises the last error if that is not possible."""
    deadline_ms = session.clock.monotonic_ms() + timeout_ms
    attempt, pause_ms = 1, PAUSE_MS
    while True:
        try:
            left = await _attempt(session, frame, attempt, deadline_ms)
            if left is None:
                return
            frame, error = left
        except KourouError as failure:
            error = failure
        out_of_time = session.clock.monotonic_ms() + pause_ms >= deadline_ms
        if out_of_time or not worth_another_attempt(error):
            raise error
        await asyncio.sleep(pause_ms / 1000)
        attempt, pause_ms = attempt + 1, min(2 * pause_ms, LONGEST_PAUSE_MS)


async def _attempt(
    session: Session, frame: _Frame, attempt: int, deadline_ms: int
) -> tuple[_Frame, KourouError] | None:
    """Send a frame once. Returns the rejected drafts and the error, or None."""
    left_ms = deadline_ms - session.clock.monotonic_ms()
    if left_ms <= 0:
        raise Unavailable("the time limit for sending is reached")
    settings = _SETTINGS
    request = SendRecords(
        targets=[FrameTarget(topic, queue_id) for topic, queue_id in frame.queue_targets],
        target_of=np.asarray(frame.queue_target_of, "<u2").tobytes()
        if len(frame.queue_targets) > 1
        else b"",
        sizes=np.asarray(list(map(len, frame.drafts)), "<u4").tobytes(),
        producer_group=GROUP,
        default_topic=settings.create_topic_key,
        default_topic_queue_nums=settings.default_topic_queue_nums,
        attempt=attempt,
    )
    reply = await session.connections.ask(
        frame.address,
        request,
        body=b"".join(frame.drafts),
        timeout_ms=min(left_ms, ATTEMPT_MS),
        also=STORED_BUT,
    )
    codes = header_of(reply, SendRecordsResponse).target_codes
    remarks = header_of(reply, SendRecordsResponse).target_remarks
    if len(codes) != len(frame.queue_targets) or len(remarks) != len(codes):
        raise DecodeError("the reply to a send has another number of queues than the request")
    if not any(codes):
        return None
    errors = [
        error_from_code(code, remark) for code, remark in zip(codes, remarks, strict=True) if code
    ]
    for error in errors:
        if not worth_another_attempt(error):
            raise error
    left = _Frame(frame.address)
    queue_targets = list(frame.queue_targets)
    for number, draft in zip(frame.queue_target_of, frame.drafts, strict=True):
        if codes[number]:
            left.add(queue_targets[number], draft)
    return left, errors[0]


_SETTINGS = ProducerSettings(producer_group=GROUP)
