"""The open requests of one connection: in flight, or waiting to be sent.

Invariants: correlations increase in the order of `submit`, and requests are sent in that order, so
every waiting request has a higher correlation than every sent one; `waiting_bytes` is the total of
the waiting requests.

State: soft.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kourou.errors import KourouError
from kourou.model import limits
from kourou.model.units import NEVER_MS
from kourou.protocol.wire.frames import Frame
from kourou.transport.tcp_link import Buffer

Outcome = Frame | KourouError
"""The result of a request; the KourouError is an Unavailable, TimedOut or UnknownOutcome."""


class Pending:
    """One request. `parts` is None once it was sent; `callback` is None if it is oneway.

    It ends at `give_up_ms` if it was not sent, and at `deadline_ms` if it was.
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
        """Call the callback with the outcome."""
        if self.callback is not None:
            self.callback(outcome)


@dataclass(slots=True)
class Expired:
    """Expired requests, those that were sent and those that were not.

    `zombie`: one of them was sent, and no later request has been answered since.
    """

    left: list[Pending]
    never_left: list[Pending]
    zombie: bool
    next_check_ms: int


class PendingRequests:
    """All requests of one connection that have no reply yet."""

    def __init__(self) -> None:
        self._by_correlation: dict[int, Pending] = {}
        self._waiting: deque[int] = deque()
        self._answered_through = 0
        self.waiting_bytes = 0

    @property
    def in_flight(self) -> int:
        """Number of requests that were sent and expect a reply."""
        return len(self._by_correlation) - len(self._waiting)

    @property
    def waiting(self) -> int:
        """Number of requests that were not sent yet."""
        return len(self._waiting)

    def sent(self, through: float = math.inf) -> list[int]:
        """Return the correlations in flight that are not above `through`."""
        known = self._by_correlation.items()
        return [key for key, one in known if one.parts is None and key <= through]

    def add_sent(self, correlation: int, one: Pending) -> None:
        """Add a request that was sent and expects a reply."""
        self._by_correlation[correlation] = one

    def add_waiting(self, correlation: int, one: Pending) -> bool:
        """Add a request that cannot be sent now; False if too many are waiting."""
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
        """Return the next request to send."""
        return self._by_correlation[self._waiting[0]] if self._waiting else None

    def first_left(self) -> None:
        """Record that the first waiting request was sent."""
        correlation = self._waiting.popleft()
        one = self._by_correlation[correlation]
        self.waiting_bytes -= one.size
        if one.callback is None:
            del self._by_correlation[correlation]

    def answered(self, correlation: int) -> Pending | None:
        """Return the request that this reply belongs to.

        None if the request has expired, does not exist, or was not sent.
        """
        self._answered_through = max(self._answered_through, correlation)
        one = self._by_correlation.get(correlation)
        if one is None or one.parts is not None:
            return None
        del self._by_correlation[correlation]
        return one

    def expire(self, now_ms: int) -> Expired:
        """Remove and return the requests whose time is up."""
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

    def take_sent(self, through: float = math.inf) -> list[Pending]:
        """Remove and return the requests in flight whose correlation is not above `through`."""
        return [self._by_correlation.pop(correlation) for correlation in self.sent(through)]

    def take_all(self) -> list[Pending]:
        """Remove and return all requests."""
        everything = list(self._by_correlation.values())
        self._by_correlation.clear()
        self._waiting.clear()
        self.waiting_bytes = 0
        return everything
