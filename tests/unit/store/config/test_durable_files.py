from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt
from kourou.store.config.durable_files import SealedFile, seal, unseal
from kourou.store.disk import write_atomically
from kourou.store.paths import StorePaths
from kourou.store.replica.replica_files import VOTE_MAGIC as EPOCHS
from kourou.store.replica.replica_files import VOTE_MAGIC as VOTE
from kourou.store.replica.replica_files import VoteFile, load_epochs
from kourou.testing.disk import PowerLost, SimDisk, disk_with

FOLDER = Path("/store/kourou")
PATH = FOLDER / "thing"
VOTE_MAGIC = b"TST1"


def sealed(disk: SimDisk) -> SealedFile:
    return SealedFile(disk, PATH, VOTE_MAGIC)


def test_every_flipped_bit_is_seen() -> None:
    data = seal(VOTE_MAGIC, 7, b"body of it")
    assert unseal(VOTE_MAGIC, data) == (7, b"body of it")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert unseal(VOTE_MAGIC, bytes(flipped)) is None, bit


def test_every_torn_length_is_seen() -> None:
    data = seal(VOTE_MAGIC, 7, b"body of it")
    assert all(unseal(VOTE_MAGIC, data[:length]) is None for length in range(len(data)))
    assert unseal(VOTE_MAGIC, data + b"\0") is None
    assert unseal(b"TST2", data) is None


def test_one_damaged_copy_costs_nothing_and_is_mended() -> None:
    for damaged in (0, 1):
        disk = disk_with(FOLDER)
        sealed(disk).save(b"old")
        sealed(disk).save(b"new")
        disk.overwrite(sealed(disk).copies[damaged], b"\xff", 9)
        assert sealed(disk).load("") == b"new"
        assert disk.read(sealed(disk).copies[0]) == disk.read(sealed(disk).copies[1])
        disk.overwrite(sealed(disk).copies[1 - damaged], b"\xff", 9)
        assert sealed(disk).load("") == b"new"


def test_a_missing_copy_is_made_again() -> None:
    disk = disk_with(FOLDER)
    sealed(disk).save(b"it")
    disk.unlink(PATH)
    assert sealed(disk).load("") == b"it"
    assert disk.exists(PATH)


def test_with_both_damaged_nothing_is_guessed() -> None:
    disk = disk_with(FOLDER)
    sealed(disk).save(b"it")
    for path in sealed(disk).copies:
        disk.overwrite(path, b"\xff", 9)
    with pytest.raises(Corrupt, match="thing") as caught:
        sealed(disk).load("do this")
    assert caught.value.hint == "do this"


def test_none_is_none_and_removed_is_gone() -> None:
    disk = disk_with(FOLDER)
    assert sealed(disk).load("") is None
    sealed(disk).save(b"it")
    sealed(disk).remove()
    assert sealed(disk).load("") is None
    assert sealed(disk.crash()).load("") is None


def test_who_saves_without_having_read_is_newer_all_the_same() -> None:
    disk = disk_with(FOLDER)
    for body in (b"a", b"b", b"c"):
        sealed(disk).save(body)
    disk.overwrite(PATH, b"\xff", 9)
    assert sealed(disk).load("") == b"c"


def test_whenever_the_power_goes_off_the_old_or_the_new_is_there_and_stays() -> None:
    for seed in range(200):
        for step in range(1, 6):
            disk = disk_with(FOLDER, seed)
            sealed(disk).save(b"old")
            disk.cut_power(step)
            done = False
            try:
                sealed(disk).save(b"new")
                done = True
            except PowerLost:
                pass
            after = disk.crash()
            found = sealed(after).load("")
            assert found == b"new" if done else found in (b"old", b"new"), (seed, step)
            # What was once read stands in both copies: one of them may rot.
            for damaged in (0, 1):
                again = after.copy()
                again.overwrite(sealed(again).copies[damaged], b"\xff", 9)
                assert sealed(again).load("") == found, (seed, step)


@pytest.mark.fuzz
@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=40))
def test_any_copies_are_a_body_or_corrupt(first: bytes, second: bytes, inside: bytes) -> None:
    """The files of epochs, of the vote, and of a log that begins later: noise, and valid noise."""
    paths = StorePaths.under(Path("/store"))
    for one, magic, load in (
        (paths.vote, VOTE, lambda disk: VoteFile(disk, paths).load()),
        (paths.epochs, EPOCHS, lambda disk: load_epochs(disk, paths)),
    ):
        for copies in ((first, second), (seal(magic, 1, inside), second)):
            disk = disk_with(paths.kourou)
            file = SealedFile(disk, one, magic)
            for path, data in zip(file.copies, copies, strict=True):
                write_atomically(disk, path, data)
            with suppress(Corrupt):
                load(disk)
