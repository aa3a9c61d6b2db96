"""What a stream of events adds up to: the four functions an event store needs of a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kourou.errors import MetadataUnavailable
from kourou.events.control_events import Recorded


class StreamState(Protocol):
    """What every state knows of its stream."""

    next_offset: int
    """How many events of the stream it has applied."""
    at_ms: int
    """Wall time of the latest of them; 0 before the first."""


State = TypeVar("State", bound=StreamState)


class WrittenMeanwhile(MetadataUnavailable):
    """Nothing was written: the stream has events that the state, on which was decided, lacks.

    `missed` are the first of them: apply them, and decide again.
    """

    def __init__(self, message: str, missed: Sequence[Recorded]) -> None:
        super().__init__(message)
        self.missed = missed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state as it was after the events below `offset`; independent of what becomes of it."""

    stream: str
    offset: int
    at_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class StreamKind(Generic[State]):
    """A named stream and its state.

    `evolve` may change the state it is given, and returns the state to go on with. `decode` raises
    DecodeError for bytes that `encode` did not make, or a newer version made.
    """

    name: str
    initial: Callable[[], State]
    evolve: Callable[[State, Recorded], State]
    encode: Callable[[State], bytes]
    decode: Callable[[bytes], State]

    def snapshot(self, state: State) -> Snapshot:
        """The state as bytes; taken where the state is evolved, and written anywhere."""
        return Snapshot(self.name, state.next_offset, state.at_ms, self.encode(state))
