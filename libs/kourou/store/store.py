"""The store of one broker: log, queues, index, and the files that record their state at a stop.

State: log (kourou.store.log.commit_log) and projections of it.

    append     the log, or its buffers                     event loop's thread
    write_out  the log, from its buffers                   any thread, concurrently with the loop
    dispatch   queues and index, from written records      event loop's thread
    flush      the log to disk                             any thread, concurrently with the loop
    checkpoint log, then queues and index, then the        planned by the loop,
               recovery point, then RocketMQ's checkpoint  executed in any thread

Invariant: the positions of a recovery point are on disk before the point is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from kourou.engine.effects import SegmentFiller
from kourou.errors import DiskFull, StoreFaulted
from kourou.protocol.record.columns import RecordColumns
from kourou.protocol.record.message_record import encode_blank
from kourou.store.disk import FULL, Buffer, Disk
from kourou.store.index.key_index import IndexState
from kourou.store.log.commit_log import Segment, last_fault_ms
from kourou.store.log.quarantine import save_quarantine
from kourou.store.paths import StorePaths
from kourou.store.queues.dispatch import Growth
from kourou.store.recovery.recover import RecoveryReport, StoreParts, recover
from kourou.store.recovery.recovery_point import (
    Checkpoint,
    CheckpointPlan,
    RecoveryFile,
    RecoveryPoint,
    save_checkpoint,
)
from kourou.store.recovery.scan import catch_up_index, runs
from kourou.store.replica.copies import Copies
from kourou.store.replica.replica_files import trim_epochs
from kourou.store.replica.truncation import Cut, carry_out, forget_cut, prepare_cut
from kourou.store.retention import AgeClock, Deletion, Reserve
from kourou.store.settings import StoreSettings
from kourou.store.startup import (
    StoreLock,
    check_format,
    find_parts,
    log_external_writes,
    make_directories,
    note_boot,
    unusable,
)


class Space(NamedTuple):
    """Log space is reserved up to `allocated_end`; `full`: no more is available now."""

    allocated_end: int
    full: bool


class Store(Copies):
    """An open store: locked and recovered. It is a StoreView."""

    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        paths: StorePaths,
        lock: StoreLock,
        parts: StoreParts,
        recovery: RecoveryFile,
        report: RecoveryReport,
    ) -> None:
        super().__init__(disk, paths, parts, settings.recent_bytes)
        self.settings = settings
        self.report = report
        self.store_ms = report.store_ms
        self._lock = lock
        self._recovery = recovery
        self.ages = AgeClock(disk, paths)
        self.reserve = Reserve(disk, paths, settings.reserve_bytes)
        self.last_fault_ms = last_fault_ms(disk, paths)
        self._full = self._closed = False
        self._indexed_ms = 0

    # -- opening ----------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        settings: StoreSettings,
        disk: Disk,
        first_look: Callable[[StorePaths], None] | None = None,
    ) -> Store:
        """Lock, check and recover; afterwards log and projections agree and are on disk.

        `first_look` is called when the lock is held and nothing is changed yet; an exception from
        it refuses the store.

        Raises ConfigError for problems that an operator must fix (another process has the store, a
        newer version wrote it, sizes disagree, it cannot be read), Corrupt if promised records are
        gone, DiskFull or StoreFaulted if the disk does not let recovery finish.
        """
        paths = settings.paths
        try:
            known = check_format(disk, paths)
            lock = StoreLock(disk, paths)
        except OSError as error:
            raise unusable(disk, paths.root, error) from error
        try:
            if first_look is not None:
                first_look(paths)
            return cls._open_locked(settings, disk, paths, lock, known=known)
        except OSError as error:
            lock.release()
            raise unusable(disk, paths.root, error) from error
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open_locked(
        cls, settings: StoreSettings, disk: Disk, paths: StorePaths, lock: StoreLock, *, known: bool
    ) -> Store:
        parts = find_parts(settings, disk, paths, known=known)
        try:
            make_directories(disk, paths)
            lock.take_rest()
            carry_out(disk, paths, parts)
            report = recover(parts)
            log_external_writes(report, paths)
            if report.new_regions or report.external_writes:
                save_quarantine(disk, paths, parts.quarantine)
            recovery = RecoveryFile(disk, paths.recovery_point, parts.point or RecoveryPoint())
            store = cls(settings, disk, paths, lock, parts, recovery, report)
            store.checkpoint()
            trim_epochs(disk, paths, report.end)
            forget_cut(disk, paths)
            note_boot(disk, paths)
            store.allocate_next()
            store.reserve.take()
        except BaseException:
            parts.close()
            raise
        return store

    # -- positions --------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The position of the next record, unless a filler precedes it."""
        return self._log.end

    @property
    def flushed(self) -> int:
        """Everything below survives a power loss."""
        return self._log.flushed

    @property
    def dispatched(self) -> int:
        """Everything below is in the queues."""
        return self._dispatcher.end

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that readers cannot see yet."""
        return self._log.written - self._dispatcher.end

    @property
    def dirty_bytes(self) -> int:
        """Bytes of the log that are written and not flushed."""
        return self._log.dirty_bytes

    @property
    def staged(self) -> bool:
        """True if appended bytes wait in memory for `write_out`."""
        return self._log.staged

    @property
    def unwritten_bytes(self) -> int:
        """Appended bytes that wait in memory; they are lost if the process is killed."""
        return self._log.unwritten_bytes

    @property
    def staging_full(self) -> bool:
        """True while an append that needs one more buffer would have to write out by itself."""
        return self._log.staging_full

    @property
    def space(self) -> Space:
        """The reserved space of the log."""
        return Space(self._log.allocated_end, self._full)

    @property
    def space_wanted(self) -> bool:
        """True while no whole segment is ready: call `allocate_next` in another thread."""
        return self._log.spare_wanted

    @property
    def fault(self) -> str | None:
        """Why nothing more is stored; None while the store works."""
        return self._log.fault

    def usage(self) -> tuple[int, int]:
        """(total, free) bytes of the disk that holds the log."""
        return self._disk.usage(self.paths.commit_log)

    # -- writing ----------------------------------------------------------------------------------

    def append(
        self,
        pieces: Sequence[tuple[int, Buffer]],
        blanks: Sequence[SegmentFiller],
        end: int,
        records: RecordColumns | None = None,
    ) -> None:
        """Append stamped records and fillers at their positions; see engine.effects.Append.

        `records`: the columns of a single piece, which spare reading it again for its projection.

        Raises DiskFull if a segment is missing (the caller placed beyond `space`), StoreFaulted if
        the disk fails.
        """
        log = self._log
        if not log.staged:
            self._being_written(log.end, pieces, records)
        waiting = list(reversed(blanks))
        for position, data in pieces:
            while waiting and waiting[-1].position < position:
                blank = waiting.pop()
                log.close_segment(encode_blank(blank.size), blank.position)
            log.append(data, position)
        for blank in reversed(waiting):
            log.close_segment(encode_blank(blank.size), blank.position)
        assert log.end == end, (log.end, end)

    def write_out(self) -> int:
        """Write staged bytes to the log's files; returns the position up to which all is written.

        Thread-safe. The first failure is permanent: this call and every later one raise
        StoreFaulted.
        """
        return self._log.write_out()

    def dispatch(self) -> list[Growth]:
        """Project what was written since the last call; returns the queues that have new messages.

        On a full disk the queues fall behind (`dispatch_behind_bytes`) and catch up in a later
        call: nothing is lost, it is only not visible yet. Raises StoreFaulted if the disk fails.
        """
        advanced: list[Growth] = []
        fresh, written = self._fresh.take(), self._log.written
        if self.fault is None:
            with suppress(DiskFull):
                for piece in fresh:
                    if piece.start != self.dispatched:
                        break  # records before it are not projected yet
                    advanced += self._dispatch(piece.records)
                for _, records in runs(self._log, self._quarantine, self.dispatched, written):
                    if records is not None:
                        advanced += self._dispatch(records)
                self._dispatcher.pass_over(written)
        return advanced

    def _dispatch(self, records: RecordColumns) -> list[Growth]:
        try:
            advanced = self._dispatcher.dispatch(records)
        except StoreFaulted as error:
            self._log.fail(str(error))
            raise
        self.store_ms = max(self.store_ms, records.newest_ms)
        return advanced

    @property
    def indexed(self) -> int:
        """The key index, if enabled, has every record that ends at or below this position."""
        return self._dispatcher.end if self._index is None else self._index.covered

    def catch_up_index(self) -> None:
        """Pass the next run of missed records to an index that fell behind. Event loop's thread."""
        index = self._index
        if index is not None and index.state is IndexState.BEHIND and not index.held:
            end = self._dispatcher.end
            catch_up_index(self._log, self._quarantine, self._dispatcher, index, end)

    def allocate_next(self, up_to: int = 0) -> Space:
        """Reserve a spare segment if there is none, and space up to position `up_to` at least.

        Thread-safe. The result shows a full disk. Raises StoreFaulted if the disk fails.
        """
        try:
            while self._log.spare_wanted or self._log.allocated_end < up_to:
                self._log.allocate_next()
            self._full = False
        except DiskFull:
            self._full = True
        return self.space

    # -- flushing ---------------------------------------------------------------------------------

    def flush(self) -> int:
        """Sync the log; returns the position below which everything is durable. Thread-safe.

        The first failure is permanent: this call and every later one raise StoreFaulted.
        """
        flushed = self._log.flush()
        try:
            self._recovery.note_flushed(flushed)
        except OSError as error:
            raise self._failed("writing the recovery point", error) from error
        return flushed

    def plan_checkpoint(self, *, whole: bool = True) -> CheckpointPlan:
        """Record the projections' progress, in the loop's thread; any may `save_checkpoint`.

        Unless `whole`, the key index is flushed only if that is due (see KeyIndex.flush_due).
        """
        index = self._index
        self.catch_up_index()
        return CheckpointPlan(
            self._dispatcher.end,
            self.store_ms,
            len(self._queues),
            self._queues.offset_total(),
            0 if index is None else index.covered,
            0 if index is None else index.entry_total,
            0 if index is None else index.full_end_ms,
            whole or not self._indexed_ms or (index is not None and index.flush_due),
        )

    def save_checkpoint(self, plan: CheckpointPlan) -> None:
        """Make everything up to the plan durable, then record that on disk. Thread-safe.

        Raises StoreFaulted if the disk fails; then the store accepts no more writes.
        """
        flushed = self.flush()
        try:
            self._dispatcher.flush(index=plan.flush_index)
            index = self._index
            indexed = 0 if index is None else index.flushed
            if index is None or indexed >= plan.projected:
                self._indexed_ms = plan.store_ms
            entries = self._recovery.last.index_entries
            self._recovery.save(
                plan.point(flushed=flushed, indexed=indexed, entries_before=entries)
            )
            times = Checkpoint(plan.store_ms, self._indexed_ms, plan.index_full_ms)
            save_checkpoint(self._disk, self.paths.checkpoint, times)
        except OSError as error:
            raise self._failed("writing the checkpoint", error) from error
        except StoreFaulted as error:
            self._log.fail(str(error))
            raise

    def checkpoint(self) -> None:
        """Plan and save a checkpoint at once."""
        self.save_checkpoint(self.plan_checkpoint())

    def _failed(self, doing: str, error: OSError) -> StoreFaulted:
        reason = f"{doing}: {error.strerror or error}"
        self._log.fail(reason)
        return StoreFaulted(reason, hint="restart the broker; it recovers from the log")

    # -- deleting and truncating ------------------------------------------------------------------

    def remove_topic(self, topic: str) -> int:
        """Delete the queues of a topic; its records stay in the log until they expire.

        Returns how many queues there were. Saves a checkpoint, so that a restart does not miss
        them.
        """
        removed = self._queues.remove_topic(topic)
        self.checkpoint()
        return removed

    @property
    def deletable_end(self) -> int:
        """Segments below are flushed, and so are all projections of them."""
        return min(self._log.flushed, self._recovery.last.projected)

    def closed_segments(self) -> list[Segment]:
        """The segments that the log has finished, oldest first."""
        return [segment for segment in self._log.segments if segment.end <= self._log.end]

    def deletion(self, position: int) -> Deletion:
        """The deletion of everything entirely below `position`; the caller runs its steps."""
        return Deletion(
            self._disk,
            self.paths,
            self._log,
            self._queues,
            self._index,
            self._quarantine,
            min(position, self.deletable_end),
        )

    def remove(self, deletion: Deletion) -> int:
        """The last steps of a deletion, in any thread; returns how many segments were removed.

        A store that failed is not changed any more.
        """
        if self.fault is not None:
            return 0
        try:
            return deletion.remove()
        except OSError as error:
            raise self._failed("deleting old log segments", error) from error

    def cut(self, position: int, confirmed: int) -> Cut:
        """Truncate the log at `position`, where the leader's history diverges. Closes the store.

        The next `open` carries it out, so a crash in between changes nothing. Truncated data is
        kept below `kourou/diverged`, within bounds. Raises Corrupt, and changes nothing, if that
        would remove data below `confirmed`, or if the log already starts after `position`; Rejected
        for a position where no record begins; StoreFaulted if the disk fails.
        """
        self.write_out()
        try:
            cut = prepare_cut(
                self._disk, self.paths, self._log, self._quarantine, position, confirmed
            )
        except OSError as error:
            raise self._failed("preparing the cut of the log", error) from error
        self.close(settle=False)
        return cut

    def hold_index(self, held: bool) -> None:
        """While held, the key index accepts no entries: on a full disk, other data has priority."""
        if self._index is not None:
            self._index.hold(held)

    # -- closing ----------------------------------------------------------------------------------

    def close(self, *, settle: bool = True) -> None:
        """Leave the store so that the next start has nothing to recover; closing twice is allowed.

        A store that failed is left as it is: nothing more is written, and `abort` stays. Without
        `settle` the store is left as if the process had been killed.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if settle and self.fault is None:
                self._settle()
        finally:
            self._recovery.close()
            self._parts.close()
            self._lock.release()

    def _settle(self) -> None:
        self.write_out()
        self.dispatch()
        self.checkpoint()
        try:
            if self.ages.started:
                self._save_ages()
            self._log.drop_spare()
            if self.dispatched == self._log.end:
                self._disk.unlink(self.paths.abort)
                self._disk.sync_dir(self.paths.abort.parent)
        except OSError as error:
            raise self._failed("closing the store", error) from error

    def _save_ages(self) -> None:
        """Write the ages as of the last look; if the disk is full, the saved ages stay a little
        old.
        """
        try:
            self.ages.save(self.ages.encoded())
        except OSError as error:
            if error.errno not in FULL:
                raise

    def statistics(self) -> dict[str, object]:
        """A snapshot for operators and metrics."""
        log = self._log
        return {
            "log": {
                "start": log.start,
                "end": log.end,
                "written": log.written,
                "flushed": log.flushed,
                "allocated_end": log.allocated_end,
                "fault": log.fault,
            },
            "reads": {"records": self.records_read, "corrupt": self.corrupt_met},
            "damaged_regions": len(self._quarantine),
            "dispatch": self._dispatcher.statistics(),
            "queues": self._queues.statistics(),
            "index": {} if self._index is None else self._index.statistics(),
        }
