"""The base class of all events."""

from __future__ import annotations

from typing import Annotated

import msgspec

Scalar = bool | int | str
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
QueueOffsets = dict[Count, Count]


class EventBase(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """A JSON object whose `type` is the class's name."""

    @property
    def type(self) -> str:
        """The event's type: its class's name, and the tag of its record."""
        return type(self).__name__
