"""What every control event is.

Lives here: the base class, and the types of fields that several events have. May not live here: any
event (kourou.events.control_events, kourou.events.filter_events).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Scalar = bool | int | str
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
QueueOffsets = dict[Count, Count]


class EventBase(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """JSON object whose `type` is the class's name."""

    @property
    def type(self) -> str:
        """The event's type: its class's name, and the tag of its record."""
        return type(self).__name__
