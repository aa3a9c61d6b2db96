"""A message as a consumer receives it, and the decoding of pull replies.

One pull may contain a thousand messages, of which a handler may read two fields each. So the record
kernel computes layout and checksums of all records at once; a field is decoded when it is read.
Each message keeps the bytes of its whole pull in memory; `stored()` is a copy that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import msgspec

from kourou.client.codecs import Decode
from kourou.client.consumer.outcomes import DeadLetter, RetryLater
from kourou.errors import Corrupt, DecodeError
from kourou.filtering.tags import selects_tag
from kourou.model.message import Property, StoredMessage, SysFlag
from kourou.model.names import RETRY_PREFIX
from kourou.model.subscription import TAG, Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol import kernel
from kourou.protocol.kernel_python import BAD, FIELDS
from kourou.protocol.record.compression import decompress
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import decode_record, record_size
from kourou.protocol.record.properties import decode_properties, find_property

_START, _SIZE, _QUEUE_ID = map(FIELDS.index, ("start", "size", "queue_id"))
_QUEUE_OFFSET, _SYS_FLAG = map(FIELDS.index, ("queue_offset", "sys_flag"))
_BODY_AT, _BODY_END, _TOPIC_END = map(FIELDS.index, ("body_at", "body_end", "topic_end"))

_TAGS = Property.TAGS.value.encode()
_UNIQ_KEY = Property.UNIQ_KEY.value.encode()
_CRC32 = Property.CRC32.value
_RETRY_TOPIC = Property.RETRY_TOPIC.value.encode()
_ORIGIN_MESSAGE_ID = Property.ORIGIN_MESSAGE_ID.value.encode()
_TRACEPARENT = Property.TRACEPARENT.value.encode()
_TRACE_CONTEXT = Property.TRACE_CONTEXT.value.encode()
_UNSET: Any = msgspec.UNSET


class _Pulled:
    """The bytes of one pull, and the record kernel's table of field positions."""

    __slots__ = ("blob", "count", "table")

    def __init__(self, blob: memoryview, table: bytearray) -> None:
        self.blob = blob
        self.table = memoryview(table).cast("q")
        self.count = len(self.table) // len(FIELDS)

    def column(self, field: int) -> list[int]:
        """Return one field of all records."""
        return self.table[field * self.count : (field + 1) * self.count].tolist()

    def at(self, field: int, index: int) -> int:
        """Return one field of one record."""
        return self.table[field * self.count + index]


class Receipt(Protocol):
    """Receives the outcome of a message that is not passed to a handler."""

    def ack(self, message: ReceivedMessage) -> None:
        """The message was consumed."""
        ...

    def retry(self, message: ReceivedMessage, error: BaseException) -> None:
        """The message was not consumed."""
        ...


class HandlerRequests(Protocol):
    """Keeps what a handler reports for its message until the handler ends."""

    def ask(self, offset: int, failure: BaseException | None) -> None:
        """Report the message at `offset` as consumed (None) or failed; the first report counts."""
        ...


class _Settled:
    """The receipt of a message that was already acknowledged."""

    def ack(self, message: ReceivedMessage) -> None:
        """Ignored: too late."""

    def retry(self, message: ReceivedMessage, error: BaseException) -> None:
        """Ignored: too late."""


_SETTLED = _Settled()


class ReceivedMessage(msgspec.Struct, eq=False, weakref=True):
    """One message of a pull.

    `offset` is its index in its queue, `size` its stored size in bytes; `attempt` counts its
    deliveries to the group from 1. `body` is decoded as the consumer's `body_type`; `raw_body` is
    bytes. `queue_end` is the offset after the last message of its queue when it was pulled, or 0.
    `lease` belongs to the consumer that delivered it.
    """

    queue: MessageQueue
    offset: int
    size: int
    attempt: int = 1
    lease: Any = None
    receipt: Receipt | None = None
    queue_end: int = 0
    _decode: Decode | None = None
    _pulled: _Pulled | None = None
    _index: int = 0
    _stored: StoredMessage | None = None
    _properties: dict[str, str] | None = None
    _body: Any = _UNSET

    @property
    def body(self) -> Any:
        """The body as the requested type. Raises DecodeError if it cannot be decoded."""
        body = self._body
        if body is _UNSET:
            raw = self.raw_body
            body = self._body = raw if self._decode is None else self._decode(raw)
        return body

    @property
    def raw_body(self) -> bytes:
        """The body as bytes, decompressed. Raises Corrupt if the compressed body is damaged.

        This is not checked earlier, so that a damaged body does not prevent the delivery of others.
        """
        pulled = self._pulled
        if pulled is None:
            stored = self.stored()
            if stored.sys_flag & SysFlag.COMPRESSED:
                return decompress(stored.sys_flag, stored.body)
            return stored.body
        table, count, index = pulled.table, pulled.count, self._index
        begins, ends = table[_BODY_AT * count + index], table[_BODY_END * count + index]
        body = bytes(pulled.blob[begins:ends])
        sys_flag = table[_SYS_FLAG * count + index]
        return decompress(sys_flag, body) if sys_flag & SysFlag.COMPRESSED else body

    @property
    def properties(self) -> dict[str, str]:
        """All properties, those of the application and the reserved ones."""
        properties = self._properties
        if properties is None:
            if self._pulled is None:
                properties = self.stored().properties
            else:
                properties = decode_properties(self._raw_properties(self._pulled))
                properties.pop(
                    _CRC32, None
                )  # checksum of the record's bytes; decode_record leaves it out too
            self._properties = properties
        return properties

    def _raw_properties(self, pulled: _Pulled) -> memoryview:
        end = pulled.at(_START, self._index) + self.size
        return pulled.blob[pulled.at(_TOPIC_END, self._index) + 2 : end]

    def _property(self, name: bytes) -> str | None:
        if self._properties is None and self._pulled is not None:
            value = find_property(self._raw_properties(self._pulled), name)
            return None if value is None else value.decode("utf-8", "replace")
        return self.properties.get(name.decode())

    @property
    def tag(self) -> str | None:
        """The tag, or None."""
        return self._property(_TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The business keys, in the producer's order."""
        return tuple(self.properties.get(Property.KEYS.value, "").split())

    @property
    def message_id(self) -> str:
        """The producer's unique key; the offset message ID if the message has none."""
        return self._property(_UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The ID that identifies this stored copy by host and position."""
        stored = self.stored()
        return encode_offset_id(stored.store_host, stored.position)

    @property
    def origin_message_id(self) -> str:
        """The offset message ID of the first stored copy; its own if it was never retried."""
        return self._property(_ORIGIN_MESSAGE_ID) or self.offset_message_id

    @property
    def backlog(self) -> int:
        """The number of messages after it in its queue when it was pulled; 0 if unknown."""
        return max(0, self.queue_end - self.offset - 1)

    @property
    def traceparent(self) -> str | None:
        """The trace context in W3C text form, or None if the message has none."""
        return self._property(_TRACEPARENT) or self._property(_TRACE_CONTEXT)

    @property
    def topic(self) -> str:
        """The topic that it was sent to, even if it was read from the group's retry topic."""
        topic = self.queue.topic
        if topic.startswith(RETRY_PREFIX):
            return self._property(_RETRY_TOPIC) or topic
        return topic

    @property
    def queue_id(self) -> int:
        """The ID of the queue at its broker."""
        return self.queue.queue_id

    @property
    def position(self) -> int:
        """The position in the broker's commit log, in bytes."""
        return self.stored().position

    @property
    def flag(self) -> int:
        """The application's flag; Kourou does not interpret it."""
        return self.stored().flag

    @property
    def born_timestamp(self) -> int:
        """When the producer created it, in ms since the epoch."""
        return self.stored().born_timestamp

    @property
    def store_timestamp(self) -> int:
        """When the broker stored it, in ms since the epoch."""
        return self.stored().store_timestamp

    @property
    def reconsume_times(self) -> int:
        """The number of earlier delivery attempts that failed."""
        return max(self.stored().reconsume_times, self.attempt - 1)

    def stored(self) -> StoredMessage:
        """Return all that the broker stored, as an independent value; the body stays compressed."""
        stored = self._stored
        if stored is None:
            pulled = self._pulled
            assert pulled is not None, "a message has its pull or its stored form"
            at = pulled.at(_START, self._index)
            stored = decode_record(pulled.blob, at, verify=False, decompress=False)
            stored.broker_name = self.queue.broker_name
            self._stored = stored
        return stored

    def alone(self) -> ReceivedMessage:
        """Return the same message without the bytes of other messages, to keep it for long."""
        if self._pulled is None:
            return self
        return ReceivedMessage(
            self.queue,
            self.offset,
            self.size,
            self.attempt,
            self.lease,
            self.receipt,
            self.queue_end,
            self._decode,
            None,
            0,
            self.stored(),
        )

    # -- acknowledgement --------------------------------------------------------------------------

    def ack(self) -> None:
        """Acknowledge the message as consumed.

        Only the first of `ack`, `retry` and `dead_letter` counts. Within a handler it takes effect
        when the handler ends, whatever the handler raises or returns.
        """
        receipt = self.receipt
        if receipt is not None:
            self.receipt = _SETTLED
            receipt.ack(self)
        elif self.lease is not None:
            self._asked(None)

    def retry(self, error: BaseException | None = None, *, delay_level: int = 0) -> None:
        """Reject the message: it is redelivered after the delay of `delay_level`.

        With level 0 the broker derives the delay from the number of attempts. Raises BadRequest for
        a negative level.
        """
        if error is None or delay_level:
            error = RetryLater("" if error is None else repr(error), delay_level=delay_level)
        self._refuse(error)

    def dead_letter(self, reason: str = "") -> None:
        """Reject the message for good: it becomes a dead letter in %DLQ%group, with this reason."""
        self._refuse(DeadLetter(reason))

    def _refuse(self, error: BaseException) -> None:
        receipt = self.receipt
        if receipt is not None:
            self.receipt = _SETTLED
            receipt.retry(self, error)
        elif self.lease is not None:
            self._asked(error)

    def _asked(self, failure: BaseException | None) -> None:
        lease: HandlerRequests = self.lease
        lease.ask(self.offset, failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        """Acknowledge the message if the block succeeded; otherwise log the error and retry later.

        An Exception is suppressed; a cancellation, Ctrl-C or SystemExit is propagated.
        """
        if error is None:
            self.ack()
            return False
        self.retry(error)
        return isinstance(error, Exception)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        """As `__exit__`."""
        return self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self!s}>"

    def __str__(self) -> str:
        place = f"{self.queue!s}@{self.offset} id {self.message_id}"
        if not self.queue.topic.startswith(RETRY_PREFIX):
            return place
        return f"{place} of {self.topic}, first stored as {self.origin_message_id}"


def decode_pull(
    body: bytes | memoryview,
    queue: MessageQueue,
    *,
    from_offset: int,
    next_offset: int,
    queue_end: int = 0,
    decode: Decode | None = None,
) -> list[ReceivedMessage]:
    """Return the messages of a pull's body, checked. Raises DecodeError or Corrupt if invalid.

    Offsets must increase and be in [from_offset, next_offset). `queue_end` is stored in each
    message.
    """
    view = memoryview(body)
    if not len(view):
        return []
    messages = _messages(view, queue, queue_end, decode)
    last = from_offset - 1
    for message in messages:
        if not last < message.offset < next_offset:
            raise DecodeError(
                f"{queue!s}: a pull from {from_offset} to {next_offset} "
                f"returned offset {message.offset} after {last}"
            )
        last = message.offset
    return messages


def _messages(
    view: memoryview, queue: MessageQueue, queue_end: int, decode: Decode | None
) -> list[ReceivedMessage]:
    table, end = kernel.scan(view)
    if end != len(view):
        raise Corrupt(f"{queue!s}: the pull reply ends with bytes that are not a record")
    pulled = _Pulled(view, table)
    numbers, count = pulled.table, pulled.count
    good = kernel.verify(view, numbers[:count], numbers[count : 2 * count])
    if BAD in good:
        raise Corrupt(f"{queue!s}: record {good.index(BAD)} of the pull reply fails its checksum")
    for queue_id in set(pulled.column(_QUEUE_ID)):
        _check_queue(queue, queue_id)
    places = zip(pulled.column(_QUEUE_OFFSET), pulled.column(_SIZE), strict=True)
    return [
        ReceivedMessage(queue, offset, size, 1, None, None, queue_end, decode, pulled, index)
        for index, (offset, size) in enumerate(places)
    ]


def _check_queue(queue: MessageQueue, queue_id: int) -> None:
    if queue_id != queue.queue_id:
        raise DecodeError(f"the pull reply for {queue!s} contains a message of queue {queue_id}")


def tag_filter(subscription: Subscription) -> Callable[[ReceivedMessage], bool] | None:
    """Return the exact comparison of tags, or None if every message matches.

    Brokers compare hash codes, so tags with the same hash code both arrive; the wrong one is
    dropped here.
    """
    if subscription.expression_type != TAG or not subscription.tags:
        return None
    return lambda message: selects_tag(subscription, message.tag)


def from_record(
    record: bytes | memoryview, broker_name: str, decode: Decode | None = None
) -> ReceivedMessage:
    """Return one record, from a query or from a broker's request, as a message."""
    stored = decode_record(record, decompress=False)
    stored.broker_name = broker_name
    return ReceivedMessage(stored.queue, stored.offset, stored.size, _decode=decode, _stored=stored)


def from_records(body: bytes | memoryview, broker_name: str) -> Sequence[ReceivedMessage]:
    """Return consecutive records, of any queues, from a query."""
    view = memoryview(body)
    messages: list[ReceivedMessage] = []
    at = 0
    while at < len(view):
        size = record_size(view, at)
        if size <= 0:
            raise Corrupt(f"a record has size {size}")
        messages.append(from_record(view[at : at + size], broker_name))
        at += size
    return messages
