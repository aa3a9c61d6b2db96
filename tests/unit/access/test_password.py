"""Passwords: their length, and the form of their hashes."""

from __future__ import annotations

import pytest

from kourou.access.password import (
    HASH_BYTES,
    OF_NO_USER,
    SALT_BYTES,
    check_hash,
    check_password,
    hash_text,
    salt_of,
)
from kourou.errors import BadRequest
from kourou.model.limits import PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN


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
