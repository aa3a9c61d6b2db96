"""How the control plane thinks: decide, then evolve.

Lives here: the shape every aggregate has. May not live here: any aggregate.

An aggregate is a pair of pure functions over an immutable-by-convention state:

    decide(state, command) -> [events]      may refuse, by raising kourou.errors.Rejected
    evolve(state, event)   -> state         total and deterministic; never refuses, never looks
                                            at the clock; the only way the state changes

Live operation and replay from the log call the same `evolve`, so a rebuilt state equals the live
one. Events are facts in the past tense; what they need to be replayed is inside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

State = TypeVar("State")
Command = TypeVar("Command", contravariant=True)
Event = TypeVar("Event")


class Decide(Protocol[State, Command, Event]):  # type: ignore[misc]  # State is invariant on purpose
    """Validate a command against the state; return the events it causes or raise Rejected."""

    def __call__(self, state: State, command: Command) -> Sequence[Event]:
        """Return what happens; an empty sequence means nothing changes."""
        ...


class Evolve(Protocol[State, Event]):  # type: ignore[misc]  # Event is invariant on purpose
    """Apply one event; total, deterministic, no checks."""

    def __call__(self, state: State, event: Event) -> State:
        """Return the next state."""
        ...


def replay(evolve: Evolve[State, Event], state: State, events: Iterable[Event]) -> State:
    """Fold `events` over `state`, oldest first."""
    for event in events:
        state = evolve(state, event)
    return state
