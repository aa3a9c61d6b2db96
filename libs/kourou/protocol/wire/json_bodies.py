"""Converting JSON bodies to typed values, whatever their spelling.

Shapes have the wire's spelling and are mostly private to their module; callers get values of
kourou.model, or small dataclasses. Nulls are omitted when written, empty collections are kept.

Every decoding error is a DecodeError that names the body and the place. It is sent as SYSTEM_ERROR:
RocketMQ has no code for a malformed body, and Kourou's code for corrupt data would mislead. State:
none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, TypeVar

import msgspec

from kourou.errors import Code, DecodeError
from kourou.model.limits import LENIENT_REPLY_BYTES_MAX, LENIENT_REQUEST_BYTES_MAX
from kourou.model.topic import MessageQueue
from kourou.protocol.request import Int32
from kourou.protocol.wire import lenient_json
from kourou.protocol.wire.lenient_json import ObjectKey

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")
ChoiceType = TypeVar("ChoiceType", bound=Enum)

BrokerIdText = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}\Z")]
"""A broker ID as a JSON map key."""

QueueIdText = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}\Z")]
"""A queue ID as a JSON map key."""


class Shape(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object as it is on the wire; unknown members are ignored."""


def malformed(what: str, error: object) -> DecodeError:
    """The error for a body that is not what it should be."""
    return DecodeError(f"the body is not a valid {what}: {error}", code=Code.SYSTEM_ERROR)


def decoded(body: Buffer, decoder: msgspec.json.Decoder[T], what: str) -> T:
    """A body of Kourou's own requests, which is standard JSON. Raises DecodeError."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed(what, error) from error


def same_fields(value: object, kind: type[T]) -> T:
    """A value as another type with the same fields: a value of kourou.model as a shape, or back."""
    return msgspec.convert(value, kind, from_attributes=True)


def shape_decoder(
    shape: type[T], what: str, *, lenient_bytes_max: int = LENIENT_REQUEST_BYTES_MAX
) -> Callable[[Buffer], T]:
    """A function from a body to its shape; `what` names the body in errors.

    `lenient_bytes_max` limits bodies that are not standard JSON, because reading them is slow.
    """
    strict = msgspec.json.Decoder(shape, strict=False).decode

    def decode(body: Buffer) -> T:
        try:
            return strict(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # another spelling, or wrong: the lenient reader decides
        return convert(read(body, what, lenient_bytes_max), shape, what)

    return decode


def reply_decoder(shape: type[T], what: str) -> Callable[[Buffer], T]:
    """As `shape_decoder`, for replies, which may be long and are not read in a server's loop."""
    return shape_decoder(shape, what, lenient_bytes_max=LENIENT_REPLY_BYTES_MAX)


def read(body: Buffer, what: str, lenient_bytes_max: int = LENIENT_REPLY_BYTES_MAX) -> Any:
    """The plain values of a body."""
    if len(body) > lenient_bytes_max:
        raise malformed(what, f"not standard JSON, and longer than {lenient_bytes_max} bytes")
    try:
        return lenient_json.loads(body)
    except DecodeError as error:
        raise malformed(what, error.message) from error


def convert(value: Any, shape: type[T], what: str) -> T:
    """Plain values as a shape."""
    try:
        return msgspec.convert(value, shape, strict=False)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        raise malformed(what, error) from error


def choice(
    kind: type[ChoiceType],
    given: str | int,
    order: Sequence[ChoiceType],
    also: Mapping[str, ChoiceType] | None = None,
) -> ChoiceType:
    """An enum by its name in any case or, as C++ clients write it, by its ordinal in `order`.

    `also` are further names, in capitals. Raises ValueError for any other value.
    """
    if isinstance(given, str):
        name = given.strip().upper()
        if not name.isdecimal():
            found = None if also is None else also.get(name)
            return kind(name) if found is None else found
        given = int(name)
    if not 0 <= given < len(order):
        raise ValueError(f"{given!r} is not the number of a {kind.__name__}")
    return order[given]


# -- queues, as values and as keys ----------------------------------------------------------------


class QueueShape(Shape, kw_only=True):
    """RocketMQ's MessageQueue."""

    broker_name: str
    queue_id: Int32
    topic: str

    def model(self) -> MessageQueue:
        """As a value of kourou.model."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def queue_shape(queue: MessageQueue) -> QueueShape:
    """The JSON form of a queue."""
    return QueueShape(broker_name=queue.broker_name, queue_id=queue.queue_id, topic=queue.topic)


def queue_key(queue: MessageQueue) -> ObjectKey:
    """A queue as the key of a map, members in RocketMQ's order."""
    return (
        ("brokerName", queue.broker_name),
        ("queueId", queue.queue_id),
        ("topic", queue.topic),
    )


def keyed(table: Mapping[MessageQueue, Any]) -> dict[Any, Any]:
    """A map with queues as keys, as it is written."""
    return {queue_key(queue): value for queue, value in table.items()}


def queue_map(table: Mapping[Any, Any], value: type[T], what: str) -> dict[MessageQueue, T]:
    """A map with queues as keys and its values as `value`."""
    queues: dict[MessageQueue, T] = {}
    for key, member in table.items():
        if not isinstance(key, tuple):
            # A map with no entry has no keys, and no client quotes such a key as text.
            raise malformed(what, f"the key {key!r} is not a queue")
        queue = convert(dict(key), QueueShape, what).model()
        queues[queue] = convert(member, value, what)
    return queues


def members(value: Any, what: str) -> dict[Any, Any]:
    """The members of an object read leniently."""
    if not isinstance(value, dict):
        raise malformed(what, "this is not a JSON object")
    return value


def submap(value: Mapping[Any, Any], name: str, what: str) -> dict[Any, Any]:
    """A member that is a map; an absent or null one is empty."""
    found = value.get(name)
    return {} if found is None else members(found, what)


def items(value: Mapping[Any, Any], name: str, what: str) -> list[Any]:
    """A member that is an array; an absent or null one is empty."""
    found = value.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise malformed(what, f"{name} is not an array")
    return found
