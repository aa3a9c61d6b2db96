"""Secrets of users, encrypted with keys that are kept outside the store.

A request's signature can only be checked with the secret itself, so a hash would not do. A secret
is encrypted with AES-256-GCM; user name and key id are authenticated with it, so a stored secret
cannot be moved to another user. A backup of a store contains no readable secret.

The key file has one key a line, `ID:BASE64` of 32 bytes. The first encrypts, all decrypt: a key is
replaced by a new first line.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import stat
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kourou.access.model import SealedSecret
from kourou.errors import BadRequest, ConfigError, DecodeError

KEY_BYTES = 32
NONCE_BYTES = 12
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")
_OTHERS_MAY = stat.S_IRWXG | stat.S_IRWXO


class SecretKeys:
    """The keys of a key file, in its order; at least one."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        if not keys:
            raise ConfigError("the key file has no key", hint="create one: kourou keys access FILE")
        self._first = next(iter(keys))
        self._keys = {name: AESGCM(key) for name, key in keys.items()}

    @classmethod
    def parse(cls, text: str) -> SecretKeys:
        """Read the text of a key file; raises ConfigError, which never shows a key."""
        keys: dict[str, bytes] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, encoded = line.strip().partition(":")
            try:
                key = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                key = b""
            if not _KEY_ID.fullmatch(name) or len(key) != KEY_BYTES or name in keys:
                raise ConfigError(
                    f"line {number} of the key file is not a key",
                    hint=f"ID:BASE64 of {KEY_BYTES} bytes, each id once; kourou keys access FILE",
                )
            keys[name] = key
        return cls(keys)

    @classmethod
    def read(cls, path: Path) -> SecretKeys:
        """Read a key file; raises ConfigError, also if another user of the machine may read it."""
        try:
            found = path.stat()
            text = path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the key file {path} cannot be read: {error}") from error
        if found.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"the key file {path} belongs to another user of this machine",
                hint=f"chown {os.geteuid()} {path}",
            )
        if found.st_mode & _OTHERS_MAY:
            raise ConfigError(
                f"the key file {path} is open to other users of this machine",
                hint=f"chmod 600 {path}",
            )
        try:
            return cls.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None

    def seal(self, user: str, secret: str) -> SealedSecret:
        """Encrypt a user's secret with the first key and a new nonce."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        ciphertext = self._keys[self._first].encrypt(
            nonce, secret.encode(), _bound_to(user, self._first)
        )
        return SealedSecret(self._first, nonce, ciphertext)

    def open(self, user: str, sealed: SealedSecret) -> str:
        """Decrypt a user's secret; raises DecodeError if no key fits or the bytes are not his."""
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise DecodeError(
                f"the secret of user {user} needs key {sealed.key_id!r}, "
                "which is not in accessKeyFile"
            )
        try:
            return key.decrypt(
                sealed.nonce, sealed.ciphertext, _bound_to(user, sealed.key_id)
            ).decode()
        except (InvalidTag, UnicodeDecodeError) as error:
            raise DecodeError(f"the stored secret of user {user} is not valid") from error


def _bound_to(user: str, key_id: str) -> bytes:
    return f"{user}\0{key_id}".encode()


def new_key_line(name: str) -> str:
    """A line for a key file with a new random key; raises BadRequest for a bad id."""
    if not _KEY_ID.fullmatch(name):
        raise BadRequest(f"{name!r} is not a key id", hint="1 to 32 letters, digits, . _ -")
    return f"{name}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}\n"


def new_secret() -> str:
    """A random secret of 192 bits for a client, as text without special characters."""
    return secrets.token_urlsafe(24)
