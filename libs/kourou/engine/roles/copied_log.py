"""Applies the bytes that were copied from a leader: events take effect, old segments are deleted.

State: projection of the copied log, by the same `evolve` as on a leader.

An event takes effect when it is copied. A follower that must truncate the event restarts, and
recovers the state without it. A deletion cannot be undone, so it waits until its event is
committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from kourou.authorization.access_table import why_closed
from kourou.engine.context import BrokerContext
from kourou.engine.control import evolve
from kourou.engine.effects import CopyCompleted, DeleteLogBefore, Effect
from kourou.engine.groups.progress import yield_to
from kourou.engine.sends.confirmations import CommitStart, Confirmations
from kourou.engine.sends.recorder import entailed_by, read_control_events
from kourou.events.control_events import Event, LogDeleted, OffsetsReset, ProgressRecorded, Recorded
from kourou.model.names import CONTROL_TOPIC
from kourou.runtime import LogWarning


class FollowedConfirmations(Confirmations):
    """The committed position of a follower; `reported` is what the leader or the group reported."""

    __slots__ = ("reported",)

    def __init__(self, start: CommitStart, reported: int) -> None:
        super().__init__(replace(start, sync_flush=False, flush_timeout_ms=0, staged=False))
        self.reported = reported

    @property
    def confirmed(self) -> int:
        """The committed position: readers see the records below it."""
        return min(super().confirmed, self.reported)

    def confirmed_to(self, position: int) -> list[Effect]:
        """Note that the group has committed everything below `position`."""
        self.reported = max(self.reported, position)
        return []


class CopiedLog:
    """The copy of one log; `apply` applies changed settings."""

    def __init__(self, context: BrokerContext, apply: Callable[[Sequence[Event]], None]) -> None:
        self._control = context.control
        self._view = context.view
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._apply = apply
        self._deletions: deque[tuple[int, int]] = deque()  # (position of the event, new log start)
        self._complete_at = 0

    def copied(self, end: int) -> None:
        """Note that the store has the leader's bytes up to `end`."""
        self._appends.copied_to(end)
        self._confirmations.append(end)

    def advanced(self, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        """Apply new control events, if the queue of control events has advanced."""
        if not any(topic == CONTROL_TOPIC for topic, _, _ in queues):
            return []
        effects: list[Effect] = []
        end = self._confirmations.appended
        while True:
            lost: list[LogWarning] = []
            batch = read_control_events(self._view, self._control.next_offset, end, lost.append)
            effects += lost
            if not batch:
                return [*effects, *self.deletions()]
            access = self._control.access
            for recorded in batch:
                before = access.unreadable
                evolve(self._control, recorded)
                effects += self._entailed(recorded)
                if access.unreadable != before and access.unreadable:
                    effects.append(
                        LogWarning("access-closed: %(reason)s", {"reason": why_closed(access)})
                    )

    def completed(self, leader_end: int) -> list[Effect]:
        """Serve clients from now on, if this follower has what its leader had when first seen.

        Until then it may lack the events about users. `leader_end` is the end of the leader's log,
        0 if it is not known.
        """
        control = self._control
        if not control.access.uncopied or not leader_end:
            return []
        # The log of another leader may be shorter: what only the former one had is lost.
        self._complete_at = min(self._complete_at or leader_end, leader_end)
        if min(self._confirmations.appended, self._view.dispatched) < self._complete_at:
            return []
        next_event = self._view.offset_position(CONTROL_TOPIC, 0, control.next_offset)
        if 0 <= next_event < self._complete_at:
            return []
        control.access.uncopied = False
        return [CopyCompleted()]

    def _entailed(self, recorded: Recorded) -> list[Effect]:
        """Do what a leader does when it records this event, as far as it applies to a follower."""
        event = recorded.event
        if isinstance(event, ProgressRecorded | OffsetsReset):
            yield_to(self._control.progress, event)
        self._apply([event])
        if isinstance(event, LogDeleted):
            self._deletions.append((recorded.position, event.end))
            return []
        return entailed_by(event, self._control)

    def deletions(self) -> list[Effect]:
        """Return the decided deletions that are committed by now."""
        due: list[Effect] = []
        waiting, confirmed = self._deletions, self._confirmations.confirmed
        while waiting and waiting[0][0] < confirmed:
            due.append(DeleteLogBefore(waiting.popleft()[1]))
        return due
