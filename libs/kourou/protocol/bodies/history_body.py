"""The JSON bodies of control events and states, as their readers see them.

[{"offset":7,"atMs":1795228849207,"actor":"zmq:10.0.0.7:41234#3","reason":"four are too few",
  "traceId":"","aggregate":"topic/orders","event":{"type":"TopicPut",…},"undoes":5}, …]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kourou.protocol.request import Int64
from kourou.protocol.wire.json_bodies import Buffer, malformed

T = TypeVar("T")
_EVENTS = "list of control events"
_STATE = "state of the control plane"


class EventView(msgspec.Struct, rename="camel", kw_only=True, frozen=True, omit_defaults=True):
    """One control event with its offset in the stream.

    `event` is its JSON object, with its type. `undoes` is the offset of the event that it undoes,
    or None. `at_ms` is wall time.
    """

    offset: Int64
    at_ms: Int64
    actor: str
    reason: str
    trace_id: str
    aggregate: str
    event: msgspec.Raw
    undoes: Int64 | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The event itself as plain values. Raises DecodeError."""
        return _decode(self.event, _fields, _EVENTS)


_encode = msgspec.json.Encoder().encode
_events = msgspec.json.Decoder(list[EventView])
_fields = msgspec.json.Decoder(dict[str, Any])
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def encode_event_views(events: Sequence[EventView]) -> bytes:
    """The body of a page of events."""
    return _encode(events)


def decode_event_views(body: Buffer) -> list[EventView]:
    """The events of a page. Raises DecodeError."""
    return _decode(body, _events, _EVENTS)


def decode_state_view(body: Buffer) -> Any:
    """A state as plain values. Raises DecodeError."""
    return _decode(body, _any, _STATE)


def _decode(body: Any, decoder: msgspec.json.Decoder[T], what: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed(what, error) from error
