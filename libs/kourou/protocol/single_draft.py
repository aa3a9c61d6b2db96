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
from kourou.protocol.record_layout import CRC_MARK, CRC_MASK, Buffer, Parts, parts_of

TRANSACTION = int(SysFlag.TRANSACTION_MASK)
CRC_ROOM_FROM = PROPERTIES_SIZE_BYTES_MAX - CRC_PROPERTY_BYTES
"""A draft whose properties are at least this long may have had no room for the checksum."""

TRANSACTIONAL = "its flags name a phase of a transaction, which only a broker writes"
NO_CRC = "the place for its checksum is missing"
BODY_DAMAGED = "its body does not match its checksum (BODYCRC), so it was damaged: send it again"

_DELAY_MARK = Property.DELAY.encode() + b"\x01"
_TRANSACTION_MARK = Property.TRAN_MSG.encode() + b"\x01"


def too_large(size: int, size_max: int) -> str:
    """What a body of more than `size_max` bytes is told."""
    return f"its body has {size} bytes; maxMessageSize is {size_max}"


def check_draft(draft: Buffer, topic: bytes, queue_id: int, body_size_max: int) -> bool:
    """Check a draft that claims to be for this queue; raises MessageIllegal that says what is
    wrong. True if it may ask to be stored elsewhere first (`may_go_elsewhere`).

    Every length field must agree, topic and queue id must be these, the body must not exceed
    `body_size_max` bytes and must match its checksum, and the checksum property must have its
    place.
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
    properties = bytes(draft[parts.props_at : end])
    problem = draft_problem(draft, parts, properties, body_size_max)
    if problem:
        raise MessageIllegal(f"this message is refused: {problem}; nothing was stored")
    return may_go_elsewhere(properties)


def draft_problem(buf: Buffer, parts: Parts, properties: bytes, body_size_max: int) -> str:
    """What is wrong with the draft of this structure and these encoded properties; "" if it may be
    stored."""
    body_len = parts.body_end - parts.body_at
    if body_len > body_size_max:
        return too_large(body_len, body_size_max)
    if parts.sys_flag & TRANSACTION:
        return TRANSACTIONAL
    marked = properties[-CRC_PROPERTY_BYTES : len(CRC_MARK) - CRC_PROPERTY_BYTES] == CRC_MARK
    if not marked and len(properties) < CRC_ROOM_FROM:
        return NO_CRC
    if zlib.crc32(buf[parts.body_at : parts.body_end]) & CRC_MASK != parts.crc:
        return BODY_DAMAGED
    return ""


def may_go_elsewhere(properties: bytes) -> bool:
    """Might a message of these encoded properties have to wait in another topic first, since it is
    delayed or part of a transaction? Answers fast, and too often yes."""
    return _DELAY_MARK in properties or _TRANSACTION_MARK in properties
