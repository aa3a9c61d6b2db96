"""What a handler may say that is given the messages of a queue in order.

returns anything else, or None     consumed
returns COMMIT                     consumed, and all before it that was not committed
raises, returns ROLLBACK,          not consumed: the queue stands still for a moment, then the
SUSPEND…, RECONSUME_LATER          same message comes again; ROLLBACK goes back further, to the
                                   last commit, where commits are the handler's
raises or returns Suspend(ms)      the same, with a pause of its own
returns ConsumedFirst(n)           of a list: its first n messages are consumed
raises DeadLetter(reason)          it is kept aside, and the queue goes on
"""

from __future__ import annotations

from enum import StrEnum

from kourou.client.outcomes import ConsumeRefused, failure_in
from kourou.errors import BadRequest

SHORTEST_MS = 10
LONGEST_MS = 30_000


class ConsumeOrderlyStatus(StrEnum):
    """What a handler may return (RocketMQ `ConsumeOrderlyStatus`)."""

    SUCCESS = "SUCCESS"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class Suspend(ConsumeRefused):
    """Raised or returned by a handler: not now; the queue stands still, and the same comes again.

    `pause_ms` is brought into 10 to 30,000 ms, as RocketMQ does; None is the consumer's setting
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
    """What ROLLBACK means to the consumer."""

    def __init__(self) -> None:
        super().__init__(0, "the handler returned ROLLBACK")


def failure_of(result: object) -> ConsumeRefused | None:
    """What a handler's result that is not None means as a failure; None: it was consumed."""
    if isinstance(result, ConsumeOrderlyStatus):
        if result is ConsumeOrderlyStatus.ROLLBACK:
            return RolledBack()
        if result is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            return Suspend(None, f"the handler returned {result}")
        return None
    return result if isinstance(result, Suspend) else failure_in(result)
