"""One file of the key index: a hash table on disk whose chains lead from newer to older messages.

State: projection. Format: docs/formats/key-index.md, exactly RocketMQ's bytes.

Entries are written at once, in order, with one write per batch. The slots of a file that still
grows are kept in memory (4 bytes each) and written by pages when the index is flushed; the header
is written last. So the header on disk always describes entries and slots that are on disk too. A
slot that points to an entry at or above `next_number` was written by a flush that did not finish;
the slots are then computed again from the entries below it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kourou.model.limits import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES
from kourou.protocol import kernel
from kourou.store.open_files import OpenFiles, PooledFile

ENTRY = np.dtype(
    [("key_hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
"""`seconds` since the file's begin time; `previous` is the slot's next older entry, 0 for none."""

SECONDS_MAX = 0x7FFF_FFFF
ENTRY_STRUCT = struct.Struct(">iqii")
SLOT_STRUCT = struct.Struct(">i")
_HEADER = struct.Struct(">4q2i")

assert ENTRY.itemsize == INDEX_ENTRY_BYTES == ENTRY_STRUCT.size
assert _HEADER.size == INDEX_HEADER_BYTES
assert SLOT_STRUCT.size == INDEX_SLOT_BYTES


class IndexHeader(NamedTuple):
    """The first 40 bytes. Times are the store times in ms of the first and the last entry.

    `used_slots` is the number of slots that are not empty; `next_number` is the number of the next
    entry, from 1: entry 0 is never used.
    """

    begin_ms: int = 0
    end_ms: int = 0
    begin_position: int = 0
    end_position: int = 0
    used_slots: int = 0
    next_number: int = 1

    def encode(self) -> bytes:
        """The bytes on disk."""
        return _HEADER.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> IndexHeader:
        """The header of a file; a file never flushed has zeros, and no entries."""
        header = cls(*_HEADER.unpack(data))
        return header._replace(next_number=1) if header.next_number == 0 else header

    def successor(self) -> IndexHeader:
        """The header of the next new file, as in RocketMQ: it starts where this one ends."""
        return IndexHeader(self.end_ms, self.end_ms, self.end_position, self.end_position)


def file_size(slot_count: int, entry_count: int) -> int:
    """Length in bytes of an index file."""
    return INDEX_HEADER_BYTES + slot_count * INDEX_SLOT_BYTES + entry_count * INDEX_ENTRY_BYTES


_PAGE_SLOTS = 1_024
_CHUNK_ENTRIES = 1 << 20

Slots: TypeAlias = npt.NDArray[np.int32]
Int32s: TypeAlias = memoryview | npt.NDArray[np.int32]
Int64s: TypeAlias = memoryview | npt.NDArray[np.int64]
"""Native integers of that many bits."""


class IndexFile:
    """A file of `slot_count` slots and room for `entry_count` - 1 entries."""

    def __init__(
        self,
        file: PooledFile,
        pool: OpenFiles,
        slot_count: int,
        entry_count: int,
        header: IndexHeader,
    ) -> None:
        self.file = file
        self.header = header
        self.dirty = False
        self._pool = pool
        self._slot_count = slot_count
        self._entry_count = entry_count
        self._entries_at = INDEX_HEADER_BYTES + slot_count * INDEX_SLOT_BYTES
        self._slots: Slots | None = None
        self._dirty_pages = np.zeros(-(-slot_count // _PAGE_SLOTS), np.bool_)

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return self._entry_count - self.header.next_number

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.header.next_number - 1

    # -- loading ----------------------------------------------------------------------------------

    def read_header(self) -> str:
        """Load the header from disk; returns what is wrong with it, "" if nothing is."""
        data = self._pool.read(self.file, INDEX_HEADER_BYTES, 0)
        if self._pool.length(self.file) != self.file.size or len(data) != INDEX_HEADER_BYTES:
            return f"{self.file.path} is not {self.file.size} bytes long"
        header = IndexHeader.decode(data)
        if not (
            1 <= header.next_number <= self._entry_count
            and 0 <= header.begin_position <= header.end_position
            and 0 <= header.used_slots < header.next_number
        ):
            return f"{self.file.path} has an impossible header: {header}"
        self.header = header
        return ""

    def recover(self) -> str:
        """After an unclean stop: make slots and header agree with the entries that were flushed.

        Returns what is wrong with the file, "" if it is valid now.
        """
        header = self.header
        _, begin_position, _, _ = self.entry(1)
        _, end_position, seconds, _ = self.entry(header.next_number - 1)
        if header.next_number == 2:
            seconds = 0  # the first entry's time is relative to the previous file
        begin_ms, end_ms = header.begin_ms, header.end_ms
        at_least = 1 if seconds == 0 else begin_ms + seconds * 1000  # 0: or the clock went back
        in_time = begin_ms <= 0 or seconds == SECONDS_MAX
        in_time = in_time or at_least <= end_ms < begin_ms + seconds * 1000 + 1000
        ends = (begin_position, end_position) == (header.begin_position, header.end_position)
        if not (ends and in_time):
            return f"{self.file.path} has a header that disagrees with its entries: {header}"
        slots = self._read_slots()
        if ((slots < 0) | (slots >= header.next_number)).any():
            used = self._replace_slots(slots, header.next_number)
        else:
            used = int(np.count_nonzero(slots))
        if used != header.used_slots:
            self.header = header._replace(used_slots=used)
            self.dirty = True
        return ""

    def _read_slots(self) -> Slots:
        data = self._pool.read(self.file, self._slot_count * INDEX_SLOT_BYTES, INDEX_HEADER_BYTES)
        return np.frombuffer(data, ">i4").astype(np.int32)

    def _replace_slots(self, old: Slots, next_number: int) -> int:
        """Compute the slots from the entries below `next_number`; returns how many are in use."""
        slots = np.zeros(self._slot_count, np.int32)
        for first in range(1, next_number, _CHUNK_ENTRIES):
            count = min(_CHUNK_ENTRIES, next_number - first)
            entries = self._read_entries(first, count)
            places = (entries["key_hash"].astype(np.int32) & SECONDS_MAX) % self._slot_count
            numbers = np.arange(first, first + count, dtype=np.int32)
            np.maximum.at(slots, places, numbers)
        differing = np.flatnonzero(slots != old)
        self._dirty_pages[differing // _PAGE_SLOTS] = True
        self._slots = slots
        self.dirty = True
        return int(np.count_nonzero(slots))

    def _read_entries(self, first: int, count: int) -> npt.NDArray[np.void]:
        at = self._entries_at + first * INDEX_ENTRY_BYTES
        return np.frombuffer(self._pool.read(self.file, count * INDEX_ENTRY_BYTES, at), ENTRY)

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """(key hash, position, seconds, previous) of one entry."""
        at = self._entries_at + number * INDEX_ENTRY_BYTES
        key_hash, position, seconds, previous = ENTRY_STRUCT.unpack(
            self._pool.read(self.file, INDEX_ENTRY_BYTES, at)
        )
        return key_hash, position, seconds, previous

    # -- adding -----------------------------------------------------------------------------------

    def put(self, hashes: Int32s, positions: Int64s, store_ms: Int64s) -> None:
        """Add one entry for each key, in order; there must be room.

        Raises OSError if the disk fails: then nothing was added.
        """
        count = len(hashes)
        assert 0 < count <= self.room, (count, self.room)
        if self._slots is None:
            self._slots = self._read_slots() if self.entries else self._no_slots()
        slots, header = self._slots, self.header
        first = header.next_number
        entries, used = kernel.index_entries(
            hashes, positions, store_ms, slots, first, header.begin_ms
        )
        self._pool.write(self.file, entries, self._entries_at + first * INDEX_ENTRY_BYTES)
        self._advance(
            int(positions[0]),
            int(store_ms[0]),
            int(positions[-1]),
            int(store_ms[-1]),
            header.used_slots + used,
            first + count,
        )
        # Only now: a thread that follows a slot must find the header updated already.
        kernel.link_slots(hashes, first, slots, self._dirty_pages, _PAGE_SLOTS)
        self.dirty = True

    def _no_slots(self) -> Slots:
        return np.zeros(self._slot_count, np.int32)  # takes memory only when it is touched

    def _advance(
        self,
        first_position: int,
        first_ms: int,
        last_position: int,
        last_ms: int,
        used_slots: int,
        next_number: int,
    ) -> None:
        header = self.header
        if header.next_number == 1:
            begin_ms, begin_position = first_ms, first_position
        else:
            begin_ms, begin_position = header.begin_ms, header.begin_position
        self.header = IndexHeader(
            begin_ms, last_ms, begin_position, last_position, used_slots, next_number
        )

    # -- searching --------------------------------------------------------------------------------

    def find(
        self, key_hash: int, begin_ms: int, end_ms: int, steps_max: int
    ) -> Generator[int, None, int]:
        """Positions of entries with this hash that may be stored within [begin, end], newest first.

        Times are kept in seconds, so entries up to 999 ms outside the range are included. The
        caller must verify the record anyway, because the hash may be another key's. A message that
        has the key twice is yielded twice in a row. Returns how many entries were examined.
        """
        number = self._slot(key_hash % self._slot_count)
        header = self.header  # after the slot: a writer updates the header first
        steps = 0
        while 0 < number < header.next_number and steps < steps_max:
            steps += 1
            entry_hash, position, seconds, previous = self.entry(number)
            time_ms = header.begin_ms + (0 if number == 1 else seconds * 1000)
            if entry_hash == key_hash and time_ms <= end_ms and time_ms + 999 >= begin_ms:
                yield position
            if seconds < 0 or previous >= number or time_ms + 999 < begin_ms:
                break  # damaged, or everything further down the chain is older
            number = previous
        return steps

    def _slot(self, place: int) -> int:
        slots = self._slots
        if slots is not None:
            return int(slots[place])
        at = INDEX_HEADER_BYTES + place * INDEX_SLOT_BYTES
        (number,) = SLOT_STRUCT.unpack(self._pool.read(self.file, INDEX_SLOT_BYTES, at))
        return int(number)

    def entries_at_end(self) -> int:
        """How many of the last entries refer to the record at `end_position`."""
        number = self.header.next_number - 1
        while number > 0 and self.entry(number)[1] == self.header.end_position:
            number -= 1
        return self.header.next_number - 1 - number

    # -- truncating -------------------------------------------------------------------------------

    def cut(self, position: int, store_ms_of: Callable[[int], int]) -> None:
        """Remove the entries of records at or above `position`; at least one entry must remain.

        `store_ms_of` returns the store time of the record at a position below it.
        """
        low, high = 1, self.header.next_number
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        assert low > 1, (self.file, position)
        last = self.entry(low - 1)[1]
        old = self._slots if self._slots is not None else self._read_slots()
        used = self._replace_slots(old, low)
        self.header = self.header._replace(
            end_position=last,
            end_ms=store_ms_of(last),
            used_slots=used,
            next_number=low,
        )

    # -- flushing ---------------------------------------------------------------------------------

    def take_dirty_slots(self) -> list[tuple[int, bytes]]:
        """(byte in the file, bytes) of the slots that changed since the last call."""
        slots = self._slots
        pages = np.flatnonzero(self._dirty_pages)
        if slots is None or not len(pages):
            return []
        taken: list[tuple[int, bytes]] = []
        breaks = np.flatnonzero(np.diff(pages) != 1) + 1
        for run in np.split(pages, breaks):
            first = int(run[0]) * _PAGE_SLOTS
            end = min((int(run[-1]) + 1) * _PAGE_SLOTS, self._slot_count)
            data = slots[first:end].astype(">i4").tobytes()
            taken.append((INDEX_HEADER_BYTES + first * INDEX_SLOT_BYTES, data))
        self._dirty_pages[:] = False
        return taken

    def give_back_dirty_slots(self, taken: list[tuple[int, bytes]]) -> None:
        """Mark slots whose write failed as dirty again."""
        for at, data in taken:
            first = (at - INDEX_HEADER_BYTES) // INDEX_SLOT_BYTES // _PAGE_SLOTS
            count = -(-len(data) // (_PAGE_SLOTS * INDEX_SLOT_BYTES))
            self._dirty_pages[first : first + count] = True
        self.dirty = True

    def drop_slots(self) -> None:
        """Free the memory of the slots; they are on disk."""
        assert not self._dirty_pages.any()
        self._slots = None
