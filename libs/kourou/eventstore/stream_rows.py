"""The SQL statements of an event store: rows to events and back, inside a transaction."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import sqlalchemy as sa

from kourou.errors import Corrupt, DecodeError, Rejected
from kourou.events.control_events import (
    ProgressRecorded,
    QueueLocksChanged,
    Recorded,
    decode_event,
    encode_event,
)
from kourou.events.stream import Snapshot, State, StreamKind
from kourou.eventstore.schema import DECIDED, events, snapshots, streams

SNAPSHOT_AFTER_BYTES_MIN = 256 * 1024
"""Replaying fewer bytes of events is faster than storing another snapshot."""

PROGRESS = ProgressRecorded.__name__
LOCKS = QueueLocksChanged.__name__

ASIDE = "~"
"""Precedes the number in the name of a stream that was set aside."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The extent of a stream here. `lost_before` events of its beginning are not here."""

    lost_before: int = 0
    next_offset: int = 0
    position: int = -1
    at_ms: int = 0
    snapshot_due: bool = False


# -- rows and events ------------------------------------------------------------------------------


def recorded_of(row: Any) -> Recorded:
    """The event in a row of `events`. Raises DecodeError."""
    return Recorded(
        row.offset,
        row.position,
        row.at_ms,
        row.actor,
        row.reason,
        row.trace_id,
        decode_event(row.body.encode(), row.aggregate),
        row.undoes,
    )


def _text(text: str) -> str:
    # PostgreSQL text cannot contain NUL; Kourou writes none, but a log may have others' text.
    return text.replace("\0", "\ufffd")


def read_events(connection: sa.Connection, stream: str, start: int, end: int) -> list[Recorded]:
    """The events with offsets in [start, end), oldest first."""
    rows = connection.execute(
        sa.select(events)
        .where(events.c.stream == stream, events.c.offset >= start, events.c.offset < end)
        .order_by(events.c.offset)
    )
    return [recorded_of(row) for row in rows]


@dataclass(frozen=True, slots=True)
class HistoryParams:
    """The requested events of a stream: see `EventStore.history`."""

    stream: str
    aggregate: str
    limit: int
    size_max: int
    before: int | None
    types: frozenset[str]


def history_offsets(connection: sa.Connection, wanted: HistoryParams) -> tuple[list[int], bool]:
    """Offsets of one page, newest first, and whether there are older ones.

    The offsets come from an index alone, and sizes are checked before bodies are fetched, because
    one event may have megabytes.
    """
    query = (
        sa.select(events.c.offset)
        .where(events.c.stream == wanted.stream)
        .order_by(events.c.offset.desc())
        .limit(wanted.limit + 1)
    )
    if wanted.aggregate:
        query = query.where(events.c.aggregate == wanted.aggregate)
    elif PROGRESS not in wanted.types:
        query = query.where(DECIDED)
    if not wanted.aggregate and not wanted.types:
        query = query.where(events.c.type != LOCKS)  # listed only on request
    if wanted.before is not None:
        query = query.where(events.c.offset < wanted.before)
    if wanted.types:
        query = query.where(events.c.type.in_(sorted(wanted.types)))
    found = connection.execute(query).scalars().all()
    sizes: dict[int, int] = {
        row.offset: row.size
        for row in connection.execute(
            sa.select(events.c.offset, sa.func.length(events.c.body).label("size")).where(
                events.c.stream == wanted.stream, events.c.offset.in_(found)
            )
        )
    }
    page: list[int] = []
    room = wanted.size_max
    for offset in found:
        if len(page) == wanted.limit or (page and sizes[offset] > room):
            return page, True
        page.append(offset)
        room -= sizes[offset]
    return page, False


def read_events_at(
    connection: sa.Connection, stream: str, offsets: Sequence[int]
) -> tuple[Recorded, ...]:
    """The events at these offsets, in descending order."""
    if not offsets:
        return ()
    rows = connection.execute(
        sa.select(events)
        .where(events.c.stream == stream, events.c.offset.in_(offsets))
        .order_by(events.c.offset.desc())
    )
    return tuple(recorded_of(row) for row in rows)


def stream_info(
    connection: sa.Connection, stream: str, *, for_update: bool = False
) -> StreamInfo | None:
    """The extent of a stream; None if it does not exist. `for_update` locks out other writers."""
    wanted = sa.select(streams).where(streams.c.name == stream)
    row = connection.execute(wanted.with_for_update() if for_update else wanted).one_or_none()
    if row is None:
        return None
    due = row.bytes_since_snapshot >= max(row.snapshot_bytes, SNAPSHOT_AFTER_BYTES_MIN)
    return StreamInfo(row.first_offset, row.next_offset, row.position, row.at_ms, due)


def stream_for_update(connection: sa.Connection, stream: str) -> StreamInfo:
    """The extent of a stream, which is created if necessary; other writers are locked out."""
    info = stream_info(connection, stream, for_update=True)
    if info is None:
        info = StreamInfo()
        insert_stream(connection, stream, first_offset=0, at_ms=0)
    return info


def insert_stream(connection: sa.Connection, stream: str, *, first_offset: int, at_ms: int) -> None:
    """Create a stream without events that starts at an offset."""
    connection.execute(
        streams.insert().values(
            name=stream,
            first_offset=first_offset,
            next_offset=first_offset,
            position=-1,
            at_ms=at_ms,
            snapshot_bytes=0,
            bytes_since_snapshot=0,
        )
    )


# -- writing, inside a transaction ----------------------------------------------------------------


def check_dense(recorded: Sequence[Recorded]) -> None:
    """Check that the offsets of a batch are consecutive. Raises Corrupt."""
    for before, after in pairwise(recorded):
        if after.offset != before.offset + 1:
            raise Corrupt(
                f"a batch of events goes from offset {before.offset} to {after.offset}",
                hint="put an EventLost where an event cannot be read",
            )


def check_same(connection: sa.Connection, stream: str, event: Recorded) -> None:
    """Check that an event that is here already is the same one. Raises Corrupt."""
    here = read_events(connection, stream, event.offset, event.offset + 1)
    # An event before the store's beginning cannot be compared.
    if here and (here[0].position, here[0].at_ms, here[0].event) != (
        event.position,
        event.at_ms,
        event.event,
    ):
        raise Corrupt(
            f"event {event.offset} of stream {stream} differs from the event store",
            hint="the log was truncated since; truncate the event store to the last common event",
        )


def insert_events(
    connection: sa.Connection, stream: str, info: StreamInfo, fresh: Sequence[Recorded]
) -> None:
    """Append events that follow the stream's last one."""
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
                "undoes": recorded.undoes,
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


def insert_snapshot(connection: sa.Connection, taken: Snapshot) -> None:
    """Store a snapshot; one with the same offset is replaced."""
    body = zlib.compress(taken.body, 1)
    connection.execute(
        snapshots.delete().where(
            snapshots.c.stream == taken.stream, snapshots.c.offset == taken.offset
        )
    )
    connection.execute(
        snapshots.insert().values(
            stream=taken.stream, offset=taken.offset, at_ms=taken.at_ms, body=body
        )
    )
    connection.execute(
        streams.update()
        .where(streams.c.name == taken.stream)
        .values(snapshot_bytes=len(body), bytes_since_snapshot=0)
    )


def delete_from(connection: sa.Connection, stream: str, next_offset: int) -> None:
    """Delete the events from an offset on, and later snapshots."""
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
        # Only the beginning is left: its time is that of its snapshot, if it has one.
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


def move_stream(connection: sa.Connection, stream: str) -> str:
    """Rename a stream to the first free name of `<stream>~1`, `<stream>~2`, …, and return it."""
    taken = set(connection.execute(sa.select(streams.c.name)).scalars())
    name = next(name for number in count(1) if (name := f"{stream}{ASIDE}{number}") not in taken)
    for table, column in (
        (events, events.c.stream),
        (snapshots, snapshots.c.stream),
        (streams, streams.c.name),
    ):
        connection.execute(table.update().where(column == stream).values({column: name}))
    return name


# -- loading, inside a transaction ----------------------------------------------------------------


def end_as_of(connection: sa.Connection, stream: str, info: StreamInfo, as_of_ms: int) -> int:
    """The offset after the last event that counts at a wall time."""
    last = connection.execute(
        sa.select(events.c.offset)
        .where(events.c.stream == stream, events.c.as_of_ms <= as_of_ms)
        .order_by(events.c.as_of_ms.desc(), events.c.offset.desc())
        .limit(1)
    ).scalar()
    return info.lost_before if last is None else int(last) + 1


def start_state(
    connection: sa.Connection,
    stream: str,
    kind: StreamKind[State],
    info: StreamInfo,
    end: int,
    as_of_ms: int | None,
) -> State:
    """The newest readable snapshot that is not beyond `end`, else the empty state."""
    offsets = connection.execute(
        sa.select(snapshots.c.offset, snapshots.c.at_ms)
        .where(snapshots.c.stream == stream, snapshots.c.offset <= end)
        .order_by(snapshots.c.offset.desc())
    ).all()
    unreadable = ""
    for offset, at_ms in offsets:
        if as_of_ms is not None and at_ms > as_of_ms:
            raise Rejected(
                f"the history of stream {stream} starts at {at_ms} ms; earlier events are lost"
            )
        try:
            return kind.decode(_snapshot_body(connection, stream, offset))
        except (DecodeError, zlib.error) as error:
            unreadable = str(error)
    if info.lost_before:
        raise Corrupt(
            f"stream {stream} starts at offset {info.lost_before}, but its snapshot "
            f"cannot be read: {unreadable or 'it is missing'}",
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
