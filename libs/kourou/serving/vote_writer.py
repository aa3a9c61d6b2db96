"""Writes a Raft replica's votes to disk, in order, before they are reported.

State: log: what it writes is stored nowhere else.

An election waits for this write, so it has a thread of its own: the loop's other threads may all be
busy with flushes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kourou.store.disk import Disk
from kourou.store.paths import StorePaths
from kourou.store.replica.vote_file import StoredVote, VoteFile


class VoteHand:
    """Writes votes. `saved` is called on the loop once per save, in their order.

    `failed` is called once with a disk error; nothing is written or reported after that, because
    the content of the disk is unknown and the process must end.
    """

    def __init__(
        self,
        disk: Disk,
        paths: StorePaths,
        *,
        saved: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._file = VoteFile(disk, paths)
        self._saved = saved
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, "kourou-vote")
        self._over = False

    def read(self) -> StoredVote | None:
        """Return the vote that was written last; None if there is none.

        Blocks; must be called before the first `save`. Raises Corrupt if the vote is unreadable,
        and OSError.
        """
        return self._file.load()

    def save(self, vote: StoredVote) -> None:
        """Write a vote, "" for none; `saved` is called when it survives a power loss."""
        if self._over:
            return
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._thread, self._write, vote)
        writing.add_done_callback(self._written)

    def _write(self, vote: StoredVote) -> None:
        self._file.save(vote.epoch, vote.voted_for, joining=vote.joining, lived=vote.lived)

    def _written(self, writing: asyncio.Future[None]) -> None:
        if self._over:
            return
        if writing.cancelled():
            self._over = True
            return
        error = writing.exception()
        if error is None:
            self._saved()
        else:
            self._over = True
            self._failed(error)

    async def stop(self) -> None:
        """Wait for the write in progress; no callback is called afterwards."""
        self._over = True
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
