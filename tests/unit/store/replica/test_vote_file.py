from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import Corrupt
from kourou.store.config.sealed_file import SealedFile
from kourou.store.paths import StorePaths
from kourou.store.replica.vote_file import MAGIC, StoredVote, VoteFile
from kourou.testing.disk import disk_with

PATHS = StorePaths.under(Path("/store"))


def test_the_last_vote_survives_a_power_loss() -> None:
    disk = disk_with(PATHS.kourou)
    file = VoteFile(disk, PATHS)
    assert file.load() is None
    file.save(3, "a")
    file.save(4, "broker-ü")
    file.save(5, "")
    assert VoteFile(disk.crash(), PATHS).load() == StoredVote(5, "")
    file.save(5, "broker-ü")
    assert VoteFile(disk.crash(), PATHS).load() == StoredVote(5, "broker-ü")


def test_a_vote_that_cannot_be_read_keeps_the_member_shut() -> None:
    disk = disk_with(PATHS.kourou)
    VoteFile(disk, PATHS).save(9, "a")
    for copy in SealedFile(disk, PATHS.vote, MAGIC).copies:
        disk.overwrite(copy, b"\xff", 20)
    with pytest.raises(Corrupt, match="vote") as caught:
        VoteFile(disk, PATHS).load()
    assert "must not vote twice" in caught.value.hint


@pytest.mark.parametrize("body", [b"", b"\0" * 7, b"\xff" * 8, b"\0" * 8 + b"\xff\xfe"])
def test_a_whole_file_without_a_vote_in_it_is_no_vote(body: bytes) -> None:
    disk = disk_with(PATHS.kourou)
    SealedFile(disk, PATHS.vote, MAGIC).save(body)
    with pytest.raises(Corrupt, match="vote"):
        VoteFile(disk, PATHS).load()


def test_a_failing_disk_is_an_error() -> None:
    disk = disk_with(PATHS.kourou)
    file = VoteFile(disk, PATHS)
    file.save(1, "a")
    for nth in range(1, 5):
        disk.fail_sync(nth)
        with pytest.raises(OSError, match="error"):
            file.save(2, "b")


def test_a_members_standing_is_kept_with_its_vote() -> None:
    disk = disk_with(PATHS.kourou)
    file = VoteFile(disk, PATHS)
    for joining in (False, True):
        for lived in (False, True):
            file.save(4, "n1", joining=joining, lived=lived)
            assert VoteFile(disk.crash(), PATHS).load() == StoredVote(4, "n1", joining, lived)
