"""Replies to requests that cause control events: sent when the events are committed.

State: none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kourou.engine.effects import Effect
from kourou.engine.sends.confirmations import Confirmations
from kourou.engine.sends.recorder import Recorder
from kourou.errors import Code
from kourou.events.control_events import Cause, Event
from kourou.runtime.core import Buffer, Received, Reply


class PendingReplies:
    """Records decided events, and replies when they are committed."""

    def __init__(self, recorder: Recorder, confirmations: Confirmations) -> None:
        self._recorder = recorder
        self._confirmations = confirmations

    def decided(
        self,
        now_ms: int,
        received: Received,
        events: Sequence[Event],
        *,
        header: msgspec.Struct | Callable[[], msgspec.Struct] | None = None,
        body: Sequence[Buffer] = (),
        reason: str = "",
        undoes: int | None = None,
    ) -> list[Effect]:
        """Record `events`, then reply SUCCESS with `header` and `body` when they are committed.

        `undoes` is the offset of the event that they undo. A `header` that depends on the state
        afterwards is a function.

        Without events nothing changes now. But earlier changes may not be committed yet, and the
        reply reflects them, so it waits too. Raises as recording does.
        """
        given = getattr(received.request, "reason", "")
        why = reason or given or type(received.request).__name__
        cause = self.cause(received, why, undoes)
        self._recorder.record(events, cause, received.wall_ms)
        told = header() if callable(header) else header
        reply = Reply(received.to, Code.SUCCESS, "", told, body)
        end = self._confirmations.appended
        return self._confirmations.owe(now_ms, end, reply, decision=True)

    def cause(self, received: Received, reason: str, undoes: int | None = None) -> Cause:
        """Return who causes something, why, and under which trace. Raises BadRequest."""
        trace_id = received.trace[:16].hex() if any(received.trace) else ""
        return Cause(str(received.to.peer), reason, trace_id, undoes)
