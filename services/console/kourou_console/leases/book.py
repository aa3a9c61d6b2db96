"""Who holds which message of one group, and until when: the state of leases, without hands.

    arrived                receive                 ack, or given back
      ------->  READY  ----------------->  LEASED  ------------------->  gone
                  ^                          |  |
                  |     its time is over     |  |  retry, dead letter
                  +--------------------------+  +------------------->  RETURNING ---> gone
                                                <-------------------
                                                 no broker takes it

Invariants:
  - a message is in one state, and under one lease at most
  - a lease's number is given once; what it named stays what it was (`ended` says how it ended)
  - messages of a topic are handed out in the order in which they arrived; one whose lease expired
    goes before those that were never handed out, one attempt later
  - a lease of which nobody has heard is taken back by `untold`: the message waits at its place, and
    that was no attempt
  - nothing leaves but by `settle`, `returned` or `forget`, so what was neither is still held, and
    its queue's offset stays before it

State: soft. What it protects is the committed offset at the brokers.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

MessageT = TypeVar("MessageT")


class State(Enum):
    """Where a held message stands."""

    READY = "ready"
    LEASED = "leased"
    RETURNING = "returning"
    GONE = "gone"


class End(Enum):
    """How a lease ended."""

    ACKED = "acked"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class Held(Generic[MessageT]):
    """One message. `attempt` counts its deliveries to the group from 1, `expiries` those of its
    leases here that ended by themselves; `number` and `expires_ms` are its lease's."""

    message: MessageT
    topic: str
    size_bytes: int
    arrival: int
    attempt: int
    expiries: int = 0
    state: State = State.READY
    number: int = 0
    expires_ms: int = 0


class Book(Generic[MessageT]):
    """The leases of one group. `next_number` gives numbers that were never given before.

    At most `remembered_max` ended leases are remembered. Times are monotonic milliseconds.
    """

    def __init__(self, next_number: Callable[[], int], *, remembered_max: int) -> None:
        self._next_number = next_number
        self._remembered_max = remembered_max
        self._ready: dict[str, deque[Held[MessageT]]] = {}
        self._out: dict[int, Held[MessageT]] = {}
        self._expiring: list[tuple[int, int]] = []
        self._ended: OrderedDict[int, End] = OrderedDict()
        self._arrivals = 0

    # -- figures ----------------------------------------------------------------------------------

    @property
    def out(self) -> int:
        """Messages under lease, or on their way back."""
        return len(self._out)

    def ready(self, topic: str) -> int:
        """Messages of a topic that wait to be handed out."""
        return len(self._ready.get(topic, ()))

    def out_of(self, topic: str) -> int:
        """Messages of a topic under lease, or on their way back."""
        return sum(1 for held in self._out.values() if held.topic == topic)

    def held(self) -> Iterator[Held[MessageT]]:
        """All messages that are here."""
        for queue in self._ready.values():
            yield from queue
        yield from self._out.values()

    # -- coming and going -------------------------------------------------------------------------

    def arrived(
        self, message: MessageT, topic: str, size_bytes: int, attempt: int
    ) -> Held[MessageT]:
        """A message is here, to be handed out."""
        self._arrivals += 1
        held = Held(message, topic, size_bytes, self._arrivals, attempt)
        self._ready.setdefault(topic, deque()).append(held)
        return held

    def receive(
        self, topic: str, count: int, bytes_max: int, invisible_ms: int, now_ms: int
    ) -> list[Held[MessageT]]:
        """Hand out up to `count` messages, and more than `bytes_max` only of a single one."""
        queue = self._ready.get(topic)
        given: list[Held[MessageT]] = []
        size_bytes = 0
        while queue and len(given) < count:
            held = queue[0]
            size_bytes += held.size_bytes
            if given and size_bytes > bytes_max:
                break
            queue.popleft()
            held.state = State.LEASED
            held.number = self._next_number()
            self._out[held.number] = held
            self._set_expiry(held, now_ms + invisible_ms)
            given.append(held)
        return given

    def untold(self, held: Held[MessageT]) -> None:
        """Nobody has heard of this lease: its message waits again, where it stood."""
        assert held.state is State.LEASED, held.state
        del self._out[held.number]
        held.state, held.number, held.expires_ms = State.READY, 0, 0
        self._put_back(held)

    def find(self, number: int, now_ms: int) -> Held[MessageT] | End | None:
        """What a lease stands for now: its message, or how it ended; None for none of this book.

        A lease whose time is over has ended, whether or not `expire` was called since.
        """
        held = self._out.get(number)
        if held is None:
            return self._ended.get(number)
        if held.state is State.LEASED and held.expires_ms <= now_ms:
            return End.EXPIRED
        return held

    def extend(self, held: Held[MessageT], invisible_ms: int, now_ms: int) -> int:
        """A lease ends so long from now, sooner or later than before; when."""
        assert held.state is State.LEASED, held.state
        self._set_expiry(held, now_ms + invisible_ms)
        return held.expires_ms

    def settle(self, held: Held[MessageT], end: End) -> None:
        """A message under lease is done with."""
        assert held.state is State.LEASED, held.state
        self._leave(held, end)

    def returning(self, held: Held[MessageT]) -> None:
        """A message under lease goes back to the brokers: its lease runs no more."""
        assert held.state is State.LEASED, held.state
        held.state = State.RETURNING

    def returned(self, held: Held[MessageT], end: End) -> None:
        """The brokers have it."""
        assert held.state is State.RETURNING, held.state
        self._leave(held, end)

    def kept(self, held: Held[MessageT], now_ms: int, invisible_ms: int) -> None:
        """No broker took it: its lease goes on, for `invisible_ms` at least."""
        assert held.state is State.RETURNING, held.state
        held.state = State.LEASED
        self._set_expiry(held, max(held.expires_ms, now_ms + invisible_ms))

    def expire(self, now_ms: int) -> list[Held[MessageT]]:
        """End the leases whose time is over; their messages wait again, before all others."""
        over: list[Held[MessageT]] = []
        while self._expiring and self._expiring[0][0] <= now_ms:
            expires_ms, number = heapq.heappop(self._expiring)
            held = self._out.get(number)
            if held is None or held.expires_ms != expires_ms or held.state is not State.LEASED:
                continue
            del self._out[number]
            self._remember(number, End.EXPIRED)
            held.state, held.number, held.expires_ms = State.READY, 0, 0
            held.attempt += 1
            held.expiries += 1
            over.append(held)
        for held in sorted(over, key=lambda one: one.arrival, reverse=True):
            self._put_back(held)
        return over

    def taken(self, held: Held[MessageT]) -> None:
        """A message that waits is given back to the brokers without a lease."""
        assert held.state is State.READY, held.state
        self._ready[held.topic].remove(held)
        held.number = self._next_number()
        held.state = State.RETURNING
        self._out[held.number] = held

    def again(self, held: Held[MessageT]) -> None:
        """What `taken` took, and no broker did: it waits again."""
        assert held.state is State.RETURNING, held.state
        del self._out[held.number]
        held.state, held.number = State.READY, 0
        self._put_back(held)

    def forget(self, held: Held[MessageT]) -> None:
        """Its queue is somebody else's, or the group is left."""
        if held.state is State.READY:
            self._ready[held.topic].remove(held)
            held.state = State.GONE
        elif held.state is not State.GONE:
            self._leave(held, End.LOST)

    @property
    def next_expiry_ms(self) -> int | None:
        """When the next lease may end; None if none is out."""
        return self._expiring[0][0] if self._expiring else None

    # -- inside -----------------------------------------------------------------------------------

    def _put_back(self, held: Held[MessageT]) -> None:
        """Where it stood: behind what expired before, if it never did, and what arrived before."""
        queue = self._ready.setdefault(held.topic, deque())
        at = 0
        while at < len(queue) and _rank(queue[at]) < _rank(held):
            at += 1
        queue.insert(at, held)

    def _set_expiry(self, held: Held[MessageT], expires_ms: int) -> None:
        held.expires_ms = expires_ms
        heapq.heappush(self._expiring, (expires_ms, held.number))
        if len(self._expiring) > 64 + 4 * len(self._out):  # what was extended lies there twice
            self._expiring = [(one.expires_ms, one.number) for one in self._out.values()]
            heapq.heapify(self._expiring)

    def _leave(self, held: Held[MessageT], end: End) -> None:
        del self._out[held.number]
        self._remember(held.number, end)
        held.state = State.GONE

    def _remember(self, number: int, end: End) -> None:
        self._ended[number] = end
        while len(self._ended) > self._remembered_max:
            self._ended.popitem(last=False)


def _rank(held: Held[MessageT]) -> tuple[bool, int]:
    return not held.expiries, held.arrival
