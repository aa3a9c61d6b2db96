"""The tables of an event store, as the newest migration leaves them.

State: projection of the commit log's control topic for a broker; for a service without a commit log
(stream of its own) this is where its events are written first.

Times are milliseconds since 1970 UTC. Bodies are JSON text, so that an operator can query them.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Table, Text, text

metadata = MetaData()

DECIDED = text("type <> 'ProgressRecorded'")
"""Condition of an index, which a statement must repeat word by word to use it."""

streams = Table(
    "streams",
    metadata,
    Column("name", Text, primary_key=True),
    # The first event kept here; above 0 when earlier history was lost with another store.
    Column("first_offset", BigInteger, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    # Place in the commit log of the newest event; -1 without one.
    Column("position", BigInteger, nullable=False),
    # The greatest event time so far.
    Column("at_ms", BigInteger, nullable=False),
    # Bytes of the newest snapshot and of the event bodies since: when the latter outgrows the
    # former, the next snapshot is due.
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
    # The greatest time of this event and all before it: grows with the offset even if a clock
    # stepped back, so "as of" is a prefix of the stream.
    Column("as_of_ms", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("aggregate", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    # The offset of the event that this one takes back.
    Column("undoes", BigInteger),
    Index("events_by_aggregate", "stream", "aggregate", "offset"),
    Index("events_by_time", "stream", "as_of_ms", "offset"),
    # Progress is recorded all the time; what was decided is found without wading through it.
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
    # zlib of the state's JSON.
    Column("body", LargeBinary, nullable=False),
)
