"""What comes of bytes that were copied from a leader: events take effect, old segments go.

State: projection of the copied log, by the same `evolve` as a leader's.

An event takes effect when it is copied: a follower that may have to cut it starts anew then, and
finds out what holds without it. What cannot be taken back, a deletion, waits until the event is
confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kourou.engine.appends import Appends
from kourou.engine.confirmations import Confirmations
from kourou.engine.control import ControlState, evolve
from kourou.engine.control_log import read_control_events
from kourou.engine.effects import DeleteLogBefore, Effect
from kourou.engine.ports import StoreView
from kourou.engine.progress import yield_to
from kourou.engine.recording import entailed_by
from kourou.events.control_events import Event, LogDeleted, OffsetsReset, ProgressRecorded, Recorded
from kourou.model.names import CONTROL_TOPIC
from kourou.runtime.effects import LogWarning


class FollowedConfirmations(Confirmations):
    """What is confirmed is for others to say, and `told` is what they said; nobody is owed here."""

    __slots__ = ("told",)

    def __init__(self, *, end: int, flushed: int, told: int) -> None:
        super().__init__(sync_flush=False, flush_timeout_ms=0, end=end, flushed=flushed)
        self.told = told

    @property
    def confirmed(self) -> int:
        """Readers see what lies below this position."""
        return min(super().confirmed, self.told)

    def confirmed_to(self, position: int) -> list[Effect]:
        """The group holds everything below `position` for good."""
        self.told = max(self.told, position)
        return []


class CopiedLog:
    """The copy of one log; `apply` puts changed settings into force."""

    def __init__(
        self,
        control: ControlState,
        view: StoreView,
        appends: Appends,
        confirmations: Confirmations,
        apply: Callable[[Sequence[Event]], None],
    ) -> None:
        self._control = control
        self._view = view
        self._appends = appends
        self._confirmations = confirmations
        self._apply = apply
        self._deletions: deque[tuple[int, int]] = deque()  # of the event, of the log's new start

    def copied(self, end: int) -> None:
        """The store has the leader's bytes up to `end`."""
        self._appends.copied_to(end)
        self._confirmations.append(end)

    def grown(self, queues: Sequence[tuple[str, int, int]]) -> list[Effect]:
        """Queues have grown; if it was that of the control events, they take effect."""
        if not any(topic == CONTROL_TOPIC for topic, _, _ in queues):
            return []
        effects: list[Effect] = []
        end = self._confirmations.appended
        while True:
            lost: list[str] = []
            batch = read_control_events(self._view, self._control.next_offset, end, lost.append)
            effects += [LogWarning(text) for text in lost]
            if not batch:
                return [*effects, *self.deletions()]
            for recorded in batch:
                evolve(self._control, recorded)
                effects += self._entailed(recorded)

    def _entailed(self, recorded: Recorded) -> list[Effect]:
        """What a leader does when it records this event, as far as it is a follower's to do."""
        event = recorded.event
        if isinstance(event, ProgressRecorded | OffsetsReset):
            yield_to(self._control.progress, event)
        self._apply([event])
        if isinstance(event, LogDeleted):
            self._deletions.append((recorded.position, event.end))
            return []
        return entailed_by(event, self._control)

    def deletions(self) -> list[Effect]:
        """What was decided to be deleted, and is confirmed by now."""
        due: list[Effect] = []
        waiting, confirmed = self._deletions, self._confirmations.confirmed
        while waiting and waiting[0][0] < confirmed:
            due.append(DeleteLogBefore(waiting.popleft()[1]))
        return due
