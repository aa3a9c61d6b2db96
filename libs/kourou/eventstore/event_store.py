"""Every event of every stream, for good: history, "as of", and snapshots to start from.

Lives here: reading and writing streams. May not live here: what an event means (kourou.engine),
connections (database), tables (tables), their making (schema).

State: projection of the control topic, with unlimited memory. If it is lost, `config/*.json` and the
remaining log rebuild the state, and the history before is lost (`begin`). For a stream without a
commit log it is where events are written first (`record`).

Invariants:  offsets of a stream have no gap; an event once written never changes
             a batch is written whole or not at all
             a snapshot at offset n is the state after the events below n

All calls block; a service runs them in a thread. All raise MetadataUnavailable when the database
cannot be reached: the data path goes on, administration waits.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from kourou.engine.control import CONTROL
from kourou.engine.events import Cause, Event, Recorded, decode_event, encode_event
from kourou.engine.stream import State, StreamKind
from kourou.errors import Corrupt, DecodeError, MetadataUnavailable, Rejected
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.schema import bring_up_to_date
from kourou.eventstore.tables import events, snapshots, streams

READ_EVENTS_MAX = 1_000
"""Events fetched at once, so that a long replay does not hold them all in memory."""
SNAPSHOT_AFTER_BYTES_MIN = 256 * 1024
"""Fewer bytes of events are faster to replay than another snapshot is to keep."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """How far a stream reaches here. `lost_before` events of its beginning are not known here."""

    lost_before: int = 0
    next_offset: int = 0
    position: int = -1
    at_ms: int = 0
    snapshot_due: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """Events of one aggregate, the newest first.

    `cut`: older ones exist and were not asked for; `lost_before`: those with lower offsets are not
    known to this store.
    """

    entries: tuple[Recorded, ...]
    cut: bool
    lost_before: int


class EventStore:
    """Streams of events in one database. Safe to use from several threads."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str) -> EventStore:
        """Connect and bring the tables up to date. Raises ConfigError or MetadataUnavailable."""
        database = Database(url)
        try:
            bring_up_to_date(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @classmethod
    def at(cls, path: Path) -> EventStore:
        """The store in this SQLite file, made if it is not there."""
        return cls.open(sqlite_url(path))

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    # -- writing ------------------------------------------------------------------------------

    def append(self, recorded: Sequence[Recorded], *, stream: str = CONTROL.name) -> int:
        """Project events that are safe in the log, in order; returns how many were new.

        Those already here are ignored. Raises Corrupt for a gap, and when an event that is already
        here was another one: then this store has seen a log that was cut back since.
        """
        if not recorded:
            return 0
        with self._database.writing() as connection:
            info = _stream_for_update(connection, stream)
            _check_dense(recorded)
            first = recorded[0].offset
            if first > info.next_offset:
                raise Corrupt(
                    f"the event store lacks events {info.next_offset} to {first - 1} of the "
                    f"stream {stream}",
                    hint="project them first, or rebuild the store from the commit log",
                )
            known = info.next_offset - first
            if known:
                _check_same(connection, stream, recorded[min(known, len(recorded)) - 1])
            fresh = recorded[known:]
            _insert(connection, stream, info, fresh)
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
        MetadataUnavailable when somebody else has written since: load the state and decide again.
        """
        with self._database.writing() as connection:
            info = _stream_for_update(connection, kind.name)
            if info.next_offset != expected_offset:
                raise MetadataUnavailable(
                    f"somebody else has written to the stream {kind.name}: it is at "
                    f"{info.next_offset}, not {expected_offset}"
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
                )
                for index, event in enumerate(decided)
            ]
            _insert(connection, kind.name, info, recorded)
            return recorded

    def snapshot(self, kind: StreamKind[State], state: State) -> None:
        """Keep the state, so that loading it does not begin at the beginning.

        The state must not be ahead of the stream. Worth its room when `info(...).snapshot_due`.
        """
        with self._database.writing() as connection:
            info = _stream_for_update(connection, kind.name)
            if state.next_offset > info.next_offset:
                raise Corrupt(
                    f"a snapshot at offset {state.next_offset} is ahead of the stream "
                    f"{kind.name}, which ends at {info.next_offset}",
                    hint="append the events first",
                )
            _insert_snapshot(connection, kind, state)

    def begin(self, kind: StreamKind[State], state: State) -> None:
        """Start an empty stream with a state whose events are lost. Raises Rejected if it is not."""
        with self._database.writing() as connection:
            if _info(connection, kind.name) is not None:
                raise Rejected(
                    f"the stream {kind.name} is not empty", hint="forget it first to rebuild it"
                )
            connection.execute(
                streams.insert().values(
                    name=kind.name,
                    first_offset=state.next_offset,
                    next_offset=state.next_offset,
                    position=-1,
                    at_ms=state.at_ms,
                    snapshot_bytes=0,
                    bytes_since_snapshot=0,
                )
            )
            _insert_snapshot(connection, kind, state)

    def truncate(self, next_offset: int, *, stream: str = CONTROL.name) -> int:
        """Take back the events from `next_offset` on: the log was cut back. Returns how many."""
        with self._database.writing() as connection:
            info = _stream_for_update(connection, stream)
            if next_offset >= info.next_offset:
                return 0
            if next_offset < info.lost_before:
                raise Corrupt(
                    f"the event store begins at offset {info.lost_before} of {stream} and cannot "
                    f"go back to {next_offset}",
                    hint="rebuild it from the commit log",
                )
            _delete_from(connection, stream, next_offset)
            return info.next_offset - next_offset

    def forget(self, *, stream: str = CONTROL.name) -> None:
        """Delete everything of a stream, for a rebuild."""
        with self._database.writing() as connection:
            connection.execute(events.delete().where(events.c.stream == stream))
            connection.execute(snapshots.delete().where(snapshots.c.stream == stream))
            connection.execute(streams.delete().where(streams.c.name == stream))

    # -- reading ------------------------------------------------------------------------------

    def info(self, *, stream: str = CONTROL.name) -> StreamInfo:
        """How far the stream reaches; all zero for one never written."""
        with self._database.reading() as connection:
            return _info(connection, stream) or StreamInfo()

    def events(
        self, *, after: int = -1, limit: int = READ_EVENTS_MAX, stream: str = CONTROL.name
    ) -> list[Recorded]:
        """Up to `limit` events with offsets above `after`, oldest first."""
        with self._database.reading() as connection:
            return _read(connection, stream, after + 1, after + 1 + max(limit, 0))

    def history(
        self,
        aggregate: str,
        *,
        limit: int = 100,
        before: int | None = None,
        types: Collection[str] = (),
        stream: str = CONTROL.name,
    ) -> History:
        """What happened to one aggregate (`topic/TopicA`), the newest first.

        `before` goes on below an offset; `types` keeps only events of these types.
        """
        wanted = (
            sa.select(events)
            .where(events.c.stream == stream, events.c.aggregate == aggregate)
            .order_by(events.c.offset.desc())
            .limit(limit + 1)
        )
        if before is not None:
            wanted = wanted.where(events.c.offset < before)
        if types:
            wanted = wanted.where(events.c.type.in_(sorted(types)))
        with self._database.reading() as connection:
            info = _info(connection, stream) or StreamInfo()
            rows = connection.execute(wanted).all()
        entries = tuple(_recorded(row) for row in rows[:limit])
        return History(entries, len(rows) > limit, info.lost_before)

    def load(self, kind: StreamKind[State], *, as_of_ms: int | None = None) -> tuple[State, int]:
        """The state now, or as it was at a wall time, and its next offset.

        An event counts when its time, and that of every event before it, is at most `as_of_ms`.
        Raises Rejected for a time whose history is lost, Corrupt when nothing readable is left.
        """
        with self._database.reading() as connection:
            info = _info(connection, kind.name) or StreamInfo()
            end = info.next_offset
            if as_of_ms is not None:
                end = _end_as_of(connection, kind.name, info, as_of_ms)
            state = _start(connection, kind, info, end, as_of_ms)
            while state.next_offset < end:
                upto = min(state.next_offset + READ_EVENTS_MAX, end)
                before = state.next_offset
                for recorded in _read(connection, kind.name, before, upto):
                    state = kind.evolve(state, recorded)
                if state.next_offset != upto:
                    raise Corrupt(
                        f"the event store lacks events of the stream {kind.name} between "
                        f"{before} and {upto}",
                        hint="rebuild it from the commit log",
                    )
        return state, end


# -- rows and events ------------------------------------------------------------------------------


def _recorded(row: Any) -> Recorded:
    return Recorded(
        row.offset,
        row.position,
        row.at_ms,
        row.actor,
        row.reason,
        row.trace_id,
        decode_event(row.body.encode(), row.aggregate),
    )


def _text(text: str) -> str:
    # PostgreSQL has no NUL in a text; ours have none, but a log may hold what others wrote.
    return text.replace("\0", "\ufffd")


def _read(connection: sa.Connection, stream: str, start: int, end: int) -> list[Recorded]:
    rows = connection.execute(
        sa.select(events)
        .where(events.c.stream == stream, events.c.offset >= start, events.c.offset < end)
        .order_by(events.c.offset)
    )
    return [_recorded(row) for row in rows]


def _info(connection: sa.Connection, stream: str, *, for_update: bool = False) -> StreamInfo | None:
    wanted = sa.select(streams).where(streams.c.name == stream)
    row = connection.execute(wanted.with_for_update() if for_update else wanted).one_or_none()
    if row is None:
        return None
    due = row.bytes_since_snapshot >= max(row.snapshot_bytes, SNAPSHOT_AFTER_BYTES_MIN)
    return StreamInfo(row.first_offset, row.next_offset, row.position, row.at_ms, due)


def _stream_for_update(connection: sa.Connection, stream: str) -> StreamInfo:
    info = _info(connection, stream, for_update=True)
    if info is None:
        info = StreamInfo()
        connection.execute(
            streams.insert().values(
                name=stream,
                first_offset=0,
                next_offset=0,
                position=-1,
                at_ms=0,
                snapshot_bytes=0,
                bytes_since_snapshot=0,
            )
        )
    return info


# -- writing, inside a transaction ----------------------------------------------------------------


def _check_dense(recorded: Sequence[Recorded]) -> None:
    for before, after in zip(recorded, recorded[1:], strict=False):
        if after.offset != before.offset + 1:
            raise Corrupt(
                f"a batch of events goes from offset {before.offset} to {after.offset}",
                hint="put an EventLost where an event cannot be read",
            )


def _check_same(connection: sa.Connection, stream: str, event: Recorded) -> None:
    here = _read(connection, stream, event.offset, event.offset + 1)
    # One that lies before the store's beginning cannot be compared.
    if here and here[0] != event:
        raise Corrupt(
            f"event {event.offset} of the stream {stream} is another one in the event store",
            hint="the log was cut back since; truncate the store to where both agree",
        )


def _insert(
    connection: sa.Connection, stream: str, info: StreamInfo, fresh: Sequence[Recorded]
) -> None:
    if not fresh:
        return
    rows: list[dict[str, Any]] = []
    as_of_ms, size = info.at_ms, 0
    for recorded in fresh:
        body = encode_event(recorded.event).decode()
        as_of_ms = max(as_of_ms, recorded.at_ms)
        size += len(body)
        rows.append(
            {
                "stream": stream,
                "offset": recorded.offset,
                "position": recorded.position,
                "at_ms": recorded.at_ms,
                "as_of_ms": as_of_ms,
                "type": _text(recorded.event.type),
                "aggregate": _text(recorded.event.aggregate),
                "actor": _text(recorded.actor),
                "reason": _text(recorded.reason),
                "trace_id": _text(recorded.trace_id),
                "body": body,
            }
        )
    connection.execute(events.insert(), rows)
    connection.execute(
        streams.update()
        .where(streams.c.name == stream)
        .values(
            next_offset=fresh[-1].offset + 1,
            position=fresh[-1].position,
            at_ms=as_of_ms,
            bytes_since_snapshot=streams.c.bytes_since_snapshot + size,
        )
    )


def _insert_snapshot(connection: sa.Connection, kind: StreamKind[State], state: State) -> None:
    body = zlib.compress(kind.encode(state), 1)
    connection.execute(
        snapshots.delete().where(
            snapshots.c.stream == kind.name, snapshots.c.offset == state.next_offset
        )
    )
    connection.execute(
        snapshots.insert().values(
            stream=kind.name, offset=state.next_offset, at_ms=state.at_ms, body=body
        )
    )
    connection.execute(
        streams.update()
        .where(streams.c.name == kind.name)
        .values(snapshot_bytes=len(body), bytes_since_snapshot=0)
    )


def _delete_from(connection: sa.Connection, stream: str, next_offset: int) -> None:
    connection.execute(
        events.delete().where(events.c.stream == stream, events.c.offset >= next_offset)
    )
    connection.execute(
        snapshots.delete().where(snapshots.c.stream == stream, snapshots.c.offset > next_offset)
    )
    last = connection.execute(
        sa.select(events.c.position, events.c.as_of_ms).where(
            events.c.stream == stream, events.c.offset == next_offset - 1
        )
    ).one_or_none()
    if last is None:
        # Nothing but the beginning is left: its time is that of its snapshot, if it has one.
        at_ms = connection.execute(
            sa.select(snapshots.c.at_ms).where(
                snapshots.c.stream == stream, snapshots.c.offset == next_offset
            )
        ).scalar()
        position, at_ms = -1, at_ms or 0
    else:
        position, at_ms = last.position, last.as_of_ms
    connection.execute(
        streams.update()
        .where(streams.c.name == stream)
        .values(next_offset=next_offset, position=position, at_ms=at_ms)
    )


# -- loading, inside a transaction ----------------------------------------------------------------


def _end_as_of(connection: sa.Connection, stream: str, info: StreamInfo, as_of_ms: int) -> int:
    last = connection.execute(
        sa.select(events.c.offset)
        .where(events.c.stream == stream, events.c.as_of_ms <= as_of_ms)
        .order_by(events.c.as_of_ms.desc(), events.c.offset.desc())
        .limit(1)
    ).scalar()
    return info.lost_before if last is None else int(last) + 1


def _start(
    connection: sa.Connection,
    kind: StreamKind[State],
    info: StreamInfo,
    end: int,
    as_of_ms: int | None,
) -> State:
    """The newest readable snapshot that is not beyond `end`, else the empty state."""
    offsets = connection.execute(
        sa.select(snapshots.c.offset, snapshots.c.at_ms)
        .where(snapshots.c.stream == kind.name, snapshots.c.offset <= end)
        .order_by(snapshots.c.offset.desc())
    ).all()
    unreadable = ""
    for offset, at_ms in offsets:
        if as_of_ms is not None and at_ms > as_of_ms:
            raise Rejected(
                f"the history of the stream {kind.name} begins at {at_ms} ms; what was before is "
                f"lost"
            )
        try:
            return kind.decode(_snapshot_body(connection, kind.name, offset))
        except (DecodeError, zlib.error) as error:
            unreadable = str(error)
    if info.lost_before:
        raise Corrupt(
            f"the stream {kind.name} begins at offset {info.lost_before}, whose snapshot cannot be "
            f"read: {unreadable or 'it is missing'}",
            hint="rebuild the event store from the commit log",
        )
    return kind.initial()


def _snapshot_body(connection: sa.Connection, stream: str, offset: int) -> bytes:
    body: bytes = connection.execute(
        sa.select(snapshots.c.body).where(
            snapshots.c.stream == stream, snapshots.c.offset == offset
        )
    ).scalar_one()
    return zlib.decompress(body)
