"""A trace context in its two forms: 25 bytes of a frame's header, and W3C's `traceparent`.

00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
   trace id, 16 bytes               span id, 8       flags: bit 0 says sampled
"""

from __future__ import annotations

import re

CONTEXT_BYTES = 25
TRACEPARENT = "traceparent"
TRACE_CONTEXT = "TRACE_CONTEXT"
"""RocketMQ's own name for the same text; its gRPC proxy hands it on."""

Buffer = bytes | bytearray | memoryview

_SAMPLED = re.compile(rb"traceparent\x01(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf])\x02?")
"""As it stands among the properties of a stored record."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_VERSION_00_LENGTH = 55


def is_sampled(context: bytes) -> bool:
    """Does this context of a frame belong to a trace that is recorded?"""
    return len(context) == CONTEXT_BYTES and bool(context[24] & 1)


def contexts_among(records: Buffer, most: int) -> list[bytes]:
    """The sampled contexts that stored records took along, each once, the first `most` of them.

    For whoever has the bytes of records and looks into none of them: a body that happens to have
    such bytes counts as well.
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
    """The 25 bytes as W3C's text."""
    text = context.hex()
    return f"00-{text[:32]}-{text[32:48]}-{text[48:]}"


def context_of(traceparent: str) -> bytes | None:
    """The text as 25 bytes; None for what is no valid traceparent. Later versions are accepted."""
    found = _FORM.fullmatch(traceparent)
    if found is None or found[1] == "ff":
        return None
    if found[1] == "00" and len(traceparent) != _VERSION_00_LENGTH:
        return None
    if not (found[2].strip("0") and found[3].strip("0")):
        return None
    return bytes.fromhex(found[2] + found[3] + found[4])
