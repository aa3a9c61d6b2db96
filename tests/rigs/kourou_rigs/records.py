"""Stored records for tests and benchmarks, without a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kourou.model.message import Property, StoredMessage
from kourou.protocol.record.columns import RecordColumns, scan
from kourou.protocol.record.layout import Buffer, encode_host
from kourou.protocol.record.message_record import decode_record, encode_draft, stamp
from kourou.protocol.record.properties import encode_properties

HOST = encode_host(("127.0.0.1", 10_911))


def decode_many(data: Buffer) -> list[StoredMessage]:
    """The messages of adjacent records, such as those of a pull's reply."""
    return [decode_record(record) for record in scan(data).records()]


class RecordRun:
    """Contiguous records from a log position on; queue offsets are assigned automatically."""

    def __init__(self, *, position: int = 0, store_ms: int = 1_700_000_000_000) -> None:
        self.start = position
        self.store_ms = store_ms
        self.offsets: Counter[tuple[str, int]] = Counter()
        self.positions: list[int] = []
        self._data = bytearray()

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self.start + len(self._data)

    @property
    def data(self) -> bytes:
        """All records so far."""
        return bytes(self._data)

    def add(
        self,
        topic: str,
        queue_id: int = 0,
        *,
        offset: int | None = None,
        body: bytes = b"body",
        tag: str = "",
        unique_key: str = "",
        keys: str = "",
        properties: dict[str, str] | None = None,
        sys_flag: int = 0,
        after_ms: int = 1,
    ) -> int:
        """Append a record stored `after_ms` after the one before; returns its position."""
        known = {"UNIQ_KEY": unique_key, "TAGS": tag, "KEYS": keys, **(properties or {})}
        draft = bytearray(
            encode_draft(
                topic=topic.encode(),
                queue_id=queue_id,
                body=body,
                properties=encode_properties({k: v for k, v in known.items() if v}),
                sys_flag=sys_flag,
                born_timestamp=self.store_ms,
                born_host=HOST,
            )
        )
        number = self.offsets[topic, queue_id] if offset is None else offset
        self.offsets[topic, queue_id] = number + 1
        self.store_ms += after_ms
        position = self.end
        stamp(
            draft,
            0,
            queue_offset=number,
            position=position,
            store_timestamp=self.store_ms,
            store_host=HOST,
        )
        self._data += draft
        self.positions.append(position)
        return position

    def columns(self, first: int = 0, end: int | None = None) -> RecordColumns:
        """The records numbered [first, end), as read from a store."""
        count = len(self.positions)
        last = count if end is None else min(end, count)
        if first >= last:
            return scan(b"")
        at = self.positions[first] - self.start
        to = self.positions[last] - self.start if last < count else len(self._data)
        return scan(bytes(self._data[at:to]))

    def store_ms_of(self, position: int) -> int:
        """The store time of the record at this position, in ms."""
        row = self.positions.index(position)
        return int(self.columns(row, row + 1).store_timestamps[0])


def delayed_draft(
    level: object,
    key: str = "U",
    topic: str = "orders",
    queue_id: int = 0,
    properties: Mapping[str, str] | None = None,
    **fields: Any,
) -> bytes:
    """A client's draft of a delayed message; its body is its key. `fields` are those of a draft."""
    own = {Property.UNIQ_KEY: key, Property.DELAY: str(level), **(properties or {})}
    return encode_draft(
        **{
            "topic": topic.encode(),
            "queue_id": queue_id,
            "body": key.encode(),
            "properties": encode_properties(own),
            "born_timestamp": 5,
            "born_host": bytes(8),
            **fields,
        }
    )
