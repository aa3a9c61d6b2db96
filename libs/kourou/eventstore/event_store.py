"""Every event of every stream, permanently: history, "as of" queries, and snapshots to start from.

State: projection of the control topic, with unlimited memory. If it is lost, `config/*.json` and
the remaining log restore the state, but the earlier history is lost (`begin`). For a stream without
a commit log this is where events are written first (`record`).

Invariants:  offsets of a stream have no gap; an event once written never changes
             a batch is written completely or not at all
             a snapshot at offset n is the state after the events below n

All calls block; a service runs them in a thread. All raise MetadataUnavailable if the database
cannot be reached, and every wait for it is bounded (kourou.eventstore.database): in the meantime
messages are still processed, and only administration waits. The first call that reaches the
database upgrades its tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sa

from kourou.engine.admin.history import (
    BeginningFound,
    BeginningQuestion,
    EventFound,
    EventQuestion,
    EventsQuestion,
    Found,
    HistoryFound,
    HistoryQuestion,
    StateFound,
    StateQuestion,
    dropped_progress,
    drops_progress,
    events_body,
    state_body,
)
from kourou.engine.admin.log_bootstrap import LogBeginning, encode_beginning, next_control_offset
from kourou.engine.control import CONTROL, ControlState
from kourou.errors import Code, Corrupt, MetadataUnavailable, Rejected
from kourou.events.control_events import Cause, Event, Recorded
from kourou.events.stream import Snapshot, State, StreamKind, WrittenMeanwhile
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.schema import REVISIONS
from kourou.eventstore.stream_rows import (
    HistoryParams,
    StreamInfo,
    check_dense,
    check_same,
    delete_from,
    end_as_of,
    history_offsets,
    insert_events,
    insert_snapshot,
    insert_stream,
    move_stream,
    read_events,
    read_events_at,
    start_state,
    stream_for_update,
    stream_info,
)
from kourou.model.limits import HISTORY_BYTES_MAX, STATE_BYTES_MAX

READ_EVENTS_MAX = 1_000
"""Events fetched at once, so that a long replay does not hold all of them in memory."""


@dataclass(frozen=True, slots=True)
class EventHistory:
    """Events of one aggregate, newest first.

    `cut`: older ones exist beyond the limit; `lost_before`: events with lower offsets are not in
    this store; `end`: the end of the stream.
    """

    entries: tuple[Recorded, ...]
    cut: bool
    lost_before: int
    end: int = 0


class EventStore:
    """Streams of events in one database. Thread-safe.

    With an `owner` ("DefaultCluster/broker-a/0") the streams belong to it, so several owners can
    share one database.
    """

    __slots__ = ("_database", "_owner", "_prepared")

    def __init__(self, database: Database, owner: str = "") -> None:
        self._database = database
        self._owner = owner
        self._prepared = False

    @classmethod
    def open(cls, url: str, owner: str = "") -> EventStore:
        """Connect and upgrade the tables. Raises ConfigError or MetadataUnavailable."""
        store = cls(Database(url), owner)
        try:
            store.prepare()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def at(cls, path: Path) -> EventStore:
        """The store in this SQLite file, created if it does not exist."""
        return cls.open(sqlite_url(path))

    def prepare(self) -> None:
        """Upgrade the tables, unless that is done. Raises as `open`."""
        if not self._prepared:
            REVISIONS.bring_up_to_date(self._database)
            self._prepared = True

    def abandon(self) -> None:
        """Stop waiting for the database: calls in progress in other threads end at once."""
        self._database.abandon()

    def close(self) -> None:
        """Close every connection; calls in progress in other threads end."""
        self._database.close()

    def named(self, stream: str) -> str:
        """The name of this owner's stream in the database."""
        return f"{stream}@{self._owner}" if self._owner else stream

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        self.prepare()
        with self._database.reading() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        self.prepare()
        with self._database.writing() as connection:
            yield connection

    # -- writing ------------------------------------------------------------------------------

    def append(self, recorded: Sequence[Recorded], *, stream: str = CONTROL.name) -> int:
        """Project events that are durable in the log, in order; returns how many were new.

        Events that are already here are ignored. Raises Corrupt for a gap, and if an event differs
        from the one that is already here: then the log was truncated since.
        """
        if not recorded:
            return 0
        stream = self.named(stream)
        with self._writing() as connection:
            info = stream_for_update(connection, stream)
            check_dense(recorded)
            first = recorded[0].offset
            if first > info.next_offset:
                raise Corrupt(
                    f"the event store lacks events {info.next_offset} to {first - 1} of the "
                    f"stream {stream}",
                    hint="project them first, or rebuild the store from the commit log",
                )
            known = info.next_offset - first
            if known:
                check_same(connection, stream, recorded[min(known, len(recorded)) - 1])
            fresh = recorded[known:]
            insert_events(connection, stream, info, fresh)
            return len(fresh)

    def record(
        self,
        kind: StreamKind[State],
        decided: Sequence[Event],
        *,
        expected_offset: int,
        wall_ms: int,
        cause: Cause,
    ) -> list[Recorded]:
        """Write events of a stream without a commit log; returns them with their offsets.

        `expected_offset` is the `next_offset` of the state on which they were decided. Raises
        WrittenMeanwhile if the stream has more events: another writer added them, or an earlier
        call succeeded without being able to report it.
        """
        stream = self.named(kind.name)
        with self._writing() as connection:
            info = stream_for_update(connection, stream)
            if info.next_offset != expected_offset:
                upto = min(info.next_offset, expected_offset + READ_EVENTS_MAX)
                raise WrittenMeanwhile(
                    f"stream {stream} was changed in the meantime: it is at "
                    f"{info.next_offset}, not {expected_offset}",
                    read_events(connection, stream, expected_offset, upto),
                )
            at_ms = max(wall_ms, info.at_ms)
            recorded = [
                Recorded(
                    expected_offset + index,
                    -1,
                    at_ms,
                    cause.actor,
                    cause.reason,
                    cause.trace_id,
                    event,
                    cause.undoes,
                )
                for index, event in enumerate(decided)
            ]
            insert_events(connection, stream, info, recorded)
            return recorded

    def snapshot(self, taken: Snapshot) -> None:
        """Store a state (`kind.snapshot(state)`), so that loading does not replay the whole stream.

        It must not be ahead of the stream. Worth its space if `info(...).snapshot_due`.
        """
        taken = self._own(taken)
        with self._writing() as connection:
            info = stream_for_update(connection, taken.stream)
            if not info.lost_before <= taken.offset <= info.next_offset:
                raise Corrupt(
                    f"a snapshot at offset {taken.offset} is outside stream {taken.stream}, "
                    f"which has offsets {info.lost_before} to {info.next_offset}",
                    hint="append the events first",
                )
            insert_snapshot(connection, taken)

    def begin(self, taken: Snapshot) -> None:
        """Start a stream with a state whose events are lost. Raises Rejected if it exists."""
        taken = self._own(taken)
        with self._writing() as connection:
            if stream_info(connection, taken.stream) is not None:
                raise Rejected(
                    f"stream {taken.stream} exists already", hint="delete it first to rebuild it"
                )
            insert_stream(connection, taken.stream, first_offset=taken.offset, at_ms=taken.at_ms)
            insert_snapshot(connection, taken)

    def truncate(self, next_offset: int, *, stream: str = CONTROL.name) -> int:
        """Remove the events from `next_offset` on: the log was truncated. Returns how many."""
        stream = self.named(stream)
        with self._writing() as connection:
            info = stream_for_update(connection, stream)
            if next_offset >= info.next_offset:
                return 0
            if next_offset < info.lost_before:
                raise Corrupt(
                    f"the event store begins at offset {info.lost_before} of {stream} and cannot "
                    f"go back to {next_offset}",
                    hint="rebuild it from the commit log",
                )
            delete_from(connection, stream, next_offset)
            return info.next_offset - next_offset

    def set_aside(self, *, stream: str = CONTROL.name) -> str:
        """Rename a stream, so that it can start again; returns its new name, "" if it was empty.

        For a stream that belongs to another log: an operator who lost the log, or mixed up two,
        needs it.
        """
        stream = self.named(stream)
        with self._writing() as connection:
            info = stream_info(connection, stream, for_update=True)
            if info is None:
                return ""
            return move_stream(connection, stream)

    def _own(self, taken: Snapshot) -> Snapshot:
        return replace(taken, stream=self.named(taken.stream))

    # -- reading ------------------------------------------------------------------------------

    def info(self, *, stream: str = CONTROL.name) -> StreamInfo:
        """The extent of a stream; all zero for one never written."""
        stream = self.named(stream)
        with self._reading() as connection:
            return stream_info(connection, stream) or StreamInfo()

    def events(
        self, *, after: int = -1, limit: int = READ_EVENTS_MAX, stream: str = CONTROL.name
    ) -> list[Recorded]:
        """Up to `limit` events with offsets above `after`, oldest first."""
        stream = self.named(stream)
        with self._reading() as connection:
            return read_events(connection, stream, after + 1, after + 1 + max(limit, 0))

    def history(
        self,
        aggregate: str = "",
        *,
        limit: int = 100,
        size_max: int = HISTORY_BYTES_MAX,
        before: int | None = None,
        until_ms: int | None = None,
        types: Collection[str] = (),
        stream: str = CONTROL.name,
    ) -> EventHistory:
        """Events of one aggregate (`topic/TopicA`) or of all, newest first.

        For all aggregates, consumer progress, which is recorded continuously, is left out unless
        its type is requested. `before` continues below an offset, `until_ms` limits the result to
        events that count at a wall time; `types` selects event types. The bodies have `size_max`
        characters at most, except that a single larger one is returned.
        """
        stream = self.named(stream)
        with self._reading() as connection:
            info = stream_info(connection, stream) or StreamInfo()
            if until_ms is not None:
                end = end_as_of(connection, stream, info, until_ms)
                before = end if before is None else min(before, end)
            found, cut = history_offsets(
                connection,
                HistoryParams(stream, aggregate, limit, size_max, before, frozenset(types)),
            )
            entries = read_events_at(connection, stream, found)
        return EventHistory(entries, cut, info.lost_before, info.next_offset)

    def event(self, offset: int, *, stream: str = CONTROL.name) -> Recorded | None:
        """One event; None if it is not here."""
        found = self.events(after=offset - 1, limit=1, stream=stream)
        return found[0] if found and found[0].offset == offset else None

    def load(
        self,
        kind: StreamKind[State],
        *,
        as_of_ms: int | None = None,
        end_offset: int | None = None,
    ) -> tuple[State, int]:
        """The current state, the state at a wall time, or the state after the events below
        `end_offset`.

        Returns it with its next offset. An event counts if its time, and that of every earlier
        event, is at most `as_of_ms`. Raises Rejected for a time whose history is lost or an offset
        outside the history, Corrupt if events are missing or no snapshot is readable.
        """
        stream = self.named(kind.name)
        with self._reading() as connection:
            info = stream_info(connection, stream) or StreamInfo()
            end = info.next_offset
            if as_of_ms is not None:
                end = end_as_of(connection, stream, info, as_of_ms)
            if end_offset is not None:
                if not info.lost_before <= end_offset <= info.next_offset:
                    raise Rejected(
                        f"there is no state after event {end_offset - 1}: stream {stream} has "
                        f"history from {info.lost_before} to {info.next_offset}"
                    )
                end = end_offset
            state = start_state(connection, stream, kind, info, end, as_of_ms)
            while state.next_offset < end:
                upto = min(state.next_offset + READ_EVENTS_MAX, end)
                before = state.next_offset
                page = read_events(connection, stream, before, upto)
                for recorded in page:
                    state = kind.evolve(state, recorded)
                if len(page) != upto - before:
                    raise Corrupt(
                        f"the event store lacks events of stream {stream} between "
                        f"{before} and {upto}",
                        hint="rebuild it from the commit log",
                    )
        return state, end


# -- queries about the past -----------------------------------------------------------------------


def answer(store: EventStore, question: EventsQuestion, upto: int) -> Found:
    """The reply to a query. Raises MetadataUnavailable if the store lacks events below `upto`."""
    info = store.info()
    if info.next_offset < upto:
        raise MetadataUnavailable(
            f"the event store has the control events below {info.next_offset}, but "
            f"not yet those below {upto}",
            hint="it is catching up",
        )
    match question:
        case HistoryQuestion():
            return _history(store, question)
        case StateQuestion():
            return _state(store, question, info.lost_before)
        case EventQuestion():
            return _event(store, question.offset, info.lost_before)
        case BeginningQuestion():
            return _beginning(store, question, info.lost_before)


def _history(store: EventStore, question: HistoryQuestion) -> HistoryFound:
    found = store.history(
        question.aggregate,
        limit=question.limit,
        before=question.before,
        until_ms=question.until_ms,
        types=question.types,
    )
    before = found.entries[-1].offset if found.cut else None
    body = events_body(found.entries, hide_users=question.hide_users)
    return HistoryFound(body, before, found.lost_before, found.end)


def _state(store: EventStore, question: StateQuestion, lost_before: int) -> StateFound:
    after = None if question.offset is None else question.offset + 1
    state, end = store.load(CONTROL, as_of_ms=question.at_ms, end_offset=after)
    body = state_body(state, question.aggregate)
    if len(body) > STATE_BYTES_MAX:
        raise Rejected(
            f"the state has {len(body)} bytes; one reply can have at most {STATE_BYTES_MAX}",
            hint="request one aggregate, like topic/orders",
        )
    return StateFound(body, end, state.at_ms, lost_before)


def _event(store: EventStore, offset: int, lost_before: int) -> EventFound:
    recorded = store.event(offset)
    if recorded is None:
        raise Rejected(
            f"event {offset} is lost: the history begins at {lost_before}",
            code=Code.QUERY_NOT_FOUND,
        )
    if not drops_progress(recorded.event):
        return EventFound(recorded)
    before, _ = store.load(CONTROL, end_offset=offset)
    return EventFound(recorded, dropped_progress(before, recorded.event))


def _beginning(store: EventStore, question: BeginningQuestion, lost_before: int) -> BeginningFound:
    offset = next_control_offset(question.queue_ends)
    if 0 < offset < lost_before:
        raise Rejected(
            f"the log has control events from {offset} on, but the event store has no "
            f"state before event {lost_before}, so the state at the start of the log "
            "is unknown",
            hint=f"use another replica, or retry when control event {lost_before} has expired",
            code=Code.QUERY_NOT_FOUND,
        )
    # Before the first event there is nothing to query.
    control = store.load(CONTROL, end_offset=offset)[0] if offset else ControlState()
    # A filler that closes a segment may start an epoch whose record follows it.
    control.replicas.epochs = list(question.epochs)
    beginning = LogBeginning(
        question.cluster,
        question.broker_name,
        question.segment_size,
        question.position,
        question.queue_ends,
        control,
    )
    return BeginningFound(question.position, encode_beginning(beginning))
