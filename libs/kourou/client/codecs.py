"""Typed message bodies: conversion between an application's values and bytes.

    bytes, bytearray, memoryview     unchanged
    str                              UTF-8
    msgspec.Struct, dataclass,       JSON
      dict, list, tuple, numbers …
    pydantic models                  JSON by their own `model_dump_json` / `model_validate_json`
                                     (detected by these names; pydantic itself is never imported)

If a body cannot be encoded, the sender gets a `BadRequest`. If it cannot be decoded, a
`DecodeError` names the expected type, and the consumer treats the message as failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kourou.errors import BadRequest, DecodeError

_json = msgspec.json.Encoder()


def encode_body(value: Any) -> bytes:
    """Return the bytes of `value`. Raises BadRequest if it cannot be encoded."""
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    dump = getattr(value, "model_dump_json", None)
    if dump is not None and not isinstance(value, type):
        return str(dump()).encode()
    try:
        return _json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(
            f"a body of type {type(value).__name__} cannot be encoded: {error}",
            hint="pass bytes, str, a msgspec Struct, a dataclass, a pydantic model or JSON values",
        ) from error


Decode = Callable[[bytes], Any]


def body_decoder(wanted: Any) -> Decode:
    """Return a function from bytes to `wanted`; None means bytes.

    Raises BadRequest if no decoder can be made.
    """
    if wanted is None or wanted is bytes:
        return _as_bytes
    if wanted is str:
        return _as_text
    validate = getattr(wanted, "model_validate_json", None)
    if validate is not None:
        return _decoding(validate, wanted)
    try:
        decode = msgspec.json.Decoder(wanted).decode
    except (TypeError, NameError) as error:
        raise BadRequest(f"bodies cannot be decoded as {wanted!r}: {error}") from error
    return _decoding(decode, wanted)


def _as_bytes(body: bytes) -> bytes:
    return body


def _as_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"the body is not UTF-8 text: {error}") from error


def _decoding(decode: Callable[[bytes], Any], wanted: Any) -> Decode:
    name = getattr(wanted, "__name__", str(wanted))

    def decoded(body: bytes) -> Any:
        try:
            return decode(body)
        except (ValueError, TypeError, RecursionError) as error:
            # msgspec's and pydantic's validation errors are both ValueErrors.
            raise DecodeError(f"the body is not valid {name}: {error}") from error

    return decoded
