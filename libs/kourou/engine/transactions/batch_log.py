"""Writes half messages of batches to the log, and reads them back, many at a time.

State: none of its own; it updates the table of open half messages (class BatchHalves).

`store` and `read` return None in special cases. The caller then handles each message separately,
with the same result.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kourou.engine.context import BrokerContext
from kourou.engine.ports import ANYWHERE
from kourou.engine.sends.appends import AppendResult, Numbers, Target
from kourou.engine.transactions.batches import BatchPart
from kourou.engine.transactions.half_messages import (
    HALF_TARGET,
    OP_TARGET,
    committed_copy,
    half_changes,
    half_draft,
)
from kourou.engine.transactions.transaction_handler import TransactionHandler
from kourou.errors import BadRequest, Corrupt, MessageIllegal
from kourou.model.limits import FRAME_RECORD_BYTES_MAX
from kourou.model.message import Property
from kourou.model.transaction import BatchMark
from kourou.protocol import kernel
from kourou.protocol.record.columns import RecordColumns, columns

_BATCH = Property.BATCH.encode()
_DELAY = Property.DELAY.encode()
_SENT = (_BATCH, _DELAY, Property.TRAN_MSG.encode(), Property.UNIQ_KEY.encode())
_STORED = (_BATCH, _DELAY, Property.REAL_TOPIC.encode(), Property.REAL_QID.encode())


class MarkedHalves(NamedTuple):
    """Half messages for HALF_TARGET; `mark_of[i]` is the index in `marks` for message i."""

    drafts: list[bytes]
    marks: list[BatchMark]
    mark_of: list[int]


def halves_of(
    drafts: RecordColumns, targets: Sequence[Target], target_of: Sequence[int] | None
) -> MarkedHalves | None:
    """Convert checked drafts of batches to half messages, as `half_messages.half_of` does.

    Returns None if any of them is something else, or needs separate handling.
    """
    records = drafts.records()
    numbers: dict[bytes, int] = {}
    mark_of: list[int] = []
    for mark, delay, transaction, key in kernel.values(records, _SENT):
        if mark is None or key is None or delay is not None or transaction is None:
            return None
        if transaction.lower() != b"true":
            return None
        mark_of.append(numbers.setdefault(mark, len(numbers)))
    marks = _marks(numbers)
    if marks is None:
        return None
    changes = [half_changes(target) for target in targets]
    target_numbers = [0] * len(records) if target_of is None else target_of
    try:
        made = [
            half_draft(record, changes[number])
            for record, number in zip(records, target_numbers, strict=True)
        ]
    except MessageIllegal:  # its properties are too long: handled separately, it is refused
        return None
    return MarkedHalves(made, marks, mark_of)


class StoredHalves:
    """Stored half messages of batches, verified.

    A batch has a million half messages, so their common parts are processed once. If one of them is
    delayed, or is not a half message of a batch, the result is None, and the caller handles each
    message separately; the resulting bytes are the same.

    `real` has the queues that they were sent to; `real_of[i]` is the index in `real` for message i.
    """

    __slots__ = ("_positions", "_records", "real", "real_of")

    def __init__(self, found: RecordColumns, real: list[Target], real_of: list[int]) -> None:
        self._records = found.records()
        self._positions = found.positions.tolist()
        self.real = real
        self.real_of = real_of

    @classmethod
    def read(cls, found: RecordColumns) -> StoredHalves | None:
        """Wrap these records; None if any is delayed or needs separate handling."""
        marks: set[bytes] = set()
        numbers: dict[tuple[bytes, bytes], int] = {}
        real_of: list[int] = []
        for mark, delay, topic, queue in kernel.values(found.records(), _STORED):
            if mark is None or delay is not None or topic is None or queue is None:
                return None
            if not (queue.isdigit() and len(queue) < 10 and topic.isascii()):
                return None
            marks.add(mark)
            real_of.append(numbers.setdefault((topic, queue), len(numbers)))
        known = _marks(marks)
        if known is None or any(mark.delay_level for mark in known):
            return None
        return cls(found, [(topic.decode(), int(queue)) for topic, queue in numbers], real_of)

    def committed(self, targets: Sequence[Target]) -> list[bytes]:
        """Return the messages, as `half_messages.committed` makes them.

        They go to `targets`, which has a queue for each queue of `real`, in the same order.
        """
        return [
            committed_copy(record, targets[number], position)
            for record, number, position in zip(
                self._records, self.real_of, self._positions, strict=True
            )
        ]

    def topics(self, count: int) -> Counter[str]:
        """Count the first `count` messages by topic."""
        return Counter(self.real[number][0] for number in self.real_of[:count])


def _marks(texts: Iterable[bytes]) -> list[BatchMark] | None:
    """Decode these marks; None if one is invalid."""
    try:
        return [BatchMark.of_text(text.decode("utf-8", "replace")) for text in texts]
    except BadRequest:
        return None


SCALAR_BELOW = 10
"""Fewer half messages are handled one by one, because numpy's fixed costs are higher."""


class BatchLog:
    """The half messages of batches in the log of one broker."""

    def __init__(self, context: BrokerContext, transactions: TransactionHandler) -> None:
        self._transactions = transactions
        self._view = context.view
        self._appends = context.appends
        self._confirmations = context.confirmations

    def store(
        self,
        drafts: RecordColumns,
        targets: Sequence[Target],
        target_of: Numbers | None,
        wall_ms: int,
    ) -> AppendResult | None:
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
        count = len(read.sizes)
        if count < SCALAR_BELOW or read.corrupt_offsets:
            return None
        sizes = np.fromiter(read.sizes, np.int64, count)
        try:
            found = columns(read.run, sizes.cumsum() - sizes, sizes)
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

        `target_of[i]` is the index in `targets` for message i. Raises as `append_ends`.
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
