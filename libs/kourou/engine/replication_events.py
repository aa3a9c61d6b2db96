"""What was decided about who leads a log and who follows it, as facts that are kept for good.

Lives here: these events. May not live here: when one happens (kourou.replication), what it changes
(kourou.engine.replicas), their encoding (kourou.engine.events).

Format: docs/formats/control-event.md. A broker that never had a follower has none of them.
"""

from __future__ import annotations

from kourou.engine.event_base import Count, EventBase


class ReplicationEventBase(EventBase, frozen=True):
    """What they have in common: they are about the log as a whole."""


class EpochOpened(ReplicationEventBase, frozen=True):
    """From position `start` on the log is written by `leader`, and by nobody else.

    `start` is where the log ended before: this event's own record stands there, or behind the
    filler that closes the segment. `role` is the leader's brokerRole. No number is used twice.
    """

    epoch: Count
    start: Count
    leader: str
    role: str

    @property
    def aggregate(self) -> str:
        """What it changed."""
        return "replication/epoch"


class InSyncChanged(ReplicationEventBase, frozen=True):
    """Whose copies a sender waits for from now on: brokerIds; nobody's where there are none."""

    members: tuple[Count, ...]
    before: tuple[Count, ...]
    reason: str

    @property
    def aggregate(self) -> str:
        """What it changed."""
        return "replication/in-sync"


ReplicationEvent = EpochOpened | InSyncChanged
