"""Selection of the queue that a message is sent to.

There are three methods:

    round robin   spreads over all queues, hence over brokers; a retry avoids the last broker
    order key     the same key goes to the same queue while the number of queues stays the same
    selector      a function of the application

A round robin may also avoid brokers for a while that were slow or failed (`FaultLatency`).

State: soft. Each round robin has its own counter; after a restart it starts at a random queue, and
a restarted producer avoids no broker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from kourou.errors import BadRequest, Unavailable
from kourou.model.message import Message
from kourou.model.topic import MessageQueue
from kourou.protocol.record.hashes import java_hash

LATENCY_MS = (50, 100, 550, 1000, 2000, 3000, 15_000)
AVOID_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
ISOLATED_LATENCY_MS = 30_000
"""The latency that a failed attempt counts as."""

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""(writable queues in order, message, argument of the call) -> one of the queues."""

_COUNTER_MASK = 0x7FFFFFFF


def avoid_for_ms(latency_ms: int) -> int:
    """Return how long to avoid a broker that took `latency_ms` for its last reply."""
    row = bisect_right(LATENCY_MS, latency_ms) - 1
    return AVOID_MS[row] if row >= 0 else 0


@dataclass(slots=True)
class _Fault:
    latency_ms: int
    until_ms: int


class FaultLatency:
    """Latency memory of one producer, as in RocketMQ; times are monotonic milliseconds.

    Invariant: a broker is available when the monotonic time has reached `_Fault.until_ms`.
    """

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def record(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        """Record the outcome of one attempt; a failure counts as 30 s of latency."""
        weighed_ms = ISOLATED_LATENCY_MS if failed else latency_ms
        self._faults[broker_name] = _Fault(latency_ms, now_ms + avoid_for_ms(weighed_ms))

    def available(self, broker_name: str, now_ms: int) -> bool:
        """Return whether this broker may be chosen now."""
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.until_ms

    def least_bad(self, broker_names: Iterable[str], now_ms: int) -> list[str]:
        """Return the better half of brokers that are all avoided, by (avoided until, latency).

        At least one broker is returned if any name is given.
        """
        ranked = sorted(set(broker_names), key=lambda name: (*self._badness(name, now_ms), name))
        return ranked[: (len(ranked) + 1) // 2]

    def _badness(self, broker_name: str, now_ms: int) -> tuple[int, int]:
        fault = self._faults.get(broker_name)
        if fault is None:
            return (0, 0)
        return (max(0, fault.until_ms - now_ms), fault.latency_ms)


class AtBroker(Protocol):
    """An object at a broker: a queue, or a producer's target to one."""

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        ...


PlaceT = TypeVar("PlaceT", bound=AtBroker)


class RoundRobin:
    """Selects the next queue each time; a random `start` spreads the load of several producers.

    Not thread-safe on purpose: two threads may select the same queue, and nothing is lost.
    """

    __slots__ = ("_count",)

    def __init__(self, start: int) -> None:
        self._count = start & _COUNTER_MASK

    def next(self, queues: Sequence[PlaceT]) -> PlaceT:
        """Return the next of `queues`, which must not be empty."""
        self._count = count = self._count + 1
        return queues[count % len(queues)]

    def next_elsewhere(self, queues: Sequence[PlaceT], last_broker_name: str | None) -> PlaceT:
        """Return the next queue that is not at `last_broker_name`; if there is none, the next."""
        for _ in range(len(queues)):
            queue = self.next(queues)
            if queue.broker_name != last_broker_name:
                return queue
        return self.next(queues)

    def next_available(
        self,
        queues: Sequence[PlaceT],
        faults: FaultLatency,
        now_ms: int,
        last_broker_name: str | None = None,
    ) -> PlaceT:
        """Return the next queue at a broker that is not avoided, or else of the better half."""
        for _ in range(len(queues)):
            queue = self.next(queues)
            if queue.broker_name != last_broker_name and faults.available(
                queue.broker_name, now_ms
            ):
                return queue
        better = set(faults.least_bad((queue.broker_name for queue in queues), now_ms))
        return self.next_elsewhere(
            [queue for queue in queues if queue.broker_name in better], last_broker_name
        )


def queue_of_key(queues: Sequence[MessageQueue], order_key: str) -> MessageQueue:
    """Return the queue of `order_key`: |Java hash| modulo the number of queues, as in RocketMQ.

    If queues are added or a broker leaves, keys move to other queues; during the change their order
    is not guaranteed. Raises BadRequest if the key is not text.
    """
    if not isinstance(order_key, str):
        raise BadRequest(
            f"the order key is {order_key!r}; it must be text", hint=f"str({order_key!r})"
        )
    return queues[abs(java_hash(order_key)) % len(queues)]


def chosen_queue(
    queues: Sequence[MessageQueue], selector: Selector, message: Message, argument: Any
) -> MessageQueue:
    """Return the queue that `selector` returns. Raises BadRequest if it is not one of `queues`."""
    queue = selector(queues, message, argument)
    if queue not in queues:
        raise BadRequest(
            f"the selector returned {queue!s}, which is not a writable queue of the topic"
        )
    return queue


def require_queues(queues: Sequence[MessageQueue], topic: str) -> None:
    """Raise Unavailable if no broker accepts writes for `topic` at the moment."""
    if not queues:
        raise Unavailable(
            f"topic {topic!r} has no writable queue",
            hint="check the topic's permission, and that its brokers have a leader",
        )
