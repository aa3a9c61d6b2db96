"""What a server and the processes that it started use of the machine (Linux).

Lives here: reading /proc. May not live here: whose servers those are.

State: none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

NS_IN_S = 1_000_000_000
_PARENT, _USER_TICKS, _CHILDREN_SYSTEM_TICKS = 1, 11, 14
"""Fields of /proc/PID/stat behind the name, which may hold anything: see proc(5)."""

PROC = Path("/proc")


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


def cpu_ns(pid: int) -> int:
    """Time that a process and those that it started have computed, in ns; it counts in ticks.

    Of those that have ended what they told whoever waited for them.
    """
    stats = _stats()
    ticks = 0
    for one in _family(pid, stats):
        fields = stats.get(one, [])
        ticks += sum(map(int, fields[_USER_TICKS : _CHILDREN_SYSTEM_TICKS + 1]))
    return ticks * NS_IN_S // os.sysconf("SC_CLK_TCK")


def family(pid: int) -> Iterator[int]:
    """A process and those that it started, and those that they did."""
    return _family(pid, _stats())


def _family(pid: int, stats: dict[int, list[str]]) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for one, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(one)
    todo = [pid]
    while todo:
        one = todo.pop()
        todo.extend(children.get(one, ()))
        yield one


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
