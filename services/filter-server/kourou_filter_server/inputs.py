"""What can happen to a filter server: the inputs of its core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kourou.errors import KourouError
from kourou.runtime.inputs import Disconnected, Received, Tick

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class BrokerAnswered:
    """The broker has answered a question, or could not be asked: then `error` says why."""

    token: int
    code: int = 0
    remark: str = ""
    header: msgspec.Struct | None = None
    body: Sequence[Buffer] = ()
    error: KourouError | None = None


@dataclass(frozen=True, slots=True)
class BrokerFound:
    """A connection to the broker stands. What was known of its filters may be old."""


@dataclass(frozen=True, slots=True)
class FiltersChanged:
    """The broker says that a filter was changed; `version` is that of all its filters."""

    version: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker has set its filter up and waits for messages; `start_micros` is what that took."""

    worker: int
    start_micros: int = 0


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker is no more, or did not come to be.

    `kind` is one of kourou.model.filter.FilterFailure, or LOST: it went without its filter's fault.
    """

    worker: int
    kind: str
    reason: str


LOST = "lost"
"""The zygote ended and took its workers along, or could not be asked for one."""


@dataclass(slots=True)
class Judged:
    """A worker has judged a batch.

    `verdicts` has a byte a message: 0 no, 1 yes, 2 not judged. With `kind` ("" for none, else a
    FilterFailure) the first message with a 2 is the one that it failed at; those behind it were not
    looked at. `micros` is the time used inside the filter.
    """

    worker: int
    batch: int
    verdicts: bytes
    kind: str = ""
    reason: str = ""
    micros: int = 0


@dataclass(frozen=True, slots=True)
class Leaving:
    """The service is told to end: tell the broker, and take nothing new."""


Input = (
    Received
    | Disconnected
    | Tick
    | BrokerAnswered
    | BrokerFound
    | FiltersChanged
    | WorkerReady
    | WorkerEnded
    | Judged
    | Leaving
)
