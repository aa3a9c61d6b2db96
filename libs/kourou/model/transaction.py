"""The possible states of a transaction."""

from __future__ import annotations

from enum import StrEnum

from kourou.errors import BadRequest


class TransactionState(StrEnum):
    """A producer's state of its half message (RocketMQ `LocalTransactionState`)."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"  # RocketMQ's spelling


def state_of(answer: object) -> TransactionState:
    """The state for a function's result: one of them, or True, False or None for them.

    Raises BadRequest for anything else, because a wrong guess would decide about a message.
    """
    if isinstance(answer, TransactionState):
        return answer
    if answer is None:
        return TransactionState.UNKNOWN
    if answer is True:
        return TransactionState.COMMIT
    if answer is False:
        return TransactionState.ROLLBACK
    raise BadRequest(
        f"a transaction's outcome is {answer!r}",
        hint="return a TransactionState, or True to commit, False to roll back, None for unknown",
    )
