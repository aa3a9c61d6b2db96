"""RocketMQ's request signature: HMAC-SHA1 over the values of a request's fields and its body.

It proves who sends, and that values and body are those that were signed. It does not protect the
request code, the boundaries between values, or a request that is sent again: TLS does. So a
decision uses the fields that were parsed from the request that was verified. RocketMQ 4.9.8 has it
in AclUtils and AclSigner.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable, Mapping
from functools import lru_cache

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""A marker that RocketMQ's clients add after they have signed."""

Buffer = bytes | bytearray | memoryview

_UNSIGNED = frozenset({SIGNATURE, _UNIQUE_KEY_QUERY})


def signed_bytes(fields: Mapping[str, str | None], body: Iterable[Buffer]) -> bytes:
    """What is signed: the values in the order of their keys, then the body.

    Keys are ordered by UTF-16 code units as in Java: capital letters first. A missing value counts
    as the text `null`.
    """
    values = [fields[key] for key in _signed_order(tuple(fields))]
    text = "".join("null" if one is None else one for one in values)
    return b"".join((text.encode("utf-8", "replace"), *body))


@lru_cache(maxsize=256)
def _signed_order(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The signed keys in order. Requests of one kind from one client have the same keys."""
    signed = [key for key in keys if key not in _UNSIGNED]
    return tuple(sorted(signed, key=None if all(map(str.isascii, signed)) else _utf_16))


def _utf_16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def sign(fields: Mapping[str, str | None], body: Iterable[Buffer], secret: str) -> str:
    """The signature of a request whose `fields` include AccessKey: Base64, as in the field."""
    digest = hmac.digest(secret.encode(), signed_bytes(fields, body), "sha1")
    return base64.b64encode(digest).decode()


def verify(fields: Mapping[str, str | None], body: Iterable[Buffer], secret: str) -> bool:
    """True if the request bears the right signature; compared in constant time."""
    given = fields.get(SIGNATURE) or ""
    return hmac.compare_digest(
        sign(fields, body, secret).encode(), given.encode("utf-8", "replace")
    )


def same_secret(one: str, other: str) -> bool:
    """True if both texts are the same; the time tells neither where they differ nor a length."""
    return hmac.compare_digest(_of_one_length(one), _of_one_length(other))


def _of_one_length(text: str) -> bytes:
    return hmac.digest(b"", text.encode("utf-8", "surrogatepass"), "sha256")
