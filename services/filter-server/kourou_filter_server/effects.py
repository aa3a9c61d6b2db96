"""The effects of a filter server's core, executed in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou.protocol.request import Request
from kourou.runtime.core import LogWarning, Reply, ReplyTo
from kourou_filter_server.inputs import Buffer


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
class TellBroker:
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
class Judge:
    """Let a ready worker filter `count` records; Judged or WorkerEnded follows.

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


Effect = AskBroker | TellBroker | StartWorker | Judge | EndWorker | Filtered | Reply | LogWarning
