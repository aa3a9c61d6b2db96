"""The processes of the checks: several at once, each with its log, and none of them outlives us.

Each process leads a group of its own. Ctrl-C reaches this process alone, which then tells every
group once: a pytest that were told twice, by the terminal and by us, would break off its tidying.

State: soft, which processes run now.
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
"""Fixtures stop their servers after a Ctrl-C, on a busy machine; what takes longer is killed."""

UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""Left out of their environment: hundreds of processes start in a run, and each would compile all
of our sources once more, which is a quarter of what the start of a broker costs."""


class CheckProcesses:
    """A context manager; whatever is running when it is left by an exception is ended.

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
        """Run it to its end, with this in addition to our environment; its exit code.

        Unavailable if all was ended before it began.
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
        """Tell all of them as Ctrl-C does and wait; what stays, or a second Ctrl-C, kills."""
        try:
            with self._changed:
                self._over = True
                self._tell(signal.SIGINT)
                self._changed.wait_for(lambda: not self._running, END_S_MAX)
        finally:
            with self._changed:
                self._tell(signal.SIGKILL)

    def _tell(self, number: signal.Signals) -> None:
        """To each group; one that has just ended needs no telling."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
