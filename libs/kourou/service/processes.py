"""Child processes that never outlive their parent, and free ports that are reserved for them.

A child that supports `--ready-file` writes one JSON object to that file, in one rename, when it
serves. Its output goes to a log file, whose last lines explain why a child did not become ready. On
Linux the kernel kills a child when its parent dies, however the parent dies.

Reserved ports are never from the ephemeral range, which Linux uses for outgoing connections and for
listeners on port 0: one of those could occupy a port before its service does, or while the service
restarts. A socket that is bound but does not listen reserves its port: no other process can bind it
without SO_REUSEADDR. Every service sets that option, so it can bind the port, and again after a
restart.

State: soft; ports stay reserved while this process lives.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kourou.clock import Clock, SystemClock
from kourou.errors import ConfigError, TimedOut, Unavailable

READY_TIMEOUT_MS = 60_000
STOP_GRACE_MS = 30_000
"""Maximum time for a service to drain after SIGTERM."""

POLL_S = 0.01
EXIT_BAD_USAGE = 2
LOG_LINES_SHOWN = 10
_PR_SET_PDEATHSIG = 1
_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """A child process; its owner must stop or wait for it."""

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
        """Start `command` in `folder`; with `says_ready` the argument `--ready-file` is added.

        With `listens` its standard input is a pipe, for `write_line`; otherwise it is empty. Call
        it on a thread that lives as long as the child may: the kernel treats the end of that thread
        as the end of the parent.
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
            self.log_begins = log.tell()  # after the output of an earlier child of that name
            self._process = subprocess.Popen(
                [*command, *extra],
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # a session of its own: Ctrl-C goes to the parent, which stops its children in order
                start_new_session=True,
                preexec_fn=_before_exec(os.getpid()),
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Is it still running?"""
        return self._exit_code() is None

    def wait_for_ready(self, timeout_ms: int = READY_TIMEOUT_MS) -> dict[str, Any]:
        """Wait for the ready file and return its content.

        Raises ConfigError if the child refused its settings (exit code 2), Unavailable if it ended
        otherwise, TimedOut if it neither ended nor became ready. In each case it has ended.
        """
        while not self.check_ready(timeout_ms):
            self.wait_for_exit(POLL_S)
        return self.ready

    def check_ready(self, timeout_ms: int = READY_TIMEOUT_MS) -> bool:
        """Is it ready by now? Raises the same errors as `wait_for_ready`; does not wait."""
        if self.ready:
            return True
        passed = self._clock.monotonic_ms() - self.started_ms
        if self.ready_file.exists():
            self.ready = json.loads(self.ready_file.read_text(encoding="utf-8"))
            self.ready_after_ms = passed
            return True
        code = self._exit_code()
        if code is not None:
            raise self._ended(code)
        if passed > timeout_ms:
            self.kill()
            raise TimedOut(f"{self.name} was not ready after {timeout_ms} ms", hint=self._last())
        return False

    def wait_for_exit(self, timeout_s: float) -> int | None:
        """Return its exit code (negative: the signal that ended it), or None at the timeout."""
        if (code := self._exit_code()) is not None:
            return code
        with contextlib.suppress(ProcessLookupError):  # another thread has reaped it
            ended = os.pidfd_open(self.pid)
            try:
                waiting = select.poll()
                waiting.register(ended, select.POLLIN)
                waiting.poll(None if timeout_s == math.inf else math.ceil(timeout_s * 1_000))
            finally:
                os.close(ended)
        return self._exit_code()

    def write_line(self, line: str) -> None:
        """Write a line to its standard input. Raises BrokenPipeError if it has ended."""
        assert self._process.stdin is not None, "it was not started to listen"
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):  # another thread has reaped it
                os.kill(self.pid, number)

    def stop(self, grace_ms: int = STOP_GRACE_MS) -> int:
        """Send SIGTERM, and SIGKILL after the grace period; returns the exit code."""
        self.signal(signal.SIGTERM)
        self._close_input()
        code = self.wait_for_exit(grace_ms / 1000)
        if code is None:
            return self.kill()
        self.ready_file.unlink(missing_ok=True)
        return code

    def kill(self) -> int:
        """Send SIGKILL; returns the exit code when the process has ended."""
        self.signal(signal.SIGKILL)
        self._close_input()
        code = self.wait_for_exit(math.inf)
        assert code is not None
        self.ready_file.unlink(missing_ok=True)  # it refers to a process that has ended
        return code

    def _exit_code(self) -> int | None:
        """Return its exit code if it has ended.

        Not by `Popen.poll` and `Popen.wait`: an exception that a signal handler raises between
        their taking a lock and their `try` leaves it locked, and then `wait` never returns. Here
        the code is stored before the process is reaped, so that no interruption loses it.
        """
        process = self._process
        if process.returncode is None:
            try:
                ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is not None:
                    exited = ended.si_code == os.CLD_EXITED
                    process.returncode = ended.si_status if exited else -ended.si_status
                    os.waitpid(process.pid, os.WNOHANG)
            except ChildProcessError:  # another thread was faster, or SIGCHLD is ignored
                if process.returncode is None:
                    process.returncode = 0  # as Popen does
        return process.returncode

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    @property
    def ended_in_peace(self) -> bool:
        """Has it ended with exit code 0, that is, because it was asked to stop?"""
        return self._exit_code() == 0

    def how_it_ended(self) -> str:
        """Describe how it ended: the signal that killed it, or its exit code, or "still runs"."""
        code = self._exit_code()
        if code is None:
            return "still runs"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended by itself with exit code {code}"

    def log_tail(self, lines: int = LOG_LINES_SHOWN) -> str:
        """Return the last lines of its output."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _last(self) -> str:
        return re.sub(r"^kourou[ \w-]*: ", "", self.log_tail(1))

    def _ended(self, code: int) -> ConfigError | Unavailable:
        if code == EXIT_BAD_USAGE:
            return ConfigError(f"{self.name} does not start: {self._last()}")
        return Unavailable(f"{self.name} ended with {code}: {self.log_tail()}")


class Children:
    """A set of children; leaving the `with` block stops them in reverse order of start."""

    __slots__ = ("_children", "folder")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        """Start a child."""
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
        """Start `python -m module arguments…` with the current Python interpreter."""
        return self.start(name, [sys.executable, "-m", module, *arguments])

    def start_again(self, child: Child) -> Child:
        """Restart a child that has ended; it keeps its place in the stop order."""
        with _uninterrupted():
            again = Child(child.name, child.command, self.folder)
            self._children[self._children.index(child)] = again
        return again

    def kill_all(self) -> None:
        """Send SIGKILL to all children that still run."""
        while self._children:
            self._children.pop().kill()

    def stop_all(self, grace_ms: int = STOP_GRACE_MS) -> dict[str, int]:
        """Stop all children in reverse order of start; returns exit codes by name."""
        codes: dict[str, int] = {}
        while self._children:
            child = self._children[-1]
            codes[child.name] = child.stop(grace_ms)
            self._children.pop()  # last, so that an interrupted stop continues with it
        return codes


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP, so that every started child is also registered."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _before_exec(parent: int) -> Callable[[], None]:
    """Return what a child does between fork and exec.

    It unblocks the signals that its parent delays, and asks the kernel for SIGKILL at the parent's
    end.
    """
    prctl: Any = None
    if sys.platform.startswith("linux"):
        prctl = ctypes.CDLL(None, use_errno=True).prctl  # not after the fork

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTIONS)
        if prctl is None:
            return
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the prctl call
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


# -- ports -----------------------------------------------------------------------------------------


LOOPBACK = "127.0.0.1"
KEPT_PORTS = range(12_000, 17_000)
"""Reserved by `KeptPorts`."""

UNKEPT_PORTS = range(17_010, 22_000)
"""Returned by `free_port`, below the ephemeral range even after a broker adds 10,011 to its port.

No reserved port is among them, nor at a distance that a broker derives: a broker whose chosen port
is two above its reserved administration port would occupy that one with its VIP channel.
"""


def free_port(*shifts: int) -> int:
    """Return a currently free port whose ports at distance `shifts` are free as well.

    It is not reserved; use `KeptPorts` for that.
    """
    while True:
        port = random.choice(UNKEPT_PORTS)
        if all(_is_free(port + shift) for shift in (0, *shifts)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))  # on every interface, as RocketMQ's servers do
        except OSError:
            return False
    return True


class KeptPorts:
    """Ports by name: a name keeps its port until `release`."""

    def __init__(self) -> None:
        self._kept: dict[str, socket.socket] = {}

    def __getitem__(self, name: str) -> int:
        """Return the port of that name; the first access reserves a free one."""
        if name not in self._kept:
            self._kept[name] = _kept_socket()
        return int(self._kept[name].getsockname()[1])

    def release(self) -> None:
        """Release all ports."""
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()


def _kept_socket() -> socket.socket:
    """Return a socket that is bound to a free port.

    SO_REUSEADDR is set after binding, so that no two sockets share a port.
    """
    while True:
        kept = socket.socket()
        try:
            kept.bind((LOOPBACK, random.choice(KEPT_PORTS)))
        except OSError:
            kept.close()
            continue
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return kept
