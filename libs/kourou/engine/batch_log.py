"""Half messages of batches on their way into the log and out of it, many at a time.

State: none; the table of open ones is told (engine.batch_halves).

Each of these answers None where something is unusual: then each message is dealt with by itself,
with the same result.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from kourou.engine.appends import Appends, Lane, Numbers, Written
from kourou.engine.batch_halves import BatchPart
from kourou.engine.confirmations import Confirmations
from kourou.engine.half_batches import StoredHalves, halves_of
from kourou.engine.half_messages import HALF_LANE, OP_LANE
from kourou.engine.ports import ANYWHERE, StoreView
from kourou.engine.transactions import Transactions
from kourou.errors import Corrupt
from kourou.model.limits import FRAME_RECORD_BYTES_MAX
from kourou.protocol.record_columns import RecordColumns, columns

SCALAR_BELOW = 10
"""Fewer half messages are dealt with one by one: numpy's fixed costs are higher."""


class BatchLog:
    """The half messages of batches in the log of one broker."""

    def __init__(
        self,
        transactions: Transactions,
        view: StoreView,
        appends: Appends,
        confirmations: Confirmations,
    ) -> None:
        self._transactions = transactions
        self._view = view
        self._appends = appends
        self._confirmations = confirmations

    def store(
        self,
        drafts: RecordColumns,
        lanes: Sequence[Lane],
        lane_of: Numbers | None,
        wall_ms: int,
    ) -> Written | None:
        """Store a frame of checked drafts if all of them are half messages of batches.

        Raises as Appends.write_one; then nothing has changed.
        """
        transactions = self._transactions
        if len(drafts) < SCALAR_BELOW or not transactions.takes_halves:
            return None
        halves = halves_of(drafts, lanes, lane_of)
        if halves is None:
            return None
        written = self._appends.write(*_joined(halves.drafts), [HALF_LANE], None, wall_ms)
        offsets, positions = map(np.asarray, (written.offsets, written.positions))
        self._confirmations.append(written.end)
        since_ms = transactions.touch(wall_ms)
        # Marks that differ in their delay only are of one part, whose order is that of the queue.
        parts = [mark._replace(delay_level=0) for mark in halves.marks]
        different = list(dict.fromkeys(parts))
        part_of = np.asarray([different.index(part) for part in parts])[np.asarray(halves.mark_of)]
        for number, part in enumerate(different):
            mine = part_of == number
            transactions.halves.open_batches(part, offsets[mine], positions[mine], since_ms)
        return written

    def read(self, part: BatchPart, count_max: int) -> StoredHalves | None:
        """The first half messages of a part, at most so many and FRAME_RECORD_BYTES_MAX."""
        offset, positions = part.run(count_max)
        if len(positions) < SCALAR_BELOW:
            return None
        read = self._view.read_queue(
            *HALF_LANE,
            offset,
            max_messages=len(positions),
            max_bytes=FRAME_RECORD_BYTES_MAX,
            codes=None,
            below=ANYWHERE,
        )
        count = len(read.records)
        if count < SCALAR_BELOW or read.corrupt_offsets:
            return None
        sizes = np.fromiter(map(len, read.records), np.int64, count)
        run = b"".join(read.records) if read.run is None else read.run
        try:
            found = columns(run, sizes.cumsum() - sizes, sizes)
        except Corrupt:
            return None
        there = np.arange(offset, offset + count)
        if (found.positions != positions[:count]).any() or (found.queue_offsets != there).any():
            return None
        return StoredHalves.read(found)

    def append_ends(
        self, drafts: Sequence[tuple[Lane, bytes]], part: BatchPart, count: int, wall_ms: int
    ) -> None:
        """Append what ends the first `count` half messages of a part: op records in their order,
        messages between them. Raises as Appends.write_one; then nothing has changed.
        """
        transactions = self._transactions
        ends = [offset for offset, _ in part.first(count)]
        placed = transactions.append_placed(drafts, wall_ms).offsets
        transactions.halves.batches.close(part, count)
        ops = (place for place, (lane, _) in zip(placed, drafts, strict=True) if lane == OP_LANE)
        for op, offset in zip(ops, ends, strict=True):
            transactions.halves.noted(op, offset)

    def append_pairs(
        self,
        messages: Sequence[bytes],
        lanes: Sequence[Lane],
        lane_of: Sequence[int],
        ops: Sequence[bytes],
        part: BatchPart,
        wall_ms: int,
    ) -> None:
        """Append what ends the first half messages of a part: each message, and its op record.

        `lane_of[i]` says which of `lanes` message i goes to. Raises as `append_ends`.
        """
        transactions, count = self._transactions, len(ops)
        drafts = [*messages, *ops]
        drafts[::2], drafts[1::2] = messages, ops
        # The queue that a message was sent to may be gone, so that two go to the same one.
        different = list(dict.fromkeys(lanes))
        numbers = array("q", (len(different),)) * (2 * count)
        number_of = [different.index(lane) for lane in lanes]
        numbers[::2] = array("q", [number_of[lane] for lane in lane_of])
        ends = [offset for offset, _ in part.first(count)]
        written = self._appends.write(*_joined(drafts), [*different, OP_LANE], numbers, wall_ms)
        self._confirmations.append(written.end)
        transactions.halves.batches.close(part, count)
        transactions.halves.noted_many(written.offsets[1], ends)


def _joined(drafts: Sequence[bytes]) -> tuple[bytearray, Numbers]:
    """Drafts back to back, and their sizes."""
    return bytearray().join(drafts), array("q", map(len, drafts))
