"""Writes to a store as a broker does, without a broker.

State: soft.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kourou.engine.effects import SegmentFiller
from kourou.protocol import kernel
from kourou.protocol.record.columns import RecordColumns
from kourou.protocol.record.layout import POSITION_AT, encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimDisk

TEST_SEGMENT_BYTES = 16 * 1024
_HOST = encode_host(("127.0.0.1", 10911))


def small_settings(root: Path, **changes: object) -> StoreSettings:
    """Settings of a store with small files; `changes` are fields of StoreSettings."""
    values: dict[str, object] = {
        "segment_size_bytes": TEST_SEGMENT_BYTES,
        "queue_file_units": 20,
        "index_slots": 100,
        "index_entries": 60,
        "memory_bytes": 1 << 30,
        **changes,
    }
    return StoreSettings(root=root, **values)  # type: ignore[arg-type]  # fields by name


def disk_with(directory: Path, seed: int = 0, **options: int) -> SimDisk:
    """A simulated disk with this directory, which survives a power loss."""
    disk = SimDisk(seed, **options)
    disk.make_dirs(directory)
    disk.sync_dir(Path("/"))
    disk.sync_dir(directory.parent)
    return disk


class Draft(NamedTuple):
    """A message to write."""

    topic: str = "TopicA"
    queue_id: int = 0
    body: bytes = b"body"
    tag: str = ""
    keys: tuple[str, ...] = ()
    with_crc: bool = True


class Written(NamedTuple):
    """The position, offset and bytes of a written message."""

    topic: str
    queue_id: int
    offset: int
    position: int
    record: bytes

    @property
    def end(self) -> int:
        """The position after the record."""
        return self.position + len(self.record)


class StoreWriter:
    """Assigns offsets and positions to drafts, and appends them to `store`."""

    def __init__(self, store: Store, *, now_ms: int = 1_700_000_000_000) -> None:
        self._store = store
        self._next_offsets: dict[tuple[str, int], int] = {}
        self.now_ms = max(now_ms, store.store_ms)

    def stamp(self, drafts: Sequence[Draft]) -> list[Written]:
        """Assign positions at the end of the log to drafts, without writing them."""
        blobs = [self._encode(draft) for draft in drafts]
        targets = list(dict.fromkeys((draft.topic, draft.queue_id) for draft in drafts))
        ends = array("q", [self._next_offset(target) for target in targets])
        records = bytearray().join(blobs)
        table, self._runs, self._blanks, self._end, problem, _ = kernel.append(
            records,
            array("q", map(len, blobs)),
            array("q", [targets.index((draft.topic, draft.queue_id)) for draft in drafts]),
            ends,
            self._store.end,
            1 << 62,
            self._store.settings.segment_size_bytes,
            self.now_ms,
            _HOST,
        )
        assert not problem, "a draft has no place in a segment"
        self._next_offsets.update(zip(targets, ends, strict=True))
        found = RecordColumns(records, table)
        places = zip(found.queue_offsets.tolist(), found.positions.tolist(), strict=True)
        return [
            Written(draft.topic, draft.queue_id, offset, position, bytes(found.record(index)))
            for index, (draft, (offset, position)) in enumerate(zip(drafts, places, strict=True))
        ]

    def _next_offset(self, target: tuple[str, int]) -> int:
        if target not in self._next_offsets:
            known = self._store.queue_range(*target)
            self._next_offsets[target] = known[1] if known is not None else 0
        return self._next_offsets[target]

    def write(self, drafts: Sequence[Draft], *, dispatch: bool = True) -> list[Written]:
        """Append drafts as one batch, allocating space first; dispatch them unless disabled."""
        written = self.stamp(drafts)
        self.append(written)
        if dispatch:
            self._store.dispatch()
        return written

    def append(self, written: Sequence[Written]) -> None:
        """Append the last result of `stamp`, allocating space first."""
        if self._store.space.allocated_end < self._end:
            self._store.allocate_next(self._end)
        pieces = []
        for first, count, position in self._runs:
            run = [item.record for item in written[first : first + count]]
            pieces.append((position, b"".join(run)))
        self._store.append(pieces, [SegmentFiller(*one) for one in self._blanks], self._end)

    def _encode(self, draft: Draft) -> bytes:
        properties = []
        if draft.tag:
            properties.append(b"TAGS\x01" + draft.tag.encode())
        if draft.keys:
            properties.append(b"KEYS\x01" + " ".join(draft.keys).encode())
        return encode_draft(
            topic=draft.topic.encode(),
            queue_id=draft.queue_id,
            body=draft.body,
            properties=b"\x02".join(properties),
            born_timestamp=self.now_ms,
            born_host=_HOST,
            with_crc=draft.with_crc,
        )


def readable(store: Store, topic: str = "TopicA", queue_count: int = 3) -> list[bytes]:
    """All records of a topic that readers receive, in the log's order."""
    found: list[bytes] = []
    for queue_id in range(queue_count):
        offset, end = store.queue_range(topic, queue_id) or (0, 0)
        while offset < end:
            read = store.read_queue(
                topic,
                queue_id,
                offset,
                max_messages=100,
                max_bytes=1 << 20,
                codes=None,
                below=store.end,
            )
            found += [bytes(record) for record in read.records]
            offset = read.next_offset
    return sorted(found, key=lambda record: record[POSITION_AT : POSITION_AT + 8])


def follow(
    leader: Store, follower: Store, *, limit: int | None = None, max_bytes: int = 1 << 20
) -> int:
    """Copy the leader's log to the end of the follower's, up to `limit`, as replication does.

    Damaged regions are copied as such. Returns the number of chunks.
    """
    limit = leader.end if limit is None else limit
    count = 0
    while follower.end < limit:
        chunk = leader.read_chunk(follower.end, limit, max_bytes)
        data = bytes(chunk.data)  # as received from a socket
        if chunk.damage:
            follower.append_damaged(chunk.position, data, chunk.end, chunk.damage)
        else:
            follower.append_chunk(chunk.position, data)
        follower.dispatch()
        assert follower.end == chunk.end
        count += 1
    return count


def delete_before(store: Store, position: int) -> int:
    """Delete everything entirely below `position` at once; returns how many segments went.

    A broker does the same step by step.
    """
    store.checkpoint()
    deletion = store.deletion(position)
    for _ in deletion.forget():
        pass
    store.checkpoint()
    return store.remove(deletion)
