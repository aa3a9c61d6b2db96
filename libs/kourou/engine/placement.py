"""Where do records of given sizes go? The arithmetic of segments, and nothing else.

Lives here: positions, the runs into which a batch falls, and the fillers that close a segment.
May not live here: files, bytes, numbering of queues.

A record lies wholly inside one segment, and eight bytes are always left behind it for the BLANK
filler (RocketMQ 4.9: a record needs `size + 8 <= remaining`). A record that does not fit leaves a
filler of all that remains and starts the next segment.

Invariants:  positions increase; every run lies inside one segment
             a filler is at least eight bytes long and ends where a segment ends
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kourou.errors import MessageIllegal
from kourou.model.limits import SEGMENT_TAIL_BYTES


class Blank(NamedTuple):
    """A filler: `size` bytes from `position` to the end of its segment."""

    position: int
    size: int


class Run(NamedTuple):
    """`records` of them from number `first` on, back to back from `position`, in one segment."""

    first: int
    records: int
    position: int


@dataclass(slots=True)
class Placement:
    """`positions[i]` is where record i starts; `end` is the log's end afterwards."""

    positions: npt.NDArray[np.int64]
    runs: list[Run]
    blanks: list[Blank]
    end: int


def place(end: int, sizes: Sequence[int] | npt.NDArray[np.int64], segment_size: int) -> Placement:
    """Place records of `sizes` bytes behind `end`; all in bytes.

    Raises MessageIllegal if a record cannot fit into any segment; then nothing was decided.
    """
    if len(sizes) == 1:
        return _place_one(end, int(sizes[0]), segment_size)
    lengths = np.asarray(sizes, dtype=np.int64)
    room = segment_size - SEGMENT_TAIL_BYTES
    if len(lengths) and int(lengths.max()) > room:
        raise _too_big(int(np.argmax(lengths)), int(lengths.max()), segment_size)
    ends = np.cumsum(lengths)
    positions = np.empty(len(lengths), dtype=np.int64)
    runs: list[Run] = []
    blanks: list[Blank] = []
    first, placed = 0, 0
    while first < len(lengths):
        remaining = segment_size - end % segment_size
        fit = int(np.searchsorted(ends, placed + remaining - SEGMENT_TAIL_BYTES, side="right"))
        if fit == first:
            blanks.append(Blank(end, remaining))
            end += remaining
            continue
        runs.append(Run(first, fit - first, end))
        positions[first:fit] = ends[first:fit] - lengths[first:fit] + (end - placed)
        end += int(ends[fit - 1]) - placed
        placed = int(ends[fit - 1])
        first = fit
    return Placement(positions, runs, blanks, end)


def _place_one(end: int, size: int, segment_size: int) -> Placement:
    if size > segment_size - SEGMENT_TAIL_BYTES:
        raise _too_big(0, size, segment_size)
    blanks: list[Blank] = []
    remaining = segment_size - end % segment_size
    if size + SEGMENT_TAIL_BYTES > remaining:
        blanks.append(Blank(end, remaining))
        end += remaining
    return Placement(np.array([end], dtype=np.int64), [Run(0, 1, end)], blanks, end + size)


def _too_big(index: int, size: int, segment_size: int) -> MessageIllegal:
    room = segment_size - SEGMENT_TAIL_BYTES
    return MessageIllegal(
        f"record {index} takes {size} bytes; a log segment holds records of at most {room}",
        hint="send smaller messages or raise mappedFileSizeCommitLog on an empty store",
    )
