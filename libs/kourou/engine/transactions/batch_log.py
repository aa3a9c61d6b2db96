"""Writes half messages of batches to the log, and reads them back, many at a time.

State: none of its own; it updates the table of open half messages (engine.batch_halves).

`store` and `read` return None in special cases. The caller then handles each message separately,
with the same result.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from kourou.engine.ports import ANYWHERE, StoreView
from kourou.engine.sends.appends import Appends, Numbers, Target, Written
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.transactions.batch_halves import BatchPart
from kourou.engine.transactions.half_batches import StoredHalves, halves_of
from kourou.engine.transactions.half_messages import HALF_TARGET, OP_TARGET
from kourou.engine.transactions.transaction_handler import Transactions
from kourou.errors import Corrupt
from kourou.model.limits import FRAME_RECORD_BYTES_MAX
from kourou.protocol.record.columns import RecordColumns, columns

SCALAR_BELOW = 10
"""Fewer half messages are handled one by one, because numpy's fixed costs are higher."""


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
        targets: Sequence[Target],
        target_of: Numbers | None,
        wall_ms: int,
    ) -> Written | None:
        """Store a frame of checked drafts if all of them are half messages of batches.

        Raises as Appends.write_one; then nothing has changed.
        """
        transactions = self._transactions
        if len(drafts) < SCALAR_BELOW or not transactions.takes_halves:
            return None
        halves = halves_of(drafts, targets, target_of)
        if halves is None:
            return None
        written = self._appends.write(*_joined(halves.drafts), [HALF_TARGET], None, wall_ms)
        offsets, positions = map(np.asarray, (written.offsets, written.positions))
        self._confirmations.append(written.end)
        since_ms = transactions.touch(wall_ms)
        # Marks that differ only in their delay belong to one part, in the order of the queue.
        parts = [mark._replace(delay_level=0) for mark in halves.marks]
        different = list(dict.fromkeys(parts))
        part_of = np.asarray([different.index(part) for part in parts])[np.asarray(halves.mark_of)]
        for number, part in enumerate(different):
            mine = part_of == number
            transactions.halves.open_batches(part, offsets[mine], positions[mine], since_ms)
        return written

    def read(self, part: BatchPart, count_max: int) -> StoredHalves | None:
        """Read the first `count_max` half messages of a part, FRAME_RECORD_BYTES_MAX at most."""
        offset, positions = part.run(count_max)
        if len(positions) < SCALAR_BELOW:
            return None
        read = self._view.read_queue(
            *HALF_TARGET,
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
        self, drafts: Sequence[tuple[Target, bytes]], part: BatchPart, count: int, wall_ms: int
    ) -> None:
        """Append op records for the first `count` half messages of a part, mixed with messages.

        The op records are in the order of the half messages. Raises as Appends.write_one; then
        nothing has changed.
        """
        transactions = self._transactions
        ends = [offset for offset, _ in part.first(count)]
        placed = transactions.append_placed(drafts, wall_ms).offsets
        transactions.halves.batches.close(part, count)
        ops = (
            place for place, (target, _) in zip(placed, drafts, strict=True) if target == OP_TARGET
        )
        for op, offset in zip(ops, ends, strict=True):
            transactions.halves.noted(op, offset)

    def append_pairs(
        self,
        messages: Sequence[bytes],
        targets: Sequence[Target],
        target_of: Sequence[int],
        ops: Sequence[bytes],
        part: BatchPart,
        wall_ms: int,
    ) -> None:
        """Append a message and its op record for each of the first half messages of a part.

        `lane_of[i]` is the index in `targets` for message i. Raises as `append_ends`.
        """
        transactions, count = self._transactions, len(ops)
        drafts = [*messages, *ops]
        drafts[::2], drafts[1::2] = messages, ops
        # The queue of a message may be gone, so that two messages' queues are replaced by one.
        different = list(dict.fromkeys(targets))
        numbers = array("q", (len(different),)) * (2 * count)
        number_of = [different.index(target) for target in targets]
        numbers[::2] = array("q", [number_of[target] for target in target_of])
        ends = [offset for offset, _ in part.first(count)]
        written = self._appends.write(*_joined(drafts), [*different, OP_TARGET], numbers, wall_ms)
        self._confirmations.append(written.end)
        transactions.halves.batches.close(part, count)
        transactions.halves.noted_many(written.offsets[1], ends)


def _joined(drafts: Sequence[bytes]) -> tuple[bytearray, Numbers]:
    """Return the drafts back to back, and their sizes."""
    return bytearray().join(drafts), array("q", map(len, drafts))
