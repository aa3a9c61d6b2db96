"""Runs all measurements of a comparison in a fair order and collects the results of each row.

For each row, every system is prepared and warmed up, one after the other. All of them stay up until
the row is done and are measured in turns, each round starting with a different system. Only one
system works at a time. Because the load of a machine varies, a ratio is computed from values of the
same round, and the result is the median of those ratios.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from kourou.errors import KourouError
from kourou_bench.measure import Measured, Sample
from kourou_bench.rows import Name, Row, Work

Prepare = Callable[[Name, Work], AbstractContextManager[Measured]]
Tell = Callable[[str], None]
_T = TypeVar("_T")


def median(values: Sequence[float | None]) -> float | None:
    """The median of the values that are not None."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


@dataclass(slots=True)
class Cell:
    """The values of one system in a row, one per round (None: not measured), and why some are
    missing.

    `server_us` and `client_us` are the CPU time per message, one per round. `lags` are those of all
    rounds together (kourou_bench.measure). `unsteady` says why a system was not steady before the
    rounds.

    State: soft.
    """

    values: list[float | None] = field(default_factory=list)
    absent: str = ""
    failures: list[str] = field(default_factory=list)
    server_us: list[float | None] = field(default_factory=list)
    client_us: list[float | None] = field(default_factory=list)
    lags: Counter[float] = field(default_factory=Counter)
    unsteady: str = ""

    @property
    def median(self) -> float | None:
        """The median of the values that are not None."""
        return median(self.values)

    def take(self, row: Row, sample: Sample | str) -> None:
        """Record the result of a round: a sample, or the reason why there is none."""
        if isinstance(sample, str):
            self.failures.append(sample)
            sample = Sample(None)
        outcome = sample.outcome
        self.values.append(None if outcome is None else outcome.values[row.value])
        self.server_us.append(sample.server_us)
        self.client_us.append(sample.client_us)
        self.lags.update(sample.lags)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a row."""

    row: Row
    cells: Mapping[Name, Cell]

    def ratios(self, peer: Name) -> list[float]:
        """Kourou's value divided by the peer's, for each round that has both."""
        if peer not in self.cells:
            return []
        pairs = zip(self.cells[Name.KOUROU].values, self.cells[peer].values, strict=True)
        return [ours / theirs for ours, theirs in pairs if ours is not None and theirs]

    def ratio(self, peer: Name) -> float | None:
        """The median of the ratios."""
        return median(self.ratios(peer))

    def judged(self) -> float | None:
        """The value that the goal applies to: a ratio, or Kourou's own value."""
        goal = self.row.goal
        return self.cells[Name.KOUROU].median if goal.of is None else self.ratio(goal.of)


class Comparison:
    """Runs rounds of measurements.

    `prepare` sets up a workload; `absent` returns the reason why a system cannot run it, or "".

    State: soft.
    """

    def __init__(
        self,
        prepare: Prepare,
        absent: Callable[[Name, Work], str],
        tell: Tell = lambda line: None,
    ) -> None:
        self._prepare = prepare
        self._absent = absent
        self._tell = tell

    def run(self, rows: Sequence[Row], rounds: int) -> list[Result]:
        """Measure every row in `rounds` rounds."""
        results = [
            Result(row, {name: Cell() for name in Name if _takes_part(row, name)}) for row in rows
        ]
        for _, group in itertools.groupby(results, key=lambda result: dict(result.row.works)):
            self._measure(list(group), rounds)
        return results

    def _measure(self, results: Sequence[Result], rounds: int) -> None:
        """Measure rows that have the same workloads; each system is prepared once for them."""
        names: list[Name] = []
        for result in results:
            for name, cell in result.cells.items():
                if name in result.row.works:
                    cell.absent = self._absent(name, result.row.works[name])
                else:
                    cell.absent = (result.row.absent or {})[name]
                if cell.absent:
                    cell.values += [None] * rounds
                elif name not in names:
                    names.append(name)
        works = results[0].row.works
        with ExitStack() as stack:
            ready = {name: self._warmed(stack, name, works[name], results) for name in names}
            for number in range(rounds):
                for name in turns(names, number) if names else ():
                    self._fill(results, name, ready[name], f"round {number + 1}/{rounds}")

    def _warmed(
        self, stack: ExitStack, name: Name, work: Work, results: Sequence[Result]
    ) -> Measured | str:
        """Prepare and warm up a system; returns the reason if that fails."""
        label = " ".join(result.row.name for result in results)
        own = Name.KOUROU if name is Name.ITSELF else name
        try:
            measured = stack.enter_context(self._prepare(own, work))
            unsteady = measured.warm_up()
        except KourouError as error:
            return str(error)
        for result in results:
            result.cells[name].unsteady = unsteady
        self._tell(f"warm         {label:<16} {name:<9} {unsteady}".rstrip())
        return measured

    def _fill(
        self, results: Sequence[Result], name: Name, measured: Measured | str, where: str
    ) -> None:
        sample: Sample | str
        try:
            sample = measured if isinstance(measured, str) else measured.sample()
        except KourouError as error:
            # A failed system is reported in the table; the others are still measured.
            sample = str(error)
        for result in results:
            cell, row = result.cells[name], result.row
            cell.take(row, sample)
            value = cell.values[-1]
            text = f"FAILED: {sample}" if value is None else f"{value:,.3f} {row.unit}"
            self._tell(f"{where:<12} {row.name:<16} {name:<9} {text}")


def turns(names: Sequence[_T], number: int) -> list[_T]:
    """The order of a round: each system starts equally often, and every other cycle is reversed."""
    cycle, first = divmod(number, len(names))
    order = [*names[first:], *names[:first]]
    return order[::-1] if cycle % 2 else order


def _takes_part(row: Row, name: Name) -> bool:
    return name in row.works or name in (row.absent or {})
