"""What was decided at a broker, what held at a time, and taking a decision back.

Every broker has a history of its own, so an event is named by its broker and its offset. Where
there is one broker only it need not be named.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kourou.client.admin_desk import AdminDesk
from kourou.client.connections import body_of, header_of
from kourou.client.io_thread import on_io_thread
from kourou.errors import BadRequest
from kourou.model.aggregates import check_aggregate, check_stateful, check_types
from kourou.model.limits import HISTORY_EVENTS_MAX, REASON_LENGTH_MAX
from kourou.protocol.history_body import ToldEvent, decode_told_events, decode_told_state
from kourou.protocol.messages.history import (
    GetHistory,
    GetHistoryResponse,
    GetStateAt,
    GetStateAtResponse,
    Undo,
    UndoResponse,
)

PAGE_EVENTS = 100


@dataclass(frozen=True, slots=True)
class Decision:
    """One control event: who (`actor`) decided what, when and why.

    `aggregate` is what it changed, like `topic/orders`; `fields` are the event's own, with the
    value `before` it where there was one. `undoes` is the offset of the event it takes back.
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
    """Decisions, the newest first. `before` asks for the next page, None after the last one.

    `begins_at`: the broker does not know what was decided below this offset; 0 if it knows all.
    """

    decisions: list[Decision]
    before: int | None
    begins_at: int = 0


@dataclass(frozen=True, slots=True)
class StateAt:
    """What held after the events below `next_offset`, the latest of which was at `at_ms`.

    `value` is plain JSON: that of one aggregate, None if it did not exist, or a table of all.
    """

    broker_name: str
    aggregate: str
    value: Any
    next_offset: int
    at_ms: int


class History(AdminDesk):
    """`client.admin.history`."""

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
        """What was decided about one aggregate (`topic/orders`, `group/till`), or about all.

        `before` is a page's own; `until_ms` leaves out what came later; `types` keeps only some
        (`TopicPut`). Raises MetadataUnavailable while the broker's event database is away.
        """
        if not 0 < count_max <= HISTORY_EVENTS_MAX:
            raise BadRequest(
                f"count_max is {count_max}; it must be between 1 and {HISTORY_EVENTS_MAX}"
            )
        request = GetHistory(
            aggregate=check_aggregate(aggregate),
            before_offset=before,
            until_ms=until_ms,
            types=sorted(check_types(types)),
            max_count=count_max,
        )
        name, address = await self._one(broker)
        reply = await self._ask(address, request)
        header = header_of(reply, GetHistoryResponse)
        decisions = _decisions(name, decode_told_events(body_of(reply)))
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
        """What held at an instant, or after the event at `offset`; now, if neither is given.

        `aggregate` is one of topic/…, group/…, setting/…, progress/…, or empty for everything.
        Progress is as it was last recorded, every 5 s. Raises MetadataUnavailable as `of`.
        """
        if at_ms is not None and offset is not None:
            raise BadRequest("give a time or an event number, not both")
        request = GetStateAt(aggregate=check_stateful(aggregate), at_ms=at_ms, offset=offset)
        name, address = await self._one(broker)
        reply = await self._ask(address, request)
        header = header_of(reply, GetStateAtResponse)
        value = decode_told_state(body_of(reply))
        return StateAt(name, aggregate, value, header.next_offset, header.at_ms)

    @on_io_thread
    async def undo(
        self, offset: int, *, broker: str | None = None, reason: str = "", force: bool = False
    ) -> list[Decision]:
        """Decide the opposite of the event at `offset`; what was decided for it.

        Raises Rejected when that event cannot be undone, or when what it changed has changed since;
        `force` does it all the same, and even if messages are lost by it.
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
        return _decisions(name, decode_told_events(body_of(reply)))

    async def _one(self, broker: str | None) -> tuple[str, str]:
        leaders = await self._leaders()
        if broker is None:
            if len(leaders) > 1:
                raise BadRequest(
                    "no broker is given; each broker has its own history",
                    hint=f"choose one of {', '.join(leaders)}",
                )
            return next(iter(leaders.items()))
        if broker not in leaders:
            raise BadRequest(
                f"broker {broker!r} is unknown or has no leader",
                hint=f"brokers with a leader: {', '.join(leaders)}",
            )
        return broker, leaders[broker]


def _decisions(broker_name: str, events: list[ToldEvent]) -> list[Decision]:
    decisions: list[Decision] = []
    for each in events:
        fields = each.fields
        decisions.append(
            Decision(
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
