"""The network of a simulation: it delays, duplicates, reorders and drops messages."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator


class SimNetwork:
    """Directed links between members; times in ms. The fate of each message is random."""

    def __init__(self, chance: random.Random, names: Iterable[str]) -> None:
        self._chance = chance
        self._names = list(names)
        self._cut: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.repeats = 0.0
        self.delay_ms = 4

    def fates(self, source: str, target: str) -> Iterator[int]:
        """The delay of each copy of a message in ms; empty if the message is lost."""
        if (source, target) in self._cut:
            return
        chance = self._chance.random
        if self.loss and chance() < self.loss:
            return
        yield 1 + int(chance() * self.delay_ms)
        if self.repeats and chance() < self.repeats:
            yield 1 + int(chance() * self.delay_ms * 8)

    # -- partitions ------------------------------------------------------------------------------

    def heal(self) -> None:
        """Deliver every message once and without delay."""
        self._cut.clear()
        self.loss = self.repeats = 0.0
        self.delay_ms = 4

    def cut(self, source: str, target: str) -> None:
        """Drop messages in this direction only."""
        self._cut.add((source, target))

    def split(self, side: Iterable[str]) -> None:
        """Partition the members into two halves."""
        inside = set(side)
        for one in self._names:
            for other in self._names:
                if (one in inside) != (other in inside):
                    self._cut.add((one, other))

    def bridge(self, over: str) -> None:
        """Partition the members into two halves, except for one member connected to both."""
        others = [name for name in self._names if name != over]
        half = set(others[: len(others) // 2])
        for one in others:
            for other in others:
                if (one in half) != (other in half):
                    self._cut.add((one, other))
