"""Drafts that differ in nothing but body and unique key, as most drafts of a producer do.

Lives here: what `encode_draft` makes of such messages, in a third of its time.
May not live here: the layout (kourou.protocol.record_layout), checks of bodies.

State: none; a template never changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from kourou.model.message import Property
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import encode_draft
from kourou.protocol.record_layout import (
    BODY_LENGTH_AT,
    CRC_MASK,
    HEAD_BYTES,
    HEAD_V4,
    HOST_V4_BYTES,
    MAGIC,
)

_UNIQ_KEY = Property.UNIQ_KEY.value
_NO_HOST = bytes(HOST_V4_BYTES)


class DraftTemplate:
    """Makes drafts for one queue; `properties` are those behind the unique key, in their order.

    `key_length` is the length of all their unique keys, which are ASCII.
    Hosts are IPv4. Raises MessageIllegal for what no record can hold, whatever its body.
    """

    __slots__ = (
        "_after",
        "_before",
        "_born_host",
        "_empty_bytes",
        "_flag",
        "_queue_id",
        "key_length",
    )

    def __init__(
        self,
        *,
        topic: bytes,
        queue_id: int,
        properties: Mapping[str, str],
        flag: int,
        born_host: bytes,
        key_length: int,
    ) -> None:
        empty = encode_draft(
            topic=topic,
            queue_id=queue_id,
            body=b"",
            properties=encode_properties({_UNIQ_KEY: "0" * key_length, **properties}),
            flag=flag,
            born_timestamp=0,
            born_host=born_host,
        )
        key_at = HEAD_BYTES + 1 + len(topic) + 2 + len(_UNIQ_KEY) + 1
        self._before = empty[HEAD_BYTES:key_at]
        self._after = empty[key_at + key_length :]
        self._empty_bytes = len(empty)
        self.key_length = key_length
        self._queue_id = queue_id
        self._flag = flag
        self._born_host = born_host

    def draft(self, body: bytes, unique_key: str, sys_flag: int, born_ms: int) -> bytes:
        """The bytes of one draft; the body has been checked, and compressed if that is wished."""
        length = len(body)
        head = HEAD_V4.pack(
            self._empty_bytes + length,
            MAGIC,
            zlib.crc32(body) & CRC_MASK,
            self._queue_id,
            self._flag,
            0,
            0,
            sys_flag,
            born_ms,
            self._born_host,
            0,
            _NO_HOST,
            0,
            0,
            length,
        )
        return b"".join((head, body, self._before, unique_key.encode(), self._after))


assert HEAD_V4.size == BODY_LENGTH_AT + 4, "the body follows the fields that are packed here"
