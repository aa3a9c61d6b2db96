"""Log bytes as they travel between members: whole records of one segment, and what closes it.

State: none, but for what was checked last (`LastRun`, soft).

A chunk is the log's own bytes, so that followers are byte for byte what their leader is. Of a
filler, which closes a segment and may be megabytes of nothing, only the eight bytes travel that say
so: it is the last thing in its chunk, and the chunk's end is the segment's.

Invariants:  a chunk lies in one segment and begins and ends at boundaries of records
             every record of it passed all checks that a reader's record passes (kourou.store
             .verified), at the sender and once more at the receiver; what the sender itself has
             just written, or checked for another follower, it does not check once more
             the bytes of a damaged region travel only as what they are: `damage` says so
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from kourou.errors import Corrupt, Rejected
from kourou.model.limits import MEMBERS_MAX
from kourou.protocol.record_batch import RecordColumns, scan
from kourou.protocol.record_layout import BLANK_MAGIC
from kourou.store.commit_log import CommitLog
from kourou.store.disk import Buffer
from kourou.store.quarantine import Quarantine
from kourou.store.survey import good_run
from kourou.store.verified import sound

_HEAD = struct.Struct(">II")
HEAD_BYTES = _HEAD.size
_NOTHING = memoryview(b"")


class Chunk(NamedTuple):
    """Log bytes from `position`; the log goes on at `end`, which lies behind a filler if any.

    `damage`: why no record can be read here, "" for good bytes.
    """

    position: int
    data: memoryview
    end: int
    damage: str = ""


class Checked(NamedTuple):
    """A chunk that may be stored: its records, and where the log goes on behind it."""

    records: RecordColumns
    end: int


class LastRun:
    """How many bytes from a position on are good, of so many that were appended or looked at last.

    What was appended a moment ago was made of checked drafts in memory; and followers that are in
    step are sent the same bytes right behind one another. Not for ever, but as often as a group has
    followers: one that refuses them asks again, until they are checked. Numbers only, as a view
    would keep its segment mapped.
    """

    __slots__ = ("_asked", "_good", "_left")

    def __init__(self) -> None:
        self._asked = (-1, 0)
        self._good = self._left = 0

    def known(self, position: int, length: int) -> int | None:
        """What was noted, if it was just this that was noted last."""
        if self._asked != (position, length) or not self._left:
            return None
        self._left -= 1
        return self._good

    def note(self, position: int, length: int, good: int) -> None:
        """Of `length` bytes at `position`, `good` are; more, if one large record is there."""
        self._asked = (position, length)
        self._good, self._left = good, MEMBERS_MAX - 1


def filler_end(head: Buffer, position: int, segment_size: int) -> int | None:
    """Where the filler that begins with `head` at `position` ends; None if it is none."""
    if len(head) < HEAD_BYTES:
        return None
    size, magic = _HEAD.unpack_from(head, 0)
    room = segment_size - position % segment_size
    return position + room if magic == BLANK_MAGIC and size == room else None


def check_chunk(data: Buffer, position: int, segment_size: int) -> Checked:
    """Are these bytes whole, good records that belong at `position`, and perhaps a filler?

    Raises Corrupt that says where they are not.
    """
    found = scan(data, position, strict=False)
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
) -> Chunk | None:
    """The good records from `position` on, up to `limit`, about `max_bytes` of them at most.

    Fewer before a known damaged region, a damaged record, or the segment's end; one that is larger
    than `max_bytes` comes alone. None if what begins at `position` is damaged. Raises Rejected for
    a position outside the log. Views of a mapped log, nothing is copied.
    """
    limit = min(limit, log.readable_end)
    if quarantine.at(position) is not None:
        return None
    if not log.start <= position <= limit:
        raise Rejected(f"position {position} is not in the log ({log.start} to {limit})")
    if position == limit:
        return Chunk(position, _NOTHING, position)
    segment_end = position - position % log.segment_size + log.segment_size
    stop = min(limit, segment_end)
    damaged = quarantine.next_start(position)
    if damaged is not None:
        stop = min(stop, damaged)
    length = min(max(max_bytes, HEAD_BYTES), stop - position)
    known = last.known(position, length) if log.mapped else None  # else it would be read again
    if known is not None:
        good = log.view(position, known)
    elif good := _good_view(log, position, length, stop):
        last.note(position, length, len(good))
    end = position + len(good)
    if segment_end <= limit and segment_end - end >= HEAD_BYTES:
        head = log.view(end, HEAD_BYTES)
        if filler_end(head, end, log.segment_size) is not None:
            return Chunk(position, log.view(position, len(good) + HEAD_BYTES), segment_end)
    return Chunk(position, good, end) if good else None


def _good_view(log: CommitLog, position: int, length: int, stop: int) -> memoryview:
    """The good records in the `length` bytes at `position`, or one that is longer, up to `stop`."""
    view = log.view(position, length)
    run = good_run(view, position)
    if not len(run):
        claimed = int.from_bytes(view[:4], "big")
        if length < claimed <= stop - position:
            view = log.view(position, claimed)
            run = good_run(view, position)
    return view[: int(run.sizes.sum())]
