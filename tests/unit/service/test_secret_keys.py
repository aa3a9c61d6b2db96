"""Encrypted secrets of users: they open with their key, for their user, and nothing shows them."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from kourou.access.api_token import OF_NO_USER, check_hash, salt_of
from kourou.access.model import SealedSecret
from kourou.errors import BadRequest, ConfigError, DecodeError
from kourou.service import passwords
from kourou.service.passwords import is_password, new_hash
from kourou.service.secret_keys import KEY_BYTES, SecretKeys, new_key_line, new_secret

SECRET = "a-secret-of-till"


def test_a_secret_opens_with_its_key_for_its_user() -> None:
    keys = SecretKeys.parse(new_key_line("1"))
    sealed = keys.seal("till", SECRET)
    assert keys.open("till", sealed) == SECRET
    assert SECRET.encode() not in sealed.ciphertext
    assert keys.seal("till", SECRET) != sealed, "each has its own nonce"
    assert keys.open("", keys.seal("", "ünïcode")) == "ünïcode"


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "access.keys"
    file.touch(0o600)
    file.write_text(new_key_line("1"))
    assert SecretKeys.read(file)
    if os.geteuid() == 0:  # files of root are good for every service
        os.chown(file, 12_345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12_346)
    with pytest.raises(ConfigError, match="belongs to another user") as refused:
        SecretKeys.read(file)
    assert refused.value.hint == f"chown 12346 {file}"


def test_a_new_first_key_encrypts_and_the_former_still_decrypts() -> None:
    old = new_key_line("old")
    sealed = SecretKeys.parse(old).seal("till", SECRET)
    both = SecretKeys.parse("# keys\n\n" + new_key_line("new") + old)
    assert both.open("till", sealed) == SECRET
    again = both.seal("till", SECRET)
    assert (sealed.key_id, again.key_id) == ("old", "new")
    with pytest.raises(DecodeError, match="needs key 'new', which is not in accessKeyFile"):
        SecretKeys.parse(old).open("till", again)


def test_a_secret_cannot_be_moved_or_changed() -> None:
    keys = SecretKeys.parse(new_key_line("1") + new_key_line("2"))
    sealed = keys.seal("till", SECRET)
    others = SecretKeys.parse(new_key_line("1"))
    flipped = bytes([sealed.ciphertext[0] ^ 1]) + sealed.ciphertext[1:]
    wrong = [
        (keys, "ops", sealed),
        (keys, "till", SealedSecret("2", sealed.nonce, sealed.ciphertext)),
        (keys, "till", SealedSecret("1", sealed.nonce, flipped)),
        (keys, "till", SealedSecret("1", sealed.nonce[::-1], sealed.ciphertext)),
        (keys, "till", SealedSecret("1", sealed.nonce, sealed.ciphertext[:-1])),
        (others, "till", sealed),
    ]
    for box, user, one in wrong:
        with pytest.raises(DecodeError, match=f"the stored secret of user {user} is not valid"):
            box.open(user, one)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "1:" + base64.b64encode(bytes(KEY_BYTES - 1)).decode(),
        "1:not base64",
        "no-colon",
        "a b:" + base64.b64encode(bytes(KEY_BYTES)).decode(),
        ":" + base64.b64encode(bytes(KEY_BYTES)).decode(),
        2 * ("1:" + base64.b64encode(bytes(KEY_BYTES)).decode() + "\n"),
    ],
)
def test_a_bad_file_is_refused_without_showing_a_key(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SecretKeys.parse(text)
    for line in text.splitlines():
        key = line.partition(":")[2]
        assert not key or key not in str(refused.value)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.keys"
    line = new_key_line("1")
    path.write_text(line)
    path.chmod(0o600)
    sealed = SecretKeys.read(path).seal("till", SECRET)
    for mode in (0o640, 0o604, 0o622):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="open to other users") as refused:
            SecretKeys.read(path)
        assert line.partition(":")[2].strip() not in str(refused.value)
    path.chmod(0o400)
    assert SecretKeys.read(path).open("till", sealed) == SECRET


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        SecretKeys.read(tmp_path / "nothing")
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        SecretKeys.read(path)


def test_no_key_or_secret_is_in_a_repr() -> None:
    line = new_key_line("1")
    keys = SecretKeys.parse(line)
    encoded = line.partition(":")[2].strip()
    for text in (repr(keys), repr(keys.seal("till", SECRET))):
        assert encoded not in text
        assert SECRET not in text


def test_new_keys_and_secrets_are_random_and_valid() -> None:
    assert new_key_line("a") != new_key_line("a")
    assert len({new_secret() for _ in range(9)}) == 9
    for name in ("", "a:b", "a b", "x" * 33, "é"):
        with pytest.raises(BadRequest, match="not a key id"):
            new_key_line(name)


# -- passwords are hashed with Argon2id, each with a salt of its own -------------------------------


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
