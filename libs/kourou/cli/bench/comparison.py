"""All measurements of a comparison in a fair order, and what came of each row.

Lives here: rounds, whose turn it is, results by row and system, ratios and their medians.
May not live here: one measurement (kourou.cli.bench.measure), printing (kourou.cli.bench.table).

The machine is never the same twice, so systems take turns within a row, and begin in another order
each round. A ratio is one of figures of the same round; the result is the median of those ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kourou.cli.bench.driving import Outcome
from kourou.cli.bench.rows import Name, Row, Work
from kourou.errors import KourouError

Measure = Callable[[Name, Work], Outcome]
Tell = Callable[[str], None]
_T = TypeVar("_T")


@dataclass(slots=True)
class Cell:
    """A system's values in a row, one a round (None: not measured), and why some are absent.

    State: soft.
    """

    values: list[float | None] = field(default_factory=list)
    absent: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        """Of the values that there are."""
        there = [value for value in self.values if value is not None]
        return statistics.median(there) if there else None


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a row."""

    row: Row
    cells: Mapping[Name, Cell]

    def ratios(self, peer: Name) -> list[float]:
        """Kourou's value over the peer's, for each round that has both."""
        if peer not in self.cells:
            return []
        pairs = zip(self.cells[Name.KOUROU].values, self.cells[peer].values, strict=True)
        return [ours / theirs for ours, theirs in pairs if ours is not None and theirs]

    def ratio(self, peer: Name) -> float | None:
        """The median of the ratios."""
        ratios = self.ratios(peer)
        return statistics.median(ratios) if ratios else None

    def judged(self) -> float | None:
        """What the goal speaks of: a ratio, or Kourou's own value."""
        goal = self.row.goal
        return self.cells[Name.KOUROU].median if goal.of is None else self.ratio(goal.of)


class Comparison:
    """Rounds of measurements. `measure` does one, `absent` says why one cannot be done.

    State: soft.
    """

    def __init__(
        self,
        measure: Measure,
        absent: Callable[[Name, Work], str],
        tell: Tell = lambda line: None,
    ) -> None:
        self._measure = measure
        self._absent = absent
        self._tell = tell
        self._done: dict[tuple[Name, Work], Outcome | str] = {}

    def run(self, rows: Sequence[Row], rounds: int) -> list[Result]:
        """Measure every row so many times."""
        results = [
            Result(row, {name: Cell() for name in Name if _takes_part(row, name)}) for row in rows
        ]
        for number in range(rounds):
            self._done.clear()
            for result in results:
                for name in turns(list(result.cells), number):
                    self._fill(result.row, name, result.cells[name], f"{number + 1}/{rounds}")
        return results

    def _fill(self, row: Row, name: Name, cell: Cell, where: str) -> None:
        work = row.works.get(name)
        if work is None:
            cell.absent = (row.absent or {})[name]
        else:
            cell.absent = self._absent(name, work)
        if work is None or cell.absent:
            cell.values.append(None)
            return
        outcome = self._outcome(name, work)
        if isinstance(outcome, str):
            cell.failures.append(outcome)
            cell.values.append(None)
            self._tell(f"round {where}  {row.name:<16} {name:<9} FAILED: {outcome}")
            return
        value = outcome.values[row.value]
        cell.values.append(value)
        self._tell(f"round {where}  {row.name:<16} {name:<9} {value:,.3f} {row.unit}")

    def _outcome(self, name: Name, work: Work) -> Outcome | str:
        key = (Name.KOUROU if name is Name.ITSELF else name, work)
        if key not in self._done:
            try:
                self._done[key] = self._measure(*key)
            except KourouError as error:
                # one system's trouble is a line in the table, loudly, and not the end of the others
                self._done[key] = str(error)
        return self._done[key]


def turns(names: Sequence[_T], number: int) -> list[_T]:
    """The order of a round: each begins once in a while, and every other round runs backwards."""
    first = number % len(names)
    order = [*names[first:], *names[:first]]
    return order[::-1] if number % 2 else order


def _takes_part(row: Row, name: Name) -> bool:
    return name in row.works or name in (row.absent or {})
