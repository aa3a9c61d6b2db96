"""Records of the delivered delayed messages, which are reliable after any crash.

State: log. Each record has the whole table, so only the newest counts.

A record stands *before* the messages whose delivery it announces, in the same append. A log loses
nothing but its end. So when a crash truncates an append, the announcement is there and lists the
messages that were to follow. Those that did follow are delivered, the others are not. If it stood
after them, truncation could leave deliveries that no record lists (decision 0053).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from kourou.engine.delays.clock import Step
from kourou.engine.ports import StoreView
from kourou.errors import Corrupt, DecodeError, KourouError, Rejected
from kourou.model.message import Property
from kourou.model.names import DELAY_PROGRESS_TOPIC, SCHEDULE_TOPIC
from kourou.protocol.record.layout import CRC_MARK, parts_of
from kourou.protocol.record.message_record import decode_record, encode_draft, record_size
from kourou.protocol.record.properties import encode_properties

PROGRESS_TARGET = (DELAY_PROGRESS_TOPIC, 0)

Run = tuple[int, int, int]
"""(level, first offset, count): messages that follow each other in one level's queue."""


class Progress(msgspec.Struct, frozen=True):
    """The body of a progress record.

    `offsets` has the next offset to deliver of each level when this was written. `runs` has the
    deliveries in the order in which they follow in the log, `steps` the clock steps so far.
    """

    offsets: dict[int, int] = {}
    runs: list[Run] = []
    steps: list[Step] = []


@dataclass(slots=True)
class Found:
    """The deliveries so far, from the log. `position` is that of the record, -1 for none."""

    offsets: dict[int, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    position: int = -1
    problems: list[str] = field(default_factory=list)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Progress)


def progress_draft(progress: Progress, at_ms: int, host: bytes) -> bytes:
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


def decode_progress(body: bytes) -> Progress:
    """Decode the body of such a record. Raises DecodeError."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the progress of the delay levels cannot be read: {error}") from error


def find_progress(view: StoreView, segment_size: int) -> Found:
    """Return the progress of each level. A damaged record is skipped and reported."""
    problems: list[str] = []
    low, high = view.queue_range(*PROGRESS_TARGET) or (0, 0)
    for offset in range(high - 1, low - 1, -1):
        position = view.offset_position(*PROGRESS_TARGET, offset)
        if position < 0:
            continue
        try:
            record = view.record_at(position)
            progress = decode_progress(decode_record(record).body)
        except KourouError as error:
            problems.append(f"the progress of the delay levels at position {position}: {error}")
            continue
        offsets = dict(progress.offsets)
        delivered = _delivered(view, progress, position + len(record), segment_size)
        for level, first, count in progress.runs:
            taken = min(count, delivered)
            if taken:
                offsets[level] = first + taken
            delivered -= taken
        return Found(offsets, list(progress.steps), position, problems)
    return Found(problems=problems)


def _delivered(view: StoreView, progress: Progress, position: int, segment_size: int) -> int:
    """Count the announced deliveries that are in the log from `position` on."""
    total = sum(count for _, _, count in progress.runs)
    found = 0
    for level, offset in _announced(progress):
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


def _announced(progress: Progress) -> Iterator[tuple[int, int]]:
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
