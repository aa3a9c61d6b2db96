"""API tokens: how they are made and recognized, and what a token cannot be."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from kourou.access.api_token import (
    DAY_MS,
    HASH_BYTES,
    OF_NO_USER,
    SALT_BYTES,
    ApiToken,
    check_hash,
    check_password,
    check_token,
    hash_text,
    id_of,
    is_token,
    owner_of,
    salt_of,
    token_digest,
    token_of,
)
from kourou.access.model import RoleGrant, UserRole
from kourou.errors import BadRequest
from kourou.model.limits import API_TOKEN_DAYS_MAX, PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN

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


# -- passwords: their length, and the form of their hashes -----------------------------------------


def test_a_hash_is_a_text_with_cost_and_salt() -> None:
    salt = bytes(range(SALT_BYTES))
    text = hash_text(salt, bytes(HASH_BYTES))
    assert text == f"$argon2id$v=19$m=19456,t=2,p=1$AAECAwQFBgcICQoLDA0ODw${'A' * 43}"
    assert (check_hash(text), salt_of(text)) == (text, salt)
    assert check_hash(OF_NO_USER) == hash_text(bytes(SALT_BYTES), bytes(HASH_BYTES))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "several long words",
        OF_NO_USER.replace("m=19456", "m=4194304"),
        OF_NO_USER.replace("t=2", "t=2000000"),
        OF_NO_USER.replace("argon2id", "argon2i"),
        OF_NO_USER[:-1],
        OF_NO_USER + "\n",
    ],
)
def test_other_texts_are_no_hashes(text: str) -> None:
    with pytest.raises(BadRequest, match="a password is stored as") as refused:
        check_hash(text)
    assert not text or text not in str(refused.value)
    assert salt_of(text) == bytes(SALT_BYTES)


def test_a_password_has_a_length() -> None:
    for length in (PASSWORD_LENGTH_MIN, PASSWORD_LENGTH_MAX):
        assert check_password("x" * length) == "x" * length
    for length in (0, PASSWORD_LENGTH_MIN - 1, PASSWORD_LENGTH_MAX + 1):
        with pytest.raises(BadRequest, match="a password has 12 to 256 characters") as refused:
            check_password("x" * length)
        assert not length or "x" * length not in str(refused.value)
