"""Records of the delivered delayed messages, reliable after any crash, and the clock for them.

State: log. Each record has the whole table, so only the newest counts.

A record stands *before* the messages whose delivery it announces, in the same append. A log loses
nothing but its end. So when a crash truncates an append, the announcement is there and lists the
messages that were to follow. Those that did follow are delivered, the others are not. If it stood
after them, truncation could leave deliveries that no record lists (decision 0053).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from kourou.engine.ports import StoreView
from kourou.errors import Corrupt, DecodeError, KourouError, Rejected
from kourou.model.limits import CLOCK_STEPS_MAX
from kourou.model.message import Property
from kourou.model.names import DELAY_PROGRESS_TOPIC, SCHEDULE_TOPIC
from kourou.protocol.record.layout import CRC_MARK, parts_of
from kourou.protocol.record.message_record import decode_record, encode_draft, record_size
from kourou.protocol.record.properties import encode_properties
from kourou.runtime import LogWarning

STEP_MS_MIN = 20
"""How much two readings of two clocks, one after the other, may differ without a step."""

Step = tuple[int, int]
"""(position, ms): records below it were stamped by a clock that many ms behind the current one."""


class DelayClock:
    """Computes by how much due times move.

    State: projection. The steps are in the records of kourou.engine.delays.progress.

    A message is due when its delay has passed since it was stored, and its store time is wall time.
    After the clock is set forward, a message would be due too early by wall time. So every step is
    recorded with the log position where it happened: records before it have store times of the
    former clock. After a step backwards such messages are due by wall time, later than necessary,
    because a message must not be early by either clock. A step back that is reverted costs nothing.

    Drift is not a step: between two readings, a clock that is being adjusted moves by less than a
    thousandth.
    """

    __slots__ = ("_difference_ms", "steps")

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self.steps: list[Step] = list(steps)
        self._difference_ms: int | None = None

    def look(self, wall_ms: int, monotonic_ms: int, log_end: int) -> int:
        """Compare both clocks, read together; return by how much wall time was set, else 0."""
        difference_ms = wall_ms - monotonic_ms
        before_ms, self._difference_ms = self._difference_ms, difference_ms
        if before_ms is None:
            return 0
        step_ms = difference_ms - before_ms
        if abs(step_ms) < STEP_MS_MIN:
            return 0
        self.steps.append((log_end, step_ms))
        while len(self.steps) > CLOCK_STEPS_MAX:
            # Merge the oldest two: messages between them may be due later.
            (_, first_ms), (position, second_ms) = self.steps[:2]
            self.steps[:2] = [(position, max(first_ms, 0) + second_ms)]
        return step_ms

    def forget(self) -> None:
        """Forget the steps, because no waiting message was stored before now."""
        self.steps.clear()

    def due_ms(self, position: int, nominal_ms: int) -> int:
        """Return the wall time from which a message at `position` is due.

        By its own store time, its delay ends at `nominal_ms`.
        """
        if not self.steps:
            return nominal_ms
        ahead_ms = sum(ms for end, ms in self.steps if position < end)
        return nominal_ms + max(0, ahead_ms)


PROGRESS_TARGET = (DELAY_PROGRESS_TOPIC, 0)

Run = tuple[int, int, int]
"""(level, first offset, count): messages that follow each other in one level's queue."""


class DelayProgress(msgspec.Struct, frozen=True):
    """The body of a progress record.

    `offsets` has the next offset to deliver of each level when this was written. `runs` has the
    deliveries in the order in which they follow in the log, `steps` the clock steps so far.
    """

    offsets: dict[int, int] = {}
    runs: list[Run] = []
    steps: list[Step] = []


@dataclass(slots=True)
class FoundProgress:
    """The deliveries so far, from the log. `position` is that of the record, -1 for none."""

    offsets: dict[int, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    position: int = -1
    problems: list[LogWarning] = field(default_factory=list)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(DelayProgress)


def progress_draft(progress: DelayProgress, at_ms: int, host: bytes) -> bytes:
    """Encode the record as a draft for `PROGRESS_TARGET`; `at_ms` is wall time.

    `host` is the broker's own encoded address.
    """
    return encode_draft(
        topic=DELAY_PROGRESS_TOPIC.encode(),
        queue_id=0,
        body=_ENCODER.encode(progress),
        properties=encode_properties({Property.TAGS: "DelayProgress"}),
        born_timestamp=at_ms,
        born_host=host,
    )


def decode_progress(body: bytes) -> DelayProgress:
    """Decode the body of such a record. Raises DecodeError."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the progress of the delay levels cannot be read: {error}") from error


def find_progress(view: StoreView, segment_size: int) -> FoundProgress:
    """Return the progress of each level. A damaged record is skipped and reported."""
    problems: list[LogWarning] = []
    low, high = view.queue_range(*PROGRESS_TARGET) or (0, 0)
    for offset in range(high - 1, low - 1, -1):
        position = view.offset_position(*PROGRESS_TARGET, offset)
        if position < 0:
            continue
        try:
            record = view.record_at(position)
            progress = decode_progress(decode_record(record).body)
        except KourouError as error:
            problems.append(
                LogWarning(
                    "delay-progress-unreadable: the progress of the delay levels at position "
                    "%(position)d: %(error)s",
                    {"position": position, "error": str(error)},
                )
            )
            continue
        offsets = dict(progress.offsets)
        delivered = _delivered(view, progress, position + len(record), segment_size)
        for level, first, count in progress.runs:
            taken = min(count, delivered)
            if taken:
                offsets[level] = first + taken
            delivered -= taken
        return FoundProgress(offsets, list(progress.steps), position, problems)
    return FoundProgress(problems=problems)


def _delivered(view: StoreView, progress: DelayProgress, position: int, segment_size: int) -> int:
    """Count the announced deliveries that are in the log from `position` on."""
    total = sum(count for _, _, count in progress.runs)
    found = 0
    for level, offset in _listed(progress):
        end = view.log_range()[1]
        record: memoryview | None = None
        while record is None and position < end:
            try:
                record = view.record_at(position)
            except Rejected:  # a filler ends the segment
                position += segment_size - position % segment_size
            except Corrupt:
                return total  # damage in the middle: the log continues after the deliveries
        if record is None or not _is_copy(view, level, offset, record):
            return found  # another broker continued where the append was truncated
        position += record_size(record, 0)
        found += 1
    return found


def _listed(progress: DelayProgress) -> Iterator[tuple[int, int]]:
    for level, first, count in progress.runs:
        for offset in range(first, first + count):
            yield level, offset


def _is_copy(view: StoreView, level: int, offset: int, record: memoryview) -> bool:
    """Return whether this is the delivery of that message; True if the message is gone."""
    position = view.offset_position(SCHEDULE_TOPIC, level - 1, offset)
    if position < 0:
        return True
    try:
        waiting = view.record_at(position)
    except KourouError:
        return True
    return _identity(waiting) == _identity(record)


def _identity(record: memoryview) -> tuple[int, int, bytes]:
    parts = parts_of(record, 0, len(record))
    properties = bytes(record[parts.props_at :])
    mark = properties.rfind(CRC_MARK)
    own = properties if mark < 0 else properties[:mark]
    return parts.crc, parts.born_timestamp, own.rstrip(b"\x02")
