"""One queue of one topic: maps the offset of a message to its position in the log.

State: projection. Every unit is derived from one record of the commit log. All files can be deleted
and are rebuilt byte for byte.

Invariants:  first_offset <= min_offset <= max_offset
             the real units of a queue ascend in position and do not overlap
             end_position is the end of the record that the last real unit refers to
             the bytes of a unit below max_offset never change, except that a filler may become real
             bytes above max_offset in the last file are zero, or belong to an append that failed

Format: docs/formats/consume-queue.md. A file is created sparse at its full length, because RocketMQ
refuses files of another length. It is written with pwrite: mapping ten thousand files would cost
milliseconds each, and with a mapping a full disk would raise a signal instead of an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kourou.errors import Corrupt
from kourou.model.limits import (
    QUEUE_FILE_UNITS,
    QUEUE_UNIT_BYTES,
    RECORD_FIXED_BYTES,
    SEGMENT_SIZE_BYTES,
)
from kourou.protocol.kernel_python import FILLER_SIZE
from kourou.store.open_files import OpenFiles, PooledFile
from kourou.store.paths import StorePaths
from kourou.store.queues.queue_files import UNIT, QueueFiles, Units, fillers

_STEP_UNITS = 16
_STEP_UNITS_MAX = 4_096
_CHECKED_UNITS = 64
_HEAD_UNITS = 204  # the first page of the file


def _are_data(units: Units, below: int | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which units have data: fillers, and real units of records below position `below`."""
    data: np.ndarray[tuple[int], np.dtype[np.bool_]] = (units["size"] > 0) & (
        units["position"] >= 0
    )
    if below is not None:
        data &= units["position"] < below
    return data


def next_real(files: QueueFiles, offset: int, end: int) -> tuple[int, int] | None:
    """(offset, position) of the first real unit in [offset, end), None if there is none."""
    step = _STEP_UNITS
    while offset < end:
        units = files.read(offset, min(end, offset + step))
        real = units["size"] != FILLER_SIZE
        if real.any():
            index = int(real.argmax())
            return offset + index, int(units["position"][index])
        offset += len(units)
        step = min(step * 4, _STEP_UNITS_MAX)
    return None


def last_real(files: QueueFiles, first: int, end: int) -> tuple[int, int, int] | None:
    """(offset, position, size) of the last real unit in [first, end), None if there is none."""
    step = _STEP_UNITS
    while first < end:
        units = files.read(max(first, end - step), end)
        found = np.flatnonzero(units["size"] != FILLER_SIZE)
        end -= len(units)
        if len(found):
            index = int(found[-1])
            return end + index, int(units["position"][index]), int(units["size"][index])
        step = min(step * 4, _STEP_UNITS_MAX)
    return None


def first_at_or_above(files: QueueFiles, position: int, first: int, end: int) -> int:
    """The first offset in [first, end) after all real units below `position`; else `end`."""
    while first < end:
        middle = (first + end) // 2
        found = next_real(files, middle, end)
        if found is None or found[1] >= position:
            end = middle
        else:
            first = found[0] + 1
    return first


def data_end(files: QueueFiles, below: int | None) -> tuple[int, str]:
    """The end of the units of a queue, and what is wrong with them ("" if nothing is).

    `below` None: the files were closed cleanly, and units end at the first one that is zero.
    Otherwise only units of records below that position are known to be on disk; the rest may be
    arbitrary.
    """
    # Whole files first: the last one that begins with data has the end.
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        if is_data(files.unit(files.first + middle * files.file_units), below):
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return files.first, ""
    end = _end_in(files, files.first + (low - 1) * files.file_units, below)
    problem = _disorder_before(files, end, below)
    if problem and below is not None:
        # The binary search assumes that data is contiguous; after a power loss it may not be.
        return _scan(files, below), ""
    return end, problem


def is_data(unit: tuple[int, int, int], below: int | None) -> bool:
    """True if a unit has data: a filler, or a real unit of a record below position `below`."""
    position, size, _ = unit
    return size > 0 and position >= 0 and (below is None or position < below)


def _end_in(files: QueueFiles, first: int, below: int | None) -> int:
    """The end of the data in the file that starts, with data, at offset `first`."""
    high = first + files.file_units
    # Most of ten thousand queues are short: one read suffices.
    head = _are_data(files.read(first, min(high, first + _HEAD_UNITS)), below)
    if not head.all():
        return first + int(head.argmin())
    low = first + len(head)
    while low < high:
        middle = (low + high) // 2
        if is_data(files.unit(middle), below):
            low = middle + 1
        else:
            high = middle
    return low


def _ascending(units: Units) -> bool:
    """True if the records of the real units follow one another without overlap."""
    real = units[units["size"] != FILLER_SIZE]
    ends = real["position"][:-1] + real["size"][:-1]
    return bool((real["position"][1:] >= ends).all())


def _disorder_before(files: QueueFiles, end: int, below: int | None) -> str:
    """What is wrong with the last units before `end`, "" if nothing is."""
    first = max(files.first, end - _CHECKED_UNITS)
    units = files.read(first, end)
    if not _are_data(units, below).all():
        return f"units are missing between offsets {first} and {end}"
    if not _ascending(units):
        return f"units between offsets {first} and {end} are out of order"
    return ""


def _scan(files: QueueFiles, below: int) -> int:
    """The end of the contiguous, ascending run of units from the first on, checked one by one."""
    reached = 0
    for first in range(files.first, files.end, _STEP_UNITS_MAX):
        units = files.read(first, min(files.end, first + _STEP_UNITS_MAX))
        positions = units["position"].astype(np.int64)
        ends = np.where(units["size"] == FILLER_SIZE, 0, positions + units["size"])
        before = np.concatenate(([reached], np.maximum.accumulate(ends)[:-1]))
        before = np.maximum(before, reached)
        good = _are_data(units, below)
        good &= (units["size"] == FILLER_SIZE) | (positions >= before)
        if not good.all():
            return first + int(good.argmin())
        reached = max(reached, int(ends.max()))
    return files.end


TAIL_BYTES_MAX = 4_096
"""The last append stays in memory if it is no longer than this; tailing readers then read no file.
"""

GAP_UNITS_MAX = SEGMENT_SIZE_BYTES // RECORD_FIXED_BYTES
"""More records than this cannot be missing in a row: a larger gap means a damaged queue offset."""

_CHUNK_UNITS = 4_096


class ConsumeQueue:
    """The units of one queue. One thread appends; any thread may read."""

    __slots__ = (
        "_files",
        "_tail",
        "end_position",
        "max_offset",
        "min_offset",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        paths: StorePaths,
        pool: OpenFiles,
        file_units: int = QUEUE_FILE_UNITS,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.max_offset = 0
        self.end_position = 0
        directory = paths.queue(topic, queue_id)
        self._files = QueueFiles(directory, paths.consume_queue, pool, file_units)
        self._tail: tuple[int, bytes] = (0, b"")

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic}/{self.queue_id} [{self.min_offset}, {self.max_offset}))"

    @property
    def first_offset(self) -> int:
        """The first offset that has a unit; offsets below `min_offset` are expired."""
        return self._files.first

    @property
    def file_count(self) -> int:
        """The number of files of the queue."""
        return len(self._files)

    def units(self, offset: int, count: int) -> Units:
        """Up to `count` units from `offset` on, as a read-only array of `UNIT`.

        Empty if `offset` is outside the queue; shorter at the end of the queue. Fillers are
        included: their size is FILLER_SIZE.
        """
        return np.frombuffer(self.unit_bytes(offset, count), UNIT)

    def unit_bytes(self, offset: int, count: int) -> bytes:
        """The bytes of `units`."""
        end = min(offset + count, self.max_offset)
        if offset < self._files.first or end <= offset:
            return b""
        tail_first, tail = self._tail
        if offset >= tail_first and (end - tail_first) * QUEUE_UNIT_BYTES <= len(tail):
            at = (offset - tail_first) * QUEUE_UNIT_BYTES
            return tail[at : at + (end - offset) * QUEUE_UNIT_BYTES]
        try:
            return self._files.read_bytes(offset, end)
        except FileNotFoundError:
            if offset < self._files.first:  # deleted by age while this thread was reading
                return b""
            raise

    def size_bytes(self, first: int, end: int) -> int:
        """The size of the records of the real units at offsets [first, end)."""
        sizes = self.units(first, end - first)["size"]
        return int(sizes[sizes != FILLER_SIZE].sum(dtype=np.int64))

    # -- appending --------------------------------------------------------------------------------

    def append(self, first_offset: int, data: bytes, end_position: int) -> int:
        """Append whole units, the first for `first_offset`; the last record ends at `end_position`.

        A gap before them is filled with fillers, whose number is returned; an empty queue starts at
        `first_offset` instead. Raises OSError if the disk fails: then nothing counts as appended,
        and the same call may be repeated.
        """
        filled = 0
        if first_offset != self.max_offset or not len(self._files):
            filled = self._lead_up_to(first_offset)
        self._files.write(first_offset, data)
        end = first_offset + len(data) // QUEUE_UNIT_BYTES
        self._tail = (first_offset, data) if len(data) <= TAIL_BYTES_MAX else (end, b"")
        self.end_position = end_position
        self.max_offset = end
        return filled

    def append_units(self, units: Units, first_offset: int) -> int:
        """Append an array of real units; see `append`."""
        last = units[-1]
        return self.append(first_offset, units.tobytes(), int(last["position"]) + int(last["size"]))

    def append_again(self, units: Units, first_offset: int) -> tuple[int, int]:
        """Write units for offsets below `max_offset`: fillers are replaced, other units stay
        unchanged.

        Returns how many fillers were replaced, and how many units differ from the stored ones.
        """
        expired = max(0, self._files.first - first_offset)
        units, first = units[expired:], first_offset + expired
        there = self.units(first, len(units))
        vacant = there["size"] == FILLER_SIZE
        for index in np.flatnonzero(vacant).tolist():
            self._files.write(first + index, units[index].tobytes())
        replaced = int(np.count_nonzero(vacant))
        if replaced:
            self._tail = (self.max_offset, b"")
            self.end_position = self._last_end()
        differ = ~vacant & (there["position"] != units["position"])
        return replaced, int(np.count_nonzero(differ))

    def keep_offset(self, offset: int) -> int:
        """Reserve `offset` with fillers up to and including it; returns how many were written.

        For a record whose bytes are damaged: its offset must never be assigned to another record.
        """
        if offset < self.max_offset:
            return 0
        filled = self._lead_up_to(offset)
        self._files.write(offset, fillers(1))
        self.max_offset = offset + 1
        return filled + 1

    def _lead_up_to(self, offset: int) -> int:
        """Make `offset` the next one to be written; returns how many fillers were written before
        it.
        """
        if self.max_offset == self._files.first:
            self._start(offset)
            return 0
        gap = offset - self.max_offset
        assert gap >= 0, (self, offset)
        if gap > GAP_UNITS_MAX:
            raise Corrupt(
                f"queue {self.topic}/{self.queue_id} ends at offset {self.max_offset}, yet a "
                f"record claims offset {offset}",
                hint="delete the consumequeue directory; it is rebuilt from the log",
            )
        self._fill(self.max_offset, offset)
        self.max_offset = offset
        return gap

    def _start(self, offset: int) -> None:
        """Start an empty queue: fillers precede `offset` in the first file, as in RocketMQ."""
        self._files.remove_all()
        self._files.start(offset)
        self._fill(self._files.first, offset)
        self.max_offset = offset
        self.min_offset = offset

    def _fill(self, first: int, end: int) -> None:
        for offset in range(first, end, _CHUNK_UNITS):
            self._files.write(offset, fillers(min(_CHUNK_UNITS, end - offset)))

    # -- truncating -------------------------------------------------------------------------------

    def truncate(self, position: int) -> int:
        """Remove the units of records at or above `position`; returns how many.

        Fillers before them stay, because an assigned offset is never assigned again.
        """
        if self.end_position <= position:
            return 0
        cut = first_at_or_above(self._files, position, self._files.first, self.max_offset)
        found = next_real(self._files, cut, self.max_offset)
        end = self.max_offset if found is None else found[0]
        count = self.max_offset - end
        self._cut(end)
        return count

    def _cut(self, end: int) -> None:
        self.max_offset = end
        self.min_offset = min(self.min_offset, end)
        self._tail = (end, b"")
        self._files.cut(end)
        self.end_position = self._last_end()

    def _last_end(self) -> int:
        """The end of the record that the last real unit refers to; 0 if there is none."""
        found = last_real(self._files, self._files.first, self.max_offset)
        return 0 if found is None else found[1] + found[2]

    def correct_min_offset(self, log_start: int) -> None:
        """Raise the minimum to the first message that a log starting at `log_start` still has."""
        if self.min_offset == self.max_offset:
            return
        position, size, _ = self._files.unit(self.min_offset)
        if size != FILLER_SIZE and position >= log_start:
            return  # unchanged: the usual case, ten thousand times every ten seconds
        self.min_offset = self.offset_at(log_start)

    def detach_before(self, log_start: int) -> list[PooledFile]:
        """Detach the files whose records are all below `log_start`, except the last file.

        Returns them, oldest first. They stay on disk until the pool removes them.
        """
        detached: list[PooledFile] = []
        while len(self._files) > 1:
            first = self._files.first
            found = last_real(self._files, first, first + self._files.file_units)
            if found is not None and found[1] >= log_start:
                break
            detached.append(self._files.detach_first())
            self.min_offset = max(self.min_offset, self._files.first)
        return detached

    def offset_at(self, position: int) -> int:
        """The first offset, from the minimum on, whose record is at or above `position`.

        The maximum offset if there is none.
        """
        cut = first_at_or_above(self._files, position, self.min_offset, self.max_offset)
        found = next_real(self._files, cut, self.max_offset)
        return self.max_offset if found is None else found[0]

    def remove(self) -> None:
        """Delete all files; the queue is empty afterwards."""
        self._files.remove_all()
        self.min_offset = self.max_offset = self.end_position = 0
        self._tail = (0, b"")

    # -- loading ----------------------------------------------------------------------------------

    def load(self, names: Sequence[str], trusted_below: int | None) -> str:
        """Adopt the files found on disk; returns what is wrong with them, "" if nothing is.

        `trusted_below` None: the store was closed cleanly, all units are valid. Otherwise a power
        loss may have left arbitrary units for records at or above that position: they are wiped,
        and their records must be dispatched again. Raises ConfigError if the files have another
        length.
        """
        for offset in self._files.adopt(names):
            if trusted_below is None or is_data(self._files.stray_unit(offset), trusted_below):
                return f"queue {self.topic}/{self.queue_id}: files before offset {offset} are gone"
            self._files.remove_stray(offset)
        self.max_offset, problem = data_end(self._files, trusted_below)
        self.min_offset = self._files.first
        if problem:
            return f"queue {self.topic}/{self.queue_id}: {problem}"
        if trusted_below is None:
            self.end_position = self._last_end()
        elif self.max_offset == self._files.first:
            self.remove()  # none of these units was ever flushed
        else:
            self._cut(self.max_offset)
        return ""
