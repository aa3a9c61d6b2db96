""""""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import Corrupt
from kourou.store.config.durable_files import SealedFile
from kourou.store.paths import StorePaths
from kourou.store.replica.replica_files import (
    MAGIC,
    VOTE_MAGIC,
    StoredVote,
    VoteFile,
    load_epochs,
    remove_epochs,
    save_epochs,
    trim_epochs,
)
from kourou.store.store import Store
from kourou.testing.disk import SimDisk, disk_with
from kourou_rigs.store import Draft, StoreWriter, small_settings

PATHS = StorePaths.under(Path("/store"))
PAIRS = [(1, 0), (3, 100), (7, 260)]


def test_what_is_saved_is_found_after_a_power_loss() -> None:
    disk = disk_with(PATHS.kourou)
    assert load_epochs(disk, PATHS) is None
    save_epochs(disk, PATHS, PAIRS[:1])
    save_epochs(disk, PATHS, PAIRS)
    assert load_epochs(disk.crash(), PATHS) == PAIRS
    remove_epochs(disk, PATHS)
    assert load_epochs(disk.crash(), PATHS) is None


def test_trimming_drops_epochs_without_a_byte() -> None:
    for end, kept in ((261, PAIRS), (260, PAIRS[:2]), (100, PAIRS[:1]), (0, [])):
        disk = disk_with(PATHS.kourou)
        save_epochs(disk, PATHS, PAIRS)
        trim_epochs(disk, PATHS, end)
        assert load_epochs(disk.crash(), PATHS) == kept
    trim_epochs(disk_with(PATHS.kourou), PATHS, 5)


def test_epochs_that_do_not_ascend_are_refused() -> None:
    for pairs in ([(2, 0), (2, 5)], [(1, 5), (2, 5)], [(0, 0)], [(1, -1)]):
        with pytest.raises(AssertionError):
            save_epochs(disk_with(PATHS.kourou), PATHS, pairs)
        disk = disk_with(PATHS.kourou)
        body = b"".join(n.to_bytes(8, "big", signed=True) for pair in pairs for n in pair)
        for written in (body, body[:-1]):
            SealedFile(disk, PATHS.epochs, MAGIC).save(written)
            with pytest.raises(Corrupt, match="epochs"):
                load_epochs(disk, PATHS)


def test_a_log_that_lost_its_end_has_lost_the_epochs_there() -> None:
    disk = SimDisk()
    settings = small_settings(Path("/store"))
    store = Store.open(settings, disk)
    StoreWriter(store).write([Draft(body=bytes(200))])
    store.checkpoint()
    save_epochs(disk, PATHS, [(1, 0), (2, store.end)])
    disk = disk.crash()
    store = Store.open(settings, disk)
    assert load_epochs(disk, PATHS) == [(1, 0)]


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
    for copy in SealedFile(disk, PATHS.vote, VOTE_MAGIC).copies:
        disk.overwrite(copy, b"\xff", 20)
    with pytest.raises(Corrupt, match="vote") as caught:
        VoteFile(disk, PATHS).load()
    assert "must not vote twice" in caught.value.hint


@pytest.mark.parametrize("body", [b"", b"\0" * 7, b"\xff" * 8, b"\0" * 8 + b"\xff\xfe"])
def test_a_whole_file_without_a_vote_in_it_is_no_vote(body: bytes) -> None:
    disk = disk_with(PATHS.kourou)
    SealedFile(disk, PATHS.vote, VOTE_MAGIC).save(body)
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
