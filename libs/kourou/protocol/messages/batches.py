"""Headers of batch transactions, which are ours: many half messages, decided at once.

Half messages of a batch are sent like all others and carry their mark (kourou.model.batch). Their
bodies are JSON (kourou.protocol.batch_bodies).
"""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int64, Request, Response


class GetBatchState(Request, kw_only=True, frozen=True):
    """GET_BATCH_STATE (30030): what a broker remembers of a query."""

    code: ClassVar[int] = 30030
    query: str


class BatchStateResponse(Response, kw_only=True, frozen=True):
    """See kourou.model.batch.BatchQuery; `coordinator` is empty where the query is not known.

    While `decided` is above `resolved`, the body has the winners of `decided`.
    """

    broker_name: str
    coordinator: str = ""
    prepared: Int64 = -1
    decided: Int64 = -1
    resolved: Int64 = -1


class PrepareBatch(Request, kw_only=True, frozen=True):
    """PREPARE_BATCH (30031): the broker holds what the body lists, and waits for the decision.

    The body says for each partition which attempt is to win and how many messages of it lie here.
    """

    code: ClassVar[int] = 30031
    query: str
    batch: Int64
    coordinator: str


class DecideBatch(Request, kw_only=True, frozen=True):
    """DECIDE_BATCH (30032): commit a batch, at the coordinator; the body has winners and counts.

    Answered with BatchStateResponse: the winners are those that were decided first.
    """

    code: ClassVar[int] = 30032
    query: str
    batch: Int64


class ResolveBatch(Request, kw_only=True, frozen=True):
    """RESOLVE_BATCH (30033): store the winners' messages, which the body names, discard the rest.

    The rest is all else of the query up to this batch. A request does a part of it: it is sent
    again until nothing is left. `last`: the query has no other batch.
    """

    code: ClassVar[int] = 30033
    query: str
    batch: Int64
    last: bool = False


class AbortBatch(Request, kw_only=True, frozen=True):
    """ABORT_BATCH (30034): discard what the attempts whose names begin with `attempts` wrote.

    What is prepared stays: it waits for its decision.
    """

    code: ClassVar[int] = 30034
    query: str
    attempts: str


class BatchStepResponse(Response, kw_only=True, frozen=True):
    """What one request did, and how many half messages are left to resolve or discard."""

    committed: Int64
    discarded: Int64
    left: Int64
