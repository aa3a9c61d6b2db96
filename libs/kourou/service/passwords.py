"""Computes the hashes of passwords: 19 MiB and some 50 ms each, so never on an event loop."""

from __future__ import annotations

import secrets

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from kourou.access.api_token import (
    HASH_BYTES,
    MEMORY_KIB,
    PARALLELISM,
    PASSES,
    SALT_BYTES,
    check_password,
    hash_text,
    salt_of,
)
from kourou.access.signature import same_secret
from kourou.errors import ConfigError


def new_hash(password: str) -> str:
    """The hash of a new password; raises BadRequest if it is too short or long.

    Raises ConfigError where hashes cannot be computed.
    """
    try:
        return _hashed(check_password(password), secrets.token_bytes(SALT_BYTES))
    except UnsupportedAlgorithm as error:
        raise ConfigError(
            "passwords need Argon2id, which the OpenSSL of this Python does not have",
            hint="OpenSSL 3.2 or later, as in the wheels of cryptography",
        ) from error


def is_password(password: str, of_user: str) -> bool:
    """True if a hash is that of the password; other texts are of none, and take as long."""
    return same_secret(_hashed(password, salt_of(of_user)), of_user)


def _hashed(password: str, salt: bytes) -> str:
    argon = Argon2id(
        salt=salt, length=HASH_BYTES, iterations=PASSES, lanes=PARALLELISM, memory_cost=MEMORY_KIB
    )
    return hash_text(salt, argon.derive(password.encode("utf-8", "surrogateescape")))
