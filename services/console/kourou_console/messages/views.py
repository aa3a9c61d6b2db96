"""A stored message as JSON, for all chapters of the API that show messages.

A UTF-8 body is text, any other one base64; exactly one of the fields is set. For an unreadable body
both are null, and an error is set. A truncated body is marked, and is cut between two characters.

The bodies of one response share a budget.

A few bytes of the log may become many in a response: a body may be compressed, and a control
character takes six bytes in JSON. So the budget counts the bytes in the response. Bodies beyond the
budget are not shown, as if `body_max` were 0, and compressed ones are not decompressed. Code that
shows bodies yields to the event loop after each piece.

Invariant: for one response, no more is decompressed than it shows, plus `MESSAGES_PAGE_BYTES_MAX`
bytes to determine the sizes of partially shown bodies, plus one piece.

State: soft, of one response.
"""

from __future__ import annotations

import asyncio
import binascii
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import Corrupt
from kourou.model.limits import BODY_SIZE_BYTES_MAX, MESSAGES_PAGE_BYTES_MAX
from kourou.model.message import RESERVED_PROPERTIES, Property, StoredMessage, SysFlag
from kourou.model.names import RETRY_PREFIX
from kourou.protocol.record import compression

PIECE_BYTES = 256 * 1024
"""The number of bytes processed between two iterations of the loop."""

MESSAGE_BYTES = 1_024
"""The cost of a message without its body, as a number of bytes to process."""

JSON_GROWTH = 6
"""The maximum number of bytes in a response for one byte of a body."""

_COMPRESSED = int(SysFlag.COMPRESSED)
_PAIRS = b'"\\\b\t\n\f\r'
_SIXES = bytes(set(range(32)) - set(_PAIRS))


@dataclass(frozen=True, slots=True)
class ShownBody:
    """The shown part of a body. `size_bytes` is that of the whole body, None if unknown."""

    text: str | None = None
    encoded: str | None = None
    size_bytes: int | None = None
    truncated: bool = False
    error: str | None = None


class Budget:
    """The remaining budget for bodies of a response, in bytes as the response contains them.

    `counting` is the budget for decompressing more than is shown, to determine sizes of bodies.
    """

    def __init__(
        self, left: int = MESSAGES_PAGE_BYTES_MAX, *, counting: int = MESSAGES_PAGE_BYTES_MAX
    ) -> None:
        self.left = left
        self.inflated = 0
        self._looked_at = 0
        self._counting = counting

    async def body(
        self, message: ReceivedMessage, body_max: int | None, *, whole: bool = False
    ) -> ShownBody:
        """Up to `body_max` bytes of a body (None: all), within the budget.

        `whole` ignores the budget. An unreadable body has an error instead.
        """
        stored = message.stored()
        compressed = stored.sys_flag & _COMPRESSED
        left = sys.maxsize if whole else self.left
        most = sys.maxsize if body_max is None else body_max
        self._looked_at += len(stored.body) + MESSAGE_BYTES
        if compressed or self._looked_at > PIECE_BYTES:
            self._looked_at = 0
            await asyncio.sleep(0)
        if not compressed and len(stored.body) <= min(most, left // JSON_GROWTH, PIECE_BYTES):
            return self._small(stored.body)
        size = None if compressed else len(stored.body)
        if size != 0 and 0 in (most, left):
            return ShownBody(text="", size_bytes=size, truncated=True)
        try:
            if compressed:
                part, complete, size = await self._inflated(stored, most, left)
            else:
                part, complete = await _fitting(_slices(stored.body), most, left)
        except Corrupt as error:  # marked as compressed, but it is not
            return ShownBody(error=str(error))
        text, encoded, truncated = shown(part, truncated=not complete)
        used_up = not complete and len(part) < most
        if encoded is not None and len(encoded) > left:
            encoded, truncated, used_up = encoded[: left // 4 * 4], True, True
        cost = json_bytes(text.encode()) if text is not None else len(encoded or "")
        self.left = 0 if used_up else max(0, self.left - cost)
        return ShownBody(text, encoded, size, truncated)

    def _small(self, content: bytes) -> ShownBody:
        """The whole body, which fits in any case."""
        text, encoded, _ = shown(content, truncated=False)
        self.left = max(
            0, self.left - (len(encoded or "") if text is None else json_bytes(content))
        )
        return ShownBody(text, encoded, len(content))

    async def _inflated(
        self, stored: StoredMessage, most: int, left: int
    ) -> tuple[bytes, bool, int | None]:
        """The part of a compressed body that fits, whether it is all, and the size if known."""
        before = self.inflated
        piece_bytes = PIECE_BYTES
        if self._counting <= 0:
            piece_bytes = min(piece_bytes, most + 1, left + 1)
        found = self._counted(compression.pieces(stored.sys_flag, stored.body, piece_bytes))
        part, complete = await _fitting(found, most, left)
        while not complete and self._counting > 0:
            if next(found, None) is None:
                return part, False, self.inflated - before
            await asyncio.sleep(0)
        return part, complete, self.inflated - before if complete else None

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.inflated += len(piece)
            self._counting -= len(piece)
            yield piece


def shown(part: bytes, *, truncated: bool) -> tuple[str | None, str | None, bool]:
    """Bytes as text or as base64, and whether they are cut. `truncated`: more bytes follow."""
    try:
        return part.decode(), None, truncated
    except UnicodeDecodeError as error:
        # A cut may be within a character, which has four bytes at most.
        if truncated and error.reason == "unexpected end of data" and error.start >= len(part) - 3:
            return part[: error.start].decode(), None, True
    return None, binascii.b2a_base64(part, newline=False).decode(), truncated


def json_bytes(part: bytes) -> int:
    """The number of bytes of UTF-8 text within a JSON string."""
    pairs = len(part) - len(part.translate(None, _PAIRS))
    sixes = len(part) - len(part.translate(None, _SIXES))
    return len(part) + pairs + 5 * sixes


def _slices(body: bytes) -> Iterator[bytes]:
    for at in range(0, len(body), PIECE_BYTES):
        yield body[at : at + PIECE_BYTES]


async def _fitting(pieces: Iterator[bytes], most: int, left: int) -> tuple[bytes, bool]:
    """The first bytes, at most `most`, and `left` in JSON; and whether these are all."""
    taken: list[bytes] = []
    for piece in pieces:
        part = piece[:most]
        if json_bytes(part) > left:
            sizes = range(len(part) + 1)
            part = part[: bisect_right(sizes, left, key=lambda size: json_bytes(piece[:size])) - 1]
        taken.append(part)
        most -= len(part)
        left -= json_bytes(part)
        if len(part) < len(piece):
            return b"".join(taken), False
        await asyncio.sleep(0)
    return b"".join(taken), True


PREVIEW_BYTES = 1_024
"""The default number of shown bytes of each body in a list."""

WHOLE_BYTES = 65_536
"""The default number of shown bytes of a single message's body."""

_DELAY = Property.DELAY.value
_KEYS = Property.KEYS.value
_ORIGIN_MESSAGE_ID = Property.ORIGIN_MESSAGE_ID.value
_REAL_TOPIC = Property.REAL_TOPIC.value
_TAGS = Property.TAGS.value
_UNIQ_KEY = Property.UNIQ_KEY.value

BodyMax = Annotated[int, msgspec.Meta(ge=0, le=BODY_SIZE_BYTES_MAX)]


class StoredMessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One stored message. Times are epoch ms, sizes bytes."""

    #: The producer's ID; if the producer set none, the offset ID.
    id: str
    #: Identifies this stored copy by its broker and its position in the log.
    offset_id: str
    #: The offset ID of the first stored copy; it differs after a retry.
    origin_id: str
    #: The topic it was sent to; a retried message is stored in another one.
    topic: str
    #: The topic it is stored in.
    stored_topic: str
    broker: str
    queue: int
    offset: int
    #: Byte position in the broker's log.
    position: int
    tag: str | None
    keys: list[str]
    #: Application properties.
    properties: dict[str, str]
    #: Properties reserved by RocketMQ and Kourou.
    system_properties: dict[str, str]
    flag: int
    born_ms: int
    stored_ms: int
    #: The sender's address, without a port if the record has none: Kourou's clients create the
    #: record before the port of the connection is known.
    born_host: str
    size_bytes: int
    #: The decompressed size; null if the body is unreadable, or was not completely decompressed
    #: because it is truncated.
    body_bytes: int | None
    reconsume_times: int
    delay_level: int | None
    body: str | None
    body_base64: str | None
    body_truncated: bool
    #: Why the body is unreadable; null if it is readable.
    body_error: str | None = None


def host_text(address: tuple[str, int]) -> str:
    """The host of a record as text; port 0 means none and is omitted."""
    host, port = address
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def view_of(
    message: ReceivedMessage, budget: Budget, body_max: int | None = None, *, whole: bool = False
) -> StoredMessageView:
    """A message with at most `body_max` bytes of its body (None: all), within the budget.

    `whole` ignores the budget. An unreadable body has an error; everything else is shown. Raises
    Corrupt if the stored bytes are not a message.
    """
    body = await budget.body(message, body_max, whole=whole)
    stored = message.stored()
    own: dict[str, str] = {}
    reserved: dict[str, str] = {}
    for name, value in stored.properties.items():
        (reserved if name in RESERVED_PROPERTIES else own)[name] = value
    level = reserved.get(_DELAY, "")
    queue, offset_id = message.queue, message.offset_message_id
    return StoredMessageView(
        id=reserved.get(_UNIQ_KEY) or offset_id,
        offset_id=offset_id,
        origin_id=reserved.get(_ORIGIN_MESSAGE_ID) or offset_id,
        topic=_topic_of(message, reserved),
        stored_topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        offset=message.offset,
        position=stored.position,
        tag=reserved.get(_TAGS),
        keys=reserved.get(_KEYS, "").split(),
        properties=own,
        system_properties=reserved,
        flag=stored.flag,
        born_ms=stored.born_timestamp,
        stored_ms=stored.store_timestamp,
        born_host=host_text(stored.born_host),
        size_bytes=stored.size,
        body_bytes=body.size_bytes,
        reconsume_times=max(stored.reconsume_times, message.attempt - 1),
        delay_level=int(level) if level.isascii() and level.isdigit() and len(level) < 6 else None,
        body=body.text,
        body_base64=body.encoded,
        body_truncated=body.truncated,
        body_error=body.error,
    )


def _topic_of(message: ReceivedMessage, reserved: Mapping[str, str]) -> str:
    topic = message.queue.topic
    if topic.startswith(RETRY_PREFIX):
        return message.topic
    return reserved.get(_REAL_TOPIC, topic)


async def views_of(
    messages: list[ReceivedMessage], budget: Budget, body_max: int
) -> list[StoredMessageView]:
    """All messages in their order, including those with unreadable bodies.

    Bodies beyond the budget are not shown, as if `body_max` were 0.
    """
    return [await view_of(message, budget, body_max) for message in messages]
