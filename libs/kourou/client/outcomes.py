"""What a handler may say of its messages, and what each of these words means.

A message is consumed when its handler returns, whatever else than the values below it returns: a
Python function that says nothing returns None, and what a lambda happens to return is no verdict.
It is not consumed when the handler
    raises                                   any exception; `RetryLater` and `DeadLetter` say more
    returns ConsumeResult.RECONSUME_LATER    of a list: none of its messages is consumed
    returns ConsumedFirst(n)                 of a list: only its first n messages are
    has called message.retry() or message.dead_letter(); of several words the first counts
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kourou.errors import BadRequest
from kourou.model.limits import DELAY_LEVELS_MAX


class ConsumeResult(StrEnum):
    """What a handler may return (RocketMQ `ConsumeConcurrentlyStatus`)."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(frozen=True, slots=True)
class ConsumedFirst:
    """A batch handler consumed the first `count` messages of its list; the others come again.

    RocketMQ's ackIndex is `count - 1`.
    """

    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 0:
            raise BadRequest(f"ConsumedFirst is {self.count!r}; it must be a number of messages")


class ConsumeRefused(Exception):
    """A message is not consumed, and the application says what is to become of it.

    `delay_level` is the level of its pause: 0 lets the broker choose by the number of attempts, a
    negative one makes it a dead letter. `reason` is a text for people, or empty.
    """

    def __init__(self, delay_level: int, reason: str) -> None:
        super().__init__(reason)
        self.delay_level = delay_level
        self.reason = reason


class RetryLater(ConsumeRefused):
    """Raised by a handler: hand this message over again, after the pause of `delay_level`."""

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
    """Raised by a handler: this message will never succeed, keep it aside in %DLQ%group."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(-1, reason or "the handler moved it to the dead-letter queue")


class PartlyConsumed(ConsumeRefused):
    """Of a list only the first `count` were consumed; what `ConsumedFirst` means to a runner."""

    def __init__(self, count: int) -> None:
        super().__init__(0, f"only the first {count} messages were consumed")
        self.count = count


class Shown:
    """An application's exception as it stands in a log, made only if it is written.

    A `__repr__` that raises must not cost a message its way back.
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
    """What a handler's result that is not None means as a failure; None: it was consumed."""
    if result is ConsumeResult.RECONSUME_LATER:
        return RetryLater("the handler returned RECONSUME_LATER")
    if isinstance(result, ConsumedFirst):
        return PartlyConsumed(result.count)
    return None


def delay_level_of(error: BaseException) -> int:
    """The level that a failure asks for."""
    return error.delay_level if isinstance(error, ConsumeRefused) else 0


def reason_of(error: BaseException, length_max: int) -> str:
    """A failure as one line for people, of so many characters at most."""
    try:
        text = (
            str(error.reason)  # an application may have given the exception itself
            if isinstance(error, ConsumeRefused)
            else f"{type(error).__name__}: {error}"
        )
    except Exception:  # noqa: BLE001 - an application's __str__ may raise anything
        text = type(error).__name__
    # A property ends at the bytes 1 and 2; a line of text has no control characters at all.
    return "".join(one if one.isprintable() else " " for one in text)[:length_max]
