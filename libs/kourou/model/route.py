"""The route of a topic: where its queues are (RocketMQ `TopicRouteData`)."""

from __future__ import annotations

from dataclasses import dataclass, field

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
