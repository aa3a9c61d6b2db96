"""The table of registered brokers and their topics.

A broker is identified by its name and ID. Its registration is valid until it unregisters, its
connection closes, or it is silent for 120 s by the monotonic clock. Name servers do not communicate
with each other.

Topics are taken from leaders (ID 0) only, and only if the leader's data version changed. A topic
that a leader no longer lists keeps its route until DELETE_TOPIC_IN_NAMESRV or until the broker name
is removed.

A leader whose epoch is lower than that of the registered leader is rejected (`Outdone`): another
replica was promoted in the meantime. Brokers that send no epoch (RocketMQ's) are not checked.
Promotions survive a restart of this process: kourou_namesrv.registrations.

An unregistration or a closed connection removes only registrations of the same connection, so an
old process that ends late never removes its successor.

Invariants: a topic in `_queues` has at least one broker name, and each is in `_brokers`; a broker
name in `_brokers` has at least one broker; no address is registered under two IDs of one name.

State: soft, on purpose: brokers rebuild it within 30 s by registering.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kourou.errors import Throttled, TopicNotFound
from kourou.model.limits import BROKER_NAME_LENGTH_MAX, BROKERS_MAX
from kourou.model.topic import (
    MASTER_ID,
    BrokerData,
    DataVersion,
    Permission,
    QueueData,
    TopicConfig,
    TopicRoute,
)
from kourou.protocol.bodies.registration_body import BrokerRegistration
from kourou.protocol.bodies.route_bodies import ClusterInfo
from kourou.runtime.core import Peer
from kourou_namesrv.registrations import Identity, check_identity, check_leader

UNIT = 1
UNIT_SUBSCRIPTION = 2


@dataclass(slots=True)
class _Member:
    """One registered broker. `heard_ms` is by the monotonic clock."""

    identity: Identity
    peer: Peer
    version: DataVersion
    heard_ms: int
    filter_servers: tuple[str, ...]

    def address_for(self, asker: Peer) -> str | None:
        """The address for `asker` to connect to; None if its transport cannot reach this broker."""
        plain = self.identity.address if self.peer.protocol == asker.protocol else None
        return _dialled(self.identity.addresses, asker) or plain

    def filter_servers_for(self, asker: Peer) -> tuple[str, ...]:
        """The addresses of the broker's filter servers for `asker`, sorted."""
        listeners = self.identity.filter_listeners
        if listeners is None:
            return self.filter_servers if self.peer.protocol == asker.protocol else ()
        return tuple(sorted(filter(None, {_dialled(one, asker) for one in listeners})))


def _dialled(addresses: Mapping[str, str], asker: Peer) -> str | None:
    """The address for the listener that `asker` is connected to, otherwise the internal one."""
    own, internal = f"{asker.protocol}:{asker.listener}", f"{asker.protocol}:internal"
    return addresses.get(own) or addresses.get(internal)


@dataclass(slots=True)
class _Broker:
    """All registered brokers of one broker name. `wiped`: routes have no write permission."""

    cluster: str
    members: dict[int, _Member] = field(default_factory=dict)
    wiped: bool = False


class Routes:
    """The tables of one name server."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Broker] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}

    def register(
        self, identity: Identity, registration: BrokerRegistration, peer: Peer, now_ms: int
    ) -> tuple[str, str]:
        """Register a broker or renew its registration.

        Returns its leader's HA address and address ("" if none). Raises Outdone, and changes
        nothing, if another leader supersedes this one.
        """
        check_identity(identity)
        broker = self._brokers.get(identity.name)
        if broker is None:
            if len(self._brokers) >= BROKERS_MAX:
                raise Throttled(f"{BROKERS_MAX} brokers are registered; no more are accepted")
            broker = self._brokers[identity.name] = _Broker(identity.cluster)
        broker.cluster = identity.cluster
        leader = broker.members.get(MASTER_ID)
        if leader is not None:
            check_leader(identity, leader.identity)
        # A follower that became the leader registers its old address under another ID.
        for other_id, other in list(broker.members.items()):
            if other.identity.address == identity.address and other_id != identity.broker_id:
                del broker.members[other_id]
        former = broker.members.get(identity.broker_id)
        broker.members[identity.broker_id] = _Member(
            identity, peer, registration.version, now_ms, registration.filter_servers
        )
        if identity.broker_id == MASTER_ID:
            same = (
                former is not None
                and former.identity.address == identity.address
                and former.version == registration.version
            )
            if not same:
                self._take_topics(identity.name, registration.topics)
            return "", ""
        leader = broker.members.get(MASTER_ID)
        return (leader.identity.ha_address, leader.identity.address) if leader else ("", "")

    def _take_topics(self, broker_name: str, topics: Iterable[TopicConfig]) -> None:
        for topic in topics:
            if not 0 < len(topic.name) <= BROKER_NAME_LENGTH_MAX or not topic.name.isprintable():
                continue  # one invalid name must not cost a broker its other routes
            self._queues.setdefault(topic.name, {})[broker_name] = QueueData(
                broker_name,
                topic.read_queue_nums,
                topic.write_queue_nums,
                topic.perm,
                topic.topic_sys_flag,
            )

    def unregister(self, identity: Identity, peer: Peer) -> bool:
        """Remove a broker; False if the current registration was made over another connection."""
        member = self._member(identity)
        if member is None or member.peer.id != peer.id:
            return False
        self._drop(identity)
        return True

    def disconnected(self, peer: Peer) -> list[Identity]:
        """Remove all brokers that registered over a closed connection."""
        return self._drop_where(lambda member: member.peer.id == peer.id)

    def expire(self, now_ms: int, expiry_ms: int) -> list[Identity]:
        """Remove all brokers that have been silent for `expiry_ms`."""
        return self._drop_where(lambda member: now_ms - member.heard_ms >= expiry_ms)

    def _drop_where(self, gone: Callable[[_Member], bool]) -> list[Identity]:
        found = [member.identity for member in self._members() if gone(member)]
        for identity in found:
            self._drop(identity)
        return found

    def _drop(self, identity: Identity) -> None:
        name = identity.name
        del self._brokers[name].members[identity.broker_id]
        if self._brokers[name].members:
            return
        del self._brokers[name]
        for topic in [topic for topic, queues in self._queues.items() if name in queues]:
            self._forget(topic, name)

    def _forget(self, topic: str, broker_name: str) -> None:
        queues = self._queues[topic]
        del queues[broker_name]
        if not queues:
            del self._queues[topic]

    def version(
        self, identity: Identity, version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Whether the broker's topics changed since it registered, and the version known here.

        An unchanged version counts as a heartbeat.
        """
        member = self._member(identity)
        if member is None:
            return True, None
        if member.version != version:
            return True, member.version
        member.heard_ms = now_ms
        return False, member.version

    def set_wiped(self, broker_name: str, wiped: bool) -> int:
        """Withdraw or restore the write permission of a broker's topics. Returns the number of
        topics.

        It lasts until it is restored or the broker is removed; new registrations do not change it.
        """
        broker = self._brokers.get(broker_name)
        if broker is None:
            return 0
        broker.wiped = wiped
        return sum(broker_name in queues for queues in self._queues.values())

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Remove a topic's route, or only its part in one cluster."""
        for name in list(self._queues.get(topic, ())):
            if not cluster or self._brokers[name].cluster == cluster:
                self._forget(topic, name)

    def route(self, topic: str, asker: Peer, order_conf: str | None) -> TopicRoute:
        """A topic's queues and brokers, with addresses that `asker` can connect to."""
        queues = self._queues.get(topic)
        if not queues:
            raise TopicNotFound(
                f"No topic route info in name server for the topic: {topic}",
                hint="create it, or send to a broker with autoCreateTopicEnable=true",
            )
        brokers = [self._broker_data(name, asker) for name in queues]
        filters: dict[str, tuple[str, ...]] = {}
        for name in queues:
            for member in self._brokers[name].members.values():
                address = member.address_for(asker)
                if address is not None and (found := member.filter_servers_for(asker)):
                    filters[address] = found
        reachable = {broker.broker_name for broker in brokers if broker.broker_addrs}
        if not reachable:
            raise TopicNotFound(
                f"no broker of topic {topic} has an address for the listener "
                f"{asker.protocol}:{asker.listener}",
                hint="see advertisedListeners of the brokers",
            )
        return TopicRoute(
            tuple(broker for broker in brokers if broker.broker_name in reachable),
            tuple(self._offered(queue) for name, queue in queues.items() if name in reachable),
            filters,
            order_conf,
        )

    def _offered(self, queue: QueueData) -> QueueData:
        if not self._brokers[queue.broker_name].wiped:
            return queue
        return replace(queue, perm=queue.perm & ~int(Permission.WRITE))

    def _broker_data(self, name: str, asker: Peer) -> BrokerData:
        broker = self._brokers[name]
        addresses = {
            broker_id: address
            for broker_id, member in broker.members.items()
            if (address := member.address_for(asker)) is not None
        }
        return BrokerData(broker.cluster, name, addresses)

    def cluster_info(self, asker: Peer) -> ClusterInfo:
        """All brokers, by name and by cluster, with addresses that `asker` can connect to."""
        clusters: dict[str, tuple[str, ...]] = {}
        for name, broker in self._brokers.items():
            clusters[broker.cluster] = (*clusters.get(broker.cluster, ()), name)
        return ClusterInfo(
            {name: self._broker_data(name, asker) for name in self._brokers}, clusters
        )

    def topics(self) -> list[str]:
        """All topics that have a route."""
        return list(self._queues)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics of a cluster's brokers."""
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        return [topic for topic, queues in self._queues.items() if not names.isdisjoint(queues)]

    def topics_flagged(self, wanted: int, unwanted: int = 0) -> list[str]:
        """The topics whose system flag has the bits of `wanted` and none of `unwanted`."""
        flags = {
            topic: next(iter(queues.values())).topic_sys_flag
            for topic, queues in self._queues.items()
        }
        return [topic for topic, flag in flags.items() if flag & wanted and not flag & unwanted]

    def system_topics(self, asker: Peer) -> tuple[list[str], str | None]:
        """Names of clusters and brokers, which are also topics, and the address of one broker."""
        info = self.cluster_info(asker)
        addresses = (data.any_addr() for data in info.brokers.values())
        return [*info.clusters, *info.brokers], next(filter(None, addresses), None)

    def counts(self) -> dict[str, int]:
        """The number of registered brokers of each cluster."""
        clusters = (self._brokers[member.identity.name].cluster for member in self._members())
        return Counter(clusters)

    def members(self) -> list[Identity]:
        """All registered brokers."""
        return [member.identity for member in self._members()]

    def _members(self) -> Iterator[_Member]:
        for broker in self._brokers.values():
            yield from broker.members.values()

    def _member(self, identity: Identity) -> _Member | None:
        """The broker registered under this name, ID and address."""
        broker = self._brokers.get(identity.name)
        member = broker.members.get(identity.broker_id) if broker else None
        return member if member and member.identity.address == identity.address else None
