"""Child processes that never outlive their parent: start, wait until ready, stop, kill.

A child that can say so writes one JSON object to the file named by `--ready-file`, in one rename,
when it serves. Its output goes to a file, whose last lines explain a child that did not become
ready. On Linux the kernel ends a child whose parent died, however the parent died.

State: soft.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kourou.clock import Clock, SystemClock
from kourou.errors import ConfigError, TimedOut, Unavailable

READY_TIMEOUT_MS = 60_000
STOP_GRACE_MS = 30_000
"""A service drains for at most so long after SIGTERM."""

POLL_S = 0.01
EXIT_BAD_USAGE = 2
LOG_LINES_SHOWN = 10
_PR_SET_PDEATHSIG = 1
_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """A process we started, must wait for, and must not leave behind."""

    __slots__ = (
        *("_clock", "_process", "command", "log_begins", "log_path", "name"),
        *("ready", "ready_after_ms", "ready_file", "started_ms"),
    )

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        says_ready: bool = True,
        listens: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Start `command`, in `folder`; with `says_ready` it gets `--ready-file` as well.

        With `listens` its standard input is a pipe, for `write_line`; else it is empty.

        Call it from a thread that lives as long as the child may: the kernel takes the end of that
        thread for the end of the parent.
        """
        self.name = name
        self.command = tuple(command)
        self.ready: dict[str, Any] = {}
        self.ready_file = folder / f"{name}.ready"
        self.log_path = folder / f"{name}.log"
        self._clock = SystemClock() if clock is None else clock
        self.started_ms = self._clock.monotonic_ms()
        self.ready_after_ms = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.ready_file.unlink(missing_ok=True)
        extra = ("--ready-file", str(self.ready_file)) if says_ready else ()
        with self.log_path.open("ab") as log:
            self.log_begins = log.tell()  # behind what an earlier child of that name has written
            self._process = subprocess.Popen(
                [*command, *extra],
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # a group of its own: Ctrl-C goes to the parent, which stops its children in order
                start_new_session=True,
                preexec_fn=_before_exec(os.getpid()),
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Has it not ended yet?"""
        return self._process.poll() is None

    def wait_for_ready(self, timeout_ms: int = READY_TIMEOUT_MS) -> dict[str, Any]:
        """Wait for the ready file and return what it says.

        Raises ConfigError when the child refused its settings (exit code 2), Unavailable when it
        ended otherwise, TimedOut when it neither ended nor became ready; it is gone in each case.
        """
        while not self.check_ready(timeout_ms):
            self.wait_for_exit(POLL_S)
        return self.ready

    def check_ready(self, timeout_ms: int = READY_TIMEOUT_MS) -> bool:
        """Is it ready by now? Raises what `wait_for_ready` raises; does not wait."""
        if self.ready:
            return True
        passed = self._clock.monotonic_ms() - self.started_ms
        if self.ready_file.exists():
            self.ready = json.loads(self.ready_file.read_text(encoding="utf-8"))
            self.ready_after_ms = passed
            return True
        code = self._process.poll()
        if code is not None:
            raise self._ended(code)
        if passed > timeout_ms:
            self.kill()
            raise TimedOut(f"{self.name} was not ready after {timeout_ms} ms", hint=self._last())
        return False

    def wait_for_exit(self, timeout_s: float) -> int | None:
        """Its exit code (negative: the signal that ended it), or None if it still runs by then."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def write_line(self, line: str) -> None:
        """Give it a line of standard input; BrokenPipeError when it has ended."""
        assert self._process.stdin is not None, "it was not started to listen"
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        self._process.send_signal(number)

    def stop(self, grace_ms: int = STOP_GRACE_MS) -> int:
        """SIGTERM, and SIGKILL when the grace is over; returns the exit code."""
        self._process.send_signal(signal.SIGTERM)
        self._close_input()
        code = self.wait_for_exit(grace_ms / 1000)
        if code is None:
            return self.kill()
        self.ready_file.unlink(missing_ok=True)
        return code

    def kill(self) -> int:
        """SIGKILL, now; returns the exit code when the process is gone."""
        self._process.kill()
        self._close_input()
        code = self._process.wait()
        self.ready_file.unlink(missing_ok=True)  # it names a process that is no more
        return code

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    @property
    def ended_in_peace(self) -> bool:
        """Was it told to end, by us or by somebody else, and has it done so?"""
        return self._process.poll() == 0

    def how_it_ended(self) -> str:
        """In words: the signal that killed it, or its exit code; that it runs, if it does."""
        code = self._process.poll()
        if code is None:
            return "still runs"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended by itself with exit code {code}"

    def log_tail(self, lines: int = LOG_LINES_SHOWN) -> str:
        """The last lines of its output."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _last(self) -> str:
        return re.sub(r"^kourou[ \w-]*: ", "", self.log_tail(1))

    def _ended(self, code: int) -> ConfigError | Unavailable:
        if code == EXIT_BAD_USAGE:
            return ConfigError(f"{self.name} does not start: {self._last()}")
        return Unavailable(f"{self.name} ended with {code}: {self.log_tail()}")


class Children:
    """A set of children; leaving the `with` block stops them, the youngest first."""

    __slots__ = ("_children", "folder")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_all()

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        says_ready: bool = True,
        listens: bool = False,
    ) -> Child:
        """Start one more child."""
        with _uninterrupted():
            child = Child(
                name,
                command,
                self.folder,
                environment=environment,
                says_ready=says_ready,
                listens=listens,
            )
            self._children.append(child)
        return child

    def start_module(self, name: str, module: str, *arguments: str) -> Child:
        """Start `python -m module arguments…` with the Python that runs this."""
        return self.start(name, [sys.executable, "-m", module, *arguments])

    def start_again(self, child: Child) -> Child:
        """Start a child that has ended once more; it keeps its place in the order of the stop."""
        with _uninterrupted():
            again = Child(child.name, child.command, self.folder)
            self._children[self._children.index(child)] = again
        return again

    def kill_all(self) -> None:
        """SIGKILL to what still runs."""
        while self._children:
            self._children.pop().kill()

    def stop_all(self, grace_ms: int = STOP_GRACE_MS) -> dict[str, int]:
        """Stop what still runs, the youngest first; the exit codes by name."""
        codes: dict[str, int] = {}
        while self._children:
            child = self._children[-1]
            codes[child.name] = child.stop(grace_ms)
            self._children.pop()  # not before: an interrupted stop is continued with this one
        return codes


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP, so that no child is started and then not listed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _before_exec(parent: int) -> Callable[[], None]:
    """What a child does between fork and exec.

    It unblocks the signals that its parent delays, and asks the kernel for SIGKILL when that ends.
    """
    prctl: Any = None
    if sys.platform.startswith("linux"):
        prctl = ctypes.CDLL(None, use_errno=True).prctl  # now: after the fork nothing may load

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTIONS)
        if prctl is None:
            return
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare
