"""The records of batch transactions, many at once: half messages, committed messages, op records.

Lives here: what engine.half_messages makes of each, made of a whole frame or step. May not live
here: a rule that engine.half_messages does not have too; which of them are open.

State: none.

A batch has a million half messages that differ in body, key and tag, so their bytes are not taken
apart: properties are added behind the others, or cut out. That is the same only for records that
are written the usual way (kourou.protocol.plain_properties). For all others the answer is None, and
each is dealt with by itself; the result is the same, byte for byte.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kourou.engine.half_messages import COMMIT, HALF_LANE, operation
from kourou.errors import BadRequest
from kourou.model.batch import BatchMark
from kourou.model.limits import CRC_PROPERTY_BYTES, PROPERTIES_SIZE_BYTES_MAX
from kourou.model.message import Property
from kourou.model.sysflag import SysFlag
from kourou.protocol.moved_batch import head_bytes, moved_drafts
from kourou.protocol.plain_properties import PlainProperties
from kourou.protocol.record_columns import Longs, RecordColumns
from kourou.protocol.record_layout import BODY_CRC_AT, CRC_MASK, CRC_PLACEHOLDER, parts_of

Lane = tuple[str, int]

_MASK = int(SysFlag.TRANSACTION_MASK)
_UNIQ_KEY = Property.UNIQ_KEY.encode()
_TRAN_MSG = Property.TRAN_MSG.encode()
_BATCH = Property.BATCH.encode()
_DELAY = Property.DELAY.encode()
_REAL_TOPIC = Property.REAL_TOPIC.encode()
_REAL_QID = Property.REAL_QID.encode()
_OF_BATCH = frozenset((_UNIQ_KEY, _TRAN_MSG, _BATCH))
_LEFT_TO_THE_BROKER = frozenset((_DELAY, _REAL_TOPIC, _REAL_QID))


class MarkedHalves(NamedTuple):
    """Half messages for HALF_LANE; `mark_of[i]` says which of `marks` message i has."""

    drafts: list[bytes]
    marks: list[BatchMark]
    mark_of: Longs


def halves_of(
    drafts: RecordColumns, lanes: Sequence[Lane], lane_of: Sequence[int] | None
) -> MarkedHalves | None:
    """The half messages of checked drafts of batches, as `half_messages.half_of` makes them.

    None if any of them is something else, or has to be looked at by itself.
    """
    if head_bytes(drafts) is None:
        return None
    plain = PlainProperties.of(drafts.property_texts())
    if plain is None or not plain.all_have(_OF_BATCH) or plain.some_have(_LEFT_TO_THE_BROKER):
        return None
    told, marks = plain.values(_TRAN_MSG), plain.values(_BATCH)
    if told is None or marks is None or any(value.lower() != b"true" for value in told[0]):
        return None
    try:
        found = [BatchMark.of_text(text.decode()) for text in marks[0]]
    except BadRequest:
        return None
    behind = [
        b"%s\x01%s\x02%s\x01%d\x02%s"
        % (_REAL_TOPIC, topic.encode(), _REAL_QID, queue_id, CRC_PLACEHOLDER)
        for topic, queue_id in lanes
    ]
    numbers = [0] * len(drafts) if lane_of is None else lane_of
    texts = [
        text[:-CRC_PROPERTY_BYTES] + behind[number]
        for text, number in zip(plain.texts, numbers, strict=True)
    ]
    if max(map(len, texts)) > PROPERTIES_SIZE_BYTES_MAX:
        return None
    moved = moved_drafts(
        drafts,
        texts,
        [HALF_LANE[0].encode()] * len(texts),
        queue_ids=HALF_LANE[1],
        sys_flags=drafts.sys_flags & ~_MASK,
    )
    return MarkedHalves(moved, found, marks[1])


class StoredHalves:
    """Stored half messages of batches, verified; `real` are the lanes they were sent to."""

    __slots__ = ("_found", "_texts", "real", "real_of")

    def __init__(
        self, found: RecordColumns, texts: list[bytes], real: list[Lane], real_of: Longs
    ) -> None:
        self._found = found
        self._texts = texts
        self.real = real
        self.real_of = real_of

    @classmethod
    def read(cls, found: RecordColumns) -> StoredHalves | None:
        """Those records; None if any of them is delayed, or has to be looked at by itself."""
        if head_bytes(found) is None:
            return None
        plain = PlainProperties.of(found.property_texts())
        if plain is None or plain.some_have(frozenset((_DELAY,))):
            return None
        marks, topics, queues = map(plain.values, (_BATCH, _REAL_TOPIC, _REAL_QID))
        if marks is None or topics is None or queues is None:
            return None
        try:
            if any(BatchMark.of_text(mark.decode()).delay_level for mark in marks[0]):
                return None
        except BadRequest:
            return None
        if not all(queue.isdigit() and len(queue) < 10 for queue in queues[0]):
            return None
        if any(shape[0] == _BATCH for shape in plain.shapes):
            return None
        cuts = [b"\x02%s\x01%s\x02" % (_BATCH, mark) for mark in marks[0]]
        texts = [
            text[:-CRC_PROPERTY_BYTES].replace(cuts[number], b"\x02") + CRC_PLACEHOLDER
            for text, number in zip(plain.texts, marks[1].tolist(), strict=True)
        ]
        # Each pair of a topic and a queue that occurs gets a number.
        pairs = topics[1] * len(queues[0]) + queues[1]
        used, real_of = np.unique(pairs, return_inverse=True)
        real = [
            (topics[0][pair // len(queues[0])].decode(), int(queues[0][pair % len(queues[0])]))
            for pair in used.tolist()
        ]
        return cls(found, texts, real, real_of)

    def committed(self, lanes: Sequence[Lane]) -> list[bytes]:
        """The messages, as `half_messages.committed_of_batch` makes them, each for that one of
        these lanes which stands where `real` has its own.
        """
        found = self._found
        topics = [topic.encode() for topic, _ in lanes]
        queue_ids = np.fromiter((queue_id for _, queue_id in lanes), np.int64, len(lanes))
        return moved_drafts(
            found,
            self._texts,
            [topics[number] for number in self.real_of.tolist()],
            queue_ids=queue_ids[self.real_of],
            sys_flags=(found.sys_flags & ~_MASK) | COMMIT,
            prepared=found.positions,
        )

    def topics(self, count: int) -> Counter[str]:
        """How many of the first so many belong to which topic."""
        found: Counter[str] = Counter()
        for (topic, _), more in zip(self.real, np.bincount(self.real_of[:count]), strict=False):
            found[topic] += int(more)
        return found


def operations(offsets: Sequence[int], born_ms: int, host: bytes) -> list[bytes]:
    """The op records that end these half messages, as `half_messages.operation` makes them."""
    frames: dict[int, tuple[bytes, bytes, bytes]] = {}
    made: list[bytes] = []
    for offset in offsets:
        text = b"%d" % offset
        frame = frames.get(len(text))
        if frame is None:
            whole = operation(offset, born_ms, host)
            parts = parts_of(whole, 0, len(whole))
            frame = frames[len(text)] = (
                whole[:BODY_CRC_AT],
                whole[BODY_CRC_AT + 4 : parts.body_at],
                whole[parts.body_end :],
            )
        crc = zlib.crc32(text) & CRC_MASK
        made.append(b"".join((frame[0], crc.to_bytes(4, "big"), frame[1], text, frame[2])))
    return made
