"""Headers of transactions, and of batch transactions, which are Kourou's own.

A batch is many half messages, resolved together. Half messages of a batch are sent like all others
and have a mark (kourou.model.transaction). The bodies of batch requests are JSON
(kourou.protocol.bodies.broker_bodies).
"""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Int64, Request, Response


class EndTransaction(Request, kw_only=True, frozen=True):
    """END_TRANSACTION (37, usually oneway): resolve a half message.

    `tran_state_table_offset` is the half message's queue offset, `commit_log_offset` its position;
    `commit_or_rollback` is 0 unknown, 8 commit or 12 roll back.
    """

    code: ClassVar[int] = 37
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    bname: str | None = None


class CheckTransactionState(Request, kw_only=True, frozen=True):
    """CHECK_TRANSACTION_STATE (39, broker to client, oneway): check a half message's state."""

    code: ClassVar[int] = 39
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


class ResumeCheckHalfMessage(Request, kw_only=True, frozen=True):
    """RESUME_CHECK_HALF_MESSAGE (323): check a half message again after its checks ended."""

    code: ClassVar[int] = 323
    msg_id: str
    topic: str | None = None


# -- batch transactions ---------------------------------------------------------------------------


class GetBatchState(Request, kw_only=True, frozen=True):
    """GET_BATCH_STATE (30030): get the state of a query's batches at a broker."""

    code: ClassVar[int] = 30030
    query: str


class BatchStateResponse(Response, kw_only=True, frozen=True):
    """See kourou.model.transaction.BatchQuery; `coordinator` is empty if the query is unknown.

    While `decided` is above `resolved`, the body has the winners of `decided`.
    """

    broker_name: str
    coordinator: str = ""
    prepared: Int64 = -1
    decided: Int64 = -1
    resolved: Int64 = -1


class PrepareBatch(Request, kw_only=True, frozen=True):
    """PREPARE_BATCH (30031): record the messages of a batch that this broker holds.

    The broker then waits for the decision. The body has the winning attempt of each partition and
    the number of its messages on this broker.
    """

    code: ClassVar[int] = 30031
    query: str
    batch: Int64
    coordinator: str


class DecideBatch(Request, kw_only=True, frozen=True):
    """DECIDE_BATCH (30032): commit a batch, at the coordinator; the body has winners and counts.

    The reply is a BatchStateResponse with the winners that were decided first.
    """

    code: ClassVar[int] = 30032
    query: str
    batch: Int64


class ResolveBatch(Request, kw_only=True, frozen=True):
    """RESOLVE_BATCH (30033): store the messages of the winners in the body, discard all others.

    This covers all messages of the query up to this batch. A request does part of the work: send it
    again until nothing is left. `last`: the query ends with this batch.
    """

    code: ClassVar[int] = 30033
    query: str
    batch: Int64
    last: bool = False


class AbortBatch(Request, kw_only=True, frozen=True):
    """ABORT_BATCH (30034): discard the messages of attempts whose names begin with `attempts`.

    Prepared messages stay until their batch is decided.
    """

    code: ClassVar[int] = 30034
    query: str
    attempts: str


class BatchStepResponse(Response, kw_only=True, frozen=True):
    """The messages resolved by this request, and the half messages that are left."""

    committed: Int64
    discarded: Int64
    left: Int64
