"""Topics: configuration and permissions, queues, and routes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag

# -- configuration (RocketMQ `TopicConfig`, `PermName`) -------------------------------------------


class Permission(IntFlag):
    """Bits of a topic's or broker's `perm`; 6 = read and write, 4 = read only, 2 = write only."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8
    READ_WRITE = 6


READ = int(Permission.READ)
WRITE = int(Permission.WRITE)
"""As plain integers, for checks of every message: a flag's operators take a microsecond."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The numbers of write and read queues of a topic at one broker, and its permission."""

    name: str
    read_queue_nums: int = 4
    write_queue_nums: int = 4
    perm: int = int(Permission.READ_WRITE)
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False

    @property
    def readable(self) -> bool:
        """True if consumers may pull from it."""
        return bool(self.perm & READ)

    @property
    def writable(self) -> bool:
        """True if producers may send to it."""
        return bool(self.perm & WRITE)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of a table; equal only if both fields are equal (RocketMQ `DataVersion`)."""

    timestamp: int = 0
    counter: int = 0


UNIT = 1
UNIT_SUBSCRIPTION = 2
"""Bits of `topic_sys_flag`: the topic belongs to a unit; a subscription in a unit created it."""


# -- a queue of a topic at one broker (RocketMQ `MessageQueue`) -----------------------------------


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


# -- the route of a topic: where its queues are (RocketMQ `TopicRouteData`) -----------------------


MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class BrokerData:
    """One broker name and the addresses of its brokers: broker ID -> `host:port`."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)

    def master_addr(self) -> str | None:
        """The address of the broker that accepts writes, if it is registered."""
        return self.broker_addrs.get(MASTER_ID)

    def any_addr(self) -> str | None:
        """The leader's address, else that of the lowest broker ID."""
        if not self.broker_addrs:
            return None
        return self.broker_addrs[min(self.broker_addrs)]


@dataclass(frozen=True, slots=True)
class QueueData:
    """A topic's queue counts and permission at one broker name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Everything a client needs to find the queues of one topic."""

    broker_datas: tuple[BrokerData, ...] = ()
    queue_datas: tuple[QueueData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    order_topic_conf: str | None = None
