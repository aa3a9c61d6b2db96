"""The JSON body of LIST_QUOTAS: the quotas as they are in events."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kourou.model.quota import Quota
from kourou.protocol.wire.json_bodies import Buffer, reply_decoder

_encode = msgspec.json.Encoder().encode
_decode = reply_decoder(list[Quota], "list of quotas")


def encode_quotas(quotas: Iterable[Quota]) -> bytes:
    """The body, in the order of kinds and names."""
    return _encode(sorted(quotas, key=lambda one: one.key))


def decode_quotas(body: Buffer) -> list[Quota]:
    """The quotas of a reply. Raises DecodeError."""
    return _decode(body)
