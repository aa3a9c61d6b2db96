"""The state that is needed to begin a log above position 0, where another log begins.

Retention has deleted the oldest records there, and the facts that they contained: topics, groups,
offsets, settings and epochs, and how many messages each queue had.

State: none; the value is a projection of the log as it was.

Invariants:
- `control` is the state after exactly those control events whose records are below `position`, and
  after an epoch that begins with a filler there
- the first control event of a log from `position` on has the offset control.next_offset
- two values for the same position, from replicas of one group, are equal
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from kourou.engine.control import ControlState, decode_state, encode_state
from kourou.engine.ports import StoreView
from kourou.errors import DecodeError, Rejected
from kourou.events.control_events import Count
from kourou.model.limits import LOG_BEGINNING_BYTES_MAX
from kourou.model.names import CONTROL_TOPIC

FORMAT = 1

QueueEnds = dict[str, dict[int, int]]
"""Topic -> queue ID -> the offset of its first message, present or future, in such a log."""


@dataclass(frozen=True, slots=True)
class LogBeginning:
    """What is needed to begin an empty log at `position`."""

    cluster: str
    broker_name: str
    segment_size: int
    position: int
    queue_ends: QueueEnds
    control: ControlState

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, position where it starts) of those that start below the position."""
        return self.control.replicas.epochs

    @property
    def epoch(self) -> int:
        """The epoch of the byte before the position; 0 if no epoch starts below it."""
        return self.control.replicas.epoch

    @property
    def next_offset(self) -> int:
        """The offset of the first control event from the position on."""
        return self.control.next_offset


def queue_ends_of(view: StoreView) -> QueueEnds:
    """Return the minimum offset of every queue that has lost messages."""
    ends: QueueEnds = {}
    for topic in view.topics():
        for queue_id in view.queue_ids(topic):
            low, _ = view.queue_range(topic, queue_id) or (0, 0)
            if low:
                ends.setdefault(topic, {})[queue_id] = low
    return ends


def next_control_offset(ends: QueueEnds) -> int:
    """Return how many control events were deleted, from a result of `queue_ends_of`."""
    return ends.get(CONTROL_TOPIC, {}).get(0, 0)


# -- bytes ----------------------------------------------------------------------------------------


class _Stored(msgspec.Struct):
    format: int
    cluster: str
    broker_name: str
    segment_size: Annotated[int, msgspec.Meta(gt=0)]
    position: Count
    queue_ends: dict[str, dict[Count, Count]]
    control: msgspec.Raw


class _Format(msgspec.Struct):
    format: int


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Stored)


def encode_beginning(beginning: LogBeginning) -> bytes:
    """Encode as JSON, equal ones equally. Raises Rejected beyond LOG_BEGINNING_BYTES_MAX."""
    body = _ENCODER.encode(
        _Stored(
            FORMAT,
            beginning.cluster,
            beginning.broker_name,
            beginning.segment_size,
            beginning.position,
            {
                topic: dict(sorted(queues.items()))
                for topic, queues in sorted(beginning.queue_ends.items())
            },
            msgspec.Raw(encode_state(beginning.control)),
        )
    )
    if len(body) > LOG_BEGINNING_BYTES_MAX:
        raise Rejected(
            f"the state before position {beginning.position} has {len(body)} bytes; "
            f"at most {LOG_BEGINNING_BYTES_MAX} can be sent"
        )
    return body


def decode_beginning(body: bytes) -> LogBeginning:
    """Decode what `encode_beginning` wrote. Raises DecodeError."""
    try:
        found = msgspec.json.decode(body, type=_Format).format
        if found != FORMAT:
            raise DecodeError(
                f"the start of the log has format {found}; this version reads {FORMAT}"
            )
        stored = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the start of the log cannot be read: {error}") from error
    control = decode_state(bytes(stored.control))
    if control.next_offset != next_control_offset(stored.queue_ends):
        raise DecodeError(
            f"the start of the log has the state after {control.next_offset} control "
            f"events, but {next_control_offset(stored.queue_ends)} precede it"
        )
    if any(start >= stored.position for _, start in control.replicas.epochs):
        raise DecodeError(f"an epoch starts after {stored.position}, where the log starts")
    if stored.position % stored.segment_size:
        raise DecodeError(
            f"{stored.position} is not the start of a segment of {stored.segment_size} bytes"
        )
    return LogBeginning(
        stored.cluster,
        stored.broker_name,
        stored.segment_size,
        stored.position,
        stored.queue_ends,
        control,
    )
