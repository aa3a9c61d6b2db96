"""A topic's lane at one broker (RocketMQ `MessageQueue`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """Identity of a queue; sorts by topic, broker name, queue id, as rebalancing demands.

    As text `orders/broker-a/1`; a place in it is `orders/broker-a/1@57`, everywhere.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"
