"""Reading the log at a start: its end, its unreadable regions, and all records again, in order.

Read-only: nothing is changed here.

State: none. The result depends on the bytes, the flushed position and the known regions; file times
and store times are ignored.

At a position X where neither a record, nor a filler, nor a known region begins, these rules apply,
with F the flushed position:

    nothing good above, X >= F    the end: the rest was never promised and is truncated
    a good record at Y > X        quarantine [X, Y): its bytes stay, later records stay readable
    nothing good above, X < F     promised data is gone: `lost_at`, and the store is refused unless
                                  the header at X shows that one record, up to F, is damaged

Zeros from X to the end of a segment, X >= F, with good records in the next one are a filler that a
power loss removed; it is written again.

In a replicated log, and after a power loss, the second and the last rule end at F: above F only
records without a gap are kept. A hole that was never promised would differ from what other replicas
have at the same position and epoch, and would be acknowledged as if it did not. A power loss leaves
holes in what was not flushed, amid what was appended together: a committed message would be gone,
and the record that its transaction has ended be there. Other crashes leave none, so a gap after one
is damage.

The header of a damaged record is trusted first, so that bytes of a message are not taken for
records while the header is intact; below F only if something good begins where the record ends.

If the header is damaged too, a search finds the next good record. That may be a forged one in the
body of the damaged one, because a producer can predict its position. So it is accepted only if good
records lead from it to a record that a queue refers to, to F, to a known region, or to zeros up to
the segment's end: a forged record is followed by the topic and properties of the outer one, which
are not a record.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kourou.engine.effects import SegmentFiller
from kourou.errors import BadRequest, Corrupt
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.model.names import check_topic
from kourou.protocol.record.columns import RecordColumns, ScanStop, columns, scan
from kourou.protocol.record.layout import (
    BLANK_MAGIC,
    MAGIC,
    MAGIC_V2,
    POSITION_AT,
    masked_crc,
    parts_of,
)
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine, Region
from kourou.store.log.verified import check_stored, sound
from kourou.store.queues.dispatch import Dispatcher

_HEAD = struct.Struct(">II")
_MAGIC_AT = 4
_SEARCH_BYTES = 4 * 1024 * 1024
_RECORD_MARK = re.compile(re.escape(MAGIC.to_bytes(4, "big")), re.DOTALL)
_RUN_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class LogScan:
    """The result. `end`: where the log continues; `store_ms`: the newest store time, or 0."""

    start: int
    end: int = 0
    records: int = 0
    store_ms: int = 0
    regions: list[Region] = field(default_factory=list)
    lost_fillers: list[SegmentFiller] = field(default_factory=list)
    lost_at: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a survey.

    `flushed`: everything below was promised. `crashed`: the last writer did not close the log, so
    good records may follow zeros. `resume_below`: a good record after a bad one counts only below
    this position (a log that another program truncated may have old records above its end).
    `accept_loss_at`: an operator has accepted that promised data from this position on is gone.
    `gapless`: the log is a replica or has replicas, or the power was lost: what was never promised
    ends at the first gap. `is_named`: whether a queue has a record that begins at a position; None
    if unknown.
    """

    flushed: int
    crashed: bool
    resume_below: int | None = None
    accept_loss_at: int | None = None
    gapless: bool = False
    is_named: Callable[[int], bool] | None = None


def good_run(view: memoryview, position: int, *, verify: bool = True) -> RecordColumns:
    """The records at the start of `view` that are whole, good, and at their recorded position.

    As many as fit into 8 MiB, or one. `verify` False: only their structure is checked, for bytes
    that were verified before.
    """
    found = scan(view[:_RUN_BYTES], strict=False)
    if not len(found) and found.stop is ScanStop.CUT and len(view) > _RUN_BYTES:
        found = scan(view[: int.from_bytes(view[:4], "big")], strict=False)
    if verify and len(found):
        bad = np.flatnonzero(~sound(found, found.starts + position))
        if len(bad):
            return found.select(slice(0, int(bad[0])))
    return found


def _is_good(view: memoryview, at: int, size: int, position: int) -> bool:
    try:
        check_stored(view, at, at + size, position)
    except Corrupt:
        return False
    return True


def log_scan(log: CommitLog, quarantine: Quarantine, start: int, rules: Rules) -> LogScan:
    """Scan the log from `start`, a record boundary. Raises Corrupt for an unsupported layout."""
    return _Walk(log, quarantine, start, rules).run()


def damage_at(log: CommitLog, quarantine: Quarantine, at: int, end: int) -> Region:
    """The damaged region that starts at `at`, where no good record begins; up to `end`.

    Everything below `end` was written and promised. Raises Corrupt for an unsupported layout.
    """
    walk = _Walk(log, quarantine, at, Rules(end, crashed=False, resume_below=end))
    found = walk.check_start().regions
    return found[0] if found else Region(at, end, "no readable record")


class _Walk:
    def __init__(self, log: CommitLog, quarantine: Quarantine, start: int, rules: Rules) -> None:
        self._log = log
        self._quarantine = quarantine
        self._rules = rules
        self._at = start
        self._found = LogScan(start)

    def run(self) -> LogScan:
        while self._step():
            pass
        self._found.end = self._at
        return self._found

    def check_start(self) -> LogScan:
        """Evaluate only the current position, which is neither good nor in a known region."""
        self._check(self._at)
        return self._found

    def _step(self) -> bool:
        """Advance by one run, filler or region; False at the end."""
        at = self._at
        known = self._quarantine.at(at)
        if known is not None:
            self._at = known.end
            return True
        view = self._log.raw_view(at)
        if view is None:
            return at < self._rules.flushed and self._check(at)
        limit = self._quarantine.next_start(at)
        run = good_run(view if limit is None else view[: limit - at], at)
        if len(run):
            self._found.records += len(run)
            self._found.store_ms = max(self._found.store_ms, int(run.store_timestamps.max()))
            self._at = at + int(run.sizes.sum())
            return True
        remaining = self._remaining(at)
        if _is_filler(view, remaining):
            self._at = at + remaining
            return True
        return self._check(at)

    def _remaining(self, at: int) -> int:
        return self._log.segment_size - at % self._log.segment_size

    def _check(self, at: int) -> bool:
        """Neither record nor filler begins at `at`: decide whether it is the end, damage, or a
        loss.
        """
        rules = self._rules
        view = self._log.raw_view(at)
        empty = view is None or not any(view[: _HEAD.size])
        if empty and at >= rules.flushed and not rules.crashed:
            return False
        _refuse_unknown(view, at)
        if rules.gapless and at >= rules.flushed:
            return False
        claimed = None if view is None else _claimed_end(view, at, self._remaining(at))
        if claimed is not None and at < rules.flushed and not self._is_boundary(claimed):
            claimed = None  # its size is damaged: it would hide the good records after it
        good = self._next_good(claimed) if claimed is not None else self._next_believed(at)
        if good is None:
            return at < rules.flushed and self._promised_but_gone(at, claimed)
        if rules.gapless:
            good = min(good, rules.flushed)
        if at >= rules.flushed and self._is_lost_filler(at, good):
            self._found.lost_fillers.append(SegmentFiller(at, good - at))
        else:
            reason = "no readable record" if claimed is None else "the record fails its check"
            self._found.regions.append(Region(at, good, reason))
        self._at = good
        return True

    def _is_boundary(self, at: int) -> bool:
        """True if a record, filler, region or the flushed end is at `at`."""
        if at == self._rules.flushed or self._quarantine.at(at) is not None:
            return True
        view = self._log.raw_view(at)
        if view is None or len(view) < RECORD_FIXED_BYTES:
            return False
        if _is_filler(view, self._remaining(at)):
            return True
        size = int.from_bytes(view[:4], "big")
        return size <= len(view) and _is_good(view, 0, size, at)

    def _is_lost_filler(self, at: int, good: int) -> bool:
        segment = self._log.segment_at(at)
        return segment is not None and good == segment.end and segment.is_zero_from(at)

    def _promised_but_gone(self, at: int, claimed: int | None) -> bool:
        flushed = self._rules.flushed
        if claimed != flushed and self._rules.accept_loss_at != at:
            self._found.lost_at = at
            return False
        self._found.regions.append(Region(at, flushed, "the last records fail their check"))
        self._at = flushed
        return True

    def _next_believed(self, at: int) -> int | None:
        """The next good record that, as far as can be determined, is not inside a damaged one."""
        good = self._next_good(at)
        while good is not None:
            reached, believed = self._follow(good)
            if believed:
                return good
            good = self._next_good(max(reached, good + 1))
        return None

    def _follow(self, at: int) -> tuple[int, bool]:
        """The end of the good records from `at` on, and whether there is evidence for them."""
        named = self._rules.is_named
        promised = at < self._rules.flushed
        while True:
            view = self._log.raw_view(at)
            known = self._quarantine.at(at) is not None
            if view is None or known or (promised and at >= self._rules.flushed):
                return at, True
            limit = self._quarantine.next_start(at)
            run = good_run(view if limit is None else view[: limit - at], at)
            if len(run):
                if named is not None and any(map(named, run.positions.tolist())):
                    return at, True
                at += int(run.sizes.sum())
                continue
            segment = self._log.segment_at(at)
            assert segment is not None
            filler = _is_filler(view, self._remaining(at))
            if not segment.is_zero_from(at + _HEAD.size if filler else at):
                return at, False
            if not filler:
                return at, True
            at = segment.end

    def _next_good(self, at: int) -> int | None:
        """The first position from `at` on where a good record begins, in any segment."""
        below = self._rules.resume_below
        while (segment := self._log.segment_at(at)) is not None:
            if below is not None and at >= below:
                return None
            # A size field may begin with zeros, up to three bytes before the first data.
            data_at = segment.next_data(at)
            if data_at is None:
                at = segment.end
                continue
            at = max(at, data_at - _HEAD.size)
            view = self._log.raw_view(at)
            assert view is not None
            found = _first_record(view[: _SEARCH_BYTES + _HEAD.size], view, at)
            if found is not None:
                return found if below is None or found < below else None
            at = min(segment.end, at + _SEARCH_BYTES)
        return None


def _is_filler(view: memoryview, remaining: int) -> bool:
    """A filler ends exactly where its segment ends, `remaining` bytes after the start of `view`."""
    if len(view) < _HEAD.size:
        return False
    size, magic = _HEAD.unpack_from(view, 0)
    return bool(magic == BLANK_MAGIC and size == remaining)


def _claimed_end(view: memoryview, at: int, remaining: int) -> int | None:
    """The end of the damaged record at `at`, fillers included, if its header is plausible."""
    if len(view) < RECORD_FIXED_BYTES:
        return None
    size, magic = _HEAD.unpack_from(view, 0)
    position = int.from_bytes(view[POSITION_AT : POSITION_AT + 8], "big")
    if magic == MAGIC and position == at and RECORD_FIXED_BYTES <= size <= remaining:
        return int(at + (remaining if _is_filler(view[size:], remaining - size) else size))
    return None


def _first_record(window: memoryview, view: memoryview, position: int) -> int | None:
    """The first good record whose magic number is in `window`, the beginning of `view`."""
    for match in _RECORD_MARK.finditer(window):
        at = match.start() - _MAGIC_AT
        if at < 0 or len(view) - at < RECORD_FIXED_BYTES:
            continue
        size = int.from_bytes(view[at : at + 4], "big")
        if RECORD_FIXED_BYTES <= size <= len(view) - at and _is_good(view, at, size, position + at):
            return position + at
    return None


def _refuse_unknown(view: memoryview | None, at: int) -> None:
    if view is None or len(view) < RECORD_FIXED_BYTES:
        return
    size, magic = _HEAD.unpack_from(view, 0)
    position = int.from_bytes(view[POSITION_AT : POSITION_AT + 8], "big")
    if magic == MAGIC_V2 and position == at and size <= len(view):
        raise Corrupt(
            f"the record at {at} has RocketMQ 5's second layout, which this version does not "
            f"support",
            hint="keep topics at 127 characters or fewer; nothing was changed",
        )


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
