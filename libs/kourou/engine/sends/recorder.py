"""Control events in the log: decided events are appended, applied to the state, and read back.

State: soft, one position. This module owns the order "append, then evolve", which replay repeats.

Many events are appended in batches, one write of the log each: a broker that stops may have to
record the progress of 200,000 groups.

The reply to the request that caused an event waits like the reply to a send, until the log is
committed beyond the event's record.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

import msgspec

from kourou.engine.control import ControlState, evolve, time_of_next
from kourou.engine.effects import Announce, ConfigChanged, DropTopic, Effect, SaveEpochs
from kourou.engine.ports import StoreView
from kourou.engine.sends.appends import Appends
from kourou.engine.sends.confirmations import Confirmations
from kourou.errors import Code, KourouError
from kourou.events.control_events import (
    ACCESS_TYPES,
    EVENT_TYPES,
    AccessEventBase,
    Cause,
    EpochOpened,
    Event,
    EventLost,
    FilterEventBase,
    FilterMessagesSkipped,
    GroupDeleted,
    GroupPut,
    OffsetsReset,
    ProgressRecorded,
    Recorded,
    SettingChanged,
    TopicDeleted,
    TopicPut,
    UnknownEvent,
    decode_record_body,
    encode_record_body,
    record_properties,
)
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.record.hashes import tags_code
from kourou.protocol.record.message_record import decode_record, encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.runtime import Buffer, LogWarning, Received, Reply

_TABLES: dict[type, tuple[str, ...]] = {
    TopicPut: ("topics",),
    TopicDeleted: ("topics", "offsets"),
    GroupPut: ("groups",),
    GroupDeleted: ("groups", "offsets"),
    SettingChanged: ("settings",),
    ProgressRecorded: ("offsets",),
    OffsetsReset: ("offsets",),
}

_TARGET = (CONTROL_TOPIC, 0)

_CODES_ABOUT_USERS = frozenset(map(tags_code, ACCESS_TYPES))
_OTHER_CODES = frozenset(map(tags_code, EVENT_TYPES - ACCESS_TYPES))

BATCH_BYTES = 1 << 20
"""The size of one append of control events; a single event may be larger."""


class Recorder:
    """Appends control events and applies them to the state."""

    def __init__(
        self, control: ControlState, appends: Appends, confirmations: Confirmations, host: bytes
    ) -> None:
        self._control = control
        self._appends = appends
        self._confirmations = confirmations
        self._host = host
        self.filters_end = 0
        """The log's end after a change of filters that filter servers do not know yet; 0: none."""

    def record(self, events: Sequence[Event], cause: Cause, wall_ms: int) -> None:
        """Write `events` in order; the core takes their appends and the effects that follow.

        The effects of a batch follow its append, in the order of the events. Raises DiskFull,
        Throttled or StoreFaulted for the first event that cannot be written; those before it are
        recorded.
        """
        # All events of a decision have the same time.
        at_ms = max(self._appends.store_ms, time_of_next(self._control, wall_ms))
        for batch, drafts in self._batches(events, cause, at_ms):
            try:
                self._append(batch, drafts, cause, at_ms)
            except KourouError:
                if len(batch) == 1:
                    raise
                # The events before the refused one can be written.
                for event, draft in zip(batch, drafts, strict=True):
                    self._append([event], [draft], cause, at_ms)

    def _batches(
        self, events: Sequence[Event], cause: Cause, at_ms: int
    ) -> Iterator[tuple[list[Event], list[bytes]]]:
        """Yield the events in order, in batches, each with the drafts of its records."""
        batch: list[Event] = []
        drafts: list[bytes] = []
        size_bytes = 0
        for event in events:
            draft = encode_draft(
                topic=CONTROL_TOPIC.encode(),
                queue_id=0,
                body=encode_record_body(event, at_ms=at_ms, cause=cause),
                properties=encode_properties(record_properties(event)),
                born_timestamp=at_ms,
                born_host=self._host,
            )
            if batch and size_bytes + len(draft) > BATCH_BYTES:
                yield batch, drafts
                batch, drafts, size_bytes = [], [], 0
            batch.append(event)
            drafts.append(draft)
            size_bytes += len(draft)
        if batch:
            yield batch, drafts

    def _append(
        self, events: Sequence[Event], drafts: Sequence[bytes], cause: Cause, at_ms: int
    ) -> None:
        """Append all of them or raise, then evolve."""
        sizes = array("q", map(len, drafts))
        written = self._appends.write(bytearray().join(drafts), sizes, [_TARGET], None, at_ms)
        self._confirmations.append(written.end)
        entailed: list[Effect] = []
        for event, offset, position in zip(events, written.offsets, written.positions, strict=True):
            evolve(
                self._control,
                Recorded(
                    offset,
                    position,
                    at_ms,
                    cause.actor,
                    cause.reason,
                    cause.trace_id,
                    event,
                    cause.undoes,
                ),
            )
            if isinstance(event, FilterEventBase) and not isinstance(event, FilterMessagesSkipped):
                self.filters_end = written.end
            for effect in entailed_by(event, self._control):
                if not (entailed and isinstance(effect, ConfigChanged) and effect == entailed[-1]):
                    entailed.append(effect)
        self._appends.also(entailed)


def entailed_by(event: Event, control: ControlState) -> list[Effect]:
    """Return the effects of a recorded event, whichever broker recorded it."""
    entailed: list[Effect] = [ConfigChanged(table) for table in _TABLES.get(type(event), ())]
    if isinstance(event, TopicDeleted):
        entailed.append(DropTopic(event.before.name))
    if isinstance(event, TopicPut | TopicDeleted | AccessEventBase | UnknownEvent | EventLost):
        entailed.append(Announce())
    if isinstance(event, FilterEventBase):
        entailed.append(ConfigChanged("filters"))
    if isinstance(event, EpochOpened):
        entailed.append(SaveEpochs(tuple(control.replicas.epochs)))
    return entailed


class PendingReplies:
    """Records decided events, and replies when they are committed.

    State: none of its own.
    """

    def __init__(self, recorder: Recorder, confirmations: Confirmations) -> None:
        self._recorder = recorder
        self._confirmations = confirmations

    def decided(
        self,
        now_ms: int,
        received: Received,
        events: Sequence[Event],
        *,
        header: msgspec.Struct | Callable[[], msgspec.Struct] | None = None,
        body: Sequence[Buffer] = (),
        reason: str = "",
        undoes: int | None = None,
    ) -> list[Effect]:
        """Record `events`, then reply SUCCESS with `header` and `body` when they are committed.

        `undoes` is the offset of the event that they undo. A `header` that depends on the state
        afterwards is a function.

        Without events nothing changes now. But earlier changes may not be committed yet, and the
        reply reflects them, so it waits too. Raises as recording does.
        """
        given = getattr(received.request, "reason", "")
        why = reason or given or type(received.request).__name__
        cause = self.cause(received, why, undoes)
        self._recorder.record(events, cause, received.wall_ms)
        fields = header() if callable(header) else header
        reply = Reply(received.to, Code.SUCCESS, "", fields, body)
        end = self._confirmations.appended
        return self._confirmations.defer(now_ms, end, reply, decision=True)

    def cause(self, received: Received, reason: str, undoes: int | None = None) -> Cause:
        """Return who causes something, why, and under which trace. Raises BadRequest."""
        trace_id = received.trace[:16].hex() if any(received.trace) else ""
        return Cause(received.actor, reason, trace_id, undoes)


BATCH_EVENTS = 500
READ_BYTES = 1 << 20


def read_control_events(
    view: StoreView, offset: int, below: int, lost: Callable[[LogWarning], None]
) -> list[Recorded]:
    """Read up to `BATCH_EVENTS` events from `offset` on, with records below position `below`.

    An unreadable event is returned as EventLost, so that offsets have no gap; `lost` gets the
    reason. It says whether the event was about users, as far as the queue knows its tag.
    """
    read = view.read_queue(
        CONTROL_TOPIC,
        0,
        offset,
        max_messages=BATCH_EVENTS,
        max_bytes=READ_BYTES,
        codes=None,
        below=below,
    )
    found: dict[int, Recorded] = {}
    for record in read.records:
        stored = decode_record(record)
        try:
            found[stored.offset] = decode_record_body(
                stored.body, offset=stored.offset, position=stored.position
            )
        except KourouError as error:
            lost(
                LogWarning(
                    "control-event-unreadable: control event %(offset)d: %(error)s",
                    {"offset": stored.offset, "error": error},
                )
            )
    batch: list[Recorded] = []
    for at in range(offset, read.next_offset):
        recorded = found.get(at)
        if recorded is None:
            lost(
                LogWarning(
                    "control-event-skipped: control event %(offset)d is unreadable and is skipped",
                    {"offset": at},
                )
            )
            event = EventLost("its record is unreadable", _about_users(view, at, below))
            recorded = Recorded(at, -1, 0, "broker", "", "", event)
        batch.append(recorded)
    return batch


def _about_users(view: StoreView, offset: int, below: int) -> bool | None:
    """Return whether the unreadable event at an offset is about users; None if that is not known.

    The queue has the code of its tag, unless the queue's unit is damaged, too.
    """

    def meets(codes: frozenset[int]) -> bool:
        read = view.read_queue(
            CONTROL_TOPIC, 0, offset, max_messages=1, max_bytes=1, codes=codes, below=below
        )
        records = map(decode_record, read.records)
        return offset in read.corrupt_offsets or any(one.offset == offset for one in records)

    if meets(frozenset()):
        return None
    if meets(_CODES_ABOUT_USERS):
        return True
    return False if meets(_OTHER_CODES) else None
