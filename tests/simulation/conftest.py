"""Lives of simulated systems, one a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest


class Life(Protocol):
    """What happens to a system under one seed; `events` counts it."""

    events: Counter[str]

    def live(self) -> None:
        """From its beginning to its end. Raises where a rule is broken."""


@pytest.fixture
def lived(
    simulation_seeds: Callable[[int], Iterator[int]],
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> Callable[[int, Callable[[int], Life]], tuple[int, Counter[str]]]:
    """`lived(full, make)`: a life for each seed; how many, and what happened in all of them.

    A broken rule names its seed.
    """

    def run(full: int, make: Callable[[int], Life]) -> tuple[int, Counter[str]]:
        events: Counter[str] = Counter()
        seeds = 0
        for seed in simulation_seeds(full):
            life = make(seed)
            try:
                life.live()
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            events += life.events
            seeds += 1
        told = f"{seeds} seeds, 0 violations, {dict(events)}"
        record_property("rounds", told)
        title = request.path.stem.removeprefix("test_").replace("_", " ")
        print(f"\n{title}: {told}")  # noqa: T201 - the result
        return seeds, events

    return run
