"""Selection of the queue that a message is sent to.

There are three methods:

    round robin   spreads over all queues, hence over brokers; a retry avoids the last broker
    order key     the same key goes to the same queue while the number of queues stays the same
    selector      a function of the application

State: soft. Each round robin has its own counter; after a restart it starts at a random queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from kourou.client.producer.fault_latency import FaultLatency
from kourou.errors import BadRequest, Unavailable
from kourou.model.message import Message
from kourou.model.topic import MessageQueue
from kourou.protocol.record.hashes import java_hash

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""(writable queues in order, message, argument of the call) -> one of the queues."""

_COUNTER_MASK = 0x7FFFFFFF


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
    is not guaranteed.
    """
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
