"""Resource use, CPU affinity and process IDs of a process and its descendants (Linux).

State: none; the kernel keeps the CPU affinity of a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kourou.service.process_names import Running

NS_IN_S = 1_000_000_000
_PARENT, _OWN, _WAITED = 1, slice(11, 13), slice(13, 15)
"""Fields of /proc/PID/stat after the process name, which may contain any character: see proc(5)."""

PROC = Path("/proc")
_TICK_NS = NS_IN_S // os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int, *, alone: bool = False) -> int:
    """Resident memory of a process and, unless `alone`, of its descendants, in bytes."""
    found = 0
    for one in (pid,) if alone else family(pid):
        pages = (PROC / str(one) / "statm").read_text(encoding="ascii").split()[1]
        found += int(pages) * os.sysconf("SC_PAGE_SIZE")
    return found


def peak_bytes(pid: int) -> int:
    """Peak resident memory of a single process, in bytes."""
    status = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    (line,) = (one for one in status.splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


@dataclass(frozen=True, slots=True)
class CpuReading:
    """The CPU time of a process and its descendants at the time of the reading.

    The maps are keyed by process ID: `own` has the ticks of each process, `waited` those of its
    ended children that it has waited for.
    """

    pid: int
    own: Mapping[int, int]
    waited: Mapping[int, int]
    parents: Mapping[int, int]

    @classmethod
    def of(cls, pid: int) -> CpuReading:
        """Read `pid` and its descendants now; the reading is empty if the process has ended."""
        stats = _stats()
        found = {one: stats[one] for one in _family(pid, stats) if one in stats}
        return cls(
            pid,
            {one: _ticks(fields, _OWN) for one, fields in found.items()},
            {one: _ticks(fields, _WAITED) for one, fields in found.items()},
            {one: int(fields[_PARENT]) for one, fields in found.items()},
        )

    @property
    def total(self) -> int:
        """The sum of all ticks."""
        return sum(self.own.values()) + sum(self.waited.values())

    def spent_ns(self) -> int:
        """CPU time from this reading until now, in ns, never negative. The resolution is one tick.

        A parent that ignores SIGCHLD, such as Spark's daemon of Python workers, does not inherit
        the time of an ended child. In that case the time until the reading stays counted.
        """
        until = CpuReading.of(self.pid)
        ticks = until.total - self.total
        for ended in self.own.keys() - until.own.keys():
            parent, lost = self.parents[ended], self.own[ended] + self.waited[ended]
            if until.waited.get(parent, 0) - self.waited.get(parent, 0) < lost:
                ticks += lost
        return max(ticks, 0) * _TICK_NS


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    return _family(pid, _stats())


def hold_descendants(pid: int) -> list[Running]:
    """Running descendants of a process; the caller closes them.

    A process is included only if it was a descendant both before and after it was opened, which
    excludes reused process IDs. The list is empty on systems without pidfd_open.
    """
    if not hasattr(os, "pidfd_open"):
        return []
    found = []
    for one in family(pid):
        with suppress(OSError):  # the process has just ended
            found.append(Running(one, os.pidfd_open(one)))
    still = set(family(pid)) - {pid}
    for gone in found:
        if gone.pid not in still:
            gone.close()
    return [running for running in found if running.pid in still]


def keep_to(pid: int, cores: Set[int]) -> None:
    """Pin all threads of a process, and the threads and processes that they start, to `cores`.

    Raises OSError if that fails.
    """
    for task in (PROC / str(pid) / "task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue  # the thread has ended


def _family(pid: int, stats: dict[int, list[str]]) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for one, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(one)
    todo = [pid]
    while todo:
        one = todo.pop()
        todo.extend(children.get(one, ()))
        yield one


def _ticks(fields: list[str], which: slice) -> int:
    return sum(map(int, fields[which]))


def _stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the process name, for every process."""
    found: dict[int, list[str]] = {}
    for status in PROC.glob("[0-9]*/stat"):
        try:
            text = status.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has just ended
        found[int(status.parent.name)] = text.rpartition(")")[2].split()
    return found
