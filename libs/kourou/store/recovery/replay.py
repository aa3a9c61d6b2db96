"""Reading the log again, in order, to project it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kourou.errors import BadRequest, Corrupt
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.model.names import check_topic
from kourou.protocol.record.columns import RecordColumns, columns
from kourou.protocol.record.layout import MAGIC, masked_crc, parts_of
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine
from kourou.store.queues.dispatch import Dispatcher
from kourou.store.recovery.scan import good_run

_SIZE_MAGIC = struct.Struct(">II")
NO_RECORDS = columns(b"", np.empty(0, np.int64), np.empty(0, np.int64))


class Claim(NamedTuple):
    """The header of a damaged record. `sure`: the damage is in the body, not in the header."""

    topic: str
    queue_id: int
    offset: int
    size: int
    sure: bool


def runs(
    log: CommitLog, quarantine: Quarantine, start: int, end: int
) -> Iterator[tuple[int, RecordColumns | None]]:
    """(position, records) of each run in [start, end); records are None where a region begins.

    `start` and `end` are record boundaries, and everything between them was verified before.
    """
    at = start
    while at < end:
        region = quarantine.at(at)
        if region is not None:
            yield at, None
            at = region.end
            continue
        limit = min(end, at - at % log.segment_size + log.segment_size)
        next_region = quarantine.next_start(at)
        if next_region is not None:
            limit = min(limit, next_region)
        run = good_run(log.view(at, limit - at), at, verify=False)
        if len(run):
            yield at, run
            at += int(run.sizes.sum())
        else:
            at = limit  # a filler: nothing else is possible


def is_boundary(log: CommitLog, quarantine: Quarantine, position: int) -> bool:
    """True if a record, filler or region begins at `position`, as far as that can be determined.

    The records of its segment are followed by their sizes: at most a second for a gigabyte.
    """
    at = max(log.start, position - position % log.segment_size)
    while at < position:
        region = quarantine.at(at)
        if region is not None:
            at = region.end
            continue
        limit = quarantine.next_start(at)
        stop = position if limit is None else min(position, limit)
        run = good_run(log.view(at, stop - at), at, verify=False)
        if not len(run):
            return False
        at += int(run.sizes.sum())
    return at == position


def catch_up_index(
    log: CommitLog, quarantine: Quarantine, dispatcher: Dispatcher, index: KeyIndex, end: int
) -> None:
    """Pass the index the next run of records after its covered position, up to `end` at most.

    If the disk still refuses writes, `index.covered` does not advance.
    """
    for at, records in runs(log, quarantine, max(index.covered, log.start), end):
        if records is not None:
            last = int(records.positions[-1]) + int(records.sizes[-1])
            assert last <= end, (at, last, end)
            dispatcher.catch_up_index(records, last)
            return
    dispatcher.catch_up_index(NO_RECORDS, end)


def claim_at(log: CommitLog, at: int, end: int) -> Claim | None:
    """What the damaged record at `at` claims, if its structure is intact and it ends by `end`.

    If the damage is in its size, the record is assumed to extend up to `end`.
    """
    view = log.view_segment(at)
    stated = int.from_bytes(view[:4], "big")
    for size in (stated, end - at):
        if not RECORD_FIXED_BYTES <= size <= min(len(view), end - at):
            continue
        raw = _SIZE_MAGIC.pack(size, MAGIC) + bytes(view[_SIZE_MAGIC.size : size])
        try:
            parts = parts_of(raw, 0, size)
            topic = check_topic(raw[parts.topic_at : parts.topic_end].decode("ascii"))
        except (Corrupt, BadRequest, UnicodeDecodeError):
            continue
        in_place = parts.position == at
        body_damaged = masked_crc(raw[parts.body_at : parts.body_end]) != parts.crc
        if parts.queue_id >= 0 and (in_place or size == end - at):
            sure = in_place and body_damaged
            return Claim(topic, parts.queue_id, parts.queue_offset, size, sure)
    return None
