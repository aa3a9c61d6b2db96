"""Passwords: hashed with Argon2id, in the PHC form, at one cost."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from kourou.access.password import (
    OF_NO_USER,
    SALT_BYTES,
    check_hash,
    check_password,
    hash_password,
    is_password,
)
from kourou.errors import BadRequest
from kourou.model.limits import PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN

SALT = bytes(range(SALT_BYTES))
PASSWORD = "ein Fluß, several words"


def test_a_hash_is_that_of_its_password_only() -> None:
    hashed = hash_password(PASSWORD, SALT)
    assert check_hash(hashed) == hashed
    assert is_password(PASSWORD, hashed)
    assert PASSWORD not in hashed
    for other in (PASSWORD + " ", PASSWORD.upper(), ""):
        assert not is_password(other, hashed), other
    assert hash_password(PASSWORD, SALT[::-1]) != hashed
    assert not is_password(PASSWORD, OF_NO_USER)
    assert check_hash(OF_NO_USER)


def test_the_hash_is_argon2id_as_others_compute_it() -> None:
    """The text says all that is needed to compute it again."""
    _, name, version, cost, salt, derived = hash_password(PASSWORD, SALT).split("$")
    assert (name, version, cost) == ("argon2id", "v=19", "m=19456,t=2,p=1")
    assert base64.b64decode(salt + "==") == SALT
    again = Argon2id(salt=SALT, length=32, iterations=2, lanes=1, memory_cost=19_456)
    assert base64.b64decode(derived + "=") == again.derive(PASSWORD.encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        OF_NO_USER.replace("m=19456", "m=4194304"),
        OF_NO_USER.replace("t=2", "t=2000000"),
        OF_NO_USER.replace("argon2id", "argon2i"),
        OF_NO_USER[:-1],
        OF_NO_USER + "\n",
    ],
)
def test_other_texts_are_no_hashes_and_cost_no_more_than_one(text: str) -> None:
    with pytest.raises(BadRequest, match="a password is stored as"):
        check_hash(text)
    assert not is_password(PASSWORD, text)


def test_a_password_has_a_length() -> None:
    for length in (PASSWORD_LENGTH_MIN, PASSWORD_LENGTH_MAX):
        assert check_password("x" * length) == "x" * length
    for length in (0, PASSWORD_LENGTH_MIN - 1, PASSWORD_LENGTH_MAX + 1):
        with pytest.raises(BadRequest, match="a password has 12 to 256 characters") as refused:
            check_password("x" * length)
        assert not length or "x" * length not in str(refused.value)
