"""Derivation of the queues that a client may write or read from a topic's route.

Rules:

- writable queues are those of brokers whose leader (broker ID 0) is registered and whose `perm` has
  the write bit; readable queues need the read bit and any registered replica
- a strictly ordered topic (name server's ORDER_TOPIC_CONFIG, `broker-a:4;broker-b:4`) is written to
  exactly the queues listed there, whether or not their brokers are registered: while a broker is
  offline its keys cannot be sent, instead of moving to other queues
- a broker with replicas but no leader keeps its writable queues in `sendable`: it will have a
  leader, and until then messages for it wait
- queues are sorted by broker name and queue ID, so every client has the same order
- an unknown topic borrows the route of TBW102, with at most `default_topic_queue_nums` queues: the
  first send then creates the topic at the broker
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kourou.errors import DecodeError
from kourou.model.limits import TOPIC_QUEUES_MAX
from kourou.model.topic import BrokerData, MessageQueue, Permission, TopicRoute


@dataclass(frozen=True, slots=True)
class QueueMap:
    """A route, ready to use; a `borrowed` one is TBW102's, for a topic that does not exist yet."""

    topic: str
    route: TopicRoute
    writable: tuple[MessageQueue, ...] = ()
    readable: tuple[MessageQueue, ...] = ()
    sendable: tuple[MessageQueue, ...] = ()
    brokers: Mapping[str, BrokerData] = field(default_factory=dict)
    borrowed: bool = False

    def leader_address(self, broker_name: str) -> str | None:
        """Return the address of the leader, or None."""
        broker = self.brokers.get(broker_name)
        return None if broker is None else broker.master_addr()

    def member_address(self, broker_name: str, broker_id: int) -> str | None:
        """Return the address to read from: this replica, or else any.

        If a follower is not registered, the replica with the next ID is preferred.
        """
        broker = self.brokers.get(broker_name)
        if broker is None:
            return None
        addresses = broker.broker_addrs
        exact = addresses.get(broker_id)
        if exact is None and broker_id != 0:
            exact = addresses.get(broker_id + 1)
        return exact if exact is not None else broker.any_addr()

    def addresses(self) -> list[str]:
        """Return every address in the route, leaders first, each once."""
        found: dict[str, None] = {}
        for broker in self.brokers.values():
            leader = broker.master_addr()
            if leader is not None:
                found[leader] = None
        for broker in self.brokers.values():
            for member in sorted(broker.broker_addrs):
                found[broker.broker_addrs[member]] = None
        return list(found)


def queue_map(topic: str, route: TopicRoute) -> QueueMap:
    """Return the queues of `topic` as its own route defines them.

    `writable` are those whose broker has a leader, `sendable` also those whose broker awaits one.
    """
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    writable: list[MessageQueue] = []
    readable: list[MessageQueue] = []
    awaited: list[MessageQueue] = []
    strict = strict_queues(topic, route.order_topic_conf) if route.order_topic_conf else None
    for data in route.queue_datas:
        broker = brokers.get(data.broker_name)
        if broker is None:
            continue
        if data.perm & Permission.WRITE and broker.broker_addrs:
            led = broker.master_addr() is not None
            (writable if led else awaited).extend(
                _queues(topic, data.broker_name, data.write_queue_nums)
            )
        if data.perm & Permission.READ and broker.broker_addrs:
            readable.extend(_queues(topic, data.broker_name, data.read_queue_nums))
    leading = tuple(sorted(writable if strict is None else strict))
    return QueueMap(
        topic=topic,
        route=route,
        writable=leading,
        readable=tuple(sorted(readable)),
        sendable=tuple(sorted(writable + awaited)) if strict is None and awaited else leading,
        brokers=brokers,
    )


def borrowed_queue_map(
    topic: str, default_route: TopicRoute, default_topic_queue_nums: int
) -> QueueMap:
    """Return the queues that `topic` will have when the first send has created it."""
    capped = tuple(
        replace(
            data,
            write_queue_nums=min(default_topic_queue_nums, data.read_queue_nums),
            read_queue_nums=min(default_topic_queue_nums, data.read_queue_nums),
        )
        for data in default_route.queue_datas
    )
    own = queue_map(topic, replace(default_route, queue_datas=capped, order_topic_conf=None))
    return replace(own, borrowed=True)


def strict_queues(topic: str, conf: str) -> list[MessageQueue]:
    """Return the queues of a strictly ordered topic. Raises DecodeError if `conf` is invalid."""
    queues: list[MessageQueue] = []
    for part in filter(None, conf.strip().split(";")):
        name, _, count = part.strip().partition(":")
        if not (name and count.isascii() and count.isdigit() and len(count) < 6):
            raise DecodeError(
                f"the order configuration of topic {topic} is {conf!r}, which "
                "is not a list of brokers",
                hint="use the form broker-a:4;broker-b:4 in ORDER_TOPIC_CONFIG of the name servers",
            )
        if int(count) > TOPIC_QUEUES_MAX:
            raise DecodeError(
                f"the order configuration of topic {topic} has {count} queues for broker {name}"
            )
        queues.extend(_queues(topic, name, int(count)))
    return queues


def _queues(topic: str, broker_name: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker_name, queue_id) for queue_id in range(count)]
