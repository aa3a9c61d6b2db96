"""The leases of one group: which messages are leased and until when, as pure state.

    arrived                receive                 ack, or retried
      ------->  READY  ----------------->  LEASED  ------------------->  gone
                  ^                          |  |
                  |     the lease expires    |  |  retry, dead letter
                  +--------------------------+  +------------------->  RETURNING ---> gone
                                                <-------------------
                                                 no broker accepts it

Invariants:
  - a message is in one state, and has at most one lease
  - a lease number is never reused; `_ended` remembers how an ended lease ended
  - messages of a topic are leased in the order in which they arrived; one whose lease expired is
    leased before those that were never leased, with a higher attempt
  - a lease that was never sent to a client is revoked by `revoke`: the message returns to its
    position, and this does not count as an attempt
  - messages leave only by `settle`, `returned` or `forget`, so any other message is still held,
    and the offset of its queue stays before it

State: soft. The committed offset at the brokers protects the messages.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

MessageT = TypeVar("MessageT")


class HeldState(Enum):
    """The state of a held message."""

    READY = "ready"
    LEASED = "leased"
    RETURNING = "returning"
    GONE = "gone"


class LeaseEnd(Enum):
    """How a lease ended."""

    ACKED = "acked"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class Held(Generic[MessageT]):
    """One message. `attempt` counts its deliveries to the group from 1, `expiries` its expired
    leases here; `number` and `expires_ms` belong to its lease.
    """

    message: MessageT
    topic: str
    size_bytes: int
    arrival: int
    attempt: int
    expiries: int = 0
    state: HeldState = HeldState.READY
    number: int = 0
    expires_ms: int = 0


class Book(Generic[MessageT]):
    """The leases of one group. `next_number` returns numbers that were never used before.

    At most `remembered_max` ended leases are remembered. Times are monotonic milliseconds.
    """

    def __init__(self, next_number: Callable[[], int], *, remembered_max: int) -> None:
        self._next_number = next_number
        self._remembered_max = remembered_max
        self._ready: dict[str, deque[Held[MessageT]]] = {}
        self._out: dict[int, Held[MessageT]] = {}
        self._expiring: list[tuple[int, int]] = []
        self._ended: OrderedDict[int, LeaseEnd] = OrderedDict()
        self._arrivals = 0

    # -- counts -----------------------------------------------------------------------------------

    @property
    def out(self) -> int:
        """The number of messages that are leased or returning."""
        return len(self._out)

    def ready(self, topic: str) -> int:
        """The number of a topic's messages that can be leased."""
        return len(self._ready.get(topic, ()))

    def out_of(self, topic: str) -> int:
        """The number of a topic's messages that are leased or returning."""
        return sum(1 for held in self._out.values() if held.topic == topic)

    def held(self) -> Iterator[Held[MessageT]]:
        """All held messages."""
        for queue in self._ready.values():
            yield from queue
        yield from self._out.values()

    # -- transitions ------------------------------------------------------------------------------

    def arrived(
        self, message: MessageT, topic: str, size_bytes: int, attempt: int
    ) -> Held[MessageT]:
        """Add a message, which can be leased now."""
        self._arrivals += 1
        held = Held(message, topic, size_bytes, self._arrivals, attempt)
        self._ready.setdefault(topic, deque()).append(held)
        return held

    def receive(
        self, topic: str, count: int, bytes_max: int, invisible_ms: int, now_ms: int
    ) -> list[Held[MessageT]]:
        """Lease up to `count` messages, of `bytes_max` bytes unless it is a single message."""
        queue = self._ready.get(topic)
        given: list[Held[MessageT]] = []
        size_bytes = 0
        while queue and len(given) < count:
            held = queue[0]
            size_bytes += held.size_bytes
            if given and size_bytes > bytes_max:
                break
            queue.popleft()
            held.state = HeldState.LEASED
            held.number = self._next_number()
            self._out[held.number] = held
            self._set_expiry(held, now_ms + invisible_ms)
            given.append(held)
        return given

    def revoke(self, held: Held[MessageT]) -> None:
        """Revoke a lease that was never sent to a client: the message returns to its position."""
        assert held.state is HeldState.LEASED, held.state
        del self._out[held.number]
        held.state, held.number, held.expires_ms = HeldState.READY, 0, 0
        self._put_back(held)

    def find(self, number: int, now_ms: int) -> Held[MessageT] | LeaseEnd | None:
        """The message of a lease, or how the lease ended; None for an unknown lease.

        A lease whose time is over has ended, even if `expire` has not been called yet.
        """
        held = self._out.get(number)
        if held is None:
            return self._ended.get(number)
        if held.state is HeldState.LEASED and held.expires_ms <= now_ms:
            return LeaseEnd.EXPIRED
        return held

    def extend(self, held: Held[MessageT], invisible_ms: int, now_ms: int) -> int:
        """Let a lease expire `invisible_ms` from now, sooner or later. Returns the time."""
        assert held.state is HeldState.LEASED, held.state
        self._set_expiry(held, now_ms + invisible_ms)
        return held.expires_ms

    def settle(self, held: Held[MessageT], end: LeaseEnd) -> None:
        """End a lease; its message is finished."""
        assert held.state is HeldState.LEASED, held.state
        self._leave(held, end)

    def returning(self, held: Held[MessageT]) -> None:
        """A leased message is being sent back to the brokers: its lease cannot expire now."""
        assert held.state is HeldState.LEASED, held.state
        held.state = HeldState.RETURNING

    def returned(self, held: Held[MessageT], end: LeaseEnd) -> None:
        """The brokers have accepted the message."""
        assert held.state is HeldState.RETURNING, held.state
        self._leave(held, end)

    def kept(self, held: Held[MessageT], now_ms: int, invisible_ms: int) -> None:
        """No broker accepted the message: its lease continues for at least `invisible_ms`."""
        assert held.state is HeldState.RETURNING, held.state
        held.state = HeldState.LEASED
        self._set_expiry(held, max(held.expires_ms, now_ms + invisible_ms))

    def expire(self, now_ms: int) -> list[Held[MessageT]]:
        """End the expired leases; their messages can be leased again, before all others."""
        over: list[Held[MessageT]] = []
        while self._expiring and self._expiring[0][0] <= now_ms:
            expires_ms, number = heapq.heappop(self._expiring)
            held = self._out.get(number)
            if held is None or held.expires_ms != expires_ms or held.state is not HeldState.LEASED:
                continue
            del self._out[number]
            self._remember(number, LeaseEnd.EXPIRED)
            held.state, held.number, held.expires_ms = HeldState.READY, 0, 0
            held.attempt += 1
            held.expiries += 1
            over.append(held)
        for held in sorted(over, key=lambda one: one.arrival, reverse=True):
            self._put_back(held)
        return over

    def taken(self, held: Held[MessageT]) -> None:
        """A message that is not leased is being sent back to the brokers."""
        assert held.state is HeldState.READY, held.state
        self._ready[held.topic].remove(held)
        held.number = self._next_number()
        held.state = HeldState.RETURNING
        self._out[held.number] = held

    def again(self, held: Held[MessageT]) -> None:
        """No broker accepted the message of `taken`: it can be leased again."""
        assert held.state is HeldState.RETURNING, held.state
        del self._out[held.number]
        held.state, held.number = HeldState.READY, 0
        self._put_back(held)

    def forget(self, held: Held[MessageT]) -> None:
        """Drop a message, because its queue was reassigned or the group is left."""
        if held.state is HeldState.READY:
            self._ready[held.topic].remove(held)
            held.state = HeldState.GONE
        elif held.state is not HeldState.GONE:
            self._leave(held, LeaseEnd.LOST)

    @property
    def next_expiry_ms(self) -> int | None:
        """When the next lease may expire; None if there is none."""
        return self._expiring[0][0] if self._expiring else None

    # -- internals --------------------------------------------------------------------------------

    def _put_back(self, held: Held[MessageT]) -> None:
        """Insert it at its position: expired messages first, then by arrival."""
        queue = self._ready.setdefault(held.topic, deque())
        at = 0
        while at < len(queue) and _rank(queue[at]) < _rank(held):
            at += 1
        queue.insert(at, held)

    def _set_expiry(self, held: Held[MessageT], expires_ms: int) -> None:
        held.expires_ms = expires_ms
        heapq.heappush(self._expiring, (expires_ms, held.number))
        if len(self._expiring) > 64 + 4 * len(self._out):  # extended leases have several entries
            self._expiring = [(one.expires_ms, one.number) for one in self._out.values()]
            heapq.heapify(self._expiring)

    def _leave(self, held: Held[MessageT], end: LeaseEnd) -> None:
        del self._out[held.number]
        self._remember(held.number, end)
        held.state = HeldState.GONE

    def _remember(self, number: int, end: LeaseEnd) -> None:
        self._ended[number] = end
        while len(self._ended) > self._remembered_max:
            self._ended.popitem(last=False)


def _rank(held: Held[MessageT]) -> tuple[bool, int]:
    return not held.expiries, held.arrival
