"""The hand that writes a member's vote: in order, on disk before anybody is told.

State: log: what it writes stands nowhere else.

An election waits for this write, so it has a thread of its own: the loop's others may all be busy
with flushes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kourou.store.disk import Disk
from kourou.store.paths import StorePaths
from kourou.store.vote_file import Vote, VoteFile


class VoteHand:
    """Writes votes. `saved` is called on the loop once a save, in their order.

    `failed` is called with what the disk said, once; nothing is written or told after that: nobody
    knows what the disk has, and the process is to end.
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

    def read(self) -> Vote | None:
        """The vote that was written last; None if none ever was.

        Blocks, and belongs before the first `save`. Raises Corrupt if the vote cannot be known any
        more, and OSError.
        """
        return self._file.load()

    def save(self, vote: Vote) -> None:
        """Write a vote, "" for nobody's; `saved` tells when it survives a power loss."""
        if self._over:
            return
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._thread, self._write, vote)
        writing.add_done_callback(self._written)

    def _write(self, vote: Vote) -> None:
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
        """Wait for what is being written; nothing is told any more."""
        self._over = True
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
