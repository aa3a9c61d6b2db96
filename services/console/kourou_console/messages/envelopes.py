"""The two forms of a message in a request: raw with headers, or a JSON envelope.

    raw       the body is the message's; Kourou-Tag, Kourou-Key (may be repeated),
              Kourou-Property-NAME, Kourou-Order-Key, Kourou-Delay-Ms, Kourou-Delay-Level
    envelope  Content-Type: application/json; {"body": …, "tag": …, "keys": […], …}

If an envelope's `body` is a JSON string, its text is stored; any other JSON value is stored as the
exact JSON that was sent; `body_base64` is for bytes. An unknown header that starts with Kourou- is
rejected: a misspelled header must not create a message without a tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec

from kourou.errors import BadRequest
from kourou_console.http.call import RequestContext
from kourou_console.http.request_input import decoded_json

TAG = "Kourou-Tag"
KEY = "Kourou-Key"
PROPERTY = "Kourou-Property-"
ORDER_KEY = "Kourou-Order-Key"
DELAY_MS = "Kourou-Delay-Ms"
DELAY_LEVEL = "Kourou-Delay-Level"
PREFIX = "kourou-"
_KNOWN = {TAG.lower(), KEY.lower(), ORDER_KEY.lower(), DELAY_MS.lower(), DELAY_LEVEL.lower()}

MESSAGE_HEADERS: tuple[tuple[str, str], ...] = (
    (TAG, "The tag of a raw body."),
    (KEY, "A key of a raw body, for searching (repeatable)."),
    ("Kourou-Property-NAME", "The property NAME of a raw body (repeatable)."),
    (ORDER_KEY, "Messages with the same order key keep their order."),
)
DELAY_HEADERS: tuple[tuple[str, str], ...] = (
    (DELAY_MS, "Delay the delivery of a raw body; one of the brokers' delay levels."),
    (DELAY_LEVEL, "The delay level, from 1."),
)

DelayMs = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
DelayLevel = Annotated[int, msgspec.Meta(ge=0, le=32)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message in JSON. Give `body` or `body_base64`."""

    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    tag: str | None = None
    keys: list[str] = []
    properties: dict[str, str] = {}
    order_key: str | None = None
    delay_ms: DelayMs = 0
    delay_level: DelayLevel = 0


class BatchedMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of a batch: an envelope without what only the whole batch can have."""

    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    tag: str | None = None
    keys: list[str] = []
    properties: dict[str, str] = {}


class ToSend(msgspec.Struct, frozen=True):
    """A message, from either form."""

    body: bytes
    tag: str | None
    keys: list[str]
    properties: Mapping[str, str]
    order_key: str | None = None
    delay: timedelta | None = None
    delay_level: int = 0


_decode = msgspec.json.Decoder(Envelope).decode


def message_of(content: bytes, call: RequestContext) -> ToSend:
    """The message of a request. Raises BadRequest, which names the field or the header."""
    if call.content_type == "application/json":
        given = [name for name, _ in call.headers if name.lower().startswith(PREFIX)]
        if given:
            raise BadRequest(
                f"the header {given[0][:64]} is for a raw body",
                hint="in an envelope it is a field; or send another Content-Type",
            )
        one: Envelope = decoded_json(_decode, content)
        return ToSend(
            body_of(one.body, one.body_base64),
            one.tag,
            one.keys,
            one.properties,
            one.order_key,
            timedelta(milliseconds=one.delay_ms) if one.delay_ms else None,
            one.delay_level,
        )
    return _raw(content, call)


def _raw(content: bytes, call: RequestContext) -> ToSend:
    if not call.has_prefix(PREFIX):
        return ToSend(content, None, [], {})
    for name, value in call.headers:
        if not name.lower().startswith(PREFIX):
            continue
        if name.lower() not in _KNOWN and not name.lower().startswith(PROPERTY.lower()):
            raise BadRequest(f"unknown header {name[:64]}", hint=f"known: {', '.join(_names())}")
        if any("\udc80" <= char <= "\udcff" for char in value):
            raise BadRequest(f"the header {name[:64]} is not UTF-8 text")
    delay_ms = _number(call, DELAY_MS, 2**53)
    return ToSend(
        content,
        call.header(TAG),
        call.every(KEY),
        call.beginning(PROPERTY),
        call.header(ORDER_KEY),
        timedelta(milliseconds=delay_ms) if delay_ms else None,
        _number(call, DELAY_LEVEL, 32),
    )


def _names() -> list[str]:
    return [name for name, _ in (*MESSAGE_HEADERS, *DELAY_HEADERS)]


def _number(call: RequestContext, name: str, highest: int) -> int:
    text = call.header(name)
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= highest):
        raise BadRequest(f"the header {name} is {text[:40]!r}; it must be a number to {highest}")
    return int(text)


def body_of(body: msgspec.Raw | msgspec.UnsetType, base64: bytes | msgspec.UnsetType) -> bytes:
    """The bytes of an envelope. Raises BadRequest if both fields or none is set."""
    if isinstance(base64, bytes):
        if not isinstance(body, msgspec.UnsetType):
            raise BadRequest("body and body_base64 are both given", hint="give one of them")
        return base64
    if isinstance(body, msgspec.UnsetType):
        raise BadRequest("the field body is missing", hint="body, or body_base64 for bytes")
    text = bytes(body)
    if text[:1] != b'"':
        return text
    found: str = decoded_json(msgspec.json.Decoder(str).decode, text)
    return found.encode()
