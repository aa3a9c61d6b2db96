"""A queue of a topic at one broker (RocketMQ `MessageQueue`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """Identity of a queue; sorts by topic, broker name and queue ID, as rebalancing requires.

    As text it is `orders/broker-a/1`, with an offset `orders/broker-a/1@57`.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"
