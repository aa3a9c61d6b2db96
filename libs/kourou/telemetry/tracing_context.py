"""Converts a trace context between 25 bytes of a frame's header and W3C's `traceparent`.

00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
   trace id, 16 bytes               span id, 8       flags: bit 0 means sampled
"""

from __future__ import annotations

import re

CONTEXT_BYTES = 25
TRACEPARENT = "traceparent"
TRACE_CONTEXT = "TRACE_CONTEXT"
"""RocketMQ's own name for the same text; its gRPC proxy passes it on."""

Buffer = bytes | bytearray | memoryview

_SAMPLED = re.compile(rb"traceparent\x01(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf])\x02?")
"""The pattern of a `traceparent` in the properties of a stored record."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_VERSION_00_LENGTH = 55


def is_sampled(context: bytes) -> bool:
    """Does this context of a frame belong to a trace that is recorded?"""
    return len(context) == CONTEXT_BYTES and bool(context[24] & 1)


def contexts_among(records: Buffer, most: int) -> list[bytes]:
    """Return the sampled contexts in stored records, without duplicates, at most `most` of them.

    For callers that have the bytes of records but do not decode them. A body that happens to
    contain such bytes matches as well.
    """
    found: dict[bytes, None] = {}
    for match in _SAMPLED.finditer(records):
        context = context_of(match[1].decode("ascii"))
        if context is not None:
            found[context] = None
            if len(found) == most:
                break
    return list(found)


def traceparent_of(context: bytes) -> str:
    """Convert 25 bytes to W3C's text."""
    text = context.hex()
    return f"00-{text[:32]}-{text[32:48]}-{text[48:]}"


def context_of(traceparent: str) -> bytes | None:
    """Convert the text to 25 bytes; None if it is not a valid traceparent.

    Later versions of the format are accepted.
    """
    found = _FORM.fullmatch(traceparent)
    if found is None or found[1] == "ff":
        return None
    if found[1] == "00" and len(traceparent) != _VERSION_00_LENGTH:
        return None
    if not (found[2].strip("0") and found[3].strip("0")):
        return None
    return bytes.fromhex(found[2] + found[3] + found[4])
