"""Possible outcomes of a handler, and what each of them means.

A message is consumed when its handler returns, whatever it returns, except for the values below: a
Python function without a return statement returns None, and the value of a lambda may be
accidental. The message is not consumed if the handler

    raises                                   any exception; `RetryLater` and `DeadLetter` say more
    returns ConsumeResult.RECONSUME_LATER    of a list: none of its messages is consumed
    returns ConsumedFirst(n)                 of a list: only its first n messages are consumed
    has called message.retry() or message.dead_letter(); the first call for a message counts

A handler that receives the messages of a queue in order has these outcomes:

    returns anything else, or None     consumed
    returns COMMIT                     consumed, with all uncommitted messages before it
    raises, returns ROLLBACK,          failed: the queue is blocked for a pause, then the same
    SUSPEND…, RECONSUME_LATER          message is redelivered; with auto_commit=False, ROLLBACK
                                       returns to the last commit
    raises or returns Suspend(ms)      the same, with the given pause
    returns ConsumedFirst(n)           of a list: its first n messages are consumed
    raises DeadLetter(reason)          sent to the dead-letter queue; the queue continues
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kourou.errors import BadRequest
from kourou.model.limits import DELAY_LEVELS_MAX

SHORTEST_SUSPEND_MS = 10
LONGEST_SUSPEND_MS = 30_000


class ConsumeResult(StrEnum):
    """The result that a handler may return (RocketMQ `ConsumeConcurrentlyStatus`)."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(frozen=True, slots=True)
class ConsumedFirst:
    """Returned by a batch handler: the first `count` messages of its list are consumed.

    The other messages are redelivered. RocketMQ's ackIndex is `count - 1`.
    """

    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 0:
            raise BadRequest(f"ConsumedFirst is {self.count!r}; it must be a number of messages")


class ConsumeRefused(Exception):
    """A message is not consumed, and the application decides what happens to it.

    `delay_level` is the level of the delay: with 0 the broker derives it from the number of
    attempts, a negative level makes the message a dead letter. `reason` is a text for operators, or
    empty.
    """

    def __init__(self, delay_level: int, reason: str) -> None:
        super().__init__(reason)
        self.delay_level = delay_level
        self.reason = reason


class RetryLater(ConsumeRefused):
    """Raised by a handler: redeliver this message after the delay of `delay_level`."""

    def __init__(self, reason: str = "", *, delay_level: int = 0) -> None:
        if not isinstance(delay_level, int) or delay_level < 0:
            raise BadRequest(
                f"the delay level is {delay_level!r}; it must be at least 0",
                hint="to stop the retries, raise DeadLetter",
            )
        super().__init__(
            min(delay_level, DELAY_LEVELS_MAX), reason or "the handler requested a retry"
        )


class DeadLetter(ConsumeRefused):
    """Raised by a handler: move this message to the dead-letter queue, without retries.

    The queue's topic is %DLQ%group.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(-1, reason or "the handler moved it to the dead-letter queue")


class PartlyConsumed(ConsumeRefused):
    """Only the first `count` of a list were consumed; the runner's form of `ConsumedFirst`."""

    def __init__(self, count: int) -> None:
        super().__init__(0, f"only the first {count} messages were consumed")
        self.count = count


class Shown:
    """An application's exception for a log record, formatted only if the record is written.

    A `__repr__` that raises does not prevent the redelivery of the message.
    """

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __str__(self) -> str:
        try:
            return repr(self._error)
        except Exception:  # noqa: BLE001 - an application's __repr__ may raise anything
            return type(self._error).__name__


def failure_in(result: object) -> ConsumeRefused | None:
    """Return the failure that a handler's result (not None) means; None if consumed."""
    if result is ConsumeResult.RECONSUME_LATER:
        return RetryLater("the handler returned RECONSUME_LATER")
    if isinstance(result, ConsumedFirst):
        return PartlyConsumed(result.count)
    return None


def delay_level_of(error: BaseException) -> int:
    """Return the delay level that a failure requests."""
    return error.delay_level if isinstance(error, ConsumeRefused) else 0


def reason_of(error: BaseException, length_max: int) -> str:
    """Return a failure as one line of text, with at most `length_max` characters."""
    try:
        text = (
            str(error.reason)  # an application may have given the exception itself
            if isinstance(error, ConsumeRefused)
            else f"{type(error).__name__}: {error}"
        )
    except Exception:  # noqa: BLE001 - an application's __str__ may raise anything
        text = type(error).__name__
    # A property ends at the bytes 1 and 2; a line of text contains no control characters.
    return "".join(one if one.isprintable() else " " for one in text)[:length_max]


# -- ordered consumption ------------------------------------------------------------------------


class ConsumeOrderlyStatus(StrEnum):
    """The status that an orderly handler may return (RocketMQ `ConsumeOrderlyStatus`)."""

    SUCCESS = "SUCCESS"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class Suspend(ConsumeRefused):
    """Raised or returned by an orderly handler: block the queue, then redeliver the same message.

    `pause_ms` is limited to 10 to 30,000 ms, as in RocketMQ; None is the consumer's setting
    `redelivery_delay_ms` (suspendCurrentQueueTimeMillis).
    """

    def __init__(self, pause_ms: int | None = None, reason: str = "") -> None:
        if pause_ms is not None:
            if isinstance(pause_ms, bool) or not isinstance(pause_ms, int):
                raise BadRequest(f"pause_ms is {pause_ms!r}; it must be a number of milliseconds")
            pause_ms = min(max(pause_ms, SHORTEST_SUSPEND_MS), LONGEST_SUSPEND_MS)
        super().__init__(0, reason or "the handler requested a pause")
        self.pause_ms = pause_ms


class RolledBack(ConsumeRefused):
    """The consumer's representation of ROLLBACK."""

    def __init__(self) -> None:
        super().__init__(0, "the handler returned ROLLBACK")


def ordered_failure_in(result: object) -> ConsumeRefused | None:
    """Return the failure that a handler's result (not None) means; None if consumed."""
    if isinstance(result, ConsumeOrderlyStatus):
        if result is ConsumeOrderlyStatus.ROLLBACK:
            return RolledBack()
        if result is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            return Suspend(None, f"the handler returned {result}")
        return None
    return result if isinstance(result, Suspend) else failure_in(result)
