"""Streams of events and their states: the functions of a state that an event store needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kourou.errors import MetadataUnavailable
from kourou.events.control_events import Recorded


class StreamState(Protocol):
    """What every state knows about its stream."""

    next_offset: int
    """The number of events of the stream that it has applied."""
    at_ms: int
    """Wall time of the latest of them; 0 before the first."""


State = TypeVar("State", bound=StreamState)


class WrittenMeanwhile(MetadataUnavailable):
    """Nothing was written: the stream has events that the state of the decision lacks.

    `missed` are the first of them: the caller applies them and decides again.
    """

    def __init__(self, message: str, missed: Sequence[Recorded]) -> None:
        super().__init__(message)
        self.missed = missed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state after the events below `offset`; later changes of the state do not affect it."""

    stream: str
    offset: int
    at_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class StreamKind(Generic[State]):
    """A named stream and its state.

    `evolve` may change the state it is given, and returns the state to continue with. `decode`
    raises DecodeError for bytes that `encode` did not produce, or that a newer version produced.
    """

    name: str
    initial: Callable[[], State]
    evolve: Callable[[State, Recorded], State]
    encode: Callable[[State], bytes]
    decode: Callable[[bytes], State]

    def snapshot(self, state: State) -> Snapshot:
        """The state as bytes; taken in the thread that evolves the state, and written in any."""
        return Snapshot(self.name, state.next_offset, state.at_ms, self.encode(state))
