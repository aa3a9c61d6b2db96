"""The credentials of users: passwords of people, and API tokens of programs.

API tokens: random texts with which programs act for a user, within a scope and until a time.

    kourou_zJ2…        the token: 256 random bits as base64url; it is not kept anywhere
    9f86d081884c       its id: how its SHA-256 begins
    till:9f86d081884c  its name: who sends the requests with it, in decisions, audit and history

A request with a token needs both the rights of the user and those of the token's scope.

Passwords of people: how long they are, and the form of their Argon2id hashes (PHC).

    $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH        memory in KiB, passes, lanes; Base64, unpadded

The cost is OWASP's minimum, and the same for all, so that no stored text makes a check slower.
kourou.service.passwords computes them; brokers encrypt them as they do secrets.
"""

from __future__ import annotations

import base64
import hashlib
import re

import msgspec

from kourou.access.model import RoleGrant, UserRole
from kourou.errors import BadRequest
from kourou.model.limits import (
    API_TOKEN_DAYS_MAX,
    API_TOKEN_ID_LENGTH,
    PASSWORD_LENGTH_MAX,
    PASSWORD_LENGTH_MIN,
)
from kourou.model.units import DAY_MS

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


PREFIX = "kourou_"
_TOKEN = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ApiToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token of `user`, by its SHA-256 (`digest`, hexadecimal); times are epoch ms.

    It may do what the user and the role `scope` may do, until `expires_ms`.
    """

    id: str
    user: str
    digest: str
    scope: RoleGrant
    created_ms: int
    expires_ms: int

    @property
    def name(self) -> str:
        """Who sends a request with it: USER:ID. No user's name has a colon."""
        return f"{self.user}:{self.id}"

    @property
    def grant(self) -> RoleGrant:
        """The scope until the token expires."""
        return RoleGrant(self.scope.role, self.scope.prefix, self.expires_ms)

    def has_expired(self, now_ms: int) -> bool:
        """True from `expires_ms` on."""
        return now_ms >= self.expires_ms


def owner_of(sender: str) -> str:
    """The user who is meant by the name of a user, or by that of a token."""
    return sender.partition(":")[0]


def token_of(random: bytes) -> str:
    """The token with 32 random bytes."""
    assert len(random) == 32
    return PREFIX + base64.urlsafe_b64encode(random).decode().rstrip("=")


def is_token(text: str) -> bool:
    """True if a text can be a token."""
    return _TOKEN.fullmatch(text) is not None


def token_digest(token: str) -> str:
    """The SHA-256 of a token, hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def id_of(digest: str) -> str:
    """The id of the token with this SHA-256."""
    return digest[:API_TOKEN_ID_LENGTH]


def check_token(token: ApiToken) -> ApiToken:
    """Return the token; raises BadRequest if its SHA-256, scope or times are not valid."""
    if not _DIGEST.fullmatch(token.digest) or token.id != id_of(token.digest):
        raise BadRequest("the SHA-256 of a token is 64 hexadecimal digits, and begins with its id")
    if token.scope.role is UserRole.CONSOLE:
        raise BadRequest("a token cannot be a console", hint="scope: another role")
    if not 0 < token.expires_ms - token.created_ms <= API_TOKEN_DAYS_MAX * DAY_MS:
        raise BadRequest(f"a token expires after 1 to {API_TOKEN_DAYS_MAX} days")
    return token
