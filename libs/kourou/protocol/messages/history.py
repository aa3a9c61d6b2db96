"""Headers of history and undo: control events, earlier states, and undoing a change.

The commands are history, stateAt and undo; RocketMQ has none of them.
"""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Int64, Request, Response


class GetHistory(Request, kw_only=True, frozen=True):
    """GET_HISTORY (30011): get control events, the newest first.

    `aggregate` is kind/name, like topic/orders; empty means all, without ProgressRecorded unless it
    is among the types. `before_offset` and `until_ms` exclude later events, `types` events of other
    types.
    """

    code: ClassVar[int] = 30011
    aggregate: str = ""
    before_offset: Int64 | None = None
    until_ms: Int64 | None = None
    types: list[str] = []
    max_count: Int32


class GetHistoryResponse(Response, kw_only=True, frozen=True):
    """The body is a JSON array of events (kourou.protocol.bodies.history_body).

    `before_offset` requests the next page, None after the last; events below `begin_offset` are
    lost; `end_offset` is the number of events searched.
    """

    before_offset: Int64 | None = None
    begin_offset: Int64 = 0
    end_offset: Int64


class GetStateAt(Request, kw_only=True, frozen=True):
    """GET_STATE_AT (30012): get the state at a time or after an event; now, if neither is given.

    `aggregate` is topic/…, group/…, setting/… or progress/…; empty for everything.
    """

    code: ClassVar[int] = 30012
    aggregate: str = ""
    at_ms: Int64 | None = None
    offset: Int64 | None = None


class GetStateAtResponse(Response, kw_only=True, frozen=True):
    """The body is the state as JSON; null for what did not exist.

    It is the state after the events below `next_offset`, the last of which was at `at_ms`.
    """

    next_offset: Int64
    at_ms: Int64
    begin_offset: Int64 = 0


class Undo(Request, kw_only=True, frozen=True):
    """UNDO (30013): undo the event at `offset` by a new event.

    `force` undoes it although the value has changed since, or messages would be lost.
    """

    code: ClassVar[int] = 30013
    offset: Int64
    reason: str = ""
    force: bool = False


class UndoResponse(Response, kw_only=True, frozen=True):
    """The events [first_offset, next_offset) were recorded for it; the body is a JSON array."""

    first_offset: Int64
    next_offset: Int64
