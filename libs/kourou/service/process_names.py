"""By which the services that run on this machine are found: the name of their process.

On Linux a service calls its process `kourou-broker`, which `ps`, `top` and `pgrep` show as well.
There is no file of process ids that could be stale, lost, or left by another boot. A process is
held by a descriptor (pidfd) from before its name is read until it has ended: another one that gets
its number meanwhile is never asked to end.
"""

from __future__ import annotations

import ctypes
import os
import select
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kourou.errors import Unavailable

PREFIX = "kourou-"
PROC = Path("/proc")
_PR_SET_NAME = 15
_NAME_BYTES_MAX = 15


def take_name(service: str) -> None:
    """Call this process `kourou-SERVICE`. Nothing where a system knows no such names."""
    if not sys.platform.startswith("linux"):
        return
    name = _process_name(service).encode("ascii")
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)


class Running:
    """A service's process, held so that its number cannot come to mean another one."""

    __slots__ = ("_descriptor", "pid")

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let it go."""
        os.close(self._descriptor)

    def describe(self, proc: Path = PROC) -> str:
        """Its working folder and its arguments, such as the settings file."""
        entry = proc / str(self.pid)
        try:
            folder = (entry / "cwd").readlink()
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            return "has just ended"
        return f"in {folder}: {shlex.join(words[1:-1])}"

    def ask_to_end(self) -> None:
        """SIGTERM. One that has just ended by itself is no trouble."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait_for_end(self, timeout_s: float) -> bool:
        """Has it ended, at the latest after so many seconds?"""
        return bool(select.select([self._descriptor], [], [], max(0.0, timeout_s))[0])


def find_running(service: str, proc: Path = PROC) -> list[Running]:
    """This user's processes of that service, by their numbers; the caller closes them.

    Raises Unavailable where the system has no way to find and hold processes.
    """
    if not hasattr(os, "pidfd_open") or not proc.is_dir():
        raise Unavailable(
            "this system does not support finding processes by name",
            hint="stop it with kill and the pid in its ready file",
        )
    found = []
    for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()):
        if not _is_ours(proc / str(pid), service):
            continue  # looked at before it is held as well: holding thousands would be slow
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # it ended just now
            continue
        if _is_ours(proc / str(pid), service):
            found.append(Running(pid, descriptor))
        else:
            os.close(descriptor)
    return found


def _is_ours(entry: Path, service: str) -> bool:
    try:
        name = (entry / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
        if name != _process_name(service) or entry.stat().st_uid != os.geteuid():
            return False
        # one that has ended and is not yet waited for has a name, but no command line
        return bool((entry / "cmdline").read_bytes())
    except OSError:  # it ended just now, or is not ours to look at
        return False


def _process_name(service: str) -> str:
    return f"{PREFIX}{service}"[:_NAME_BYTES_MAX]
