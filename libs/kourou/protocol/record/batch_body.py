"""The body of a batch send: several messages of one topic, encoded one after the other.

    item = size(4) magic(4, 0) crc(4, 0) flag(4) bodyLength(4) body propertiesLength(2) properties

Big-endian; `size` counts itself and everything after it: 22 + body + properties.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kourou.errors import MessageIllegal

ITEM_HEAD = struct.Struct(">iiiii")
ITEM_FIXED_BYTES = 22


def encode_batch(items: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    """The body of a batch send with the (flag, body, properties) of each message."""
    parts: list[bytes] = []
    for flag, body, properties in items:
        parts += (
            ITEM_HEAD.pack(ITEM_FIXED_BYTES + len(body) + len(properties), 0, 0, flag, len(body)),
            body,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    return b"".join(parts)


def split_batch(encoded: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (flag, body, properties) of each message. Raises MessageIllegal that names the item."""
    at, number = 0, 0
    while at < len(encoded):
        if len(encoded) - at < ITEM_FIXED_BYTES:
            raise MessageIllegal(f"message {number} of the batch is cut off after byte {at}")
        size, _, _, flag, body_length = ITEM_HEAD.unpack_from(encoded, at)
        body_at = at + ITEM_HEAD.size
        properties_at = body_at + body_length + 2
        if not 0 <= body_length <= size - ITEM_FIXED_BYTES or at + size > len(encoded):
            raise MessageIllegal(f"message {number} of the batch has lengths that do not agree")
        length = int.from_bytes(encoded[properties_at - 2 : properties_at], "big")
        if size != ITEM_FIXED_BYTES + body_length + length:
            raise MessageIllegal(f"message {number} of the batch has lengths that do not agree")
        yield (
            flag,
            encoded[body_at : body_at + body_length],
            encoded[properties_at : properties_at + length],
        )
        at += size
        number += 1
