"""How a decision becomes a fact: decided events are appended to the log, then change the state.

State: soft, one position; it owns the order "append, then evolve", which replay repeats.

Many events are appended in batches, one write of the log each: a broker that stops may have to
record the progress of 200,000 groups.

The reply to whoever caused an event is owed like the reply to a send: it waits until the log is
confirmed beyond the event's record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from kourou.engine.appends import Appends
from kourou.engine.confirmations import Confirmations
from kourou.engine.control import ControlState, evolve, time_of_next
from kourou.engine.effects import Announce, ConfigChanged, DropTopic, Effect, SaveEpochs
from kourou.errors import KourouError
from kourou.events.control_events import (
    Cause,
    Event,
    GroupDeleted,
    GroupPut,
    OffsetsReset,
    ProgressRecorded,
    Recorded,
    SettingChanged,
    TopicDeleted,
    TopicPut,
    encode_record_body,
    record_properties,
)
from kourou.events.filter_events import FilterEventBase, FilterMessagesSkipped
from kourou.events.replication_events import EpochOpened
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import encode_draft

_TABLES: dict[type, tuple[str, ...]] = {
    TopicPut: ("topics",),
    TopicDeleted: ("topics", "offsets"),
    GroupPut: ("groups",),
    GroupDeleted: ("groups", "offsets"),
    SettingChanged: ("settings",),
    ProgressRecorded: ("offsets",),
    OffsetsReset: ("offsets",),
}

_LANE = (CONTROL_TOPIC, 0)

BATCH_BYTES = 1 << 20
"""Of one append of control events; a single event may be larger."""


class Recorder:
    """Appends control events and evolves the state with them."""

    def __init__(
        self, control: ControlState, appends: Appends, confirmations: Confirmations, host: bytes
    ) -> None:
        self._control = control
        self._appends = appends
        self._confirmations = confirmations
        self._host = host
        self.filters_end = 0
        """Where the log ends behind a change of filters of which nobody has been told; 0: none."""

    def record(self, events: Sequence[Event], cause: Cause, wall_ms: int) -> None:
        """Write `events` in order; their appends, and what these entail, are the core's to take.

        What a batch entails follows its append, in the order of the events. Raises DiskFull,
        Throttled or StoreFaulted for the first event that cannot be written; those before it have
        happened.
        """
        # One time for all events of a decision.
        at_ms = max(self._appends.store_ms, time_of_next(self._control, wall_ms))
        for batch, drafts in self._batches(events, cause, at_ms):
            try:
                self._append(batch, drafts, cause, at_ms)
            except KourouError:
                if len(batch) == 1:
                    raise
                # Those before the one that is refused can be written.
                for event, draft in zip(batch, drafts, strict=True):
                    self._append([event], [draft], cause, at_ms)

    def _batches(
        self, events: Sequence[Event], cause: Cause, at_ms: int
    ) -> Iterator[tuple[list[Event], list[bytes]]]:
        """The events in order, each batch with the drafts of its records."""
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
        written = self._appends.write(bytearray().join(drafts), sizes, [_LANE], None, at_ms)
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
    """What must be done when this event is a fact of that state, whoever recorded it."""
    entailed: list[Effect] = [ConfigChanged(table) for table in _TABLES.get(type(event), ())]
    if isinstance(event, TopicDeleted):
        entailed.append(DropTopic(event.before.name))
    if isinstance(event, TopicPut | TopicDeleted):
        entailed.append(Announce())
    if isinstance(event, FilterEventBase):
        entailed.append(ConfigChanged("filters"))
    if isinstance(event, EpochOpened):
        entailed.append(SaveEpochs(tuple(control.replicas.epochs)))
    return entailed
