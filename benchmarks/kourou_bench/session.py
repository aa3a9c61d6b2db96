"""A driver process, prepared once and then used for repeated measurements.

State: soft.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kourou.errors import TimedOut, Unavailable
from kourou.service.processes import Child, Children
from kourou_bench.driving import COMMAND, READY_LINE, Outcome, read_outcome
from kourou_bench.systems import complaint

LIMIT_S = 3_600.0
"""Time limit of one command, and of storing the first backlog."""

POLL_S = 0.02


class Driver:
    """A driver process. Other lines of its output, such as a JVM's, are ignored."""

    def __init__(self, children: Children, name: str, command: Sequence[str]) -> None:
        self._child: Child = children.start(name, command, says_ready=False, listens=True)
        self._read = self._child.log_begins

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._child.pid

    def wait_until_ready(self) -> None:
        """Wait until the driver is prepared; raises TimedOut, or Unavailable if it failed."""
        while self._line() != READY_LINE:
            continue

    def begin(self, seconds: float) -> None:
        """Start one measurement without waiting for it."""
        try:
            self._child.write_line(f"{COMMAND} {seconds}")
        except BrokenPipeError:
            raise self._ended(self._child.wait_for_exit(LIMIT_S)) from None

    def end(self, limit_s: float = LIMIT_S) -> Outcome:
        """Wait until the measurement is done, and check its counts.

        Raises TimedOut, or Unavailable if the driver failed or if a message is missing or
        duplicated.
        """
        while not (line := self._line(limit_s)).startswith("{"):
            continue
        outcome = read_outcome(line)
        outcome.check()
        return outcome

    def measure(self, seconds: float = 0.0, limit_s: float = LIMIT_S) -> Outcome:
        """Start one measurement and wait until it is done."""
        self.begin(seconds)
        return self.end(limit_s)

    def _line(self, limit_s: float = LIMIT_S) -> str:
        """The next complete line of the driver's output."""
        until = time.monotonic() + limit_s
        while True:
            code = self._child.wait_for_exit(POLL_S)
            with self._child.log_path.open("rb") as log:
                log.seek(self._read)
                line = log.readline()
            if line.endswith(b"\n"):
                self._read += len(line)
                return line.decode(errors="replace").strip()
            if code is not None:
                raise self._ended(code)
            if time.monotonic() > until:
                self._child.kill()
                raise TimedOut(f"{self._child.name} was not done after {limit_s:g} s")

    def _ended(self, code: int | None) -> Unavailable:
        return Unavailable(f"{self._child.name} ended with {code}: {complaint(self._child)}")


def ready_driver(children: Children, name: str, command: Sequence[str]) -> Driver:
    """Start a driver and wait until it is prepared."""
    driver = Driver(children, name, command)
    driver.wait_until_ready()
    return driver
