"""Headers of Kourou's control plane, which RocketMQ does not have."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Int64, Request, Response


class GetControlEvents(Request, kw_only=True, frozen=True):
    """GET_CONTROL_EVENTS (30010): get control events from an offset of the control topic on."""

    code: ClassVar[int] = 30010
    from_offset: Int64
    max_count: Int32


class GetControlEventsResponse(Response, kw_only=True, frozen=True):
    """The next offset and the bounds of the control topic; the body is a JSON array of the events.

    Events below `min_offset` are no longer in the log; GET_HISTORY has them. If it is above
    `from_offset`, the body begins at `min_offset`.
    """

    next_offset: Int64
    max_offset: Int64
    min_offset: Int64 = 0
