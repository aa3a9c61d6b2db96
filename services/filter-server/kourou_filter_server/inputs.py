"""The inputs of a filter server's core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kourou.errors import KourouError
from kourou.runtime.core import Disconnected, Received, Tick

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class BrokerAnswered:
    """The broker's reply to a request; `error` is set if the request failed."""

    token: int
    code: int = 0
    remark: str = ""
    header: msgspec.Struct | None = None
    body: Sequence[Buffer] = ()
    error: KourouError | None = None


@dataclass(frozen=True, slots=True)
class BrokerFound:
    """A connection to the broker was established. The known filters may be outdated."""


@dataclass(frozen=True, slots=True)
class FiltersChanged:
    """The broker notifies of a changed filter; `version` is the version of all its filters."""

    version: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker has set up its filter and waits for messages; this took `start_micros`."""

    worker: int
    start_micros: int = 0


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker has ended or could not be started.

    `kind` is a kourou.model.filter.FilterFailure, or LOST: the filter was not the cause.
    """

    worker: int
    kind: str
    reason: str


LOST = "lost"
"""The zygote ended together with its workers, or could not start a worker."""


@dataclass(slots=True)
class Judged:
    """A worker has filtered a batch.

    `verdicts` has one byte for each message: 0 rejected, 1 passed, 2 not evaluated. If `kind` is
    not "" (it is a FilterFailure), the filter failed at the first message with a 2; the messages
    after it were not evaluated. `micros` is the time used inside the filter.
    """

    worker: int
    batch: int
    verdicts: bytes
    kind: str = ""
    reason: str = ""
    micros: int = 0


@dataclass(frozen=True, slots=True)
class Leaving:
    """The service ends: unregister from the broker, and accept no new requests."""


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
