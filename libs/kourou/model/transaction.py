"""What may become of a transaction."""

from __future__ import annotations

from enum import StrEnum

from kourou.errors import BadRequest


class TransactionState(StrEnum):
    """What a producer says of its half message (RocketMQ `LocalTransactionState`)."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"  # RocketMQ's spelling


def state_of(answer: object) -> TransactionState:
    """The state that a function answered: one of them, or True, False or None for them.

    Raises BadRequest for anything else: what was meant decides about a message.
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
