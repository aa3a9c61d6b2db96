"""What a name server decides: a request comes in, an answer comes out.

Lives here: one method per request, and the order of writes to the key/value settings.
May not live here: the tables of brokers and topics (kourou_namesrv.routes), sockets, files, clocks.

Routes answer at once, from memory. A change of the key/value settings is decided, recorded by the
service (RecordKeyValues), and answered when it is durable; one is under way at a time, since each
is decided on the state that the one before left.

State: routes are soft; key/value settings are a projection of their event store.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kourou.engine.effects import Reply
from kourou.engine.events import Cause, Event, Recorded
from kourou.engine.inputs import Disconnected, Received, Tick
from kourou.engine.key_values import KeyValues, decide_delete, decide_put
from kourou.engine.key_values import evolve as evolve_key_values
from kourou.engine.settings_registry import SettingsRegistry
from kourou.errors import BadRequest, Code, ConfigError, KourouError
from kourou.model.limits import KEY_VALUE_WRITES_WAITING_MAX
from kourou.protocol import bodies
from kourou.protocol.messages import namesrv as ask
from kourou.protocol.request import Response
from kourou_namesrv.config import NamesrvSettings
from kourou_namesrv.routes import UNIT, UNIT_SUBSCRIPTION, Identity, Routes

_log = logging.getLogger("kourou.namesrv")

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class RecordKeyValues:
    """Effect: make these events durable, then come back with KeyValuesWritten."""

    events: Sequence[Event]
    expected_offset: int
    cause: Cause
    request: Received


@dataclass(frozen=True, slots=True)
class KeyValuesWritten:
    """Input: the events are durable, or nothing changed because of `error`."""

    recorded: Sequence[Recorded]
    error: KourouError | None
    request: Received


Input = Received | Disconnected | Tick | KeyValuesWritten
Effect = Reply | RecordKeyValues
Answer = tuple[Response | None, bytes]
_NOTHING: Answer = (None, b"")


class NamesrvCore:
    """One name server's decisions; `settings_text` is what GET_NAMESRV_CONFIG answers."""

    def __init__(
        self,
        settings: NamesrvSettings,
        key_values: KeyValues,
        registry: SettingsRegistry,
        settings_text: str,
    ) -> None:
        self.routes = Routes()
        self.key_values = key_values
        self.expired = 0
        self._settings = settings
        self._registry = registry
        self._settings_text = settings_text
        self._now_ms = 0
        self._scanned_ms = 0
        self._writing = False
        self._writes: deque[Received] = deque()
        self._effects: list[Effect] = []
        self._desks: dict[type[Any], Callable[[Received, Any], Answer]] = {
            ask.RegisterBroker: self._register,
            ask.UnregisterBroker: self._unregister,
            ask.QueryDataVersion: self._query_data_version,
            ask.GetRouteInfoByTopic: self._route,
            ask.GetBrokerClusterInfo: self._cluster_info,
            ask.WipeWritePermOfBroker: self._wipe,
            ask.AddWritePermOfBroker: self._unwipe,
            ask.GetAllTopicListFromNamesrv: self._topics,
            ask.DeleteTopicInNamesrv: self._delete_topic,
            ask.GetTopicsByCluster: self._topics_of_cluster,
            ask.GetSystemTopicListFromNamesrv: self._system_topics,
            ask.GetUnitTopicList: self._flagged(UNIT),
            ask.GetHasUnitSubTopicList: self._flagged(UNIT_SUBSCRIPTION),
            ask.GetHasUnitSubUnunitTopicList: self._flagged(UNIT_SUBSCRIPTION, UNIT),
            ask.GetKvConfig: self._get_key_value,
            ask.GetKvListByNamespace: self._list_key_values,
            ask.GetNamesrvConfig: self._get_settings,
            ask.UpdateNamesrvConfig: self._update_settings,
        }

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> Sequence[Effect]:
        """See kourou.core."""
        self._now_ms = now_ms
        self._effects = []
        for item in inputs:
            match item:
                case Received(request=ask.PutKvConfig() | ask.DeleteKvConfig()):
                    self._change_key_value(item)
                case Received():
                    self._answer(item)
                case Disconnected(peer):
                    for identity in self.routes.disconnected(peer):
                        _log.info("%s left: its connection closed", _named(identity))
                case Tick():
                    self._scan()
                case KeyValuesWritten():
                    self._key_values_written(item)
        return self._effects

    def _answer(self, received: Received) -> None:
        desk = self._desks[type(received.request)]  # the carrier lets through what has one
        try:
            header, body = desk(received, received.request)
        except KourouError as error:
            self._effects.append(Reply(received.to, error.wire_code, str(error)))
        else:
            self._effects.append(Reply(received.to, header=header, body=(body,) if body else ()))

    def _scan(self) -> None:
        if self._now_ms - self._scanned_ms < self._settings.scan_interval_ms:
            return
        self._scanned_ms = self._now_ms
        for identity in self.routes.expire(self._now_ms, self._settings.broker_expiry_ms):
            self.expired += 1
            _log.warning("%s is dropped: it was silent for too long", _named(identity))

    def _register(self, received: Received, it: ask.RegisterBroker) -> Answer:
        body = _body(received)
        bodies.check_body_checksum(body, it.body_crc32)
        registration = bodies.decode_registration(body, compressed=it.compressed)
        identity = Identity(
            it.cluster_name,
            it.broker_name,
            it.broker_id,
            it.broker_addr,
            it.ha_server_addr or "",
            dict(it.listeners or {}),
        )
        ha_address, leader = self.routes.register(
            identity, registration, received.to.peer, self._now_ms
        )
        order = self.key_values.table.get(ORDER_TOPIC_CONFIG)
        header = ask.RegisterBrokerResponse(
            ha_server_addr=ha_address or None, master_addr=leader or None
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
        return None, bodies.encode_topic_route(route)

    def _cluster_info(self, received: Received, _: ask.GetBrokerClusterInfo) -> Answer:
        return None, bodies.encode_cluster_info(self.routes.cluster_info(received.to.peer))

    def _topics(self, _received: Received, _: ask.GetAllTopicListFromNamesrv) -> Answer:
        return None, bodies.encode_topic_list(self.routes.topics())

    def _topics_of_cluster(self, _received: Received, it: ask.GetTopicsByCluster) -> Answer:
        return None, bodies.encode_topic_list(self.routes.topics_of_cluster(it.cluster))

    def _system_topics(self, received: Received, _: ask.GetSystemTopicListFromNamesrv) -> Answer:
        return None, bodies.encode_topic_list(*self.routes.system_topics(received.to.peer))

    def _flagged(self, wanted: int, unwanted: int = 0) -> Callable[[Received, Any], Answer]:
        def answer(_received: Received, _: Any) -> Answer:
            return None, bodies.encode_topic_list(self.routes.topics_flagged(wanted, unwanted))

        return answer

    def _delete_topic(self, received: Received, it: ask.DeleteTopicInNamesrv) -> Answer:
        self.routes.delete_topic(it.topic, it.cluster_name)
        _log.warning("%s deleted the route of the topic %s", received.to.peer, it.topic)
        return _NOTHING

    def _get_key_value(self, _received: Received, it: ask.GetKvConfig) -> Answer:
        value = self.key_values.get(it.namespace, it.key)
        if value is None:
            raise BadRequest(
                f"No config item, Namespace: {it.namespace} Key: {it.key}",
                code=Code.QUERY_NOT_FOUND,
            )
        return ask.GetKvConfigResponse(value=value), b""

    def _list_key_values(self, _received: Received, it: ask.GetKvListByNamespace) -> Answer:
        table = self.key_values.table.get(it.namespace)
        if not table:
            raise BadRequest(
                f"No config item, Namespace: {it.namespace}", code=Code.QUERY_NOT_FOUND
            )
        return None, bodies.encode_kv_table(table)

    def _change_key_value(self, received: Received) -> None:
        if len(self._writes) >= KEY_VALUE_WRITES_WAITING_MAX:
            self._effects.append(Reply(received.to, Code.SYSTEM_BUSY, "too many changes wait"))
            return
        self._writes.append(received)
        self._next_write()

    def _next_write(self) -> None:
        while self._writes and not self._writing:
            received = self._writes.popleft()
            try:
                events = self._decided(received.request)
            except KourouError as error:
                self._effects.append(Reply(received.to, error.wire_code, str(error)))
                continue
            if not events:
                self._effects.append(Reply(received.to))
                continue
            self._writing = True
            trace_id = received.trace[:16].hex() if any(received.trace) else ""
            cause = Cause(str(received.to.peer), trace_id=trace_id)
            offset = self.key_values.next_offset
            self._effects.append(RecordKeyValues(events, offset, cause, received))

    def _decided(self, request: Any) -> list[Event]:
        if isinstance(request, ask.PutKvConfig):
            return decide_put(self.key_values, request.namespace, request.key, request.value)
        return decide_delete(self.key_values, request.namespace, request.key)

    def _key_values_written(self, written: KeyValuesWritten) -> None:
        for recorded in written.recorded:
            self.key_values = evolve_key_values(self.key_values, recorded)
        error, to = written.error, written.request.to
        self._effects.append(Reply(to, error.wire_code, str(error)) if error else Reply(to))
        self._writing = False
        self._next_write()

    def _get_settings(self, _received: Received, _: ask.GetNamesrvConfig) -> Answer:
        return None, self._settings_text.encode()

    def _update_settings(self, received: Received, _: ask.UpdateNamesrvConfig) -> Answer:
        """No key of a name server may be changed from afar: each says where it listens or lies."""
        wanted = bodies.decode_properties_text(_body(received))
        for key in wanted:
            self._registry.dynamic(key)
        raise ConfigError("no setting is named", hint="give lines of the form key=value")


def _body(received: Received) -> bytes:
    return b"".join(map(bytes, received.body))


def _identity(it: ask.UnregisterBroker | ask.QueryDataVersion) -> Identity:
    return Identity(it.cluster_name, it.broker_name, it.broker_id, it.broker_addr)


def _named(identity: Identity) -> str:
    return f"broker {identity.name} ({identity.broker_id}) at {identity.address}"
