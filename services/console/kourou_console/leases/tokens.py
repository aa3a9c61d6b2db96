"""The tokens by which HTTP clients name leases: opaque, signed, valid for one run of a gateway.

    gateway (6 bytes)  number (8 bytes)  signature (12 bytes)      as base64url, 35 characters

The signature prevents clients from acknowledging leases that they did not receive. The gateway's
number is random at each start, so tokens of another gateway, or from before a restart, can be told
from invalid ones.

State: the key, for the life of the process.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from http import HTTPStatus

from kourou_console.problems import Refused

GATEWAY_BYTES = 6
NUMBER_BYTES = 8
SIGNATURE_BYTES = 12
TOKEN_BYTES = GATEWAY_BYTES + NUMBER_BYTES + SIGNATURE_BYTES
TOKEN_LENGTH = -(-TOKEN_BYTES * 4 // 3)

_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")

AS_RECEIVED = "use the `lease` of a received message, unchanged"


class Tokens:
    """Creates and validates the tokens of one gateway."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._gateway = secrets.token_bytes(GATEWAY_BYTES)

    def make(self, number: int) -> str:
        """The token of a lease."""
        named = self._gateway + number.to_bytes(NUMBER_BYTES, "big")
        encoded = binascii.b2a_base64(named + self._sign(named), newline=False)
        return encoded[:TOKEN_LENGTH].translate(_TO_URL).decode()

    def read(self, token: str) -> int:
        """The number of a lease of this gateway. Raises Refused (404) for any other text."""
        raw = _decoded(token)
        if raw is None:
            raise Refused(
                HTTPStatus.NOT_FOUND, f"{token[:TOKEN_LENGTH]!r} is not a lease", hint=AS_RECEIVED
            )
        named, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
        if named[:GATEWAY_BYTES] != self._gateway:
            raise Refused(
                HTTPStatus.NOT_FOUND,
                "this lease belongs to another gateway, or to this one before a restart",
                hint=(
                    "acknowledge it at the gateway that issued it; after a restart its message "
                    "is redelivered"
                ),
            )
        if not hmac.compare_digest(signature, self._sign(named)):
            raise Refused(
                HTTPStatus.NOT_FOUND, "this gateway never issued this lease", hint=AS_RECEIVED
            )
        return int.from_bytes(named[GATEWAY_BYTES:], "big")

    def _sign(self, named: bytes) -> bytes:
        return hashlib.blake2s(named, key=self._key, digest_size=SIGNATURE_BYTES).digest()


def _decoded(token: str) -> bytes | None:
    if len(token) != TOKEN_LENGTH or not token.isascii():
        return None
    text = token.encode().translate(_FROM_URL) + b"=" * (-TOKEN_LENGTH % 4)
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None
    return raw if len(raw) == TOKEN_BYTES else None
