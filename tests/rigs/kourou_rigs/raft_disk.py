"""One member's disk in a simulation: written data, durable data, power loss.

The log consists of cells of eight bytes, one per record: epoch, kind, value. A cell of zeros was
never written. Everything is in memory. After a kill, `pages` is unchanged; after a power loss, a
random part of the unflushed data remains: all, nothing, or some cells.
"""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from kourou.replication.epochs import Epochs

CELL = struct.Struct(">HHI")
CELL_BYTES = CELL.size
NOTHING = bytes(CELL_BYTES)
DATA = 1
OPENED = 2


class Cells(NamedTuple):
    """A piece of the log, as sent by a leader."""

    data: bytes
    end: int
    damage: str = ""


def data_cell(epoch: int, value: int) -> bytes:
    """A message."""
    return CELL.pack(epoch, DATA, value)


def opening_cell(epoch: int) -> bytes:
    """The first record of an epoch."""
    return CELL.pack(epoch, OPENED, epoch)


class MemberDisk:
    """The log, the epoch file and the vote file of one member."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        #: The content as seen by reads.
        self.pages = bytearray()
        #: The content that certainly survives a power loss.
        self.platter = bytearray()
        self._unflushed: list[tuple[int, bytes]] = []
        self.first_position = 0
        self._old_epochs: list[tuple[int, int]] = []
        #: (epoch, voted for, joining, lived); None while there is no vote file.
        self.vote: tuple[int, str, bool, bool] | None = None
        self.confirmed = 0
        #: A truncation is in progress: the store is closed.
        self.closed = False

    # -- writing ---------------------------------------------------------------------------------

    def write(self, position: int, data: bytes) -> None:
        """Append, without making the data durable."""
        assert not self.closed, f"write at {position} while the log is cut"
        assert position == len(self.pages), (
            f"write at {position}, the log ends at {len(self.pages)}"
        )
        self.pages += data
        self._unflushed.append((position, bytes(data)))

    def begin_flush(self) -> tuple[int, int]:
        """The data covered by a flush that starts now: (writes, end of the log)."""
        return len(self._unflushed), len(self.pages)

    def end_flush(self, writes: int) -> None:
        """Complete a flush."""
        for position, data in self._unflushed[:writes]:
            self._put(position, data)
        del self._unflushed[:writes]

    def _put(self, position: int, data: bytes) -> None:
        platter = self.platter
        if len(platter) < position:
            platter += bytes(position - len(platter))
        platter[position : position + len(data)] = data

    def cut(self, position: int) -> None:
        """Truncate the log at `position`, durably; earlier data is flushed."""
        self.end_flush(len(self._unflushed))
        del self.pages[position:]
        del self.platter[position:]

    def begin(self, position: int, epoch: int) -> None:
        """Discard the log; an empty one starts at `position`."""
        self._unflushed.clear()
        self.pages = bytearray(position)
        self.platter = bytearray(position)
        self.first_position = position
        self._old_epochs = [(epoch, position - 1)] if epoch else []

    def discard(self, position: int, epochs: Epochs) -> None:
        """Retention: delete the log below `position`."""
        self._old_epochs = [pair for pair in epochs.opened() if pair[1] < position]
        self.first_position = position

    def lose(self, *, vote: bool) -> None:
        """Replace the disk by an empty one; without `vote`, the vote file on another disk stays."""
        self._unflushed.clear()
        self.pages, self.platter = bytearray(), bytearray()
        self.first_position, self._old_epochs = 0, []
        if vote:
            self.vote = None

    # -- reading ---------------------------------------------------------------------------------

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Cells:
        """Read whole cells, at least one, up to `limit`."""
        assert not self.closed, f"read at {position} while the log is cut"
        assert position >= self.first_position, f"read at {position}, below {self.first_position}"
        size = max(CELL_BYTES, max_bytes // CELL_BYTES * CELL_BYTES)
        data = bytes(self.pages[position : min(limit, position + size)])
        return Cells(data, position + len(data))

    def holds(self, position: int, data: bytes) -> bool:
        """True if these bytes survive a power loss."""
        return self.platter[position : position + len(data)] == data

    # -- crashes ---------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Keep a random part of the unflushed data; recovery ends the log at the first hole."""
        for position, data in self._unflushed:
            fate = self._chance.random()
            if fate < 0.4:
                self._put(position, data)
            elif fate < 0.7:
                for at in range(0, len(data), CELL_BYTES):
                    if self._chance.random() < 0.6:
                        self._put(position + at, data[at : at + CELL_BYTES])
        self._unflushed.clear()
        del self.platter[self._hole() :]
        self.pages = bytearray(self.platter)

    def _hole(self) -> int:
        position = self.first_position
        while True:
            position = self.platter.find(NOTHING, position)
            if position < 0:
                return len(self.platter)
            if position % CELL_BYTES == 0:
                return position
            position += 1

    def epochs(self) -> Epochs:
        """The epochs according to the records, as read at a start."""
        pairs = list(self._old_epochs)
        cells = CELL.iter_unpack(memoryview(self.pages)[self.first_position :])
        for index, (epoch, kind, _) in enumerate(cells):
            if kind == OPENED:
                pairs.append((epoch, self.first_position + index * CELL_BYTES))
        return Epochs(pairs, len(self.pages))
