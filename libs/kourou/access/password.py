"""Passwords of people: how long they are, and the form of their Argon2id hashes (PHC).

    $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH        memory in KiB, passes, lanes; Base64, unpadded

The cost is OWASP's minimum, and the same for all, so that no stored text makes a check slower.
kourou.service.passwords computes them; brokers encrypt them as they do secrets.
"""

from __future__ import annotations

import base64
import re

from kourou.errors import BadRequest
from kourou.model.limits import PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN

MEMORY_KIB, PASSES, PARALLELISM = 19_456, 2, 1
SALT_BYTES, HASH_BYTES = 16, 32
_HEAD = f"$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={PARALLELISM}$"
_HASH = re.compile(re.escape(_HEAD) + r"([A-Za-z0-9+/]{22})\$[A-Za-z0-9+/]{43}")

OF_NO_USER = f"{_HEAD}{'A' * 22}${'A' * 43}"
"""A hash of no password: who has none is checked with it, and takes as long as others."""


def check_password(password: str) -> str:
    """Return the password; raises BadRequest, without showing it, if it is too short or long."""
    if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
        raise BadRequest(
            f"a password has {PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters",
            hint="several words are a good one",
        )
    return password


def check_hash(text: str) -> str:
    """Return the text; raises BadRequest if it is not such a hash."""
    if not _HASH.fullmatch(text):
        raise BadRequest(
            f"a password is stored as {_HEAD}SALT$HASH", hint="kourou user set NAME --ask-password"
        )
    return text


def sealed_for(user: str) -> str:
    """For whom the hash of a user's password is encrypted: no user, whose secret it could be."""
    return f"{user}:password"


def hash_text(salt: bytes, derived: bytes) -> str:
    """The text of a hash with its salt."""
    return f"{_HEAD}{_base64(salt)}${_base64(derived)}"


def salt_of(text: str) -> bytes:
    """The salt of a hash; zeros for any other text."""
    found = _HASH.fullmatch(text)
    return base64.b64decode(f"{found[1]}==") if found else bytes(SALT_BYTES)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
