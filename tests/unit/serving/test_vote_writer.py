"""Votes are written in order, and told when they are on disk; the disk is a make-believe one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.errors import Corrupt
from kourou.serving.vote_writer import VoteHand
from kourou.store.config.sealed_file import SealedFile
from kourou.store.paths import StorePaths
from kourou.store.replica.vote_file import MAGIC, StoredVote, VoteFile
from kourou.testing.disk import disk_with

PATHS = StorePaths.under(Path("/store"))


class Bench:
    """A hand, and what it tells."""

    def __init__(self) -> None:
        self.disk = disk_with(PATHS.kourou)
        self.saved = 0
        self.failures: list[BaseException] = []
        self._changed = asyncio.Event()
        self.hand = VoteHand(self.disk, PATHS, saved=self._saved, failed=self._failed)

    def _saved(self) -> None:
        self.saved += 1
        self._changed.set()

    def _failed(self, error: BaseException) -> None:
        self.failures.append(error)
        self._changed.set()

    def after_power_loss(self) -> StoredVote:
        """What a process that starts then would read."""
        disk = self.disk.crash()
        return VoteHand(disk, PATHS, saved=lambda: None, failed=lambda _error: None).read()

    async def until_told(self, times: int) -> None:
        while self.saved + len(self.failures) < times:
            self._changed.clear()
            await self._changed.wait()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.hand.stop()


async def test_when_it_is_told_no_power_loss_takes_it(bench: Bench) -> None:
    assert bench.hand.read() is None
    bench.hand.save(StoredVote(3, "n1"))
    await bench.until_told(1)
    assert bench.after_power_loss() == StoredVote(3, "n1")


async def test_each_save_is_told_once_and_none_before_its_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    may_write = threading.Semaphore(0)

    def save(self: VoteFile, epoch: int, voted_for: str, **standing: bool) -> None:
        may_write.acquire()
        written.append(epoch)

    monkeypatch.setattr(VoteFile, "save", save)
    for epoch in (4, 5, 6):
        bench.hand.save(StoredVote(epoch, "n2"))
    assert bench.saved == 0, "who asks goes on at once"
    for place in (1, 2, 3):
        may_write.release()
        await bench.until_told(place)
        assert (bench.saved, written) == (place, [4, 5, 6][:place])


async def test_a_disk_that_fails_is_told_once_and_nothing_after_it(bench: Bench) -> None:
    bench.disk.fail_sync(1)
    for epoch in (1, 2, 3):
        bench.hand.save(StoredVote(epoch, "n0"))
    await bench.until_told(1)
    bench.hand.save(StoredVote(4, "n0"))
    await bench.hand.stop()
    assert bench.saved == 0, "nobody knows what the disk has"
    assert [type(error) for error in bench.failures] == [OSError]


async def test_after_a_stop_nothing_is_told(bench: Bench) -> None:
    bench.hand.save(StoredVote(1, "n0"))
    await bench.hand.stop()
    bench.hand.save(StoredVote(2, "n0"))
    await asyncio.sleep(0)
    assert (bench.saved, bench.failures) == (0, [])


async def test_a_vote_that_cannot_be_known_keeps_the_member_shut(bench: Bench) -> None:
    bench.hand.save(StoredVote(1, "n0"))
    await bench.until_told(1)
    for copy in SealedFile(bench.disk, PATHS.vote, MAGIC).copies:
        bench.disk.overwrite(copy, b"X", 0)
    with pytest.raises(Corrupt, match="must not vote twice"):
        bench.hand.read()
