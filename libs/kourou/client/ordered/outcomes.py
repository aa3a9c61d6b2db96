"""Possible outcomes of a handler that receives the messages of a queue in order.

returns anything else, or None     consumed
returns COMMIT                     consumed, with all uncommitted messages before it
raises, returns ROLLBACK,          failed: the queue is blocked for a pause, then the same message
SUSPEND…, RECONSUME_LATER          is redelivered; with auto_commit=False, ROLLBACK returns to the
                                   last commit
raises or returns Suspend(ms)      the same, with the given pause
returns ConsumedFirst(n)           of a list: its first n messages are consumed
raises DeadLetter(reason)          sent to the dead-letter queue; the queue continues
"""

from __future__ import annotations

from enum import StrEnum

from kourou.client.consumer.outcomes import ConsumeRefused, failure_in
from kourou.errors import BadRequest

SHORTEST_MS = 10
LONGEST_MS = 30_000


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
            pause_ms = min(max(pause_ms, SHORTEST_MS), LONGEST_MS)
        super().__init__(0, reason or "the handler requested a pause")
        self.pause_ms = pause_ms


class RolledBack(ConsumeRefused):
    """The consumer's representation of ROLLBACK."""

    def __init__(self) -> None:
        super().__init__(0, "the handler returned ROLLBACK")


def failure_of(result: object) -> ConsumeRefused | None:
    """Return the failure that a handler's result (not None) means; None if consumed."""
    if isinstance(result, ConsumeOrderlyStatus):
        if result is ConsumeOrderlyStatus.ROLLBACK:
            return RolledBack()
        if result is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            return Suspend(None, f"the handler returned {result}")
        return None
    return result if isinstance(result, Suspend) else failure_in(result)
