"""Passwords of people, as Argon2id hashes in the PHC form.

    $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH        memory in KiB, passes, lanes; Base64, unpadded

A hash takes 19 MiB and some 50 ms, OWASP's minimum: never compute one on an event loop.
"""

from __future__ import annotations

import base64
import re

from kourou.access.signature import same_secret
from kourou.errors import BadRequest
from kourou.model.limits import PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN

SALT_BYTES = 16
_COST = "m=19456,t=2,p=1"
_HASH = re.compile(r"\$argon2id\$v=19\$" + _COST + r"\$([A-Za-z0-9+/]{22})\$[A-Za-z0-9+/]{43}")

OF_NO_USER = f"$argon2id$v=19${_COST}${'A' * 22}${'A' * 43}"
"""A hash of no password: who has none is checked with it, and takes as long as others."""


def check_password(password: str) -> str:
    """Return the password; raises BadRequest, without showing it, if it is too short or long."""
    if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
        raise BadRequest(
            f"a password has {PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters",
            hint="several words are a good one",
        )
    return password


def hash_password(password: str, salt: bytes) -> str:
    """The hash of a password with SALT_BYTES random bytes. Takes long."""
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    derived = Argon2id(salt=salt, length=32, iterations=2, lanes=1, memory_cost=19_456).derive(
        password.encode("utf-8", "surrogateescape")
    )
    return f"$argon2id$v=19${_COST}${_text(salt)}${_text(derived)}"


def is_password(password: str, of_user: str) -> bool:
    """True if a hash is that of the password. Takes long."""
    found = _HASH.fullmatch(of_user)
    salt = base64.b64decode(f"{found[1]}==") if found else bytes(SALT_BYTES)
    return same_secret(hash_password(password, salt), of_user)


def check_hash(text: str) -> str:
    """Return the text; raises BadRequest if it is not a hash with the cost that we compute."""
    if not _HASH.fullmatch(text):
        raise BadRequest(
            f"a password is stored as $argon2id$v=19${_COST}$SALT$HASH", hint="kourou user set"
        )
    return text


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
