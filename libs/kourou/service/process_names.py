"""Finds the services that run on this machine by their process names, and stops them.

On Linux a service names its process `kourou-broker` (and so on), which `ps`, `top` and `pgrep` show
as well. There are no pid files, which could be stale, lost, or left from an earlier boot. A process
is referenced by a descriptor (pidfd) from before its name is read until it has ended, so that
another process that reuses its pid is never signalled.
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
    """Name this process `kourou-SERVICE`. Does nothing if the system has no such names."""
    if not sys.platform.startswith("linux"):
        return
    name = _process_name(service).encode("ascii")
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)


class Running:
    """A service's process, held by a pidfd so that its pid cannot refer to another process."""

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


def find_running(service: str, proc: Path = PROC) -> list[Running]:
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
            found.append(Running(pid, descriptor))
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
