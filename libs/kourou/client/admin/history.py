"""Administration of the control history: list decisions, query past state, undo a decision.

Every broker has its own history, so an event is identified by its broker and its offset. With a
single broker its name may be omitted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kourou.client.admin.base_api import AdminApi
from kourou.client.session.connections import body_of, header_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import BadRequest
from kourou.model.limits import HISTORY_EVENTS_MAX, REASON_LENGTH_MAX
from kourou.model.names import check_aggregate, check_event_types, check_stateful
from kourou.protocol.bodies.broker_bodies import EventView, decode_event_views, decode_state_view
from kourou.protocol.messages.broker_admin import (
    GetHistory,
    GetHistoryResponse,
    GetStateAt,
    GetStateAtResponse,
    Undo,
    UndoResponse,
)

PAGE_EVENTS = 100


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One control event: who (`actor`) changed what, when and why.

    `aggregate` is the object that changed, for example `topic/orders`. `fields` are the event's own
    fields, including the value `before` the change if there was one. `undoes` is the offset of the
    event that this one reverts.
    """

    broker_name: str
    offset: int
    at_ms: int
    aggregate: str
    type: str
    fields: dict[str, Any]
    actor: str
    reason: str
    trace_id: str
    undoes: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of decisions, newest first. `before` requests the next page; None after the last page.

    `begins_at` is the offset from which the broker knows its history; 0 if it is complete.
    """

    decisions: list[HistoryEvent]
    before: int | None
    begins_at: int = 0


@dataclass(frozen=True, slots=True)
class StateAt:
    """The state after all events below `next_offset`; the last of them was recorded at `at_ms`.

    `value` is plain JSON: the state of one aggregate, None if it did not exist, or a table of all.
    """

    broker_name: str
    aggregate: str
    value: Any
    next_offset: int
    at_ms: int


class HistoryApi(AdminApi):
    """Control history: `client.admin.history`."""

    @on_io_thread
    async def of(
        self,
        aggregate: str = "",
        *,
        broker: str | None = None,
        before: int | None = None,
        until_ms: int | None = None,
        types: Collection[str] = (),
        count_max: int = PAGE_EVENTS,
    ) -> HistoryPage:
        """Return what was decided about one aggregate (`topic/orders`, `group/till`), or about all.

        `before` is the value from the previous page. `until_ms` excludes later events. `types`
        keeps only events of these types (`TopicPut`). Raises MetadataUnavailable while the broker's
        event database is not available.
        """
        if not 0 < count_max <= HISTORY_EVENTS_MAX:
            raise BadRequest(
                f"count_max is {count_max}; it must be between 1 and {HISTORY_EVENTS_MAX}"
            )
        request = GetHistory(
            aggregate=check_aggregate(aggregate),
            before_offset=before,
            until_ms=until_ms,
            types=sorted(check_event_types(types)),
            max_count=count_max,
        )
        name, address = await self._one(broker)
        reply = await self._ask(address, request)
        header = header_of(reply, GetHistoryResponse)
        decisions = _decisions(name, decode_event_views(body_of(reply)))
        return HistoryPage(decisions, header.before_offset, header.begin_offset)

    @on_io_thread
    async def state_at(
        self,
        aggregate: str = "",
        *,
        broker: str | None = None,
        at_ms: int | None = None,
        offset: int | None = None,
    ) -> StateAt:
        """Return the state at a time, or after the event at `offset`, or now if neither is given.

        `aggregate` is one of topic/…, group/…, setting/…, progress/…, or empty for everything.
        Progress is recorded every 5 s. Raises MetadataUnavailable as `of` does.
        """
        if at_ms is not None and offset is not None:
            raise BadRequest("give a time or an event number, not both")
        request = GetStateAt(aggregate=check_stateful(aggregate), at_ms=at_ms, offset=offset)
        name, address = await self._one(broker)
        reply = await self._ask(address, request)
        header = header_of(reply, GetStateAtResponse)
        value = decode_state_view(body_of(reply))
        return StateAt(name, aggregate, value, header.next_offset, header.at_ms)

    @on_io_thread
    async def undo(
        self, offset: int, *, broker: str | None = None, reason: str = "", force: bool = False
    ) -> list[HistoryEvent]:
        """Undo the event at `offset`; returns the events that were recorded for that.

        Raises Rejected if that event cannot be undone, or if what it changed has changed again
        since then. `force` overrides the latter, even if messages are lost by it.
        """
        if offset < 0:
            raise BadRequest(f"event number {offset} is invalid; event numbers start at 0")
        if len(reason) > REASON_LENGTH_MAX:
            raise BadRequest(
                f"the reason has {len(reason)} characters; at most {REASON_LENGTH_MAX} are allowed"
            )
        name, address = await self._one(broker)
        reply = await self._ask(address, Undo(offset=offset, reason=reason, force=force))
        header_of(reply, UndoResponse)
        return _decisions(name, decode_event_views(body_of(reply)))

    async def _one(self, broker: str | None) -> tuple[str, str]:
        if broker is not None:
            return broker, await self._leader(broker)
        leaders = await self._leaders()
        if len(leaders) > 1:
            raise BadRequest(
                "no broker is given; each broker has its own history",
                hint=f"choose one of {', '.join(leaders)}",
            )
        return next(iter(leaders.items()))


def _decisions(broker_name: str, events: list[EventView]) -> list[HistoryEvent]:
    decisions: list[HistoryEvent] = []
    for each in events:
        fields = each.fields
        decisions.append(
            HistoryEvent(
                broker_name,
                each.offset,
                each.at_ms,
                each.aggregate,
                str(fields.pop("type", "")),
                fields,
                each.actor,
                each.reason,
                each.trace_id,
                each.undoes,
            )
        )
    return decisions
