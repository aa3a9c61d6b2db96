"""Reading the log again, in order, to project it.

Lives here: the walk over records that were verified before, around damaged regions; what a damaged
record still claims; bringing a key index that fell behind up to date.
May not live here: judging bytes (kourou.store.survey), what a record becomes
(kourou.store.dispatch).

State: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kourou.errors import BadRequest, Corrupt
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.model.names import check_topic
from kourou.protocol.record_batch import RecordColumns, columns
from kourou.store.commit_log import CommitLog
from kourou.store.dispatch import Dispatcher
from kourou.store.key_index import KeyIndex
from kourou.store.quarantine import Quarantine
from kourou.store.survey import good_run

NO_RECORDS = columns(b"", np.empty(0, np.int64), np.empty(0, np.int64))


class Claim(NamedTuple):
    """What a damaged record says of itself; any of it may be wrong."""

    topic: str
    queue_id: int
    offset: int
    size: int


def runs(
    log: CommitLog, quarantine: Quarantine, start: int, end: int
) -> Iterator[tuple[int, RecordColumns | None]]:
    """(position, records) of each run in [start, end); None for records where a region begins.

    `start` and `end` are boundaries of records, and everything between them was verified before.
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
            at = limit  # a filler: nothing else is left


def catch_up_index(
    log: CommitLog, quarantine: Quarantine, dispatcher: Dispatcher, index: KeyIndex, end: int
) -> None:
    """Hand the index the next run of records behind what it covers, up to `end` at most.

    If the disk still refuses, `index.covered` stays where it is.
    """
    for at, records in runs(log, quarantine, max(index.covered, log.start), end):
        if records is not None:
            last = int(records.positions[-1]) + int(records.sizes[-1])
            assert last <= end, (at, last, end)
            dispatcher.catch_up_index(records, last)
            return
    dispatcher.catch_up_index(NO_RECORDS, end)


def claim_at(log: CommitLog, at: int, end: int) -> Claim | None:
    """What the damaged record at `at` claims, if its structure holds and ends by `end`."""
    view = log.view_segment(at)
    size = int.from_bytes(view[:4], "big")
    if not RECORD_FIXED_BYTES <= size <= min(len(view), end - at):
        return None
    try:
        found = columns(view, np.zeros(1, np.int64), np.full(1, size, np.int64))
        topic = check_topic(found.topic(0).decode("ascii"))
    except (Corrupt, BadRequest, UnicodeDecodeError):
        return None
    if int(found.positions[0]) != at:
        return None
    return Claim(topic, int(found.queue_ids[0]), int(found.queue_offsets[0]), size)
