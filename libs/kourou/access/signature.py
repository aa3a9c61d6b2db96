"""RocketMQ's request signature: HMAC-SHA1 over the values of a request's fields and its body.

It proves who sends, and that values and body are those that were signed. It does not protect the
request code, the boundaries between values, or a request that is sent again: TLS does. So a
decision uses the fields that were parsed from the request that was verified. RocketMQ 4.9.8 has it
in AclUtils and AclSigner.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import msgspec

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""A marker that RocketMQ's clients add after they have signed."""

Buffer = bytes | bytearray | memoryview
Fields = Mapping[str, str | None]

_UNSIGNED = frozenset({SIGNATURE, UNIQUE_KEY_QUERY})
_BLOCK_BYTES = 64
_INNER = bytes(one ^ 0x36 for one in range(256))
_OUTER = bytes(one ^ 0x5C for one in range(256))
"""What HMAC does to each byte of a key (RFC 2104)."""

_sha1 = partial(hashlib.sha1, usedforsecurity=False)
"""FIPS 140 approves SHA-1 within HMAC, but OpenSSL cannot know that this is what it is for."""


class SignedFields(msgspec.Struct, frozen=True):
    """The fields of a request with an access key, prepared for the check of its signature.

    `signature` is the Base64 text that it bears, "" without one. `text` is what is signed before
    the body. `sent` are the fields, or the JSON header that has them: few need them once more.
    """

    access_key: str
    signature: bytes
    text: bytes
    sent: Fields | bytes

    @classmethod
    def of(cls, fields: Fields) -> SignedFields:
        """Return the same of decoded fields."""
        signature = (fields.get(SIGNATURE) or "").encode("utf-8", "replace")
        return cls(fields.get(ACCESS_KEY) or "", signature, signed_text(fields), fields)

    def fields(self) -> dict[str, str | None]:
        """Return the fields as they were sent."""
        return dict(header_fields(self.sent) if isinstance(self.sent, bytes) else self.sent)


class _JsonHeader(msgspec.Struct, rename="camel"):
    ext_fields: dict[str, str]


_decode_header = msgspec.json.Decoder(_JsonHeader).decode


def header_fields(header: bytes) -> dict[str, str]:
    """The fields of a JSON header. Raises MsgspecError or ValueError unless all are texts."""
    return _decode_header(header).ext_fields


def signed_text(fields: Fields) -> bytes:
    """What is signed before the body: the values in the order of their keys, as UTF-8.

    Keys are ordered by UTF-16 code units as in Java: capital letters first. A missing value counts
    as the text `null`.
    """
    values = _signed_values(tuple(fields))(fields)
    try:
        text = "".join(values)
    except TypeError:
        text = "".join("null" if one is None else one for one in values)
    return text.encode("utf-8", "replace")


@lru_cache(maxsize=256)
def _signed_values(keys: tuple[str, ...]) -> Callable[[Fields], Iterable[Any]]:
    """What takes the signed values in order. Requests of one kind from one client have the same
    keys.
    """
    signed = [key for key in keys if key not in _UNSIGNED]
    ordered = sorted(signed, key=None if all(map(str.isascii, signed)) else _utf_16)
    if len(ordered) > 1:
        return itemgetter(*ordered)
    return lambda fields: [fields[key] for key in ordered]


def _utf_16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def sign(fields: Fields, body: Iterable[Buffer], secret: str) -> str:
    """The signature of a request whose `fields` include AccessKey: Base64, as in the field."""
    return SigningKey(secret).signature(signed_text(fields), body).decode()


class SigningKey:
    """A user's secret, prepared for any number of checks.

    HMAC hashes a block that depends on the key alone before the text, and another one before the
    result. Both are hashed once; a check continues from copies.
    """

    __slots__ = ("_inner", "_outer", "secret")

    def __init__(self, secret: str) -> None:
        self.secret = secret
        key = secret.encode()
        if len(key) > _BLOCK_BYTES:
            key = _sha1(key).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = _sha1(block.translate(_INNER))
        self._outer = _sha1(block.translate(_OUTER))

    def signature(self, text: bytes, body: Iterable[Buffer]) -> bytes:
        """Return the signature of a text and a body: Base64, as in the field."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        for piece in body:
            inner.update(piece)
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)


NO_KEY = SigningKey("")
"""The key of who has none: checking a signature with it takes as long as with any other."""


def verify(signed: SignedFields, body: Iterable[Buffer], key: SigningKey) -> bool:
    """True if the request bears the right signature; compared in constant time."""
    return hmac.compare_digest(key.signature(signed.text, body), signed.signature)


def same_secret(one: str, other: str) -> bool:
    """True if both texts are the same; the time tells neither where they differ nor a length."""
    return hmac.compare_digest(_of_one_length(one), _of_one_length(other))


def _of_one_length(text: str) -> bytes:
    return hmac.digest(b"", text.encode("utf-8", "surrogatepass"), "sha256")
