"""Searching the units of a queue: for their end, and for the first unit at a position.

A *real* unit refers to a record; a *filler* reserves an offset. Real units ascend in position.
Fillers have position 0 and may be anywhere, so a search that meets one continues to the next real
unit.
"""

from __future__ import annotations

import numpy as np

from kourou.store.queues.queue_files import FILLER_SIZE, QueueFiles, Units

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
