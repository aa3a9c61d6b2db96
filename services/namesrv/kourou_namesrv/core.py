"""The decisions of a name server: a request comes in, a reply goes out.

State: soft (routes, recently registered promotions), projection of an event store (key/value
settings).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kourou.errors import BadRequest, Code, KourouError
from kourou.protocol import all_bodies as bodies
from kourou.protocol.messages import namesrv as ask
from kourou.protocol.request import Response
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import Disconnected, Received, Tick
from kourou.settings.registry import ChangedSettings, SettingsRegistry, decide_change
from kourou_namesrv import registrations as registrants
from kourou_namesrv.config import NamesrvSettings
from kourou_namesrv.key_value_handler import KeyValueHandler, KeyValuesWritten, RecordKeyValues
from kourou_namesrv.key_values import KeyValues
from kourou_namesrv.registrations import Identity, Outdone
from kourou_namesrv.routes import UNIT, UNIT_SUBSCRIPTION, Routes

_log = logging.getLogger("kourou.namesrv")

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
STRICT_ROUTES_SINCE = 401
"""RocketMQ's name server quotes broker IDs in routes from this version (4.9.4) on."""

Input = Received | Disconnected | Tick | KeyValuesWritten
Effect = Reply | RecordKeyValues
Answer = tuple[Response | None, bytes]
_NOTHING: Answer = (None, b"")


class NamesrvCore:
    """The decisions of one name server; `settings_text` is the reply to GET_NAMESRV_CONFIG."""

    def __init__(
        self,
        settings: NamesrvSettings,
        key_values: KeyValues,
        registry: SettingsRegistry,
        settings_text: str,
    ) -> None:
        self.routes = routes = Routes()
        self._changes = KeyValueHandler(key_values)
        self._promotions: dict[str, int] = {}
        self.expired = 0
        self._settings = settings
        self._registry = registry
        self._now_ms = 0
        self._scanned_ms = 0
        self._effects: list[Effect] = []
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
            ask.GetAllTopicListFromNamesrv: lambda *_: _topics(routes.topics()),
            ask.GetTopicsByCluster: lambda _, it: _topics(routes.topics_of_cluster(it.cluster)),
            ask.GetSystemTopicListFromNamesrv: lambda by, _: _topics(
                *routes.system_topics(by.to.peer)
            ),
            ask.GetUnitTopicList: lambda *_: _topics(routes.topics_flagged(UNIT)),
            ask.GetHasUnitSubTopicList: lambda *_: _topics(
                routes.topics_flagged(UNIT_SUBSCRIPTION)
            ),
            ask.GetHasUnitSubUnunitTopicList: lambda *_: _topics(
                routes.topics_flagged(UNIT_SUBSCRIPTION, UNIT)
            ),
        }

    @property
    def key_values(self) -> KeyValues:
        """The durable key/value settings."""
        return self._changes.key_values

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> Sequence[Effect]:
        """See kourou.runtime.core."""
        self._now_ms = now_ms
        self._effects = []
        for item in inputs:
            match item:
                case Received(request=ask.PutKvConfig() | ask.DeleteKvConfig()):
                    self._effects += self._changes.change(item)
                case Received():
                    self._answer(item)
                case Disconnected(peer):
                    for identity in self.routes.disconnected(peer):
                        _log.info("%s unregistered: its connection closed", _named(identity))
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
            told = ask.RegisterBrokerResponse(epoch=error.epoch) if type(error) is Outdone else None
            self._effects.append(Reply(received.to, error.wire_code, str(error), told))
        else:
            self._effects.append(Reply(received.to, header=header, body=(body,) if body else ()))

    def _scan(self) -> None:
        if self._now_ms - self._scanned_ms < self._settings.scan_interval_ms:
            return
        self._scanned_ms = self._now_ms
        for identity in self.routes.expire(self._now_ms, self._settings.broker_expiry_ms):
            self.expired += 1
            _log.warning("%s unregistered: no heartbeat for too long", _named(identity))

    def _register(self, received: Received, it: ask.RegisterBroker) -> Answer:
        body = _body(received)
        bodies.check_body_checksum(body, it.body_crc32)
        registration = bodies.decode_registration(
            body, compressed=it.compressed, sender_version=received.to.version or None
        )
        identity = Identity(
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
        registrants.check_promoted(self.key_values, identity)
        ha_address, leader = self.routes.register(
            identity, registration, received.to.peer, self._now_ms
        )
        news = registrants.news(self.key_values, identity)
        if news is not None:
            _log.warning("%s is now the leader, in epoch %s", _named(identity), identity.epoch)
            key, reason = registrants.key_of(identity), "a promoted leader registered"
            self._promotions[key] = identity.promotion or identity.epoch or 0
            self._effects += self._changes.keep(registrants.NAMESPACE, key, news, reason)
        order = self.key_values.table.get(ORDER_TOPIC_CONFIG)
        outdo = registrants.to_outdo(self.key_values, identity, self._promotions)
        header = ask.RegisterBrokerResponse(
            ha_server_addr=ha_address or None, master_addr=leader or None, epoch=outdo
        )
        return header, bodies.encode_kv_table(order) if order else b""

    def _unregister(self, received: Received, it: ask.UnregisterBroker) -> Answer:
        identity = _identity(it)
        gone = self.routes.unregister(identity, received.to.peer)
        _log.info("%s %s", _named(identity), "left" if gone else "left late: it is replaced")
        return _NOTHING

    def _query_data_version(self, received: Received, it: ask.QueryDataVersion) -> Answer:
        theirs = bodies.decode_data_version(_body(received))
        changed, ours = self.routes.version(_identity(it), theirs, self._now_ms)
        body = bodies.encode_data_version(ours) if ours is not None else b""
        return ask.QueryDataVersionResponse(changed=changed), body

    def _wipe(self, received: Received, it: ask.WipeWritePermOfBroker) -> Answer:
        count = self.routes.set_wiped(it.broker_name, True)
        _log.warning("%s wiped the write permission of %s", received.to.peer, it.broker_name)
        return ask.WipeWritePermOfBrokerResponse(wipe_topic_count=count), b""

    def _unwipe(self, received: Received, it: ask.AddWritePermOfBroker) -> Answer:
        count = self.routes.set_wiped(it.broker_name, False)
        _log.warning("%s gave %s its write permission back", received.to.peer, it.broker_name)
        return ask.AddWritePermOfBrokerResponse(add_topic_count=count), b""

    def _route(self, received: Received, it: ask.GetRouteInfoByTopic) -> Answer:
        order = None
        if self._settings.order_messages:
            order = self.key_values.get(ORDER_TOPIC_CONFIG, it.topic)
        route = self.routes.route(it.topic, received.to.peer, order)
        # Older clients get the old format, because some of them parse this text themselves.
        strict = it.accept_standard_json_only or received.to.version >= STRICT_ROUTES_SINCE
        return None, bodies.encode_topic_route(route, strict=bool(strict))

    def _cluster_info(self, received: Received, _: ask.GetBrokerClusterInfo) -> Answer:
        return None, bodies.encode_cluster_info(self.routes.cluster_info(received.to.peer))

    def _delete_topic(self, received: Received, it: ask.DeleteTopicInNamesrv) -> Answer:
        self.routes.delete_topic(it.topic, it.cluster_name)
        _log.warning("%s deleted the route of topic %s", received.to.peer, it.topic)
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
        return None, bodies.encode_kv_table(table)

    def _update_settings(self, received: Received, _: ask.UpdateNamesrvConfig) -> Answer:
        """Reject every change: no setting of a name server can be changed by a request."""
        decide_change(
            ChangedSettings(), self._registry, bodies.decode_properties_text(_body(received))
        )
        return None, b""


def _topics(names: list[str], broker: str | None = None) -> Answer:
    return None, bodies.encode_topic_list(names, broker)


def _body(received: Received) -> bytes:
    return b"".join(map(bytes, received.body))


def _identity(it: ask.UnregisterBroker | ask.QueryDataVersion) -> Identity:
    return Identity(it.cluster_name, it.broker_name, it.broker_id, it.broker_addr)


def _no_config_item(wanted: str) -> BadRequest:
    return BadRequest(f"No config item, Namespace: {wanted}", code=Code.QUERY_NOT_FOUND)


def _named(identity: Identity) -> str:
    return f"broker {identity.name} ({identity.broker_id}) at {identity.address}"
