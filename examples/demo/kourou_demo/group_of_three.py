"""The Raft group of the demo's fourth act: three brokers with one log, and a name server.

Members are started by a separate thread, so that the demo's event loop is not blocked. The thread
lives as long as they do, because child processes end with the thread that started them.

State: soft; the stores are in the demo's folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou_demo.terms import GROUP_SETTINGS

MEMBERS = 3
FOLDER = "group"
LOG = "commitlog"

T = TypeVar("T")


class GroupOfThree:
    """The group; its members can be killed and restarted."""

    def __init__(self, thread: ThreadPoolExecutor, starting: asyncio.Future[LocalCluster]) -> None:
        self._thread = thread
        self._starting = starting
        self.killed: set[str] = set()

    async def runs(self) -> None:
        """Wait until the group is up and has a leader; no other method may be called before."""
        await asyncio.shield(self._starting)  # a cancelled caller must not cancel the start

    @property
    def _cluster(self) -> LocalCluster:
        return self._starting.result()

    @property
    def address(self) -> str:
        """The address for clients of the group."""
        return self._cluster.address

    @property
    def members(self) -> list[Child]:
        """The members, ordered by name."""
        return self._cluster.members

    async def leader(self) -> Child:
        """The leader according to the name server; waits until there is one."""
        return await _on(self._thread, self._cluster.leader_of)

    async def kill(self, member: Child) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self.killed.add(member.name)
        await _on(self._thread, member.kill)

    async def start_again(self, member: Child) -> None:
        """Start a killed member on its store; returns when it takes part."""
        index = self.members.index(member)
        await _on(self._thread, lambda: self._cluster.start_member(0, index))

    def log(self, index: int, end: int) -> bytes:
        """A member's log files from the beginning to `end`."""
        return log_bytes(self._cluster.member_folder(0, index), end)


@asynccontextmanager
async def group_of_three(folder: Path, faults: list[str]) -> AsyncIterator[GroupOfThree]:
    """Start the group in the background; it is stopped at the end of the block."""
    settings = ClusterSettings(raft=MEMBERS, broker=GROUP_SETTINGS)
    with ThreadPoolExecutor(1, "group") as thread:
        starting = _on(thread, lambda: LocalCluster(folder / FOLDER, settings))
        group = GroupOfThree(thread, starting)
        try:
            yield group
        finally:
            cluster = await starting
            codes = await _on(thread, cluster.stop)
    bad = {name: code for name, code in codes.items() if code and name not in group.killed}
    if bad:
        faults.append(f"brokers of the group with a wrong exit code: {bad}")


def log_bytes(store: Path, end: int) -> bytes:
    """The log up to `end`, read from the files of a store."""
    files = sorted((store / LOG).iterdir())
    return b"".join(path.read_bytes() for path in files)[:end]


def _on(thread: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(thread, work)
