"""The records of batch transactions in bulk: half messages, committed messages, op records.

A batch has a million half messages, so their common parts are processed once. If one of them is
delayed, or is not a half message of a batch, the result is None, and the caller handles each
message separately; the resulting bytes are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kourou.engine.transactions.half_messages import committed_copy, half_changes, half_draft
from kourou.errors import BadRequest, MessageIllegal
from kourou.model.message import Property
from kourou.model.transaction import BatchMark
from kourou.protocol import kernel
from kourou.protocol.record.columns import RecordColumns

Target = tuple[str, int]

_BATCH = Property.BATCH.encode()
_DELAY = Property.DELAY.encode()
_SENT = (_BATCH, _DELAY, Property.TRAN_MSG.encode(), Property.UNIQ_KEY.encode())
_STORED = (_BATCH, _DELAY, Property.REAL_TOPIC.encode(), Property.REAL_QID.encode())


class MarkedHalves(NamedTuple):
    """Half messages for HALF_LANE; `mark_of[i]` is the index in `marks` for message i."""

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
