"""The broker's test of one draft, in plain Python; `record_batch.check_drafts` asks it of many.

Lives here: what is wrong with one draft, and the words for it.
May not live here: where its fields are (kourou.protocol.record_layout).

State: none.
"""

from __future__ import annotations

import zlib

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.limits import CRC_PROPERTY_BYTES, PROPERTIES_SIZE_BYTES_MAX
from kourou.model.message import Property
from kourou.model.sysflag import SysFlag
from kourou.protocol.properties import find_property
from kourou.protocol.record_layout import CRC_MARK, CRC_MASK, Buffer, Parts, parts_of

TRANSACTION = int(SysFlag.TRANSACTION_MASK)
CRC_ROOM_FROM = PROPERTIES_SIZE_BYTES_MAX - CRC_PROPERTY_BYTES
"""A draft whose properties are at least this long may have had no room for the checksum."""

TRANSACTIONAL = "transactional messages are sent another way"
NO_CRC = "the place for its checksum is missing"
BODY_DAMAGED = "its body does not match its checksum (BODYCRC), so it was damaged: send it again"

_DELAY_MARK = Property.DELAY.encode() + b"\x01"
_TRANSACTION_MARK = Property.TRAN_MSG.encode() + b"\x01"
_LATER = (
    (Property.DELAY, "delayed messages"),
    (Property.TRAN_MSG, "transactional messages"),
)
_NOT_MEANT = (None, b"0", b"false")


def too_large(size: int, size_max: int) -> str:
    """What a body of more than `size_max` bytes is told."""
    return f"its body has {size} bytes; maxMessageSize is {size_max}"


def check_draft(draft: Buffer, topic: bytes, queue_id: int, body_size_max: int) -> None:
    """Check a draft that claims to be for this queue; raises MessageIllegal that says what is
    wrong.

    Every length field must agree, topic and queue id must be these, the body must not exceed
    `body_size_max` bytes and must match its checksum, no property may ask for what is not built,
    and the checksum property must have its place.
    """
    end = len(draft)
    try:
        parts = parts_of(draft, 0, end)
    except Corrupt as error:
        raise MessageIllegal(f"this is no message: {error}; nothing was stored") from error
    if parts.size != end:
        raise MessageIllegal("the sizes do not tile the records; nothing was stored")
    if parts.queue_id != queue_id:
        raise MessageIllegal("the record's queue id is not that of its lane; nothing was stored")
    if draft[parts.topic_at : parts.topic_end] != topic:
        raise MessageIllegal("the record's topic is not that of its lane; nothing was stored")
    problem = draft_problem(draft, parts, end, body_size_max)
    if problem:
        raise MessageIllegal(f"this message is refused: {problem}; nothing was stored")


def draft_problem(buf: Buffer, parts: Parts, end: int, body_size_max: int) -> str:
    """What is wrong with the draft of this structure that ends at `end`; "" if it may be stored."""
    body_len = parts.body_end - parts.body_at
    if body_len > body_size_max:
        return too_large(body_len, body_size_max)
    if parts.sys_flag & TRANSACTION:
        return TRANSACTIONAL
    properties = bytes(buf[parts.props_at : end])
    if may_be_later(properties):
        problem = later_problem(properties)
        if problem:
            return problem
    marked = properties[-CRC_PROPERTY_BYTES : len(CRC_MARK) - CRC_PROPERTY_BYTES] == CRC_MARK
    if not marked and len(properties) < CRC_ROOM_FROM:
        return NO_CRC
    if zlib.crc32(buf[parts.body_at : parts.body_end]) & CRC_MASK != parts.crc:
        return BODY_DAMAGED
    return ""


def may_be_later(properties: bytes) -> bool:
    """Might `later_problem` find one in these bytes? Answers fast, and too often yes."""
    return _DELAY_MARK in properties or _TRANSACTION_MARK in properties


def later_problem(properties: bytes) -> str:
    """What is wrong if encoded properties ask for what this broker does not do; "" if they do not.

    Stored as an ordinary message it would be delivered at once.
    """
    for name, what in _LATER:
        if find_property(properties, name.encode()) not in _NOT_MEANT:
            return f"this broker does not store {what} yet: send it without the property {name}"
    return ""
