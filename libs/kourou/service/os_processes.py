"""Processes of this machine: names, signals, CPU time, memory, and CPU affinity.

On Linux a service names its process `kourou-broker` (and so on), which `ps`, `top` and `pgrep` show
as well. There are no pid files, which could be stale, lost, or left from an earlier boot. A process
is referenced by a descriptor (pidfd) from before its name is read until it has ended, so that
another process that reuses its pid is never signalled.

State: none; the kernel keeps names and affinity.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kourou.errors import ConfigError, Unavailable

PREFIX = "kourou-"
PROC = Path("/proc")
_PR_SET_NAME = 15
_NAME_BYTES_MAX = 15


def take_name(service: str) -> None:
    """Name this process `kourou-SERVICE`. Does nothing if the system has no such names."""
    if not sys.platform.startswith("linux"):
        return
    name = _process_name(service).encode("ascii")
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)


class RunningProcess:
    """A service's process, held by a pidfd so that its pid cannot refer to another process."""

    __slots__ = ("_descriptor", "pid")

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def describe(self, proc: Path = PROC) -> str:
        """Return its working folder and its arguments, such as the settings file."""
        entry = proc / str(self.pid)
        try:
            folder = (entry / "cwd").readlink()
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            return "has just ended"
        return f"in {folder}: {shlex.join(words[1:-1])}"

    def ask_to_end(self) -> None:
        """Send SIGTERM; does nothing if it has already ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL; does nothing if it has already ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait_for_end(self, timeout_s: float) -> bool:
        """Wait up to so many seconds; True if it has ended."""
        return bool(select.select([self._descriptor], [], [], max(0.0, timeout_s))[0])


def find_running(service: str, proc: Path = PROC) -> list[RunningProcess]:
    """Return this user's processes of that service, by pid; the caller must close them.

    Raises Unavailable if the system cannot find and hold processes.
    """
    if not hasattr(os, "pidfd_open") or not proc.is_dir():
        raise Unavailable(
            "this system does not support finding processes by name",
            hint="stop it with kill and the pid in its ready file",
        )
    found = []
    for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()):
        if not _is_ours(proc / str(pid), service):
            continue  # checked before opening it as well: opening thousands would be slow
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # it has just ended
            continue
        if _is_ours(proc / str(pid), service):
            found.append(RunningProcess(pid, descriptor))
        else:
            os.close(descriptor)
    return found


def _is_ours(entry: Path, service: str) -> bool:
    try:
        name = (entry / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
        if name != _process_name(service) or entry.stat().st_uid != os.geteuid():
            return False
        # a zombie process has a name, but no command line
        return bool((entry / "cmdline").read_bytes())
    except OSError:  # it has just ended, or is not readable
        return False


def _process_name(service: str) -> str:
    return f"{PREFIX}{service}"[:_NAME_BYTES_MAX]


# -- resource use ----------------------------------------------------------------------------------


NS_IN_S = 1_000_000_000
_PARENT, _OWN, _WAITED = 1, slice(11, 13), slice(13, 15)
"""Fields of /proc/PID/stat after the process name, which may contain any character: see proc(5)."""

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


def hold_descendants(pid: int) -> list[RunningProcess]:
    """Running descendants of a process; the caller closes them.

    A process is included only if it was a descendant both before and after it was opened, which
    excludes reused process IDs. The list is empty on systems without pidfd_open.
    """
    if not hasattr(os, "pidfd_open"):
        return []
    found = []
    for one in family(pid):
        with suppress(OSError):  # the process has just ended
            found.append(RunningProcess(one, os.pidfd_open(one)))
    still = set(family(pid)) - {pid}
    for gone in found:
        if gone.pid not in still:
            gone.close()
    return [running for running in found if running.pid in still]


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


# -- CPU affinity ----------------------------------------------------------------------------------


CORE_MAX = 8_191
"""The highest core number that the kernel supports (NR_CPUS)."""

_RANGE = re.compile(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?", re.ASCII)


def read_cores(key: str, text: str, also: str = "") -> frozenset[int]:
    """Parse a core list such as `1,4-7` (the syntax of taskset(1)), the value of the setting `key`.

    Raises ConfigError if it is invalid; `also` is appended to the hint, for other allowed values.
    """
    found: set[int] = set()
    for part in text.split(","):
        matched = _RANGE.fullmatch(part)
        low = int(matched[1]) if matched else 1
        high = int(matched[2] or low) if matched else 0
        if not low <= high <= CORE_MAX:
            raise ConfigError(f"{key}={text!r} is not a list of cores", hint=f"1,4-7{also}")
        found.update(range(low, high + 1))
    return frozenset(found)


def cores_named(key: str, text: str, there: Set[int], also: str = "") -> frozenset[int]:
    """Parse a core list.

    Raises ConfigError if it is invalid, or if it names a core that is not in `there`.
    """
    named = read_cores(key, text, also)
    if not named <= there:
        shown, strange = (",".join(map(str, sorted(some))) for some in (there, named - there))
        raise ConfigError(
            f"{key}={text!r} names {strange}, and this process may use {shown}",
            hint="use cores that this process may use, or remove the key",
        )
    return named


def cores_that_compute(there: Set[int]) -> frozenset[int]:
    """Return the cores for filters: all except the first; empty (any) if there is only one."""
    return frozenset(sorted(there)[1:])


def cores_left(there: Set[int]) -> frozenset[int]:
    """Return the cores without filters; all cores if there is only one."""
    return frozenset(there) - cores_that_compute(there)


def keep_process_to(text: str | None) -> None:
    """Restrict this process, and processes that it starts from now on, to these cores; None: any.

    Raises ConfigError.
    """
    if text is not None:
        os.sched_setaffinity(0, cores_named("processCores", text, os.sched_getaffinity(0)))


def keep_to(pid: int, cores: Set[int]) -> None:
    """Pin all threads of a process, and the threads and processes that they start, to `cores`.

    Raises OSError if that fails.
    """
    for task in (PROC / str(pid) / "task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue  # the thread has ended
