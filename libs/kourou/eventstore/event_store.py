"""Every event of every stream, for good: history, "as of", and snapshots to start from.

State: projection of the control topic, with unlimited memory. If it is lost, `config/*.json` and
the remaining log rebuild the state, and the history before is lost (`begin`). For a stream without
a commit log it is where events are written first (`record`).

Invariants:  offsets of a stream have no gap; an event once written never changes
             a batch is written whole or not at all
             a snapshot at offset n is the state after the events below n

All calls block; a service runs them in a thread. All raise MetadataUnavailable when the database
cannot be reached, and none waits for it without end (kourou.eventstore.postgres): the data path
goes on, administration waits. The tables are brought up to date by the first call that reaches it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sa

from kourou.engine.control import CONTROL
from kourou.errors import Corrupt, Rejected
from kourou.events.control_events import Cause, Event, Recorded
from kourou.events.stream import Snapshot, State, StreamKind, WrittenMeanwhile
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.schema import bring_up_to_date
from kourou.eventstore.stream_rows import (
    HistoryWanted,
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
from kourou.eventstore.tables import events, snapshots, streams
from kourou.model.limits import HISTORY_BYTES_MAX

READ_EVENTS_MAX = 1_000
"""Events fetched at once, so that a long replay does not hold them all in memory."""


@dataclass(frozen=True, slots=True)
class History:
    """Events of one aggregate, the newest first.

    `cut`: older ones exist and were not asked for; `lost_before`: those with lower offsets are not
    known to this store; `end`: how far the stream reaches.
    """

    entries: tuple[Recorded, ...]
    cut: bool
    lost_before: int
    end: int = 0


class EventStore:
    """Streams of events in one database. Safe to use from several threads.

    With an `owner` ("DefaultCluster/broker-a/0") they are its own streams, and several owners may
    have one database.
    """

    __slots__ = ("_database", "_owner", "_prepared")

    def __init__(self, database: Database, owner: str = "") -> None:
        self._database = database
        self._owner = owner
        self._prepared = False

    @classmethod
    def open(cls, url: str, owner: str = "") -> EventStore:
        """Connect and bring the tables up to date. Raises ConfigError or MetadataUnavailable."""
        store = cls(Database(url), owner)
        try:
            store.prepare()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def at(cls, path: Path) -> EventStore:
        """The store in this SQLite file, made if it is not there."""
        return cls.open(sqlite_url(path))

    def prepare(self) -> None:
        """Bring the tables up to date, unless that is done. Raises as `open`."""
        if not self._prepared:
            bring_up_to_date(self._database)
            self._prepared = True

    def abandon(self) -> None:
        """Wait for the database no more: calls under way in other threads end at once."""
        self._database.abandon()

    def close(self) -> None:
        """Close every connection; calls under way in other threads end."""
        self._database.close()

    def named(self, stream: str) -> str:
        """What a stream of this owner is called in the database."""
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
        """Project events that are safe in the log, in order; returns how many were new.

        Those already here are ignored. Raises Corrupt for a gap, and when an event that is already
        here was another one: then this store has seen a log that was cut back since.
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
        """Write events of a stream without a commit log, and say where they stand.

        `expected_offset` is the `next_offset` of the state on which they were decided. Raises
        WrittenMeanwhile when there are more: somebody else has written since, or an earlier call
        did that could not say so.
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
        """Keep a state (`kind.snapshot(state)`), so that loading does not begin at the beginning.

        It must not be ahead of the stream. Worth its room when `info(...).snapshot_due`.
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
        """Start a stream with a state whose events are lost. Raises Rejected if it has begun."""
        taken = self._own(taken)
        with self._writing() as connection:
            if stream_info(connection, taken.stream) is not None:
                raise Rejected(
                    f"stream {taken.stream} exists already", hint="delete it first to rebuild it"
                )
            insert_stream(connection, taken.stream, first_offset=taken.offset, at_ms=taken.at_ms)
            insert_snapshot(connection, taken)

    def truncate(self, next_offset: int, *, stream: str = CONTROL.name) -> int:
        """Take back the events from `next_offset` on: the log was cut back. Returns how many."""
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

    def forget(self, *, stream: str = CONTROL.name) -> None:
        """Delete everything of a stream."""
        stream = self.named(stream)
        with self._writing() as connection:
            connection.execute(events.delete().where(events.c.stream == stream))
            connection.execute(snapshots.delete().where(snapshots.c.stream == stream))
            connection.execute(streams.delete().where(streams.c.name == stream))

    def set_aside(self, *, stream: str = CONTROL.name) -> str:
        """Let a stream begin anew and keep what it was; returns its new name, "" if it was empty.

        For a stream that is another log's: whoever lost the log, or mixed up two, needs it.
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
        """How far the stream reaches; all zero for one never written."""
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
    ) -> History:
        """What happened to one aggregate (`topic/TopicA`) or to all, the newest first.

        Of all, progress that is recorded all the time is left out, unless its type is named.
        `before` goes on below an offset, `until_ms` below what counts at a wall time; `types` keeps
        only events of these types. Bodies come to `size_max` characters at most, beside a single
        larger one.
        """
        stream = self.named(stream)
        with self._reading() as connection:
            info = stream_info(connection, stream) or StreamInfo()
            if until_ms is not None:
                end = end_as_of(connection, stream, info, until_ms)
                before = end if before is None else min(before, end)
            found, cut = history_offsets(
                connection,
                HistoryWanted(stream, aggregate, limit, size_max, before, frozenset(types)),
            )
            entries = read_events_at(connection, stream, found)
        return History(entries, cut, info.lost_before, info.next_offset)

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
        """The state now, as it was at a wall time, or after the events below `end_offset`.

        With it comes its next offset. An event counts when its time, and that of every event before
        it, is at most `as_of_ms`. Raises Rejected for a time whose history is lost or an offset
        that there is not, Corrupt when nothing readable is left.
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
