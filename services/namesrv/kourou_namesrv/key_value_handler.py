"""Changes of the key/value settings: decided, made durable by the service, then answered.

One change is under way at a time, since each is decided on the state that the one before left.

State: a projection (the settings) and soft (which changes wait).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kourou.errors import Code, KourouError
from kourou.events.control_events import Cause, Event, Recorded
from kourou.model.limits import KEY_VALUE_WRITES_WAITING_MAX
from kourou.protocol.messages.namesrv import DeleteKvConfig, PutKvConfig
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import Received
from kourou_namesrv.key_values import KeyValues, decide_delete, decide_put, evolve


@dataclass(frozen=True, slots=True)
class Own:
    """A value that the name server keeps for itself, and why."""

    put: PutKvConfig
    reason: str


Asked = Received | Own
"""Whose change it is: somebody's, who is answered, or the name server's own."""


@dataclass(frozen=True, slots=True)
class RecordKeyValues:
    """Effect: make these events durable, then come back with KeyValuesWritten."""

    events: Sequence[Event]
    expected_offset: int
    cause: Cause
    request: Asked


@dataclass(frozen=True, slots=True)
class KeyValuesWritten:
    """Input: the events are durable, or nothing changed because of `error`."""

    recorded: Sequence[Recorded]
    error: KourouError | None
    request: Asked


class KeyValueHandler:
    """Takes changes and answers them. `key_values` is what is durable."""

    def __init__(self, key_values: KeyValues) -> None:
        self.key_values = key_values
        self._writing = False
        self._waiting: deque[Asked] = deque()

    def change(self, received: Received) -> list[Reply | RecordKeyValues]:
        """Somebody sends PUT_KV_CONFIG or DELETE_KV_CONFIG."""
        if len(self._waiting) >= KEY_VALUE_WRITES_WAITING_MAX:
            return [Reply(received.to, Code.SYSTEM_BUSY, "too many changes are waiting")]
        self._waiting.append(received)
        return self._next()

    def keep(
        self, namespace: str, key: str, value: str, reason: str
    ) -> list[Reply | RecordKeyValues]:
        """Keep a value of the name server's own. What is not kept now has to be asked for again."""
        own = Own(PutKvConfig(namespace=namespace, key=key, value=value), reason)
        if own in self._waiting or len(self._waiting) >= KEY_VALUE_WRITES_WAITING_MAX:
            return []
        self._waiting.append(own)
        return self._next()

    def written(self, done: KeyValuesWritten) -> list[Reply | RecordKeyValues]:
        """A change is durable, or could not be made."""
        for recorded in done.recorded:
            self.key_values = evolve(self.key_values, recorded)
        self._writing = False
        return [*_answer(done.request, done.error), *self._next()]

    def _next(self) -> list[Reply | RecordKeyValues]:
        effects: list[Reply | RecordKeyValues] = []
        while self._waiting and not self._writing:
            asked = self._waiting.popleft()
            try:
                events = self._decide(asked.put if isinstance(asked, Own) else asked.request)
            except KourouError as error:
                effects += _answer(asked, error)
                continue
            if not events:
                effects += _answer(asked, None)
                continue
            self._writing = True
            offset = self.key_values.next_offset
            effects.append(RecordKeyValues(events, offset, _cause(asked), asked))
        return effects

    def _decide(self, request: object) -> list[Event]:
        if isinstance(request, PutKvConfig):
            return decide_put(self.key_values, request.namespace, request.key, request.value)
        assert isinstance(request, DeleteKvConfig), request
        return decide_delete(self.key_values, request.namespace, request.key)


def _answer(asked: Asked, error: KourouError | None) -> list[Reply | RecordKeyValues]:
    """What whoever asked is told; the name server itself asks again when it next has reason to."""
    if isinstance(asked, Own):
        return []
    return [Reply(asked.to, error.wire_code, str(error)) if error else Reply(asked.to)]


def _cause(asked: Asked) -> Cause:
    if isinstance(asked, Own):
        return Cause("name server", asked.reason)
    trace_id = asked.trace[:16].hex() if any(asked.trace) else ""
    return Cause(str(asked.to.peer), trace_id=trace_id)
