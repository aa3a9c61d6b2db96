"""What was decided about the filters of consumer groups, as facts that are kept for good.

Lives here: these events. May not live here: when one happens and what it changes
(kourou.engine.filters), their encoding (kourou.engine.events).

Format: docs/formats/control-event.md. Their aggregate is filter/GROUP/NAME.
"""

from __future__ import annotations

from kourou.engine.event_base import Count, EventBase
from kourou.model.filter import FilterPolicy, FilterState


class FilterEventBase(EventBase, frozen=True):
    """What they have in common: nothing but being about a filter."""


class _FilterEvent(FilterEventBase, frozen=True):
    group: str
    name: str

    @property
    def aggregate(self) -> str:
        """What it changed."""
        return f"filter/{self.group}/{self.name}"


class FilterUploaded(_FilterEvent, frozen=True):
    """A filter has another version, which does not run yet; `sha256` is that of `source`."""

    version: Count
    source: str
    sha256: str
    author: str = ""
    note: str = ""


class FilterEnabled(_FilterEvent, frozen=True):
    """This version runs from now on; `before` did until then, None if none."""

    version: Count
    before: Count | None = None


class FilterDisabled(_FilterEvent, frozen=True):
    """No version runs any more; `before` did."""

    before: Count


class FilterPolicySet(_FilterEvent, frozen=True):
    """What becomes of messages that the filter cannot judge is decided anew."""

    policy: FilterPolicy
    before: FilterPolicy


class FilterQuarantined(_FilterEvent, frozen=True):
    """This version must not run; `server` is the filter server that says so, or who else does."""

    version: Count
    reason: str
    server: str = ""


class FilterReleased(_FilterEvent, frozen=True):
    """This version may run again, although it was in quarantine for `reason`."""

    version: Count
    reason: str


class FilterMessagesSkipped(_FilterEvent, frozen=True):
    """These messages of a queue were passed over, since this version could not judge them."""

    version: Count
    topic: str
    queue_id: Count
    offsets: tuple[Count, ...]
    reason: str
    server: str = ""


class FilterDeleted(FilterEventBase, frozen=True):
    """A filter is gone, with all its versions."""

    before: FilterState

    @property
    def aggregate(self) -> str:
        """What it changed."""
        return f"filter/{self.before.group}/{self.before.name}"


class FilterRestored(FilterEventBase, frozen=True):
    """A filter that was deleted is back, with all that it had."""

    filter: FilterState

    @property
    def aggregate(self) -> str:
        """What it changed."""
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
