"""Changes of the key/value settings: decided, made durable by the service, then answered.

Lives here: the order of changes, and who is told what.
May not live here: what may be set (kourou.engine.key_values), where it is kept.

One change is under way at a time, since each is decided on the state that the one before left.

State: a projection (the settings) and soft (which changes wait).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kourou.engine.effects import Reply
from kourou.engine.events import Cause, Event, Recorded
from kourou.engine.inputs import Received
from kourou.engine.key_values import KeyValues, decide_delete, decide_put, evolve
from kourou.errors import Code, KourouError
from kourou.model.limits import KEY_VALUE_WRITES_WAITING_MAX
from kourou.protocol.messages.namesrv import DeleteKvConfig, PutKvConfig


@dataclass(frozen=True, slots=True)
class RecordKeyValues:
    """Effect: make these events durable, then come back with KeyValuesWritten."""

    events: Sequence[Event]
    expected_offset: int
    cause: Cause
    request: Received


@dataclass(frozen=True, slots=True)
class KeyValuesWritten:
    """Input: the events are durable, or nothing changed because of `error`."""

    recorded: Sequence[Recorded]
    error: KourouError | None
    request: Received


class KeyValueDesk:
    """Takes changes and answers them. `key_values` is what is durable."""

    def __init__(self, key_values: KeyValues) -> None:
        self.key_values = key_values
        self._writing = False
        self._waiting: deque[Received] = deque()

    def change(self, received: Received) -> list[Reply | RecordKeyValues]:
        """Somebody sends PUT_KV_CONFIG or DELETE_KV_CONFIG."""
        if len(self._waiting) >= KEY_VALUE_WRITES_WAITING_MAX:
            return [Reply(received.to, Code.SYSTEM_BUSY, "too many changes wait")]
        self._waiting.append(received)
        return self._next()

    def written(self, done: KeyValuesWritten) -> list[Reply | RecordKeyValues]:
        """A change is durable, or could not be made."""
        for recorded in done.recorded:
            self.key_values = evolve(self.key_values, recorded)
        self._writing = False
        error, to = done.error, done.request.to
        reply = Reply(to, error.wire_code, str(error)) if error else Reply(to)
        return [reply, *self._next()]

    def _next(self) -> list[Reply | RecordKeyValues]:
        effects: list[Reply | RecordKeyValues] = []
        while self._waiting and not self._writing:
            received = self._waiting.popleft()
            try:
                events = self._decide(received.request)
            except KourouError as error:
                effects.append(Reply(received.to, error.wire_code, str(error)))
                continue
            if not events:
                effects.append(Reply(received.to))
                continue
            self._writing = True
            trace_id = received.trace[:16].hex() if any(received.trace) else ""
            cause = Cause(str(received.to.peer), trace_id=trace_id)
            offset = self.key_values.next_offset
            effects.append(RecordKeyValues(events, offset, cause, received))
        return effects

    def _decide(self, request: object) -> list[Event]:
        if isinstance(request, PutKvConfig):
            return decide_put(self.key_values, request.namespace, request.key, request.value)
        assert isinstance(request, DeleteKvConfig), request
        return decide_delete(self.key_values, request.namespace, request.key)
