"""The interface of a filter server's core: its inputs, and its effects, executed in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kourou.errors import KourouError
from kourou.protocol.request import Request
from kourou.runtime import Disconnected, LogWarning, Received, Reply, ReplyTo, Tick

Buffer = bytes | bytearray | memoryview

# -- inputs ---------------------------------------------------------------------------------------


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
    """The broker notifies of a changed filter; `version` is the version of all its filters.

    With `rights_changed`, what the broker allowed clients does not count any more.
    """

    version: int
    rights_changed: bool = False


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
class BatchEvaluated:
    """A worker has filtered a batch.

    `results` has one byte for each message: 0 rejected, 1 passed, 2 not evaluated. If `kind` is
    not "" (it is a FilterFailure), the filter failed at the first message with a 2; the messages
    after it were not evaluated. `micros` is the time used inside the filter.
    """

    worker: int
    batch: int
    results: bytes
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
    | BatchEvaluated
    | Leaving
)


# -- effects --------------------------------------------------------------------------------------


@dataclass(slots=True)
class AskBroker:
    """Send a request to the broker; BrokerAnswered with this token follows in every case.

    `to` is the client request that caused it: the broker request belongs to its trace.
    """

    token: int
    request: Request
    body: Sequence[Buffer]
    timeout_ms: int
    to: ReplyTo | None = None


@dataclass(slots=True)
class SendToBroker:
    """Send the broker a one-way request; it is lost if there is no connection."""

    request: Request


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker in the sandbox; WorkerReady or WorkerEnded follows."""

    worker: int
    group: str
    name: str
    version: int
    source: bytes


@dataclass(slots=True)
class EvaluateBatch:
    """Let a ready worker filter `count` records; BatchEvaluated or WorkerEnded follows.

    `records` are runs of whole records, as stored. A worker has one batch at a time. `wall_ms` is
    the current time that the filter sees.
    """

    worker: int
    batch: int
    topic: str
    wall_ms: int
    count: int
    records: Sequence[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class EndWorker:
    """Kill a worker immediately, whatever it is doing. No input follows."""

    worker: int


@dataclass(frozen=True, slots=True)
class Filtered:
    """The statistics of a filter for a traced pull; precedes its reply."""

    to: ReplyTo
    name: str
    version: int
    seen: int
    passed: int
    micros: int


Effect = (
    AskBroker
    | SendToBroker
    | StartWorker
    | EvaluateBatch
    | EndWorker
    | Filtered
    | Reply
    | LogWarning
)
