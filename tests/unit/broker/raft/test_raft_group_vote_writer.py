"""Votes are written in order, and reported when they are on disk. The disk is simulated."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.broker.raft.raft_group import VoteWriter
from kourou.errors import Corrupt
from kourou.store.config.durable_files import SealedFile
from kourou.store.paths import StorePaths
from kourou.store.replica.replica_files import VOTE_MAGIC, StoredVote, VoteFile
from kourou.testing.disk import disk_with

PATHS = StorePaths.under(Path("/store"))


class Bench:
    """A hand, and what it tells."""

    def __init__(self) -> None:
        self.disk = disk_with(PATHS.kourou)
        self.saved = 0
        self.failures: list[BaseException] = []
        self._changed = asyncio.Event()
        self.hand = VoteWriter(self.disk, PATHS, saved=self._saved, failed=self._failed)

    def _saved(self) -> None:
        self.saved += 1
        self._changed.set()

    def _failed(self, error: BaseException) -> None:
        self.failures.append(error)
        self._changed.set()

    def after_power_loss(self) -> StoredVote:
        """What a process that starts then would read."""
        disk = self.disk.crash()
        return VoteWriter(disk, PATHS, saved=lambda: None, failed=lambda _error: None).read()

    async def until_saved(self, times: int) -> None:
        while self.saved + len(self.failures) < times:
            self._changed.clear()
            await self._changed.wait()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.hand.stop()


async def test_a_reported_vote_survives_a_power_loss(bench: Bench) -> None:
    assert bench.hand.read() is None
    bench.hand.save(StoredVote(3, "n1"))
    await bench.until_saved(1)
    assert bench.after_power_loss() == StoredVote(3, "n1")


async def test_each_save_is_reported_once_and_in_order(
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
        await bench.until_saved(place)
        assert (bench.saved, written) == (place, [4, 5, 6][:place])


async def test_a_disk_failure_is_reported_once_and_nothing_after_it(bench: Bench) -> None:
    bench.disk.fail_sync(1)
    for epoch in (1, 2, 3):
        bench.hand.save(StoredVote(epoch, "n0"))
    await bench.until_saved(1)
    bench.hand.save(StoredVote(4, "n0"))
    await bench.hand.stop()
    assert bench.saved == 0, "the content of the disk is unknown"
    assert [type(error) for error in bench.failures] == [OSError]


async def test_after_a_stop_nothing_is_reported(bench: Bench) -> None:
    bench.hand.save(StoredVote(1, "n0"))
    await bench.hand.stop()
    bench.hand.save(StoredVote(2, "n0"))
    await asyncio.sleep(0)
    assert (bench.saved, bench.failures) == (0, [])


async def test_a_vote_that_cannot_be_known_keeps_the_member_shut(bench: Bench) -> None:
    bench.hand.save(StoredVote(1, "n0"))
    await bench.until_saved(1)
    for copy in SealedFile(bench.disk, PATHS.vote, VOTE_MAGIC).copies:
        bench.disk.overwrite(copy, b"X", 0)
    with pytest.raises(Corrupt, match="must not vote twice"):
        bench.hand.read()
