"""The same message as a draft for another queue (fact sheet §4.8).

Lives here: which fields a record keeps when a broker stores it once more, in another topic.
May not live here: why it is moved (kourou.engine.redirects, kourou.engine.delays).

State: none.

Body, born time and host, flags, failed attempts and keys are the message's own and are kept.
Offset, position, store time and store host are those of one copy; the new copy gets its own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kourou.errors import MessageIllegal
from kourou.model.limits import CRC_PROPERTY_BYTES, PROPERTIES_SIZE_BYTES_MAX, TOPIC_LENGTH_MAX
from kourou.model.message import Property
from kourou.model.sysflag import SysFlag
from kourou.protocol.properties import decode_properties, encode_properties, find_property
from kourou.protocol.record import encode_draft
from kourou.protocol.record_layout import (
    CRC_MARK,
    CRC_PLACEHOLDER,
    CRC_VALUE_BYTES,
    V6_EXTRA_BYTES,
    Buffer,
    Parts,
)

Lane = tuple[str, int]

_REAL_TOPIC = Property.REAL_TOPIC.encode()
_REAL_QUEUE = Property.REAL_QID.encode()
_PLACE = struct.Struct(">qq")
_NUMBER = struct.Struct(">i")
_ANY_V6 = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_BORN_V6 = int(SysFlag.BORN_HOST_V6)
_STORE_V6 = int(SysFlag.STORE_HOST_V6)


def properties_of(record: Buffer, parts: Parts) -> dict[str, str]:
    """The properties of the record that `parts` describes; it begins at 0 and ends the buffer."""
    return decode_properties(record[parts.props_at :])


def moved_draft(
    record: Buffer,
    parts: Parts,
    lane: Lane,
    properties: Mapping[str, str],
    *,
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
    prepared: int = 0,
) -> bytes:
    """The record, or draft, as a draft for `lane` with these properties.

    `sys_flag` and `reconsume_times` replace its own where they are given. Raises MessageIllegal if
    the properties no longer fit.
    """
    return redrafted(
        record,
        parts,
        lane,
        encode_properties(properties),
        sys_flag=sys_flag,
        reconsume_times=reconsume_times,
        prepared=prepared,
    )


def redrafted(
    record: Buffer,
    parts: Parts,
    lane: Lane,
    properties: bytes,
    *,
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
    prepared: int = 0,
) -> bytes:
    """As `moved_draft`, with properties that are encoded already."""
    return encode_draft(
        topic=lane[0].encode(),
        queue_id=lane[1],
        body=record[parts.body_at : parts.body_end],
        properties=properties,
        flag=parts.flag,
        sys_flag=parts.sys_flag if sys_flag is None else sys_flag,
        born_timestamp=parts.born_timestamp,
        born_host=parts.born_host,
        store_host_v6=bool(parts.sys_flag & _STORE_V6),
        reconsume_times=parts.reconsume_times if reconsume_times is None else reconsume_times,
        prepared_transaction_offset=prepared,
    )


def real_lane(properties: bytes) -> Lane | None:
    """Where a message of these encoded properties was sent to before it was put elsewhere.

    None if they do not say, or not a queue that can be.
    """
    topic = find_property(properties, _REAL_TOPIC)
    queue = find_property(properties, _REAL_QUEUE)
    if not topic or len(topic) > TOPIC_LENGTH_MAX or queue is None:
        return None
    if not queue.isdigit() or len(queue) > 9:
        return None
    try:
        return topic.decode(), int(queue)
    except UnicodeDecodeError:
        return None


def delivered_draft(record: Buffer, parts: Parts, lane: Lane) -> bytes:
    """The stored record as a draft for `lane`, its properties untouched: what `moved_draft` makes
    of the same properties, without reading them.

    Raises MessageIllegal for a topic that no record can hold.
    """
    topic = lane[0].encode()
    if not 0 < len(topic) <= TOPIC_LENGTH_MAX:
        raise MessageIllegal(f"the topic has {len(topic)} bytes; 1 to {TOPIC_LENGTH_MAX} fit")
    properties = bytes(record[parts.props_at :])
    if properties[-CRC_PROPERTY_BYTES:-CRC_VALUE_BYTES] == CRC_MARK:
        properties = properties[:-CRC_VALUE_BYTES] + CRC_PLACEHOLDER[-CRC_VALUE_BYTES:]
    else:  # RocketMQ stored it
        separator = b"\x02" if properties and properties[-1] != 2 else b""
        grown = properties + separator + CRC_PLACEHOLDER
        properties = grown if len(grown) <= PROPERTIES_SIZE_BYTES_MAX else properties
    head = bytearray(record[: parts.body_at])
    size = parts.body_end + 1 + len(topic) + 2 + len(properties)
    _NUMBER.pack_into(head, 0, size)
    _NUMBER.pack_into(head, 12, lane[1])
    _PLACE.pack_into(head, 20, 0, 0)
    stored_at = 56 + (V6_EXTRA_BYTES if parts.sys_flag & _BORN_V6 else 0)
    host_end = parts.body_at - 16
    head[stored_at:host_end] = bytes(host_end - stored_at)
    return b"".join(
        (
            head,
            record[parts.body_at : parts.body_end],
            len(topic).to_bytes(1, "big"),
            topic,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    )
