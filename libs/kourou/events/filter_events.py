"""Decisions about the filters of consumer groups, stored as immutable events.

Format: docs/formats/control-event.md. Their aggregate is filter/GROUP/NAME.
"""

from __future__ import annotations

from kourou.events.event_base import Count, EventBase
from kourou.model.filter import FilterPolicy, FilterState


class FilterEventBase(EventBase, frozen=True):
    """Base of all events about filters."""


class _FilterEvent(FilterEventBase, frozen=True):
    group: str
    name: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"filter/{self.group}/{self.name}"


class FilterUploaded(_FilterEvent, frozen=True):
    """A version of a filter was uploaded; it does not run yet. `sha256` is that of `source`."""

    version: Count
    source: str
    sha256: str
    author: str = ""
    note: str = ""


class FilterEnabled(_FilterEvent, frozen=True):
    """This version was activated; `before` was active until then, None: no version was."""

    version: Count
    before: Count | None = None


class FilterDisabled(_FilterEvent, frozen=True):
    """The filter was disabled; `before` is the version that was active."""

    before: Count


class FilterPolicySet(_FilterEvent, frozen=True):
    """The failure policy was changed: what happens to messages on which the filter fails."""

    policy: FilterPolicy
    before: FilterPolicy


class FilterQuarantined(_FilterEvent, frozen=True):
    """This version must not run. `server` is the filter server or the caller that reported it."""

    version: Count
    reason: str
    server: str = ""


class FilterReleased(_FilterEvent, frozen=True):
    """The quarantine of this version was lifted; `reason` is why it was in quarantine."""

    version: Count
    reason: str


class FilterMessagesSkipped(_FilterEvent, frozen=True):
    """Messages of a queue were skipped because this version failed on them."""

    version: Count
    topic: str
    queue_id: Count
    offsets: tuple[Count, ...]
    reason: str
    server: str = ""


class FilterDeleted(FilterEventBase, frozen=True):
    """A filter was deleted, with all its versions."""

    before: FilterState

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"filter/{self.before.group}/{self.before.name}"


class FilterRestored(FilterEventBase, frozen=True):
    """A deleted filter was restored, with all its versions."""

    filter: FilterState

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return f"filter/{self.filter.group}/{self.filter.name}"


FilterEvent = (
    FilterUploaded
    | FilterEnabled
    | FilterDisabled
    | FilterPolicySet
    | FilterQuarantined
    | FilterReleased
    | FilterMessagesSkipped
    | FilterDeleted
    | FilterRestored
)
