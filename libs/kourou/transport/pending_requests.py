"""The requests of one connection that have not ended yet: in flight, or waiting to leave.

Invariants: correlations grow in the order of `submit`, and requests leave in that order, so all
that waits has a higher correlation than all that left; `waiting_bytes` is the sum over what waits.

State: soft.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kourou.errors import KourouError
from kourou.model import limits
from kourou.protocol.frames import Frame
from kourou.transport.tcp_link import Buffer

Outcome = Frame | KourouError
"""What a request ends with; a KourouError is one of Unavailable, TimedOut, UnknownOutcome."""

NEVER_MS = 1 << 62


class Pending:
    """One request. `parts` is None once it has left; `callback` is None if it is oneway.

    `give_up_ms` ends it as long as it has not left, `deadline_ms` afterwards.
    """

    __slots__ = ("callback", "deadline_ms", "give_up_ms", "parts", "size")

    def __init__(
        self,
        callback: Callable[[Outcome], None] | None,
        deadline_ms: int,
        give_up_ms: int,
        parts: Sequence[Buffer],
    ) -> None:
        self.callback = callback
        self.deadline_ms = deadline_ms
        self.give_up_ms = give_up_ms
        self.parts: Sequence[Buffer] | None = parts
        self.size = sum(map(len, parts))

    def end(self, outcome: Outcome) -> None:
        """Tell whoever asked."""
        if self.callback is not None:
            self.callback(outcome)


@dataclass(slots=True)
class Expired:
    """Requests whose time is up. `zombie`: one of them left and nothing later was answered."""

    left: list[Pending]
    never_left: list[Pending]
    zombie: bool
    next_check_ms: int


class PendingRequests:
    """Everything asked and not answered on one connection."""

    def __init__(self) -> None:
        self._by_correlation: dict[int, Pending] = {}
        self._waiting: deque[int] = deque()
        self._answered_through = 0
        self.waiting_bytes = 0

    @property
    def in_flight(self) -> int:
        """Requests that left and expect an answer."""
        return len(self._by_correlation) - len(self._waiting)

    @property
    def waiting(self) -> int:
        """Requests that have not left."""
        return len(self._waiting)

    def add_sent(self, correlation: int, one: Pending) -> None:
        """It left and expects an answer."""
        self._by_correlation[correlation] = one

    def add_waiting(self, correlation: int, one: Pending) -> bool:
        """It cannot leave now; False if too many wait already."""
        if (
            len(self._waiting) >= limits.SOCKET_HWM_MESSAGES
            or self.waiting_bytes + one.size > limits.PEER_QUEUE_BYTES_MAX
        ):
            return False
        self._waiting.append(correlation)
        self.waiting_bytes += one.size
        self._by_correlation[correlation] = one
        return True

    def first_waiting(self) -> Pending | None:
        """The next one that should leave."""
        return self._by_correlation[self._waiting[0]] if self._waiting else None

    def first_left(self) -> None:
        """The first that waited has left."""
        correlation = self._waiting.popleft()
        one = self._by_correlation[correlation]
        self.waiting_bytes -= one.size
        if one.callback is None:
            del self._by_correlation[correlation]

    def answered(self, correlation: int) -> Pending | None:
        """The request that this answers; None for one given up, never made, or not even sent."""
        self._answered_through = max(self._answered_through, correlation)
        one = self._by_correlation.get(correlation)
        if one is None or one.parts is not None:
            return None
        del self._by_correlation[correlation]
        return one

    def expire(self, now_ms: int) -> Expired:
        """Take out whose time is up."""
        found = Expired([], [], False, NEVER_MS)
        for correlation, one in list(self._by_correlation.items()):
            left = one.parts is None
            due_ms = one.deadline_ms if left else one.give_up_ms
            if due_ms > now_ms:
                found.next_check_ms = min(found.next_check_ms, due_ms)
                continue
            del self._by_correlation[correlation]
            if left:
                found.left.append(one)
                found.zombie = found.zombie or correlation > self._answered_through
            else:
                found.never_left.append(one)
                self.waiting_bytes -= one.size
        if found.never_left:
            self._waiting = deque(key for key in self._waiting if key in self._by_correlation)
        return found

    def take_sent(self) -> list[Pending]:
        """Take out all that left."""
        sent = {key: one for key, one in self._by_correlation.items() if one.parts is None}
        for correlation in sent:
            del self._by_correlation[correlation]
        return list(sent.values())

    def take_all(self) -> list[Pending]:
        """Take out everything."""
        everything = list(self._by_correlation.values())
        self._by_correlation.clear()
        self._waiting.clear()
        self.waiting_bytes = 0
        return everything
