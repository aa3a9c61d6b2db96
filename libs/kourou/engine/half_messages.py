"""The records of a transaction: half message, committed message, op record, question.

Lives here: how each is made of another (fact sheet §4.8), byte for byte RocketMQ's layout.
May not live here: which transactions are open (engine.open_halves), who decides and when.

    half        RMQ_SYS_TRANS_HALF_TOPIC, queue 0; REAL_TOPIC and REAL_QID say where it belongs; the
                transaction bits of its flags are cleared, so that it stands in its queue
    op          RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0; tag "d"; the body is a half's queue offset as
                decimal text: that half is done, one way or the other
    committed   the real topic and queue, flag 8, the half's position in its prepared offset
    put back    the half once more, with one check more, or with the queue offset it had at first
    given up    TRANS_CHECK_MAX_TIME_TOPIC, queue 0: nobody knows what became of it

All keep unique key, keys, tag, flag, birth and attempts of the message. RocketMQ loses the user's
flag when it puts a half back; that is not copied.

State: none.
"""

from __future__ import annotations

from kourou.engine.inputs import Buffer
from kourou.errors import Corrupt, KourouError, MessageIllegal
from kourou.model.batch import BatchMark
from kourou.model.message import Property
from kourou.model.names import CHECK_GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, check_topic
from kourou.model.sysflag import SysFlag
from kourou.protocol import kernel
from kourou.protocol.properties import decode_properties, encode_properties, find_property
from kourou.protocol.record import encode_draft, stamp
from kourou.protocol.record_layout import HOST_V4_BYTES, Parts, parts_of
from kourou.protocol.record_moves import moved_draft, redrafted

HALF_LANE = (HALF_TOPIC, 0)
OP_LANE = (OP_TOPIC, 0)
GIVEN_UP_LANE = (CHECK_GIVEN_UP_TOPIC, 0)
OP_TAG = "d"

COMMIT = int(SysFlag.TRANSACTION_COMMIT)
ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_MASK = int(SysFlag.TRANSACTION_MASK)
_BATCH = Property.BATCH.value.encode()
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
_OP_PROPERTIES = encode_properties({Property.TAGS: OP_TAG, Property.WAIT: "true"})

Identity = tuple[str, str, int]
"""(producer group, unique key, born timestamp): the same for every copy of one half message."""


class HalfRecord:
    """A stored half message, read: where it lies, and what it says.

    `group`: the producer group, whose members know what became of it. `unique_key`: the producer's
    id of the message; empty for producers that set none. `wait`: does its sender want answers to
    wait for the disk? `in_batch`: does it name a batch?
    """

    __slots__ = (
        *("_lane", "_properties", "_real_queue", "_real_topic"),
        *("group", "in_batch", "parts", "raw", "unique_key", "wait"),
    )

    def __init__(self, raw: bytes, parts: Parts) -> None:
        self.raw = raw
        self.parts = parts
        (found,) = kernel.values((raw,), _NAMES)
        group, key, topic, queue, wait, mark = found
        self.group = _text(group)
        self.unique_key = _text(key)
        self.wait = wait != b"false"
        self.in_batch = mark is not None
        self._real_topic, self._real_queue = topic, queue
        self._lane: tuple[str, int] | None = None
        self._properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """All of them, to be changed for the next copy."""
        if self._properties is None:
            parts = self.parts
            self._properties = decode_properties(self.raw[parts.props_at : parts.size])
        return self._properties

    @property
    def identity(self) -> Identity | None:
        """What its copies have in common; None without a unique key."""
        key = self.unique_key
        return (self.group, key, self.parts.born_timestamp) if key else None

    @property
    def checks(self) -> int:
        """How often somebody was asked about it."""
        return _number(self.properties.get(Property.TRANSACTION_CHECK_TIMES), 0)

    @property
    def immunity_ms(self) -> int | None:
        """How long it asked not to be checked; None where it did not ask."""
        seconds = _number(self.properties.get(Property.CHECK_IMMUNITY_TIME), -1)
        return None if seconds < 0 else seconds * 1000

    @property
    def mark(self) -> BatchMark | None:
        """The batch it belongs to. Raises BadRequest for a mark that cannot be understood."""
        text = self.properties.get(Property.BATCH)
        return None if text is None else BatchMark.of_text(text)

    @property
    def was_put_back(self) -> bool:
        """Is it a copy of an earlier half message?"""
        return (
            Property.TRANSACTION_CHECK_TIMES in self.properties
            or Property.TRAN_PREPARED_QUEUE_OFFSET in self.properties
        )

    @property
    def first_offset(self) -> int:
        """The queue offset it had at first, as far as it says; else its own."""
        first = self.properties.get(Property.TRAN_PREPARED_QUEUE_OFFSET)
        return _number(first, self.parts.queue_offset)

    @property
    def real_lane(self) -> tuple[str, int]:
        """Where it belongs. Raises Corrupt for a half message that does not say it."""
        if self._lane is None:
            self._lane = self._read_lane()
        return self._lane

    def _read_lane(self) -> tuple[str, int]:
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
    """A verified record as a half message, a copy that stays. Raises Corrupt."""
    kept = bytes(raw)
    return HalfRecord(kept, parts_of(kept, 0, len(kept)))


def read_draft(draft: bytes, offset: int, position: int) -> HalfRecord:
    """The draft of a half message, as `read_half` reads it at that offset and position.

    Its store time and host are those of a draft: 0.
    """
    parts = parts_of(draft, 0, len(draft))
    return HalfRecord(draft, parts._replace(queue_offset=offset, position=position))


def mark_of(half: bytes) -> BatchMark | None:
    """The batch that a half message belongs to; as HalfRecord.mark, without reading all of it."""
    at = parts_of(half, 0, len(half)).props_at
    text = find_property(half[at:], _BATCH)
    return None if text is None else BatchMark.of_text(text.decode("utf-8", "replace"))


def half_of(draft: Buffer) -> bytes:
    """The half message of a checked draft. A delay level is dropped: half messages have none.

    Raises BadRequest or MessageIllegal for one that says of a batch what cannot be.
    """
    parts = parts_of(draft, 0, len(draft))
    raw = bytes(draft[parts.props_at : parts.size])
    mark = find_property(raw, _BATCH)
    if mark is not None:
        BatchMark.of_text(mark.decode("utf-8", "replace"))
        if find_property(raw, _UNIQ_KEY) is None:
            raise MessageIllegal("a half message of a batch must have a unique key")
    properties = kernel.edit(
        raw,
        (
            (_DELAY, None),
            (_REAL_TOPIC, bytes(draft[parts.topic_at : parts.topic_end])),
            (_REAL_QID, b"%d" % parts.queue_id),
        ),
    )
    return redrafted(draft, parts, HALF_LANE, properties, sys_flag=parts.sys_flag & ~_MASK)


def committed(half: HalfRecord, queue_id: int) -> bytes:
    """The message itself, for its real topic and the queue given."""
    parts = half.parts
    return redrafted(
        half.raw,
        parts,
        (half.real_lane[0], queue_id),
        kernel.edit(half.raw[parts.props_at : parts.size], ()),
        sys_flag=(parts.sys_flag & ~_MASK) | COMMIT,
        prepared=parts.position,
    )


def committed_of_batch(half: HalfRecord, queue_id: int) -> bytes:
    """The same of a half message of a batch, without its mark."""
    del half.properties[Property.BATCH]
    return moved_draft(
        half.raw,
        half.parts,
        (half.properties[Property.REAL_TOPIC], queue_id),
        half.properties,
        sys_flag=(half.parts.sys_flag & ~_MASK) | COMMIT,
        prepared=half.parts.position,
    )


def operation(half_offset: int, born_ms: int, host: bytes) -> bytes:
    """The op record that ends the half message at this queue offset; `host` is the broker's own."""
    return encode_draft(
        topic=OP_TOPIC.encode(),
        queue_id=0,
        body=b"%d" % half_offset,
        properties=_OP_PROPERTIES,
        born_timestamp=born_ms,
        born_host=host,
        store_host_v6=len(host) > HOST_V4_BYTES,
    )


def ended_by(body: bytes) -> list[int]:
    """The half offsets that an op record ends; RocketMQ 5 writes several, joined by commas."""
    return [int(text) for text in body.split(b",") if text.isdigit() and len(text) < 20]


def checked(half: HalfRecord, checks: int) -> bytes:
    """The half message as it is put back when somebody is asked for the `checks`th time."""
    half.properties[Property.TRANSACTION_CHECK_TIMES] = str(checks)
    return _again(half, HALF_LANE)


def still_immune(half: HalfRecord) -> bytes:
    """The half message as it is put back while it may not be checked."""
    half.properties.setdefault(Property.TRAN_PREPARED_QUEUE_OFFSET, str(half.parts.queue_offset))
    return _again(half, HALF_LANE)


def given_up(half: HalfRecord) -> bytes:
    """The half message that nobody could tell about, as it is kept for operators."""
    return _again(half, GIVEN_UP_LANE)


def question(half: bytes, offset: int, position: int, stamped: Parts) -> bytes:
    """The body of a check-back: the half message as its producer knows it.

    `half` is the draft that was put back at queue `offset` and log `position`; `stamped` tells
    store time and host.
    """
    record = read_half(half)
    topic, queue_id = record.real_lane
    body = bytearray(_again(record, (topic, queue_id)))
    stamp(
        body,
        0,
        queue_offset=offset,
        position=position,
        store_timestamp=stamped.store_timestamp,
        store_host=stamped.store_host,
    )
    return bytes(body)


def _again(half: HalfRecord, lane: tuple[str, int]) -> bytes:
    """The same message as a draft for another lane."""
    parts = half.parts
    return moved_draft(half.raw, parts, lane, half.properties, sys_flag=parts.sys_flag & ~_MASK)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _number(text: str | None, otherwise: int) -> int:
    """A whole number of a property as Java's parser takes it; `otherwise` for anything else."""
    if text is None or not 0 < len(text) < 20:
        return otherwise
    digits = text[1:] if text[0] in "+-" else text
    return int(text) if digits.isdigit() and digits.isascii() else otherwise
