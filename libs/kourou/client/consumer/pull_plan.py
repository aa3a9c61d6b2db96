"""What a push consumer does after each reply to a pull."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kourou.errors import Code

FULL_PAUSE_MS = 50
"""The pause while a limit of the window is exceeded."""

BUSY_PAUSE_MS = 20
"""The pause after a broker replied that it is overloaded."""

STALE_PAUSE_MS = 200
"""The pause after a broker did not know the subscription; a heartbeat is sent in the meantime."""

SWIFT_MS = 10
"""An empty reply faster than this did not wait; pulling again at once would be a busy loop."""


class Action(Enum):
    """What else must be done before the next pull."""

    NONE = auto()
    CORRECT_OFFSET = auto()  # use the broker's offset: the consumer's is outside the queue
    SKIP_CORRUPT = auto()  # apply on_corrupt: the messages are unreadable
    HEARTBEAT = auto()  # send a heartbeat: the broker does not know our subscription
    FILTER_FAILED = auto()  # the group's filter failed: wait at this offset for a fixed version
    FIND_ROUTE = auto()  # refresh the route: the queue may have moved


@dataclass(frozen=True, slots=True)
class Step:
    """Perform `action`, wait `pause_ms`, pull again."""

    action: Action = Action.NONE
    pause_ms: int = 0


_BUSY = frozenset({Code.SYSTEM_BUSY, Code.FLOW_CONTROL, Code.POLLING_FULL})
_STALE = frozenset(
    {
        Code.SUBSCRIPTION_NOT_EXIST,
        Code.SUBSCRIPTION_NOT_LATEST,
        Code.SUBSCRIPTION_GROUP_NOT_EXIST,
        Code.FILTER_DATA_NOT_EXIST,
        Code.FILTER_DATA_NOT_LATEST,
    }
)


def step_after(
    code: int,
    *,
    progressed: bool,
    elapsed_ms: int,
    pull_interval_ms: int,
    exception_pause_ms: int,
) -> Step:
    """Return the step after a reply with `code`.

    `progressed`: the reply's next offset is greater than the requested one.
    """
    if code == Code.SUCCESS:
        return Step(pause_ms=pull_interval_ms)
    if code in (Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY):
        idle = not progressed and elapsed_ms < SWIFT_MS
        return Step(pause_ms=FULL_PAUSE_MS if idle else 0)
    if code == Code.PULL_OFFSET_MOVED:
        return Step(Action.CORRECT_OFFSET, 0 if progressed else FULL_PAUSE_MS)
    if code == Code.MESSAGE_CORRUPT:
        return Step(Action.SKIP_CORRUPT, 0 if progressed else exception_pause_ms)
    if code == Code.FILTER_FAILED:
        return Step(Action.FILTER_FAILED, exception_pause_ms)
    if code in _BUSY:
        return Step(pause_ms=BUSY_PAUSE_MS)
    if code in _STALE:
        return Step(Action.HEARTBEAT, STALE_PAUSE_MS)
    return Step(Action.FIND_ROUTE, exception_pause_ms)
