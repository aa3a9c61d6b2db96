"""Passwords are hashed with Argon2id, each with a salt of its own."""

from __future__ import annotations

import base64

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from kourou.access.password import OF_NO_USER, check_hash, salt_of
from kourou.errors import BadRequest, ConfigError
from kourou.service import passwords
from kourou.service.passwords import is_password, new_hash

PASSWORD = "ein Fluß, several words"


def test_a_hash_is_that_of_its_password_only() -> None:
    hashed = new_hash(PASSWORD)
    assert check_hash(hashed) == hashed
    assert is_password(PASSWORD, hashed)
    assert new_hash(PASSWORD) != hashed
    for other in (PASSWORD + " ", PASSWORD.upper(), "", hashed):
        assert not is_password(other, hashed), other
    for text in (OF_NO_USER, "", hashed[:-1]):
        assert not is_password(PASSWORD, text), text


def test_the_text_says_all_that_others_need_to_compute_it_again() -> None:
    hashed = new_hash(PASSWORD)
    again = Argon2id(salt=salt_of(hashed), length=32, iterations=2, lanes=1, memory_cost=19_456)
    derived = again.derive(PASSWORD.encode())
    assert base64.b64decode(hashed.rpartition("$")[2] + "=") == derived


def test_without_argon2id_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(**_: object) -> None:
        raise UnsupportedAlgorithm("Argon2id")

    monkeypatch.setattr(passwords, "Argon2id", unsupported)
    with pytest.raises(ConfigError, match=r"passwords need Argon2id.*OpenSSL 3\.2"):
        new_hash(PASSWORD)
    with pytest.raises(UnsupportedAlgorithm):  # no answer of brokers: the attempt counts
        is_password(PASSWORD, OF_NO_USER)


def test_a_short_password_has_no_hash() -> None:
    with pytest.raises(BadRequest, match="a password has 12 to 256 characters"):
        new_hash("too short")
