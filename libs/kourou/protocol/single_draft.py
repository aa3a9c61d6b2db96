"""The broker's test of one draft: what `record_batch.check_drafts` does for many, in plain Python.

State: none.
"""

from __future__ import annotations

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.limits import CRC_PROPERTY_BYTES, PROPERTIES_SIZE_BYTES_MAX
from kourou.model.sysflag import SysFlag
from kourou.protocol.record_layout import CRC_MARK, parts_of

Buffer = bytes | bytearray | memoryview
_TRANSACTION = int(SysFlag.TRANSACTION_MASK)


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
    if parts.body_end - parts.body_at > body_size_max:
        raise MessageIllegal(
            f"the body has {parts.body_end - parts.body_at} bytes; maxMessageSize is "
            f"{body_size_max}; nothing was stored"
        )
    if parts.sys_flag & _TRANSACTION:
        raise MessageIllegal("transactional messages are sent another way; nothing was stored")
    mark = end - CRC_PROPERTY_BYTES
    properties = end - parts.props_at
    marked = properties >= CRC_PROPERTY_BYTES and draft[mark : mark + len(CRC_MARK)] == CRC_MARK
    if not marked and properties + CRC_PROPERTY_BYTES + 1 <= PROPERTIES_SIZE_BYTES_MAX:
        raise MessageIllegal("the place for the checksum is missing; nothing was stored")
