"""Recovery of a store: makes the log and its projections agree after the previous run.

State: none. All decisions depend on positions, never on file times or store times.

Kourou's recovery file and RocketMQ's `abort` file distinguish four cases:

    closed by Kourou        only the end of the log is read
    crashed                 the log is scanned from the last checkpoint; entries of queues and index
                            for records after it are discarded and rebuilt from the records
    closed by RocketMQ      the last three segments are scanned, or more if needed; queues and
                            index are kept, and missing entries are added
    crashed under RocketMQ  the whole log is scanned, queues and index are rebuilt

RocketMQ ran last if the recovery file is missing or does not agree with the store: segments are
gone that Kourou would not have deleted yet; a log that Kourou closed has more records, or its
checkpoint is not Kourou's; or a broker crashed, and neither checkpoint nor tables are Kourou's
(`look_for_signs`, docs/decisions/0035-who-wrote-last.md). Then Kourou's recovery point
is ignored. It is removed before anything else is changed, so that after a crash during recovery it
cannot be applied to a store that it does not describe.

Anything missing from the projections (a queue, an index file, the whole directory) causes a rebuild
from the start of the log.

If the store is refused, nothing on disk has been changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from kourou.errors import Corrupt, Rejected
from kourou.protocol.record.message_record import encode_blank
from kourou.store.config.config_files import ConfigFiles
from kourou.store.disk import Disk
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine, Region
from kourou.store.log.verified import check_stored
from kourou.store.paths import StorePaths
from kourou.store.queues.dispatch import Dispatcher
from kourou.store.queues.queue_files import Units
from kourou.store.queues.queue_table import ConsumeQueues
from kourou.store.recovery.recovery_point import (
    RecoveryPoint,
    load_checkpoint,
    load_recovery_points,
)
from kourou.store.recovery.scan import LogScan, Rules, catch_up_index, claim_at, log_scan, runs
from kourou.store.retention import QueueEnds, keep_queue_ends


@dataclass(frozen=True, slots=True)
class Signs:
    """Signs that another program wrote to this store since Kourou last did, strongest sign first.

    They are found in the store's small files: a RocketMQ broker that ran on this store does not
    touch `<root>/kourou/`, but leaves a checkpoint with its own store times, and tables whose
    hashes Kourou never wrote. What follows from a sign depends on how the store was closed: see
    `_another_wrote`. A checkpoint of Kourou never has a later time than its recovery point, because
    the point is synced first.

    `newer_checkpoint`: the checkpoint has a later store time than Kourou ever wrote; this holds
    even after a crash of Kourou. `other_checkpoint`: it has a store time that Kourou did not write;
    valid for a store that was closed. `tables`: names of tables that another program wrote or
    removed.
    """

    newer_checkpoint: bool = False
    other_checkpoint: bool = False
    tables: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        checkpoint = ["checkpoint"] if self.other_checkpoint else []
        return ", ".join(checkpoint + self.tables)


def look_for_signs(disk: Disk, paths: StorePaths) -> Signs:
    """The signs that another program wrote to a store that Kourou wrote to before."""
    points = load_recovery_points(disk, paths.recovery_point)
    found = load_checkpoint(disk, paths.checkpoint)
    ours = {0, *(point.store_ms for point in points)}
    times = {found.log_ms, found.queues_ms}
    return Signs(
        bool(points) and max(times) > max(ours),
        bool(points) and not times <= ours,
        ConfigFiles(disk, paths).external_changes(),
    )


ROCKETMQ_SEGMENTS = 3
"""How many segments RocketMQ scans after a clean stop."""

_KEPT_UNITS = 512


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did; for the log, the operator and the tests.

    `external_writes`: why another program must have written to this store since Kourou did, "" if
    none did.
    """

    way: str = ""
    external_writes: str = ""
    walked_from: int = 0
    end: int = 0
    store_ms: int = 0
    records_walked: int = 0
    records_dispatched: int = 0
    rebuilt: bool = False
    new_regions: list[Region] = field(default_factory=list)
    fillers_put_back: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class StoreParts:
    """What is recovered. `point` None: no recovery file; `crashed`: the `abort` file exists.

    `begin` is called once, before the first change on disk; if another broker wrote last, `disown`
    precedes it and removes Kourou's recovery point. `remember` saves what a rebuild cannot derive:
    the quarantine, and `queue_ends`, the ends of queues whose messages were deleted. `signs`: what
    small files show about other writers. `power_lost`: a crash may have been a power loss.
    """

    log: CommitLog
    queues: ConsumeQueues
    index: KeyIndex | None
    dispatcher: Dispatcher
    quarantine: Quarantine
    point: RecoveryPoint | None
    crashed: bool
    begin: Callable[[], None]
    disown: Callable[[], None]
    remember: Callable[[], None]
    accept_loss_at: int | None = None
    queue_ends: QueueEnds = field(default_factory=dict)
    signs: Signs = field(default_factory=Signs)
    cut_at: int | None = None
    replicated: bool = False
    power_lost: bool = False

    def close(self) -> None:
        """Close all files; nothing is flushed."""
        self.log.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()


def recover(parts: StoreParts) -> RecoveryReport:
    """Make log and projections agree; returns what was done.

    Raises Corrupt, with nothing changed, if promised records are gone; StoreFaulted or DiskFull if
    the disk does not let recovery finish.
    """
    return _Recovery(parts).run()


class _Recovery:
    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._log = parts.log
        self._point = parts.point or RecoveryPoint()
        self._external = parts.point is None
        self._report = RecoveryReport()
        self._kept: dict[int, tuple[str, int, int, Units]] = {}
        self._named: set[int] | None = None

    def run(self) -> RecoveryReport:
        start, rules = self._plan()
        found = self._walk(start, rules)
        why = "" if self._external else self._another_wrote(found)
        if why:
            self._report.external_writes = why
            self._external, self._point = True, RecoveryPoint()
            start, rules = self._plan()
            self._parts.quarantine.forget_above(start)
            found = self._walk(start, rules)
        found = self._accept(found, rules)
        self._remember_offsets(found.regions)
        if self._external:
            flushed = self._parts.point.flushed if self._parts.point else 0
            if why and found.end < flushed:
                self._report.external_writes += (
                    f"; {flushed - found.end} bytes of ours were cut off"
                )
            self._parts.disown()
        self._parts.begin()
        if self._load_projections(found.end):
            if start > self._log.start:
                start = self._log.start
                found = self._accept(self._walk(start, rules), rules)
                self._remember_offsets(found.regions)
            self._wipe_queues(found)
        self._complete_log(found, rules)
        self._complete_index(found.end)
        self._dispatch(max(start, self._log.start), found.end)
        if self._report.rebuilt:
            keep_queue_ends(self._parts.queues, self._parts.queue_ends)
        self._parts.queues.correct_min_offsets(self._log.start)
        report = self._report
        report.end = found.end
        report.new_regions = found.regions
        report.fillers_put_back = len(found.lost_fillers)
        report.store_ms = max(self._point.store_ms, found.store_ms)
        return report

    # -- scanning ---------------------------------------------------------------------------------

    def _plan(self) -> tuple[int, Rules]:
        """Where the scan starts, and the rules for what it finds."""
        log, parts = self._log, self._parts
        accept = parts.accept_loss_at
        if not self._external:
            self._report.way = "after a crash" if parts.crashed else "after a clean stop"
            flushed = max(self._point.flushed, log.start)
            if parts.cut_at is not None:
                flushed = min(flushed, max(parts.cut_at, log.start))
            # If segments are missing at the end, the scan starts at the gap and detects the loss.
            start = min(max(self._point.projected, log.start), log.allocated_end)
            if parts.cut_at is not None:
                start = min(start, flushed)
            rules = Rules(
                flushed,
                parts.crashed,
                accept_loss_at=accept,
                gapless=parts.replicated or parts.power_lost,
                is_named=self._is_named,
            )
            return start, rules
        # RocketMQ truncates its log without erasing the old bytes; only records in a queue were
        # kept.
        parts.queues.load(None)
        named = self._named_end()
        if parts.crashed:
            self._report.way = "after a crash of RocketMQ"
            rules = Rules(log.start, True, resume_below=named, is_named=self._is_named)
            return log.start, rules
        self._report.way = "after RocketMQ" if log.segments else "a new store"
        start = self._external_start(named)
        flushed = max(start, named) if log.segments else start
        rules = Rules(
            flushed,
            crashed=False,
            resume_below=named,
            accept_loss_at=accept,
            is_named=self._is_named,
        )
        return start, rules

    def _external_start(self, named: int) -> int:
        """Where the scan starts in a store that RocketMQ closed; always a record boundary."""
        log, ours, queues = self._log, self._parts.point, self._parts.queues
        if not log.segments:
            return log.start
        # Records that no queue has are dispatched: all of them if the queue directory is gone.
        starts = [log.segments[-ROCKETMQ_SEGMENTS:][0].start, named]
        if ours is not None:
            # Scan everything the other broker wrote. However it truncated the log, a segment starts
            # with a record.
            starts.append(ours.projected - ours.projected % log.segment_size)
            if len(queues) < ours.queue_count or queues.offset_total() < ours.offset_total:
                starts.append(log.start)  # topics, or needed queues, were deleted
        return max(min(starts), log.start)

    def _another_wrote(self, found: LogScan) -> str:
        """Why another program must have left the store in this state; "" if Kourou did.

        Changed tables alone prove nothing, because operators edit them. Nor does a missing end of
        the log or of queues: that is damage, whatever caused it.
        """
        signs, start = self._parts.signs, self._log.start
        if start > self._point.projected:
            return f"segments up to {start} were deleted, {self._point.projected} was projected"
        if self._parts.crashed:
            both = signs.newer_checkpoint and signs.tables
            return f"a crash was not ours, as these tell: {signs}" if both else ""
        if found.records:
            return f"{found.records} records lie behind the end at {self._point.projected}"
        return f"these are not ours: {signs}" if signs.other_checkpoint else ""

    def _walk(self, start: int, rules: Rules) -> LogScan:
        for segment in self._log.segments:
            if segment.end > start and (rules.crashed or self._external):
                segment.look(from_device=rules.crashed)
        return log_scan(self._log, self._parts.quarantine, start, rules)

    def _accept(self, found: LogScan, rules: Rules) -> LogScan:
        """Refuse a loss of promised records, unless it is a single record; otherwise continue."""
        start = found.start
        if found.lost_at is not None and self._is_one_record(found.lost_at, rules.flushed):
            rules = replace(rules, accept_loss_at=found.lost_at)
            found = log_scan(self._log, self._parts.quarantine, start, rules)
        if found.lost_at is not None:
            tables = ", ".join(self._parts.signs.tables)
            others = f"; {tables} was written by another: did a broker cut it?" if tables else ""
            raise Corrupt(
                f"the log was flushed up to {rules.flushed}, but nothing is readable from "
                f"{found.lost_at} up to there{others}",
                hint="restore the segment from a replica or a copy; or, to continue without those "
                f"messages, start once with --set acceptDataLoss={found.lost_at}",
            )
        self._report.walked_from = start
        self._report.records_walked += found.records
        return found

    def _is_one_record(self, start: int, end: int) -> bool:
        """True if the queues show that exactly one record was there, so no more than it is lost."""
        self._parts.queues.load(None)
        last = (
            unit for queue in self._parts.queues for unit in queue.units(queue.max_offset - 1, 1)
        )
        return any((unit["position"], unit["size"]) == (start, end - start) for unit in last)

    def _is_named(self, position: int) -> bool:
        """True if a queue on disk has a record that begins there. For damaged logs only."""
        if self._named is None:
            self._parts.queues.load(None)
            self._named = set()
            for queue in self._parts.queues:
                first = max(queue.first_offset, queue.max_offset - _KEPT_UNITS)
                self._named.update(queue.units(first, _KEPT_UNITS)["position"].tolist())
        return position in self._named

    def _remember_offsets(self, regions: list[Region]) -> None:
        """Save the offsets that queues, before truncation, assign to records in these regions."""
        if not regions:
            return
        queues = self._parts.queues
        queues.load(None)
        for queue in queues:
            first = max(queue.first_offset, queue.max_offset - _KEPT_UNITS)
            for index, unit in enumerate(queue.units(first, _KEPT_UNITS)):
                position = int(unit["position"])
                if any(region.start <= position < region.end for region in regions):
                    one = np.array([unit])
                    self._kept[position] = (queue.topic, queue.queue_id, first + index, one)

    def _named_end(self) -> int:
        """The end of the newest record in a queue that the log has too; 0 if there is none."""
        end = 0
        for queue in self._parts.queues:
            for unit in queue.units(queue.max_offset - 1, 1):
                position = int(unit["position"])
                view = self._log.raw_view(position)
                if view is not None and position + int(unit["size"]) > end:
                    with suppress(Corrupt):
                        end = position + check_stored(view, 0, len(view), position).size
        return end

    # -- projections ------------------------------------------------------------------------------

    def _wipe_queues(self, found: LogScan) -> None:
        """Delete the queues, but first save what the log cannot provide a second time.

        That is where good records continue after damaged ones, and how many messages a queue had
        that another broker deleted.
        """
        parts = self._parts
        for queue in parts.queues:
            expired = queue.offset_at(self._log.start)
            if expired > queue.first_offset:
                ends = parts.queue_ends.setdefault(queue.topic, {})
                ends[queue.queue_id] = max(expired, ends.get(queue.queue_id, 0))
        parts.quarantine.add(found.regions)
        parts.remember()
        parts.queues.wipe()

    def _load_projections(self, end: int) -> bool:
        """Load queues and index as far as they are reliable; True if the queues must be rebuilt."""
        parts, point, report = self._parts, self._point, self._report
        trusted = point.projected if parts.crashed and not self._external else None
        if trusted is not None and parts.cut_at is None:
            trusted = min(trusted, end)
        problems = parts.queues.load(trusted)
        count, total = len(parts.queues), parts.queues.offset_total()
        if parts.queues.end_position() > end:
            self._truncate_queues(end)
        if parts.cut_at is None:
            count, total = len(parts.queues), parts.queues.offset_total()
        if self._external and parts.crashed:
            problems.append("RocketMQ crashed on this store")
        if count < point.queue_count:
            problems.append(f"{count} of {point.queue_count} queues are there")
        elif total < point.offset_total:
            problems.append("queues are shorter than they were")
        report.problems += problems
        report.rebuilt = bool(problems)
        if parts.index is not None:
            self._load_index(parts.index, end)
        return report.rebuilt

    def _truncate_queues(self, end: int) -> None:
        """Truncate queues; after a cut, also lower saved queue ends that were beyond the cut."""
        queues, ends = self._parts.queues, self._parts.queue_ends
        before = [(queue, queue.max_offset) for queue in queues]
        queues.truncate(end)
        if self._parts.cut_at is None:
            return
        for queue, high in before:
            if queue.max_offset < min(high, ends.get(queue.topic, {}).get(queue.queue_id, 0)):
                ends[queue.topic][queue.queue_id] = queue.max_offset
        self._parts.remember()

    def _load_index(self, index: KeyIndex, end: int) -> None:
        point, crashed = self._point, self._parts.crashed
        # RocketMQ does not record how far its index goes.
        covered = end if self._external else point.indexed
        problems = index.load(covered=covered, clean=not crashed)
        if self._external and (crashed or not index.entry_total):
            index.wipe()
        elif self._external:
            # The index may have been disabled for a while; records that are in it are not added
            # twice.
            index.covered = min(index.covered, max(index.end_position, self._log.start))
        elif not problems and index.entry_total < point.index_entries:
            problems.append(f"{index.entry_total} of {point.index_entries} index entries are there")
            index.wipe()
        self._report.problems += problems

    def _complete_index(self, end: int) -> None:
        """Remove the keys of records that the log does not have.

        After another broker, also the keys of all records that it may have written: it leaves gaps
        (if it ran without an index, or assumed that a key was present), so these records are
        indexed again.
        """
        index, ours, log = self._parts.index, self._parts.point, self._log
        if index is None:
            return
        if self._external and ours is not None:
            end = min(end, max(min(ours.indexed, self._report.walked_from), log.start))
        if index.end_position >= end or index.covered > end:
            try:
                index.truncate(end, self._store_ms_at)
            except (Corrupt, Rejected):  # the record before the position is damaged, or deleted
                index.wipe()

    def _store_ms_at(self, position: int) -> int:
        view = self._log.view_segment(position)
        return check_stored(view, 0, len(view), position).store_timestamp

    # -- the log ----------------------------------------------------------------------------------

    def _complete_log(self, found: LogScan, rules: Rules) -> None:
        """Apply the result of the survey on disk."""
        log, parts = self._log, self._parts
        if not log.segments and found.end:
            log.start_at(found.end)
        while log.allocated_end < found.end:
            log.allocate_next()
        for filler in found.lost_fillers:
            segment = log.segment_at(filler.position)
            assert segment is not None
            segment.write(encode_blank(filler.size), filler.position)
        if found.regions:
            parts.quarantine.add(found.regions)
        if rules.crashed or self._external:
            log.truncate(found.end)
        for segment in log.segments:
            segment.done_looking()
        log.adopt_end(found.end, max(log.start, min(found.start, found.end)))
        log.flush()

    # -- dispatching ------------------------------------------------------------------------------

    def _dispatch(self, start: int, end: int) -> None:
        """Project the records in [start, end); existing entries stay unchanged."""
        dispatcher, index = self._parts.dispatcher, self._parts.index
        while index is not None and index.covered < start:
            covered = index.covered
            catch_up_index(self._log, self._parts.quarantine, dispatcher, index, start)
            if index.covered == covered:
                index.seen = start
                break  # the disk is full; the index stays behind, and a tick catches up
        dispatcher.resume(start)
        for at, records in runs(self._log, self._parts.quarantine, start, end):
            if records is None:
                self._keep_offsets(at)
            else:
                self._report.records_dispatched += len(records)
                dispatcher.dispatch(records)
        dispatcher.resume(end)

    def _keep_offsets(self, at: int) -> None:
        """Reserve the offsets of damaged records, so that they are never assigned to others.

        The offsets come from the queues as found on disk, or else from what the record claims.
        """
        region = self._parts.quarantine.at(at)
        if region is None:
            return
        queues = self._parts.queues
        for position in sorted(self._kept):
            topic, queue_id, offset, unit = self._kept[position]
            if region.start <= position < region.end:
                queue = queues.get_or_create(topic, queue_id)
                if offset >= queue.max_offset:
                    queue.append_units(unit, offset)
        while at < region.end:
            claim = claim_at(self._log, at, region.end)
            if claim is None:
                return
            # Only the next offset of a queue is accepted, because the claim may be noise.
            known = queues.range_of(claim.topic, claim.queue_id)
            if claim.offset == (0 if known is None else known[1]) and (known or claim.sure):
                self._parts.dispatcher.dispatch_gap(claim.topic, claim.queue_id, claim.offset)
            at += claim.size
