"""The broker's test of one draft, in plain Python; `record_batch.check_drafts` asks it of many.

Lives here: what is wrong with one draft, and the words for it.
May not live here: where its fields are (kourou.protocol.record_layout).

State: none.
"""

from __future__ import annotations

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.limits import CRC_PROPERTY_BYTES, PROPERTIES_SIZE_BYTES_MAX
from kourou.model.sysflag import SysFlag
from kourou.protocol.record_layout import CRC_MARK, STORE_V6, Buffer, Parts, parts_of

TRANSACTION = int(SysFlag.TRANSACTION_MASK)
CRC_ROOM_FROM = PROPERTIES_SIZE_BYTES_MAX - CRC_PROPERTY_BYTES
"""A draft whose properties are at least this long may have had no room for the checksum."""

TRANSACTIONAL = "transactional messages are sent another way"
NO_ROOM_V6 = "it has no room for the broker's IPv6 address"
NO_CRC = "the place for its checksum is missing"


def too_large(size: int, size_max: int) -> str:
    """What a body of more than `size_max` bytes is told."""
    return f"its body has {size} bytes; maxMessageSize is {size_max}"


def check_draft(draft: Buffer, topic: bytes, queue_id: int, body_size_max: int) -> None:
    """Check a draft that claims to be for this queue; raises MessageIllegal that says what is
    wrong.

    Every length field must agree, topic and queue id must be these, the body must not exceed
    `body_size_max` bytes, and the checksum property must have its place.
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


def draft_problem(
    buf: Buffer, parts: Parts, end: int, body_size_max: int, store_host_v6: bool = False
) -> str:
    """What is wrong with the draft of this structure that ends at `end`; "" if it may be stored.

    With `store_host_v6` it must have room for the broker's IPv6 address.
    """
    body_len = parts.body_end - parts.body_at
    if body_len > body_size_max:
        return too_large(body_len, body_size_max)
    if parts.sys_flag & TRANSACTION:
        return TRANSACTIONAL
    if store_host_v6 and not parts.sys_flag & STORE_V6:
        return NO_ROOM_V6
    mark = end - CRC_PROPERTY_BYTES
    marked = mark >= parts.props_at and buf[mark : mark + len(CRC_MARK)] == CRC_MARK
    if not marked and end - parts.props_at < CRC_ROOM_FROM:
        return NO_CRC
    return ""
