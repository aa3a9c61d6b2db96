"""The Raft group of the demo's fourth act: three brokers with one log, and a name server.

The demo's own loop goes on while members start: they are started by a thread that lives as long as
they do, for children end with the thread that started them.

State: soft; the stores lie in the demo's folder.
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
    """Its members may be killed and started again."""

    def __init__(self, thread: ThreadPoolExecutor, starting: asyncio.Future[LocalCluster]) -> None:
        self._thread = thread
        self._starting = starting
        self.killed: set[str] = set()

    async def runs(self) -> None:
        """Wait until it does, and has a leader. Before that nothing else may be asked."""
        await asyncio.shield(self._starting)  # who gives up waiting must still stop it

    @property
    def _cluster(self) -> LocalCluster:
        return self._starting.result()

    @property
    def address(self) -> str:
        """What a client of the group is given."""
        return self._cluster.address

    @property
    def members(self) -> list[Child]:
        """In the order of their names."""
        return self._cluster.members

    async def leader(self) -> Child:
        """Who leads, as the name server says; waits until one does."""
        return await _on(self._thread, self._cluster.leader_of)

    async def kill(self, member: Child) -> None:
        """SIGKILL; returns when the process is gone."""
        self.killed.add(member.name)
        await _on(self._thread, member.kill)

    async def start_again(self, member: Child) -> None:
        """On its store; returns when it takes part."""
        index = self.members.index(member)
        await _on(self._thread, lambda: self._cluster.start_member(0, index))

    def log(self, index: int, end: int) -> bytes:
        """What a member's files have of the log, from its beginning to `end`."""
        return log_bytes(self._cluster.member_folder(0, index), end)


@asynccontextmanager
async def group_of_three(folder: Path, faults: list[str]) -> AsyncIterator[GroupOfThree]:
    """It starts while other things are done, and is stopped in the end."""
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
    """The log up to `end`, as it lies in the files of a store."""
    files = sorted((store / LOG).iterdir())
    return b"".join(path.read_bytes() for path in files)[:end]


def _on(thread: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(thread, work)
