"""The tables of an event store in the newest revision.

State: for a broker, projection of the commit log's control topic; for a service without a commit
log, the stream is its own and events are written here first.

Times are milliseconds since 1970 UTC. Bodies are JSON text, so that an operator can query them.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Table, Text, text

metadata = MetaData()

DECIDED = text("type <> 'ProgressRecorded'")
"""Condition of an index; a statement must repeat it word for word to use the index."""

streams = Table(
    "streams",
    metadata,
    Column("name", Text, primary_key=True),
    # The first event here; above 0 if earlier history was lost with another store.
    Column("first_offset", BigInteger, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    # Position of the newest event in the commit log; -1 without one.
    Column("position", BigInteger, nullable=False),
    # The greatest event time so far.
    Column("at_ms", BigInteger, nullable=False),
    # Bytes of the newest snapshot and of the event bodies since: a new snapshot is due when the
    # latter exceed the former.
    Column("snapshot_bytes", BigInteger, nullable=False),
    Column("bytes_since_snapshot", BigInteger, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    # The greatest time of this event and all before it: never decreases even if a clock stepped
    # back, so "as of" is a prefix of the stream.
    Column("as_of_ms", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("aggregate", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    # The offset of the event that this one undoes.
    Column("undoes", BigInteger),
    Index("events_by_aggregate", "stream", "aggregate", "offset"),
    Index("events_by_time", "stream", "as_of_ms", "offset"),
    # Progress is recorded continuously; this index finds the other events without reading it.
    Index(
        "events_decided", "stream", "offset", "type", sqlite_where=DECIDED, postgresql_where=DECIDED
    ),
    sqlite_with_rowid=False,
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("stream", Text, primary_key=True),
    # The state after the events below this offset.
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    # zlib-compressed JSON of the state.
    Column("body", LargeBinary, nullable=False),
)
