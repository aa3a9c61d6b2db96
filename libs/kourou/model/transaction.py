"""States of transactions, and batch transactions.

A batch transaction is many half messages of many tasks, resolved together. A batch is identified by
(query, batch); batch numbers increase within a query. Tasks write the partitions of a batch, some
of them more than once. Each time is an attempt, and one attempt of each partition wins.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Self

import msgspec

from kourou.errors import BadRequest
from kourou.model.limits import (
    BATCH_ATTEMPT_LENGTH_MAX,
    BATCH_NUMBER_MAX,
    BATCH_PARTITION_MAX,
    BATCH_QUERY_LENGTH_MAX,
    DELAY_LEVELS_MAX,
)
from kourou.model.message import DELAY_LEVELS_MS


class TransactionState(StrEnum):
    """A producer's state of its half message (RocketMQ `LocalTransactionState`)."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"  # RocketMQ's spelling


def ended_by(body: bytes) -> list[int]:
    """Return the half offsets that an op record ends; RocketMQ 5 writes several, with commas."""
    return [int(text) for text in body.split(b",") if text.isdigit() and len(text) < 20]


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


# -- batch transactions ---------------------------------------------------------------------------


NONE = -1
"""Stands for "no batch" in place of a batch number."""

_WORD = re.compile(r"[A-Za-z0-9._-]+")
_NUMBER = re.compile(r"[0-9]{1,19}")


class BatchMark(NamedTuple):
    """The property that marks a half message of a batch. `delay_level` 0: no delay."""

    query: str
    batch: int
    partition: int
    attempt: str
    delay_level: int = 0

    @property
    def text(self) -> str:
        """The value of its property: five words, separated by spaces."""
        return " ".join(map(str, self))

    @classmethod
    @lru_cache(maxsize=256)  # all rows of an attempt have the same
    def of_text(cls, text: str) -> Self:
        """The mark in the value of a property. Raises BadRequest."""
        words = text.split(" ")
        if len(words) != 5:
            raise BadRequest(
                "the mark of a batch has five words: query, batch, partition, attempt, delay level"
            )
        query, attempt = check_query(words[0]), check_attempt(words[3])
        numbers = [
            _number(word, high)
            for word, high in (
                (words[1], BATCH_NUMBER_MAX),
                (words[2], BATCH_PARTITION_MAX),
                (words[4], DELAY_LEVELS_MAX),
            )
        ]
        return cls(query, numbers[0], numbers[1], attempt, numbers[2])


class BatchQuery(msgspec.Struct):
    """A broker's state of a query; NONE where there is no such batch.

    `coordinator` names the broker whose decisions count. `prepared` is the last batch that waits
    here for a decision, `decided` the last one that was decided here, `resolved` the last one that
    is completed here: its winners are stored and all others discarded. `winners` (partition ->
    attempt) and `counts` (broker -> messages) belong to `decided`, until it is resolved. `at_ms`:
    the last change, wall time. `user` prepared its first batch; "" if no user is known to.
    """

    coordinator: str
    prepared: int = NONE
    decided: int = NONE
    resolved: int = NONE
    winners: dict[int, str] = {}
    counts: dict[str, int] = {}
    at_ms: int = 0
    user: str = ""

    @property
    def is_pending(self) -> bool:
        """True if a batch here still waits for its decision, or to be resolved."""
        return max(self.prepared, self.decided) > self.resolved


def check_query(query: str) -> str:
    """Return the ID of a query if it is valid. Raises BadRequest."""
    if len(query) > BATCH_QUERY_LENGTH_MAX or _WORD.fullmatch(query) is None:
        raise BadRequest(
            f"the query id {query[:40]!r} is not 1 to {BATCH_QUERY_LENGTH_MAX} letters, digits, "
            "dots, dashes or underscores"
        )
    return query


def check_attempt(attempt: str) -> str:
    """Return the name of an attempt if it is valid. Raises BadRequest."""
    if len(attempt) > BATCH_ATTEMPT_LENGTH_MAX or _WORD.fullmatch(attempt) is None:
        raise BadRequest(
            f"the attempt {attempt[:40]!r} is not 1 to {BATCH_ATTEMPT_LENGTH_MAX} letters, digits, "
            "dots, dashes or underscores"
        )
    return attempt


def _number(word: str, high: int) -> int:
    number = int(word) if _NUMBER.fullmatch(word) else high + 1
    if number > high:
        raise BadRequest(f"{word[:40]!r} in the mark of a batch is not a number up to {high}")
    return number


assert len(DELAY_LEVELS_MS) <= DELAY_LEVELS_MAX
