"""Which different strings many records have: their topics above all.

Lives here: different strings at many places. May not live here: tags and keys, which the record
kernel projects (kourou.protocol.kernel).

State: none.
"""

from __future__ import annotations

import numpy as np

from kourou.protocol import kernel
from kourou.protocol.record_columns import Bytes, Longs, Marks, RecordColumns, sliding

_VECTOR_FROM = 16
"""Below so many strings numpy's fixed costs are higher than those of a loop ..."""
_ROUNDS_FROM = 256
"""... and below so many even if they are a few different ones."""
_ROUNDS = 4
"""So many different strings are looked for in all places at once; then a loop is cheaper."""


def topics_of(records: RecordColumns) -> tuple[list[bytes], Longs | None]:
    """The topics of a batch, and for each record which of them; None if there is only one."""
    topics, topic_of = kernel.topics(records.raw, records.raw_table)
    return topics, None if topic_of is None else np.frombuffer(topic_of, np.int64)


def distinct(blob: Bytes, at: Longs, length: Longs) -> tuple[list[bytes], Longs]:
    """The different strings at these places, and the number of each place's string among them."""
    numbers = np.zeros(len(at), dtype=np.int64)
    if len(at) >= _VECTOR_FROM and (size := int(length[0])) and (length == size).all():
        texts = sliding(blob, f"V{size}")[at].tobytes()
        if texts == texts[:size] * len(at):
            return [texts[:size]], numbers
    found: list[bytes] = []
    left = np.arange(len(at))
    if len(at) >= _ROUNDS_FROM:
        for _ in range(_ROUNDS):
            first = int(left[0])
            text = blob[int(at[first]) : int(at[first]) + int(length[first])].tobytes()
            same = _equal_to(blob, at[left], length[left], text)
            numbers[left[same]] = len(found)
            found.append(text)
            left = left[~same]
            if not len(left):
                return found, numbers
            if np.count_nonzero(same) == 1:
                break
    known = {text: number for number, text in enumerate(found)}
    view = blob.data
    for index, start, size in zip(
        left.tolist(), at[left].tolist(), length[left].tolist(), strict=True
    ):
        text = view[start : start + size].tobytes()
        number = known.get(text)
        if number is None:
            number = known[text] = len(found)
            found.append(text)
        numbers[index] = number
    return found, numbers


def _equal_to(blob: Bytes, at: Longs, length: Longs, text: bytes) -> Marks:
    same: Marks = length == len(text)
    if not text:
        return same
    places = at if same.all() else np.where(same, at, at[0])
    rows = sliding(blob, f"V{len(text)}")[places].view(np.uint8).reshape(len(at), len(text))
    same &= (rows == np.frombuffer(text, dtype=np.uint8)).all(axis=1)
    return same
