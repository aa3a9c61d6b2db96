"""The decisions of a name server: a request comes in, a reply goes out.

`BrokerTable` has the registered brokers and their topics. A broker is identified by its name and
ID. Its registration is valid until it unregisters, its connection closes, or it is silent for 120 s
by the monotonic clock. Name servers do not communicate with each other.

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

State: soft, on purpose (routes, recently registered promotions): brokers rebuild it within 30 s by
registering; projection of an event store (key/value settings).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kourou.authorization.audit import AccessDecided
from kourou.authorization.request_gate import PublishedGate
from kourou.errors import BadRequest, Code, KourouError, Throttled, TopicNotFound
from kourou.model.limits import BROKER_NAME_LENGTH_MAX, BROKERS_MAX
from kourou.model.names import ORDER_NAMESPACE
from kourou.model.topic import (
    MASTER_ID,
    UNIT,
    UNIT_SUBSCRIPTION,
    BrokerData,
    DataVersion,
    Permission,
    QueueData,
    TopicConfig,
    TopicRoute,
)
from kourou.protocol.bodies.config_bodies import decode_data_version, encode_data_version
from kourou.protocol.bodies.registration_body import (
    BrokerRegistration,
    check_body_checksum,
    decode_registration,
)
from kourou.protocol.bodies.route_bodies import (
    ClusterInfo,
    encode_cluster_info,
    encode_kv_table,
    encode_topic_list,
    encode_topic_route,
)
from kourou.protocol.messages import namesrv as ask
from kourou.protocol.request import Response
from kourou.protocol.wire.properties_text import decode_properties_text
from kourou.runtime import Disconnected, Peer, Received, Reply, Tick
from kourou.settings.registry import ChangedSettings, SettingsRegistry, decide_change
from kourou_namesrv import registrations
from kourou_namesrv.config import NamesrvSettings
from kourou_namesrv.key_values import KeyValueHandler, KeyValues, KeyValuesWritten, RecordKeyValues
from kourou_namesrv.registrations import BrokerIdentity, Outdone, check_identity, check_leader

# -- registered brokers and their topics ----------------------------------------------------------


@dataclass(slots=True)
class _Member:
    """One registered broker. `heard_ms` is by the monotonic clock."""

    identity: BrokerIdentity
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


class BrokerTable:
    """The tables of one name server."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Broker] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}

    def register(
        self, identity: BrokerIdentity, registration: BrokerRegistration, peer: Peer, now_ms: int
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

    def unregister(self, identity: BrokerIdentity, peer: Peer) -> bool:
        """Remove a broker; False if the current registration was made over another connection."""
        member = self._member(identity)
        if member is None or member.peer.id != peer.id:
            return False
        self._drop(identity)
        return True

    def disconnected(self, peer: Peer) -> list[BrokerIdentity]:
        """Remove all brokers that registered over a closed connection."""
        return self._drop_where(lambda member: member.peer.id == peer.id)

    def expire(self, now_ms: int, expiry_ms: int) -> list[BrokerIdentity]:
        """Remove all brokers that have been silent for `expiry_ms`."""
        return self._drop_where(lambda member: now_ms - member.heard_ms >= expiry_ms)

    def _drop_where(self, gone: Callable[[_Member], bool]) -> list[BrokerIdentity]:
        found = [member.identity for member in self._members() if gone(member)]
        for identity in found:
            self._drop(identity)
        return found

    def _drop(self, identity: BrokerIdentity) -> None:
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
        self, identity: BrokerIdentity, version: DataVersion, now_ms: int
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
        return Counter(self._brokers[member.identity.name].cluster for member in self._members())

    def members(self) -> list[BrokerIdentity]:
        """All registered brokers."""
        return [member.identity for member in self._members()]

    def _members(self) -> Iterator[_Member]:
        for broker in self._brokers.values():
            yield from broker.members.values()

    def _member(self, identity: BrokerIdentity) -> _Member | None:
        """The broker registered under this name, ID and address."""
        broker = self._brokers.get(identity.name)
        member = broker.members.get(identity.broker_id) if broker else None
        return member if member and member.identity.address == identity.address else None


# -- requests -------------------------------------------------------------------------------------

_log = logging.getLogger("kourou.namesrv")

STRICT_ROUTES_SINCE = 401
"""RocketMQ's name server quotes broker IDs in routes from this version (4.9.4) on."""

Input = Received | Disconnected | Tick | KeyValuesWritten
Effect = Reply | RecordKeyValues | AccessDecided
Answer = tuple[Response | None, bytes]
_NOTHING: Answer = (None, b"")


class NamesrvCore:
    """The decisions of one name server; `settings_text` is the reply to GET_NAMESRV_CONFIG.

    `gate` decides who may do what; None: everybody may do everything.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        key_values: KeyValues,
        registry: SettingsRegistry,
        settings_text: str,
        gate: PublishedGate | None = None,
    ) -> None:
        self.routes = routes = BrokerTable()
        self._gate = gate or PublishedGate(None)
        self._changes = KeyValueHandler(key_values)
        self._promotions: dict[str, int] = {}
        self.expired = 0
        self._settings = settings
        self._registry = registry
        self._now_ms = 0
        self._scanned_ms = 0
        self._effects: list[Effect] = []

        def listed(topics: list[str]) -> Answer:
            return _topics(self._gate.seen(topics))

        self._handlers: dict[type[Any], Callable[[Received, Any], Answer]] = {
            ask.RegisterBroker: self._register,
            ask.UnregisterBroker: self._unregister,
            ask.QueryDataVersion: self._query_data_version,
            ask.GetRouteInfoByTopic: self._route,
            ask.GetBrokerClusterInfo: self._cluster_info,
            ask.WipeWritePermOfBroker: self._wipe,
            ask.AddWritePermOfBroker: self._unwipe,
            ask.DeleteTopicInNamesrv: self._delete_topic,
            ask.GetKvConfig: self._get_key_value,
            ask.GetKvListByNamespace: self._list_key_values,
            ask.GetNamesrvConfig: lambda *_: (None, settings_text.encode()),
            ask.UpdateNamesrvConfig: self._update_settings,
            ask.GetAllTopicListFromNamesrv: lambda *_: listed(routes.topics()),
            ask.GetTopicsByCluster: lambda _, it: listed(routes.topics_of_cluster(it.cluster)),
            ask.GetSystemTopicListFromNamesrv: lambda by, _: _topics(
                *routes.system_topics(by.to.peer)
            ),
            ask.GetUnitTopicList: lambda *_: listed(routes.topics_flagged(UNIT)),
            ask.GetHasUnitSubTopicList: lambda *_: listed(routes.topics_flagged(UNIT_SUBSCRIPTION)),
            ask.GetHasUnitSubUnunitTopicList: lambda *_: listed(
                routes.topics_flagged(UNIT_SUBSCRIPTION, UNIT)
            ),
            ask.PutUsers: self._put_users,
        }

    @property
    def key_values(self) -> KeyValues:
        """The durable key/value settings."""
        return self._changes.key_values

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> Sequence[Effect]:
        """See kourou.runtime."""
        self._now_ms = now_ms
        self._effects = []
        for item in inputs:
            match item:
                case Received() if not self._gate.allows(item, self._effects):
                    pass
                case Received(request=ask.PutKvConfig() | ask.DeleteKvConfig()):
                    self._effects += self._changes.change(item)
                case Received():
                    self._answer(item)
                case Disconnected(peer):
                    for identity in self.routes.disconnected(peer):
                        _log_gone(identity, "its connection closed")
                case Tick():
                    self._scan()
                case KeyValuesWritten():
                    self._effects += self._changes.written(item)
        return self._effects

    def _answer(self, received: Received) -> None:
        # The transport rejects requests without a handler.
        handler = self._handlers[type(received.request)]
        try:
            header, body = handler(received, received.request)
        except KourouError as error:
            # A superseded leader receives the epoch that superseded it.
            refusal = (
                ask.RegisterBrokerResponse(epoch=error.epoch) if type(error) is Outdone else None
            )
            self._effects.append(Reply(received.to, error.wire_code, str(error), refusal))
        else:
            self._effects.append(Reply(received.to, header=header, body=(body,) if body else ()))

    def _scan(self) -> None:
        if self._now_ms - self._scanned_ms < self._settings.scan_interval_ms:
            return
        self._scanned_ms = self._now_ms
        for identity in self.routes.expire(self._now_ms, self._settings.broker_expiry_ms):
            self.expired += 1
            _log_gone(identity, "no heartbeat for too long", logging.WARNING)

    def _register(self, received: Received, it: ask.RegisterBroker) -> Answer:
        body = _body(received)
        check_body_checksum(body, it.body_crc32)
        registration = decode_registration(
            body, compressed=it.compressed, sender_version=received.to.version or None
        )
        identity = BrokerIdentity(
            it.cluster_name,
            it.broker_name,
            it.broker_id,
            it.broker_addr,
            it.ha_server_addr or "",
            dict(it.listeners or {}),
            None if it.filter_listeners is None else tuple(map(dict, it.filter_listeners)),
            it.epoch,
            it.promotion,
        )
        registrations.check_promoted(self.key_values, identity)
        ha_address, leader = self.routes.register(
            identity, registration, received.to.peer, self._now_ms
        )
        news = registrations.news(self.key_values, identity)
        if news is not None:
            fields = {"broker": _named(identity), "epoch": identity.epoch}
            _log.warning("leader-promoted: %(broker)s is the leader, in epoch %(epoch)s", fields)
            key, reason = registrations.key_of(identity), "a promoted leader registered"
            self._promotions[key] = identity.promotion or identity.epoch or 0
            self._effects += self._changes.keep(registrations.NAMESPACE, key, news, reason)
        order = self.key_values.table.get(ORDER_NAMESPACE)
        outdo = registrations.to_outdo(self.key_values, identity, self._promotions)
        mark = self._gate.mark_of(received.to.peer, identity.cluster, identity.name)
        header = ask.RegisterBrokerResponse(
            ha_server_addr=ha_address or None, master_addr=leader or None, epoch=outdo, users=mark
        )
        return header, encode_kv_table(order) if order else b""

    def _unregister(self, received: Received, it: ask.UnregisterBroker) -> Answer:
        identity = _identity(it)
        gone = self.routes.unregister(identity, received.to.peer)
        _log_gone(identity, "it left" if gone else "it left late, after it was replaced")
        return _NOTHING

    def _put_users(self, received: Received, it: ask.PutUsers) -> Answer:
        self._gate.publish(it, _body(received))
        return _NOTHING

    def _query_data_version(self, received: Received, it: ask.QueryDataVersion) -> Answer:
        theirs = decode_data_version(_body(received))
        changed, ours = self.routes.version(_identity(it), theirs, self._now_ms)
        body = encode_data_version(ours) if ours is not None else b""
        return ask.QueryDataVersionResponse(changed=changed), body

    def _wipe(self, received: Received, it: ask.WipeWritePermOfBroker) -> Answer:
        count = self.routes.set_wiped(it.broker_name, True)
        fields = {"actor": received.actor, "broker": it.broker_name}
        _log.warning("writes-stopped: %(actor)s wiped the write permission of %(broker)s", fields)
        return ask.WipeWritePermOfBrokerResponse(wipe_topic_count=count), b""

    def _unwipe(self, received: Received, it: ask.AddWritePermOfBroker) -> Answer:
        count = self.routes.set_wiped(it.broker_name, False)
        fields = {"actor": received.actor, "broker": it.broker_name}
        _log.warning("writes-allowed: %(actor)s gave %(broker)s its write permission back", fields)
        return ask.AddWritePermOfBrokerResponse(add_topic_count=count), b""

    def _route(self, received: Received, it: ask.GetRouteInfoByTopic) -> Answer:
        order = None
        if self._settings.order_messages:
            order = self.key_values.get(ORDER_NAMESPACE, it.topic)
        route = self.routes.route(it.topic, received.to.peer, order)
        # Older clients get the old format, because some of them parse this text themselves.
        strict = it.accept_standard_json_only or received.to.version >= STRICT_ROUTES_SINCE
        return None, encode_topic_route(route, strict=bool(strict))

    def _cluster_info(self, received: Received, _: ask.GetBrokerClusterInfo) -> Answer:
        return None, encode_cluster_info(self.routes.cluster_info(received.to.peer))

    def _delete_topic(self, received: Received, it: ask.DeleteTopicInNamesrv) -> Answer:
        self.routes.delete_topic(it.topic, it.cluster_name)
        fields = {"actor": received.actor, "topic": it.topic}
        _log.warning("route-deleted: %(actor)s deleted the route of topic %(topic)s", fields)
        return _NOTHING

    def _get_key_value(self, _received: Received, it: ask.GetKvConfig) -> Answer:
        value = self.key_values.get(it.namespace, it.key)
        if value is None:
            raise _no_config_item(f"{it.namespace} Key: {it.key}")
        return ask.GetKvConfigResponse(value=value), b""

    def _list_key_values(self, _received: Received, it: ask.GetKvListByNamespace) -> Answer:
        table = self.key_values.table.get(it.namespace)
        if not table:
            raise _no_config_item(it.namespace)
        return None, encode_kv_table(table)

    def _update_settings(self, received: Received, _: ask.UpdateNamesrvConfig) -> Answer:
        """Reject every change: no setting of a name server can be changed by a request."""
        decide_change(ChangedSettings(), self._registry, decode_properties_text(_body(received)))
        return None, b""


def _topics(names: list[str], broker: str | None = None) -> Answer:
    return None, encode_topic_list(names, broker)


def _body(received: Received) -> bytes:
    return b"".join(map(bytes, received.body))


def _identity(it: ask.UnregisterBroker | ask.QueryDataVersion) -> BrokerIdentity:
    return BrokerIdentity(it.cluster_name, it.broker_name, it.broker_id, it.broker_addr)


def _no_config_item(wanted: str) -> BadRequest:
    return BadRequest(f"No config item, Namespace: {wanted}", code=Code.QUERY_NOT_FOUND)


def _log_gone(identity: BrokerIdentity, reason: str, level: int = logging.INFO) -> None:
    fields = {"broker": _named(identity), "reason": reason}
    _log.log(level, "broker-unregistered: %(broker)s unregistered: %(reason)s", fields)


def _named(identity: BrokerIdentity) -> str:
    return f"broker {identity.name} ({identity.broker_id}) at {identity.address}"
