"""The lifecycle of a query: it runs, fails, waits, and is restarted.

    waiting -> starting -> running -> ended       (a trigger that ends by itself, or a stop)
                  |           |
                  '-----------'--> failed -> starting …

The pause doubles with each failure, from 1 s up to 60 s. It is reset when the query was seen to
work, by a finished batch or a trigger without new data: a query that makes progress is restarted
quickly, one that cannot work costs little. A successful start at Spark does not count, because
errors of a query appear in its first batch.

State: soft.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

PAUSE_MS = 1_000
PAUSE_LONGEST_MS = 60_000
ERROR_LENGTH = 2_000
"""The maximum length of an error; Spark's errors contain whole plans."""

_OF_JAVA = re.compile(
    r"at \S+\(.*\)|\.\.\. \d+ more|Caused by: [\w.$]+|(Driver stacktrace: ?)?(SQLSTATE: \w+)?"
)
"""Lines of a stack trace, which do not describe the error."""


class QueryPhase(StrEnum):
    """The phase of a query."""

    WAITING = "waiting"  # not started by the service yet
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"  # waits for its next attempt
    ENDED = "ended"
    OFF = "off"  # disabled in the job file


@dataclass(slots=True)
class QueryState:
    """The state of one query. `again_ms` is monotonic: when it will be restarted."""

    name: str
    job: str
    phase: QueryPhase = QueryPhase.WAITING
    attempts: int = 0
    failures: int = 0
    in_a_row: int = 0
    error: str = ""
    again_ms: int = 0
    seen_working: bool = False  # in this attempt

    def starting(self) -> None:
        """An attempt starts."""
        self.phase = QueryPhase.STARTING
        self.attempts += 1
        self.seen_working = False

    def running(self) -> None:
        """Spark has started it. The last error is kept until the query is seen to work."""
        self.phase = QueryPhase.RUNNING

    def progressed(self) -> None:
        """A batch is done, or there was no new data."""
        self.in_a_row = 0
        self.error = ""
        self.seen_working = True

    def failed(self, error: str, now_ms: int) -> int:
        """It has failed. Returns the pause in ms before the next attempt."""
        self.phase = QueryPhase.FAILED
        self.failures += 1
        self.error = error[:ERROR_LENGTH]
        pause = min(PAUSE_MS << min(self.in_a_row, 16), PAUSE_LONGEST_MS)
        self.in_a_row += 1
        self.again_ms = now_ms + pause
        return pause

    def ended(self) -> None:
        """It has ended without an error."""
        self.phase = QueryPhase.ENDED

    @property
    def trouble(self) -> str:
        """Why it does not work; empty if it does, or was not started yet."""
        if self.phase is QueryPhase.FAILED or (self.in_a_row and self.error):
            return f"{self.name}: {self.error or 'failed'}"
        return ""

    @property
    def unready(self) -> str:
        """Why it is not ready; empty if it was seen to work, or is not meant to run."""
        if self.phase is QueryPhase.WAITING or self.phase is QueryPhase.STARTING:
            return self.trouble or f"{self.name}: {self.phase}"
        if self.phase is QueryPhase.RUNNING and not self.seen_working:
            return self.trouble or f"{self.name}: in its first batch"
        return self.trouble


def told(error: BaseException) -> str:
    """An error in one line: the last relevant line of Spark's text, which is usually our message.

    Spark wraps a Python error in its own, and appends the plan of the query.
    """
    text = str(error).partition("\n== ")[0].partition("\nJVM stacktrace")[0]
    text = text.partition("\n=== ")[0]
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if _OF_JAVA.fullmatch(line) is None]
    named = [line for line in lines if line.startswith(("kourou.errors.", "kourou_spark_etl."))]
    line = (named or lines or [type(error).__name__])[-1]
    return line.partition(": ")[2] or line if named else line
