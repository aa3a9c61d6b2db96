"""Changes of the key/value settings: decide, let the service make the events durable, then reply.

One change is in progress at a time, because each is decided on the state after the previous one.

State: a projection (the settings) and soft (the queue of changes).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kourou.errors import Code, KourouError
from kourou.events.control_events import Cause, Event, Recorded
from kourou.model.limits import KEY_VALUE_WRITES_WAITING_MAX
from kourou.protocol.messages.namesrv import DeleteKvConfig, PutKvConfig
from kourou.runtime import Received, Reply
from kourou_namesrv.key_values import KeyValues, decide_delete, decide_put, evolve


@dataclass(frozen=True, slots=True)
class Own:
    """A change that the name server itself makes, and its reason."""

    put: PutKvConfig
    reason: str


Asked = Received | Own
"""The origin of a change: a request, which gets a reply, or the name server itself."""


@dataclass(frozen=True, slots=True)
class RecordKeyValues:
    """Effect: make these events durable, then post KeyValuesWritten."""

    events: Sequence[Event]
    expected_offset: int
    cause: Cause
    request: Asked


@dataclass(frozen=True, slots=True)
class KeyValuesWritten:
    """Input: the events are durable, or `error` prevented the change."""

    recorded: Sequence[Recorded]
    error: KourouError | None
    request: Asked


class KeyValueHandler:
    """Accepts changes and creates the replies. `key_values` is the durable state."""

    def __init__(self, key_values: KeyValues) -> None:
        self.key_values = key_values
        self._writing = False
        self._waiting: deque[Asked] = deque()

    def change(self, received: Received) -> list[Reply | RecordKeyValues]:
        """Queue a PUT_KV_CONFIG or DELETE_KV_CONFIG request; SYSTEM_BUSY if too many wait."""
        if len(self._waiting) >= KEY_VALUE_WRITES_WAITING_MAX:
            return [Reply(received.to, Code.SYSTEM_BUSY, "too many changes are waiting")]
        self._waiting.append(received)
        return self._next()

    def keep(
        self, namespace: str, key: str, value: str, reason: str
    ) -> list[Reply | RecordKeyValues]:
        """Store a value for the name server itself. If the queue is full, the change is dropped and
        the caller must repeat it later.
        """
        own = Own(PutKvConfig(namespace=namespace, key=key, value=value), reason)
        if own in self._waiting or len(self._waiting) >= KEY_VALUE_WRITES_WAITING_MAX:
            return []
        self._waiting.append(own)
        return self._next()

    def written(self, done: KeyValuesWritten) -> list[Reply | RecordKeyValues]:
        """Apply the durable events, reply to the request, and start the next change."""
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
            if events:
                self._writing = True
                offset = self.key_values.next_offset
                effects.append(RecordKeyValues(events, offset, _cause(asked), asked))
            else:
                effects += _answer(asked, None)
        return effects

    def _decide(self, request: object) -> list[Event]:
        if isinstance(request, PutKvConfig):
            return decide_put(self.key_values, request.namespace, request.key, request.value)
        assert isinstance(request, DeleteKvConfig), request
        return decide_delete(self.key_values, request.namespace, request.key)


def _answer(asked: Asked, error: KourouError | None) -> list[Reply | RecordKeyValues]:
    """The reply to a request. The name server's own changes get none; a failed one is repeated when
    the next registration requires it.
    """
    if isinstance(asked, Own):
        return []
    return [Reply(asked.to, error.wire_code, str(error)) if error else Reply(asked.to)]


def _cause(asked: Asked) -> Cause:
    if isinstance(asked, Own):
        return Cause("name server", asked.reason)
    trace_id = asked.trace[:16].hex() if any(asked.trace) else ""
    return Cause(asked.actor, trace_id=trace_id)
