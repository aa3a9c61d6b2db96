"""API tokens: how they are made and recognized, and what a token cannot be."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from kourou.access.api_token import (
    DAY_MS,
    ApiToken,
    check_token,
    id_of,
    is_token,
    owner_of,
    token_digest,
    token_of,
)
from kourou.access.model import RoleGrant, UserRole
from kourou.errors import BadRequest
from kourou.model.limits import API_TOKEN_DAYS_MAX

NOW = 1_700_000_000_000
TEXT = token_of(bytes(range(32)))
TOKEN = ApiToken(
    id=id_of(token_digest(TEXT)),
    user="till",
    digest=token_digest(TEXT),
    scope=RoleGrant(UserRole.WRITER, "orders-"),
    created_ms=NOW,
    expires_ms=NOW + DAY_MS,
)


def test_a_token_has_all_random_bits_and_is_named_by_its_hash() -> None:
    assert TEXT == "kourou_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert TOKEN.digest == hashlib.sha256(TEXT.encode()).hexdigest()
    assert TOKEN.digest.startswith(TOKEN.id)
    assert TOKEN.name == f"till:{TOKEN.id}"
    assert (owner_of(TOKEN.name), owner_of("till")) == ("till", "till")


@pytest.mark.parametrize(
    "text", ["", "kourou_", TEXT[:-1], TEXT + "A", TEXT.upper(), TEXT[:-1] + "é", TEXT + "\n"]
)
def test_other_texts_are_no_tokens(text: str) -> None:
    assert is_token(TEXT)
    assert not is_token(text)


def test_it_expires_at_its_time() -> None:
    assert not TOKEN.has_expired(TOKEN.expires_ms - 1)
    assert TOKEN.has_expired(TOKEN.expires_ms)
    assert TOKEN.grant == RoleGrant(UserRole.WRITER, "orders-", TOKEN.expires_ms)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"digest": "ab"}, "64 hexadecimal digits"),
        ({"digest": TOKEN.digest.upper()}, "64 hexadecimal digits"),
        ({"id": "0" * 12}, "begins with its id"),
        ({"scope": RoleGrant(UserRole.CONSOLE)}, "cannot be a console"),
        ({"expires_ms": NOW}, "expires after"),
        ({"expires_ms": NOW + API_TOKEN_DAYS_MAX * DAY_MS + 1}, "expires after"),
    ],
)
def test_what_a_token_cannot_be(changed: dict[str, object], why: str) -> None:
    assert check_token(TOKEN) is TOKEN
    with pytest.raises(BadRequest, match=why):
        check_token(msgspec.structs.replace(TOKEN, **changed))
