"""The history of the service's queries, as events in an event store of its own.

The table etl_batch has the recent batches; the events are the permanent history. An event is
written after the commit of its batch; events that a crash prevented are written at the next start.
So there is exactly one event for each batch.

These are not control events of a broker. The event store does not know their types, and stores them
byte for byte.

State: projection of etl_batch; changes of queries (QueryBegan, QueryFailed) are first written here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from kourou.clock import Clock
from kourou.errors import DecodeError, KourouError
from kourou.events.control_events import Cause, Event, Recorded, UnknownEvent
from kourou.events.stream import StreamKind, WrittenMeanwhile
from kourou.eventstore.event_store import EventStore
from kourou.model.limits import REASON_LENGTH_MAX
from kourou_spark_etl.read_model.read_model import RecordedBatch

STREAM = "spark_etl"
ACTOR = "spark-etl"
_log = logging.getLogger("kourou.spark")


class BatchWritten(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """A micro-batch of a query is done; `query_id` is the ID of its checkpoint."""

    query: str
    query_id: str
    batch_id: int
    rows: int


class QueryBegan(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """A query was started, for the `attempt`th time in this process."""

    query: str
    job: str
    attempt: int


class QueryFailed(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """A query has failed; it is restarted after `again_ms`."""

    query: str
    error: str
    again_ms: int


class QueryEnded(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """A query has ended without an error."""

    query: str


EtlEvent = BatchWritten | QueryBegan | QueryFailed | QueryEnded

_DECODER: msgspec.json.Decoder[EtlEvent] = msgspec.json.Decoder(EtlEvent)


@dataclass(slots=True)
class EtlState:
    """For each query, its checkpoint and the last batch that has an event."""

    last: dict[str, tuple[str, int]] = field(default_factory=dict)
    next_offset: int = 0
    at_ms: int = 0


def evolve(state: EtlState, recorded: Recorded) -> EtlState:
    """Apply one event in place and return the same object."""
    event = of_recorded(recorded)
    if isinstance(event, BatchWritten):
        state.last[event.query] = (event.query_id, event.batch_id)
    state.next_offset = recorded.offset + 1
    state.at_ms = max(state.at_ms, recorded.at_ms)
    return state


def of_recorded(recorded: Recorded) -> EtlEvent | None:
    """The decoded event; None for a type written by a newer version."""
    if not isinstance(recorded.event, UnknownEvent):
        return None
    try:
        return _DECODER.decode(recorded.event.body)
    except msgspec.DecodeError:
        return None


def _as_event(event: EtlEvent) -> Event:
    return UnknownEvent(type(event).__name__, f"query/{event.query}", msgspec.json.encode(event))


class _Snapshot(msgspec.Struct):
    last: dict[str, tuple[str, int]]
    next_offset: int
    at_ms: int


def _encode(state: EtlState) -> bytes:
    return msgspec.json.encode(_Snapshot(state.last, state.next_offset, state.at_ms))


def _decode(body: bytes) -> EtlState:
    try:
        found = msgspec.json.decode(body, type=_Snapshot)
    except msgspec.DecodeError as error:
        raise DecodeError(f"a snapshot of stream {STREAM} is damaged: {error}") from error
    return EtlState(found.last, found.next_offset, found.at_ms)


ETL = StreamKind(STREAM, EtlState, evolve, _encode, _decode)


class BatchEvents:
    """The stream of events in an event store. Thread-safe."""

    def __init__(self, store: EventStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._state: EtlState | None = None
        self.written = 0
        """The number of events since the start."""

        self.behind = False
        """An event of a batch could not be written: `catch_up` is due before the next one."""

    def catch_up(self, batches: Sequence[RecordedBatch]) -> int:
        """Write the missing events of batches. Returns their number."""
        with self._lock:
            state = self._load()
            missing: list[EtlEvent] = [
                BatchWritten(one.query, one.query_id, one.batch_id, one.rows)
                for one in batches
                if _is_new(state, one)
            ]
            if missing:
                self._record(missing, "")
            self.behind = False
            return len(missing)

    def note(self, event: EtlEvent, *, trace_id: str = "") -> bool:
        """Write one event; False, and a warning in the log, if the store cannot be reached.

        A later `catch_up` writes the missing events of batches. A batch that has an event already
        gets no second one: after a crash, Spark runs its last batch again.
        """
        try:
            with self._lock:
                state = self._load()
                if not isinstance(event, BatchWritten) or _is_new(state, event):
                    self._record([event], trace_id)
        except KourouError as error:
            self.behind |= isinstance(event, BatchWritten)
            _log.warning(
                "batch-event-lost: an event of query %(query)s is not written: %(error)s",
                {"query": event.query, "error": error},
            )
            return False
        return True

    def _load(self) -> EtlState:
        if self._state is None:
            self._state, _ = self._store.load(ETL)
        return self._state

    def _record(self, decided: Sequence[EtlEvent], trace_id: str) -> None:
        assert self._state is not None
        cause = Cause(ACTOR, trace_id=trace_id)
        try:
            recorded = self._store.record(
                ETL,
                [_as_event(event) for event in decided],
                expected_offset=self._state.next_offset,
                wall_ms=self._clock.now_ms(),
                cause=cause,
            )
        except WrittenMeanwhile:
            # A write with an unknown outcome, or a second process: reload the state at the next
            # call.
            self._state = None
            raise
        for one in recorded:
            self._state = evolve(self._state, one)
        self.written += len(recorded)
        if self._store.info(stream=STREAM).snapshot_due:
            self._store.snapshot(ETL.snapshot(self._state))

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def _is_new(state: EtlState, batch: RecordedBatch | BatchWritten) -> bool:
    known = state.last.get(batch.query)
    return known is None or known[0] != batch.query_id or batch.batch_id > known[1]


def short(error: str) -> str:
    """Truncate an error's text to the length that an event may have."""
    return error if len(error) <= REASON_LENGTH_MAX else error[: REASON_LENGTH_MAX - 1] + "…"
