"""Headers of transactions."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Int64, Request


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
