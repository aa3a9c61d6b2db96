"""What a filter server's core asks of the world, in the order in which it must be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou.protocol.request import Request
from kourou.runtime.effects import LogWarning, Reply
from kourou.runtime.inputs import ReplyTo
from kourou_filter_server.inputs import Buffer


@dataclass(slots=True)
class AskBroker:
    """Ask the broker, and come back with BrokerAnswered of this token, whatever happens.

    `to` is the request for whose sake it is asked: the question belongs to its trace.
    """

    token: int
    request: Request
    body: Sequence[Buffer]
    timeout_ms: int
    to: ReplyTo | None = None


@dataclass(slots=True)
class TellBroker:
    """Tell the broker something, to which it answers nothing; without a connection it is lost."""

    request: Request


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker in the jail; come back with WorkerReady, or with WorkerEnded."""

    worker: int
    group: str
    name: str
    version: int
    source: bytes


@dataclass(slots=True)
class Judge:
    """Let a ready worker judge `count` records; come back with Judged, or with WorkerEnded.

    `records` are runs of whole records, as stored. A worker has one batch at a time. `wall_ms` is
    what its filter is told of the time.
    """

    worker: int
    batch: int
    topic: str
    wall_ms: int
    count: int
    records: Sequence[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class EndWorker:
    """End a worker now, whatever it does. Nobody wants to hear of it."""

    worker: int


@dataclass(frozen=True, slots=True)
class Filtered:
    """What a filter did for a traced pull; goes before its answer."""

    to: ReplyTo
    name: str
    version: int
    seen: int
    passed: int
    micros: int


Effect = AskBroker | TellBroker | StartWorker | Judge | EndWorker | Filtered | Reply | LogWarning
