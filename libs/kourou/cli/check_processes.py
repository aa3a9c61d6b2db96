"""Runs the processes of the checks, several at once, and ends all of them with this process.

Each process leads its own process group. Ctrl-C therefore reaches only this process, which then
signals every group once. A pytest that received the signal twice, from the terminal and from here,
would abort its cleanup.

State: soft, the running processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from kourou.errors import Unavailable

END_S_MAX = 20.0
"""After Ctrl-C, fixtures stop their servers; processes that take longer than this are killed."""

UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""This variable is removed from their environment: a run starts hundreds of processes, and each
would compile all sources again, a quarter of the time that the start of a broker takes.
"""


class CheckProcesses:
    """A context manager; an exception in its block ends all running processes.

    `run` may be called from any thread.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._over = False

    def __enter__(self) -> CheckProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.end()

    def run(
        self, command: Sequence[str], log: IO[bytes], environment: Mapping[str, str] | None = None
    ) -> int:
        """Run a command with additional environment variables, and return its exit code.

        Raises Unavailable if `end` was called before.
        """
        ours = {name: text for name, text in os.environ.items() if name != UNCOMPILED}
        with self._changed:
            if self._over:
                raise Unavailable("the checks were interrupted")
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**ours, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._changed:
                self._running.discard(process)
                self._changed.notify_all()

    def end(self) -> None:
        """Send SIGINT to all and wait; after END_S_MAX, or a second Ctrl-C, send SIGKILL."""
        try:
            with self._changed:
                self._over = True
                self._tell(signal.SIGINT)
                self._changed.wait_for(lambda: not self._running, END_S_MAX)
        finally:
            with self._changed:
                self._tell(signal.SIGKILL)

    def _tell(self, number: signal.Signals) -> None:
        """Signal each process group; ignores groups that have just ended."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
