"""A process and those that it started: what they use, where they run, who they are (Linux).

State: none; the kernel keeps which cores a process runs on.
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
"""Fields of /proc/PID/stat behind the name, which may hold anything: see proc(5)."""

PROC = Path("/proc")
_TICK_NS = NS_IN_S // os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int, *, alone: bool = False) -> int:
    """Resident memory of a process and, unless `alone`, of those that it started, in bytes."""
    found = 0
    for one in (pid,) if alone else family(pid):
        pages = (PROC / str(one) / "statm").read_text(encoding="ascii").split()[1]
        found += int(pages) * os.sysconf("SC_PAGE_SIZE")
    return found


def peak_bytes(pid: int) -> int:
    """The most memory that a process alone has had resident so far, in bytes."""
    status = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    (line,) = (one for one in status.splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


@dataclass(frozen=True, slots=True)
class CpuReading:
    """The CPU time of a process and of those that it started, as of the moment of the reading.

    By process id: its own ticks, and those of the children that ended and that it waited for.
    """

    pid: int
    own: Mapping[int, int]
    waited: Mapping[int, int]
    parents: Mapping[int, int]

    @classmethod
    def of(cls, pid: int) -> CpuReading:
        """Read the whole family of `pid` now; it is empty if the process has ended."""
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
        """All ticks."""
        return sum(self.own.values()) + sum(self.waited.values())

    def spent_ns(self) -> int:
        """CPU time from this reading until now, in ns, never negative; it counts in ticks.

        A parent that ignores SIGCHLD does not inherit the time of a child that ends, as Spark's
        daemon of Python workers does not: what the child had computed before stays counted.
        """
        until = CpuReading.of(self.pid)
        ticks = until.total - self.total
        for ended in self.own.keys() - until.own.keys():
            parent, lost = self.parents[ended], self.own[ended] + self.waited[ended]
            if until.waited.get(parent, 0) - self.waited.get(parent, 0) < lost:
                ticks += lost
        return max(ticks, 0) * _TICK_NS


def family(pid: int) -> Iterator[int]:
    """A process and those that it started, and those that they did."""
    return _family(pid, _stats())


def hold_descendants(pid: int) -> list[Running]:
    """Those that a process started, and those that they did; the caller closes them.

    Held is what was of the family before and after: no number has come to mean another process.
    Nothing where a system has no way to hold processes.
    """
    if not hasattr(os, "pidfd_open"):
        return []
    found = []
    for one in family(pid):
        with suppress(OSError):  # it ended just now
            found.append(Running(one, os.pidfd_open(one)))
    still = set(family(pid)) - {pid}
    for gone in found:
        if gone.pid not in still:
            gone.close()
    return [running for running in found if running.pid in still]


def keep_to(pid: int, cores: Set[int]) -> None:
    """Let all threads of a process run on these cores only, and those that they start. OSError."""
    for task in (PROC / str(pid) / "task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue  # this thread has ended


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
    """The fields of every process behind its name."""
    found: dict[int, list[str]] = {}
    for status in PROC.glob("[0-9]*/stat"):
        try:
            text = status.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found[int(status.parent.name)] = text.rpartition(")")[2].split()
    return found
