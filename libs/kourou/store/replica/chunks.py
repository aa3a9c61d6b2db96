"""Log bytes as replicas exchange them: whole records of one segment, and the filler that closes it.

State: none, except for the result of the last check (`LastRun`, soft).

A chunk contains the log's own bytes, so that followers are identical to their leader byte for byte.
A filler closes a segment and may be megabytes long. Only its eight header bytes are sent: they are
last in their chunk, and the chunk ends at the end of the segment.

Invariants:  a chunk lies in one segment and begins and ends at record boundaries
             every record of it passed all checks of a read (kourou.store.log.verified), at the
             sender and again at the receiver; the sender does not repeat the check for bytes that
             it has just written, or has just checked for another follower
             the bytes of a damaged region are always marked as such: `damage` is set
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from kourou.errors import Corrupt, Rejected
from kourou.model.limits import MEMBERS_MAX
from kourou.protocol.record.columns import RecordColumns, scan
from kourou.protocol.record.layout import BLANK_MAGIC
from kourou.store.disk import Buffer
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine
from kourou.store.log.verified import sound
from kourou.store.recovery.scan import good_run

_HEAD = struct.Struct(">II")
HEAD_BYTES = _HEAD.size
_NOTHING = memoryview(b"")


class StoredChunk(NamedTuple):
    """Log bytes from `position`; the log continues at `end`, which includes the filler, if any.

    `damage`: the reason why no record can be read here, "" for good bytes.
    """

    position: int
    data: memoryview
    end: int
    damage: str = ""


class Checked(NamedTuple):
    """A chunk that may be stored: its records, and where the log continues after it."""

    records: RecordColumns
    end: int


class LastRun:
    """How many of the bytes at a position are good, for the range appended or checked last.

    Bytes that were just appended came from checked drafts in memory, and followers that keep up are
    sent the same bytes shortly after one another. The result is used at most as many times as a
    group can have followers; after that the bytes are checked again, so a follower that keeps
    refusing them gets checked bytes. Only numbers are kept, because a view would keep its segment
    mapped.
    """

    __slots__ = ("_asked", "_good", "_left")

    def __init__(self) -> None:
        self._asked = (-1, 0)
        self._good = self._left = 0

    def known(self, position: int, length: int) -> int | None:
        """The recorded number of good bytes, if exactly this range was recorded last."""
        if self._asked != (position, length) or not self._left:
            return None
        self._left -= 1
        return self._good

    def note(self, position: int, length: int, good: int) -> None:
        """Record that `good` of the `length` bytes at `position` are good.

        `good` exceeds `length` if one larger record is there.
        """
        self._asked = (position, length)
        self._good, self._left = good, MEMBERS_MAX - 1


def filler_end(head: Buffer, position: int, segment_size: int) -> int | None:
    """The end of the filler whose header `head` is at `position`; None if it is not a filler."""
    if len(head) < HEAD_BYTES:
        return None
    size, magic = _HEAD.unpack_from(head, 0)
    room = segment_size - position % segment_size
    return position + room if magic == BLANK_MAGIC and size == room else None


def check_chunk(data: Buffer, position: int, segment_size: int) -> Checked:
    """Check that these bytes are whole, good records for `position`, perhaps followed by a filler.

    Raises Corrupt that names the first bad position.
    """
    found = scan(data, strict=False)
    if len(found):
        bad = np.flatnonzero(~sound(found, found.starts + position))
        if len(bad):
            raise Corrupt(f"the record at {position + int(found.starts[bad[0]])} fails its check")
    at = int(found.next_at)
    room = segment_size - position % segment_size
    if at > room:
        raise Corrupt(f"{at} bytes from {position} on exceed the end of their segment")
    if at == len(data):
        return Checked(found, position + at)
    rest = memoryview(data)[at:]
    end = filler_end(rest, position + at, segment_size)
    if end is None or len(rest) != HEAD_BYTES:
        raise Corrupt(f"no valid record at {position + at}: {found.stop.value}")
    return Checked(found, end)


def read_good(
    log: CommitLog,
    quarantine: Quarantine,
    position: int,
    limit: int,
    max_bytes: int,
    last: LastRun,
) -> StoredChunk | None:
    """The good records from `position` up to `limit`, about `max_bytes` at most.

    Stops early at a known damaged region, a damaged record or the end of the segment. A record
    larger than `max_bytes` is returned alone. Returns None if the data at `position` is damaged.
    Raises Rejected for a position outside the log. The result consists of views of a mapped log;
    nothing is copied.
    """
    limit = min(limit, log.readable_end)
    if quarantine.at(position) is not None:
        return None
    if not log.start <= position <= limit:
        raise Rejected(f"position {position} is not in the log ({log.start} to {limit})")
    if position == limit:
        return StoredChunk(position, _NOTHING, position)
    segment_end = position - position % log.segment_size + log.segment_size
    stop = min(limit, segment_end)
    damaged = quarantine.next_start(position)
    if damaged is not None:
        stop = min(stop, damaged)
    length = min(max(max_bytes, HEAD_BYTES), stop - position)
    known = last.known(position, length) if log.mapped else None  # else the bytes are read again
    if known is not None:
        good = log.view(position, known)
    elif good := _good_view(log, position, length, stop):
        last.note(position, length, len(good))
    end = position + len(good)
    if segment_end <= limit and segment_end - end >= HEAD_BYTES:
        head = log.view(end, HEAD_BYTES)
        if filler_end(head, end, log.segment_size) is not None:
            return StoredChunk(position, log.view(position, len(good) + HEAD_BYTES), segment_end)
    return StoredChunk(position, good, end) if good else None


def _good_view(log: CommitLog, position: int, length: int, stop: int) -> memoryview:
    """The good records in the `length` bytes at `position`, or one longer record, up to `stop`."""
    view = log.view(position, length)
    run = good_run(view, position)
    if not len(run):
        claimed = int.from_bytes(view[:4], "big")
        if length < claimed <= stop - position:
            view = log.view(position, claimed)
            run = good_run(view, position)
    return view[: int(run.sizes.sum())]
