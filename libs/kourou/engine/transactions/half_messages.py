"""The records of a transaction: half message, committed message, op record, check-back.

    half        RMQ_SYS_TRANS_HALF_TOPIC, queue 0. REAL_TOPIC and REAL_QID name its target. The
                transaction bits of its flags are cleared, so that its queue has an entry for it
    op          RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag "d". The body is a half message's queue
                offset as decimal text: that half message is committed or rolled back
    committed   the real topic and queue, flag 8, the half message's position as prepared offset
    put back    the half message again, with its check count increased by one, or with the queue
                offset that it had at first
    given up    TRANS_CHECK_MAX_TIME_TOPIC, queue 0: the outcome is unknown

All keep the unique key, keys, tag, flag, birth (time and host) and attempts of the message.
RocketMQ loses the user's flag when it puts a half message back; Kourou does not.

State: none of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kourou.errors import Corrupt, KourouError, MessageIllegal
from kourou.model.message import Property, SysFlag
from kourou.model.names import CHECK_GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, check_topic
from kourou.model.transaction import BatchMark
from kourou.protocol import kernel
from kourou.protocol.record.layout import HOST_V4_BYTES, QUEUE_OFFSET_AT, parts_of
from kourou.protocol.record.message_record import Changes, Target, moved_draft, stamp
from kourou.protocol.record.properties import decode_properties, encode_properties
from kourou.runtime import Buffer

HALF_TARGET = (HALF_TOPIC, 0)
OP_TARGET = (OP_TOPIC, 0)
GIVEN_UP_TARGET = (CHECK_GIVEN_UP_TOPIC, 0)
OP_TAG = "d"

COMMIT = int(SysFlag.TRANSACTION_COMMIT)
ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_MASK = int(SysFlag.TRANSACTION_MASK)
_PLACE = struct.Struct(">qqiq")  # queue offset, position, flags, born timestamp
_BATCH = Property.BATCH.value.encode()
_CHECK_TIMES = Property.TRANSACTION_CHECK_TIMES.value.encode()
_FIRST_OFFSET = Property.TRAN_PREPARED_QUEUE_OFFSET.value.encode()
_DELAY = Property.DELAY.value.encode()
_UNIQ_KEY = Property.UNIQ_KEY.value.encode()
_REAL_TOPIC = Property.REAL_TOPIC.value.encode()
_REAL_QID = Property.REAL_QID.value.encode()
_NAMES = tuple(
    name.value.encode()
    for name in (
        *(Property.PGROUP, Property.UNIQ_KEY, Property.REAL_TOPIC, Property.REAL_QID),
        *(Property.WAIT, Property.BATCH),
    )
)
_OF_BATCH = (_BATCH, _UNIQ_KEY)
_OP_TOPIC = OP_TOPIC.encode()
_OP_PROPERTIES = encode_properties({Property.TAGS: OP_TAG, Property.WAIT: "true"})

Identity = tuple[str, str, int]
"""(producer group, unique key, born timestamp): the same for every copy of one half message."""


class HalfRecord:
    """A stored half message, decoded. Raises Corrupt.

    `group` is the producer group, whose members know the outcome. `unique_key` is the producer's ID
    of the message, empty if the producer sets none. `wait`: replies wait for the disk. `in_batch`:
    the half message names a batch.
    """

    __slots__ = (
        *("_target", "_properties", "_real_queue", "_real_topic", "born_ms", "group", "in_batch"),
        *("position", "queue_offset", "raw", "sys_flag", "unique_key", "wait"),
    )

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        try:
            (found,) = kernel.values((raw,), _NAMES)
        except ValueError as error:
            raise Corrupt(f"a half message of {len(raw)} bytes is not a record") from error
        place: tuple[int, int, int, int] = _PLACE.unpack_from(raw, QUEUE_OFFSET_AT)
        self.queue_offset, self.position, self.sys_flag, self.born_ms = place
        group, key, topic, queue, wait, mark = found
        self.group = _text(group)
        self.unique_key = _text(key)
        self.wait = wait != b"false"
        self.in_batch = mark is not None
        self._real_topic, self._real_queue = topic, queue
        self._target: tuple[str, int] | None = None
        self._properties: dict[str, str] | None = None

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""
        if self._properties is None:
            at = parts_of(self.raw, 0, len(self.raw)).props_at
            self._properties = decode_properties(self.raw[at:])
        return self._properties

    @property
    def store_ms(self) -> int:
        """The store time."""
        return parts_of(self.raw, 0, len(self.raw)).store_timestamp

    @property
    def identity(self) -> Identity | None:
        """What its copies have in common; None without a unique key."""
        key = self.unique_key
        return (self.group, key, self.born_ms) if key else None

    @property
    def checks(self) -> int:
        """How many check-backs were sent for it."""
        return _number(self.properties.get(Property.TRANSACTION_CHECK_TIMES), 0)

    @property
    def immunity_ms(self) -> int | None:
        """How long it must not be checked; None if it does not say."""
        seconds = _number(self.properties.get(Property.CHECK_IMMUNITY_TIME), -1)
        return None if seconds < 0 else seconds * 1000

    @property
    def mark(self) -> BatchMark | None:
        """The batch that it belongs to. Raises BadRequest if the mark is invalid."""
        text = self.properties.get(Property.BATCH)
        return None if text is None else BatchMark.of_text(text)

    @property
    def was_put_back(self) -> bool:
        """Whether it is a copy of an earlier half message."""
        return (
            Property.TRANSACTION_CHECK_TIMES in self.properties
            or Property.TRAN_PREPARED_QUEUE_OFFSET in self.properties
        )

    @property
    def first_offset(self) -> int:
        """The queue offset that it had at first, if recorded; else its own."""
        first = self.properties.get(Property.TRAN_PREPARED_QUEUE_OFFSET)
        return _number(first, self.queue_offset)

    @property
    def real_target(self) -> tuple[str, int]:
        """The topic and queue that it is for. Raises Corrupt if they are missing or invalid."""
        if self._target is None:
            self._target = self._read_target()
        return self._target

    def _read_target(self) -> tuple[str, int]:
        topic = _text(self._real_topic)
        queue_id = _number(_text(self._real_queue) or None, -1)
        try:
            check_topic(topic)
        except KourouError as error:
            raise Corrupt(
                f"the {Property.REAL_TOPIC} of a half message is invalid: {error}"
            ) from error
        if queue_id < 0:
            raise Corrupt(f"a half message has no valid {Property.REAL_QID}")
        return topic, queue_id


def read_half(raw: Buffer) -> HalfRecord:
    """Decode a verified record as a half message; its bytes are copied. Raises Corrupt."""
    return HalfRecord(bytes(raw))


def read_draft(draft: bytes, offset: int, position: int) -> HalfRecord:
    """Decode the draft of a half message, as `read_half` would at that offset and position.

    Its store time and host are those of a draft: 0.
    """
    half = HalfRecord(draft)
    half.queue_offset, half.position = offset, position
    return half


def mark_of(half: bytes) -> BatchMark | None:
    """Return the batch of a half message; like HalfRecord.mark, without decoding all of it."""
    if _BATCH not in half:
        return None
    ((text, _),) = kernel.values((half,), _OF_BATCH)
    return None if text is None else BatchMark.of_text(text.decode("utf-8", "replace"))


def half_of(draft: Buffer, target: Target) -> bytes:
    """Convert a checked draft for `target` to a half message. A delay level is dropped.

    Raises BadRequest or MessageIllegal if what it says of a batch is invalid.
    """
    half = half_draft(draft, half_changes(target))
    if mark_of(half) is not None and kernel.values((half,), _OF_BATCH)[0][1] is None:
        raise MessageIllegal("a half message of a batch must have a unique key")
    return half


def half_draft(draft: Buffer, changes: Changes) -> bytes:
    """Convert a draft to a half message without checks; `half_changes` returns the changes."""
    return moved_draft(draft, HALF_TARGET, changes, cleared=_MASK)


def half_changes(target: Target) -> Changes:
    """Return how the properties of a half message differ from those of its message."""
    topic, queue_id = target
    return ((_DELAY, None), (_REAL_TOPIC, topic.encode()), (_REAL_QID, b"%d" % queue_id))


def committed(half: HalfRecord, queue_id: int) -> bytes:
    """Return the final message for its real topic and this queue, without a batch's mark."""
    return committed_copy(half.raw, (half.real_target[0], queue_id), half.position)


def committed_copy(half: Buffer, target: Target, position: int) -> bytes:
    """Return the final message for `target`, of the half message at this log position."""
    changes = ((_BATCH, None),)
    return moved_draft(half, target, changes, cleared=_MASK, added=COMMIT, prepared=position)


def operation(half_offset: int, born_ms: int, host: bytes) -> bytes:
    """Return the op record for the half message at this queue offset.

    `host` is the broker's own encoded address.
    """
    body = b"%d" % half_offset
    wide = len(host) > HOST_V4_BYTES
    made = kernel.draft(_OP_TOPIC, 0, body, _OP_PROPERTIES, 0, 0, born_ms, host, wide, 0, 0, True)
    assert made is not None, "its properties fit"
    return made


def checked(half: HalfRecord, checks: int) -> bytes:
    """Return the half message to put back when its `checks`th check-back is sent."""
    return moved_draft(half.raw, HALF_TARGET, ((_CHECK_TIMES, b"%d" % checks),), cleared=_MASK)


def still_immune(half: HalfRecord) -> bytes:
    """Return the half message to put back while it must not be checked."""
    known = Property.TRAN_PREPARED_QUEUE_OFFSET in half.properties
    changes = () if known else ((_FIRST_OFFSET, b"%d" % half.queue_offset),)
    return moved_draft(half.raw, HALF_TARGET, changes, cleared=_MASK)


def given_up(half: HalfRecord) -> bytes:
    """Return a half message with unknown outcome, as it is kept for operators."""
    return moved_draft(half.raw, GIVEN_UP_TARGET, cleared=_MASK)


def question(half: bytes, offset: int, position: int, store_ms: int, store_host: bytes) -> bytes:
    """Return the body of a check-back: the half message as its producer knows it.

    `half` is the draft that was put back at queue `offset` and log `position`.
    """
    body = bytearray(moved_draft(half, read_half(half).real_target, cleared=_MASK))
    stamp(
        body,
        0,
        queue_offset=offset,
        position=position,
        store_timestamp=store_ms,
        store_host=store_host,
    )
    return bytes(body)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _number(text: str | None, otherwise: int) -> int:
    """Return a property as an integer, as Java parses it; `otherwise` for anything else."""
    if text is None or not 0 < len(text) < 20:
        return otherwise
    digits = text[1:] if text[0] in "+-" else text
    return int(text) if digits.isdigit() and digits.isascii() else otherwise
