"""What must be known to begin a log above position 0: where another one's begins.

Retention has taken the oldest records there, and with them what they told: which topics, groups,
offsets, settings and epochs there were, and how far each queue had counted.

State: none; the value is a projection of the log as it was.

Invariants:  `control` is the state after exactly those control events whose records lie below
                 `position`, and after an epoch that a filler there began
             the first control event of a log from `position` on has the offset control.next_offset
             two of the same position, of members of one group, are equal
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from kourou.engine.control import ControlState, decode_state, encode_state
from kourou.engine.ports import StoreView
from kourou.errors import DecodeError, Rejected
from kourou.events.event_base import Count
from kourou.model.limits import LOG_BEGINNING_BYTES_MAX
from kourou.model.names import CONTROL_TOPIC

FORMAT = 1

QueueEnds = dict[str, dict[int, int]]
"""Topic -> queue id -> the offset that its first message from the beginning on has, or will."""


@dataclass(frozen=True, slots=True)
class LogBeginning:
    """Whoever knows this can begin an empty log at `position`."""

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
        """That of the byte before the position; 0 if no epoch was opened below it."""
        return self.control.replicas.epoch

    @property
    def next_offset(self) -> int:
        """That of the first control event from the position on."""
        return self.control.next_offset


def queue_ends_of(view: StoreView) -> QueueEnds:
    """The minimum offset of every queue that has lost messages."""
    ends: QueueEnds = {}
    for topic in view.topics():
        for queue_id in view.queue_ids(topic):
            low, _ = view.queue_range(topic, queue_id) or (0, 0)
            if low:
                ends.setdefault(topic, {})[queue_id] = low
    return ends


def next_control_offset(ends: QueueEnds) -> int:
    """How many control events are lost with what `queue_ends_of` found."""
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
    """As JSON; equal ones give equal bytes. Raises Rejected beyond LOG_BEGINNING_BYTES_MAX."""
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
    """What `encode_beginning` wrote. Raises DecodeError."""
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
