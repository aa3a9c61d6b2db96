"""Operators' requests about the broker itself: settings, metrics, control history.

State: none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.history import event_view
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Announce, Effect
from kourou.errors import BadRequest, Corrupt, DecodeError, Rejected
from kourou.events.control_events import (
    Event,
    EventLost,
    Recorded,
    SettingChanged,
    decode_record_body,
)
from kourou.model.limits import PULL_SIZE_BYTES_MAX
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.bodies.broker_bodies import EventView, encode_event_views, encode_setting_views
from kourou.protocol.bodies.route_bodies import encode_kv_table
from kourou.protocol.messages.broker_admin import (
    GetBrokerConfig,
    GetBrokerConfigResponse,
    GetBrokerRuntimeInfo,
    GetControlEvents,
    GetControlEventsResponse,
    UpdateBrokerConfig,
)
from kourou.protocol.record.message_record import CheckedRecord, check_record, decode_record
from kourou.protocol.request import Request
from kourou.protocol.wire.properties_text import decode_properties_text, encode_properties_text
from kourou.runtime import Received, Reply
from kourou.settings.registry import SettingsRegistry, decide_change, effective, text_of

EXPORTED: Mapping[str, str] = {"filterServerNums": "0", "useTLS": "false"}
"""RocketMQ keys that this broker lacks; mqadmin's exportConfigs fails without them."""

Apply = Callable[[str, bool | int | str], None]
"""Applies a changed setting."""

Entailed = Callable[[Sequence[Event]], Sequence[Event]]
"""Returns the events that must be recorded together with these changes of settings."""

_ADVERTISED = frozenset({"brokerPermission"})
"""Settings that the broker reports to name servers."""

Figures = Callable[[], Mapping[str, str]]
"""The service's runtime metrics, as texts."""


class BrokerHandler:
    """Handles requests about the broker."""

    def __init__(
        self,
        context: BrokerContext,
        registry: SettingsRegistry,
        apply: Apply,
        entailed: Entailed,
        figures: Figures,
        gate: AccessGate,
    ) -> None:
        self._control = context.control
        self._confirmations = context.confirmations
        self._pending_replies = context.pending_replies
        self._view = context.view
        self._registry = registry
        self._apply = apply
        self._entailed = entailed
        self._figures = figures
        self._gate = gate
        for spec in registry:
            if spec.dynamic:
                apply(spec.key, effective(context.control.settings, spec))

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            GetBrokerConfig: self.settings,
            UpdateBrokerConfig: self.update_settings,
            GetBrokerRuntimeInfo: self.runtime,
            GetControlEvents: self.control_events,
        }

    def settings(self, _now_ms: int, received: Received, request: GetBrokerConfig) -> list[Effect]:
        """Reply with every setting and its current value (26), and its description if requested."""
        values = {spec.key: effective(self._control.settings, spec) for spec in self._registry}
        version = msgspec.json.encode(self._control.settings.version).decode()
        header = GetBrokerConfigResponse(version=version, described=request.described)
        if request.described:
            body = encode_setting_views(
                self._registry.view(spec, text_of(values[spec.key])) for spec in self._registry
            )
        else:
            texts = {name: text_of(value) for name, value in values.items()}
            body = encode_properties_text({**EXPORTED, **texts})
        return [Reply(received.to, header=header, body=(body,))]

    def update_settings(
        self, now_ms: int, received: Received, _request: UpdateBrokerConfig
    ) -> list[Effect]:
        """Change dynamic settings, all or none (25)."""
        changes = decode_properties_text(b"".join(received.body))
        events = decide_change(self._control.settings, self._registry, changes)
        try:
            effects = self._pending_replies.decided(
                now_ms, received, [*events, *self.entailed(events)]
            )
        finally:
            # Recorded changes take effect even if the log had no room for all of them.
            self.put_into_force(events)
        return effects + self.advertised(events)

    def entailed(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that must be recorded together with these changes of settings."""
        return list(self._entailed(events))

    def put_into_force(self, events: Sequence[Event]) -> None:
        """Apply the recorded values of the settings that these events may have changed."""
        for event in events:
            if isinstance(event, SettingChanged):
                spec = self._registry.dynamic(event.name)
                self._apply(event.name, effective(self._control.settings, spec))

    def advertised(self, events: Sequence[Event]) -> list[Effect]:
        """Register with the name servers again if these changes of settings concern them."""
        concerned = any(
            isinstance(one, SettingChanged) and one.name in _ADVERTISED for one in events
        )
        return [Announce()] if concerned else []

    def runtime(
        self, _now_ms: int, received: Received, _request: GetBrokerRuntimeInfo
    ) -> list[Effect]:
        """Reply with bounds, sizes and totals as texts (28)."""
        low, high = self._view.log_range()
        table = {
            "commitLogMinOffset": str(low),
            "commitLogMaxOffset": str(high),
            "earliestMessageTimeStamp": str(self._first_stored_ms(low, high)),
            "remainHowManyDataToFlush": str(max(high - self._confirmations.flushed, 0)),
            **self._figures(),
        }
        return [Reply(received.to, body=(encode_kv_table(table),))]

    def _first_stored_ms(self, low: int, high: int) -> int:
        """Return when the log's oldest record was stored; -1 if there is none or it is damaged."""
        if low >= high:
            return -1
        try:
            record = self._view.record_at(low)
            found = check_record(record, 0, len(record), low)
        except (Rejected, Corrupt):
            return -1
        return found.store_timestamp if isinstance(found, CheckedRecord) else -1

    def control_events(
        self, _now_ms: int, received: Received, request: GetControlEvents
    ) -> list[Effect]:
        """Reply with control events from an offset on, as JSON (30010)."""
        if request.max_count <= 0 or request.from_offset < 0:
            raise BadRequest("from_offset must not be negative and max_count at least 1")
        low, high = self._view.queue_range(CONTROL_TOPIC, 0) or (0, 0)
        offset = max(request.from_offset, low)
        events: list[EventView] = []
        if offset < high:
            read = self._view.read_queue(
                CONTROL_TOPIC,
                0,
                offset,
                max_messages=request.max_count,
                max_bytes=PULL_SIZE_BYTES_MAX // 2,
                codes=None,
                below=self._confirmations.confirmed,
            )
            offset = read.next_offset
            hide_users = not self._gate.may_see_users(received)
            events = [_view_of(record, hide_users=hide_users) for record in read.records]
        header = GetControlEventsResponse(next_offset=offset, max_offset=high, min_offset=low)
        return [Reply(received.to, header=header, body=(encode_event_views(events),))]


def _view_of(record: memoryview, *, hide_users: bool) -> EventView:
    """Decode one control event; an unreadable record becomes EventLost."""
    stored = decode_record(record)
    try:
        recorded = decode_record_body(stored.body, offset=stored.offset, position=stored.position)
    except DecodeError as error:
        recorded = Recorded(
            stored.offset,
            stored.position,
            stored.store_timestamp,
            "",
            "",
            "",
            EventLost(str(error)),
        )
    return event_view(recorded, hide_users=hide_users)
