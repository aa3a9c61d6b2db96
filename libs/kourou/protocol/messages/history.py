"""Headers of looking back and taking back: what was decided here, what held then, and undo.

Their verbs are history, stateAt and undo; RocketMQ has none of them.
"""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Int64, Request, Response


class GetHistory(Request, kw_only=True, frozen=True):
    """GET_HISTORY (30011): control events, the newest first.

    `aggregate` is kind/name, like topic/orders; empty for whatever was decided, which leaves out
    ProgressRecorded unless it is among the types. `before_offset` and `until_ms` leave out later
    ones, `types` those that are of none of these types.
    """

    code: ClassVar[int] = 30011
    aggregate: str = ""
    before_offset: Int64 | None = None
    until_ms: Int64 | None = None
    types: list[str] = []
    max_count: Int32


class GetHistoryResponse(Response, kw_only=True, frozen=True):
    """The body is a JSON array of events (kourou.protocol.history_body).

    `before_offset` asks for the next page, None after the last; events below `begin_offset` are
    lost; `end_offset` is how many events were looked through.
    """

    before_offset: Int64 | None = None
    begin_offset: Int64 = 0
    end_offset: Int64


class GetStateAt(Request, kw_only=True, frozen=True):
    """GET_STATE_AT (30012): what held at an instant or after an event; now, if neither is given.

    `aggregate` is topic/…, group/…, setting/… or progress/…; empty for everything.
    """

    code: ClassVar[int] = 30012
    aggregate: str = ""
    at_ms: Int64 | None = None
    offset: Int64 | None = None


class GetStateAtResponse(Response, kw_only=True, frozen=True):
    """The body is the state as JSON; null for what did not exist.

    It is that after the events below `next_offset`, the latest of which was at `at_ms`.
    """

    next_offset: Int64
    at_ms: Int64
    begin_offset: Int64 = 0


class Undo(Request, kw_only=True, frozen=True):
    """UNDO (30013): decide the opposite of the event at `offset`.

    `force` does it although the value has changed since, or messages would be lost.
    """

    code: ClassVar[int] = 30013
    offset: Int64
    reason: str = ""
    force: bool = False


class UndoResponse(Response, kw_only=True, frozen=True):
    """The events [first_offset, next_offset) were recorded for it; the body is a JSON array."""

    first_offset: Int64
    next_offset: Int64
