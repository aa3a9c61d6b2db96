"""The network of a simulation: late, twice, out of order, not at all."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator


class SimNetwork:
    """Directed links between members; times in ms. Chance decides about each message."""

    def __init__(self, chance: random.Random, names: Iterable[str]) -> None:
        self._chance = chance
        self._names = list(names)
        self._cut: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.repeats = 0.0
        self.delay_ms = 4

    def fates(self, source: str, target: str) -> Iterator[int]:
        """After how many ms each copy of a message arrives; none for one that is lost."""
        if (source, target) in self._cut:
            return
        chance = self._chance.random
        if self.loss and chance() < self.loss:
            return
        yield 1 + int(chance() * self.delay_ms)
        if self.repeats and chance() < self.repeats:
            yield 1 + int(chance() * self.delay_ms * 8)

    # -- cuts ------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything arrives, once, in time."""
        self._cut.clear()
        self.loss = self.repeats = 0.0
        self.delay_ms = 4

    def cut(self, source: str, target: str) -> None:
        """Nothing goes that way; the other way is another link."""
        self._cut.add((source, target))

    def split(self, side: Iterable[str]) -> None:
        """Two halves that do not hear each other."""
        inside = set(side)
        for one in self._names:
            for other in self._names:
                if (one in inside) != (other in inside):
                    self._cut.add((one, other))

    def bridge(self, over: str) -> None:
        """Two halves, and one member that both hear."""
        others = [name for name in self._names if name != over]
        half = set(others[: len(others) // 2])
        for one in others:
            for other in others:
                if (one in half) != (other in half):
                    self._cut.add((one, other))
