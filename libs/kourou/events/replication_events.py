"""Decisions about the leader and the replicas of a log, stored as immutable events.

Format: docs/formats/control-event.md. A broker that never had a follower has none of them.
"""

from __future__ import annotations

from kourou.events.event_base import Count, EventBase


class ReplicationEventBase(EventBase, frozen=True):
    """Base of all events about replication."""


class EpochOpened(ReplicationEventBase, frozen=True):
    """From position `start` on, only `leader` writes the log.

    `start` is the end of the log before this event. The event's own record is at `start`, or after
    the filler that closes the segment. `role` is the leader's brokerRole. An epoch is never reused.
    """

    epoch: Count
    start: Count
    leader: str
    role: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return "replication/epoch"


class InSyncChanged(ReplicationEventBase, frozen=True):
    """The in-sync replicas changed (brokerIds): producers wait for them; empty: for none."""

    members: tuple[Count, ...]
    before: tuple[Count, ...]
    reason: str

    @property
    def aggregate(self) -> str:
        """The aggregate that it changed."""
        return "replication/in-sync"


ReplicationEvent = EpochOpened | InSyncChanged
