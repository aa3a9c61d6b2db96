"""What replication costs: the setups, which of them are compared, and the results."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kourou.errors import ConfigError
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou_bench.figures import Figure
from kourou_bench.rows import Name

ASYNC, SYNC = "ASYNC_MASTER", "SYNC_MASTER"
RAFT_MEMBERS = 3
KIB = 1_024
NS_IN_US = 1_000

Values = Mapping[str, float]
"""The values of one measurement, by the names of COLUMNS."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Servers of one log: `role` as in their settings file, "" for a Raft group.

    `flush` is that of master and slave. It does not apply to a Raft group, where a majority flushes
    before the leader replies.
    """

    name: str
    title: str
    system: Name = Name.KOUROU
    role: str = ""
    flush: str = "async"
    followers: int = 1

    @property
    def raft(self) -> int:
        """The number of members of a Raft group; 0 for a master with or without slaves."""
        return 0 if self.role else RAFT_MEMBERS


SETUPS = (
    Setup("alone", "no follower", role=ASYNC, followers=0),
    Setup("async", ASYNC, role=ASYNC),
    Setup("rocketmq-async", ASYNC, Name.ROCKETMQ, ASYNC),
    Setup("sync", SYNC, role=SYNC),
    Setup("rocketmq-sync", SYNC, Name.ROCKETMQ, SYNC),
    Setup("sync-flush", f"{SYNC}, SYNC_FLUSH", role=SYNC, flush="sync"),
    Setup("raft", f"Raft of {RAFT_MEMBERS}", followers=RAFT_MEMBERS - 1),
)
COMPARED_PAIRS = (
    ("async", "rocketmq-async"),
    ("sync", "rocketmq-sync"),
    ("raft", "sync"),
    ("raft", "sync-flush"),
    ("async", "alone"),
    ("sync", "alone"),
)
"""Pairs of setups; the values of the first are divided by those of the second."""


class Column(NamedTuple):
    """A value: its name in JSON, its title in tables, its unit, and whether ratios make sense."""

    name: str
    title: str
    unit: str
    compared: bool = False


COLUMNS = (
    Column("rate", "sends", "msg/s", compared=True),
    Column("p50_ms", "p50", "ms", compared=True),
    Column("p99_ms", "p99", "ms", compared=True),
    Column("leader_us", "CPU, leader", "µs/msg", compared=True),
    Column("followers_us", "CPU, followers", "µs/msg"),
    Column("lag_kib", "lag, median", "KiB"),
    Column("lag_max_kib", "lag, most", "KiB"),
    Column("lag_ms", "lag, median", "ms"),
    Column("lag_max_ms", "lag, most", "ms"),
)


def chosen(only: Sequence[str]) -> list[Setup]:
    """The setups of these names, or all; raises ConfigError for unknown names."""
    known = [setup.name for setup in SETUPS]
    wrong = [name for name in only if name not in known]
    if wrong:
        raise ConfigError(f"--only {','.join(wrong)}: setups are {', '.join(known)}")
    return [setup for setup in SETUPS if not only or setup.name in only]


# -- one measurement -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Spent:
    """CPU time of the servers, in ns, during a measurement."""

    leader_ns: int
    followers_ns: int

    def values(self, messages: int) -> dict[str, float]:
        """CPU time in microseconds per message."""
        return {
            "leader_us": self.leader_ns / NS_IN_US / messages,
            "followers_us": self.followers_ns / NS_IN_US / messages,
        }


class Lag(NamedTuple):
    """The lag of the slowest follower, and the end of the log at that time."""

    end: int
    lag_bytes: int
    lag_ms: int


def lag_of(view: ReplicasView) -> Lag | None:
    """The lag that a leader reports; None if it has no followers."""
    if not view.followers:
        return None
    behind = max(one.lag_bytes for one in view.followers)
    return Lag(view.end, behind, max(one.lag_ms or 0 for one in view.followers))


def lag_values(samples: Sequence[Lag]) -> dict[str, float]:
    """Statistics of the samples between which the log grew, that is, without idle time."""
    pairs = itertools.pairwise(samples)
    loaded = [after for before, after in pairs if after.end > before.end]
    if not loaded:
        return {}
    in_bytes = [one.lag_bytes for one in loaded]
    in_ms = [one.lag_ms for one in loaded]
    return {
        "lag_kib": statistics.median(in_bytes) / KIB,
        "lag_max_kib": max(in_bytes) / KIB,
        "lag_ms": statistics.median(in_ms),
        "lag_max_ms": max(in_ms),
    }


# -- all measurements ------------------------------------------------------------------------------
class Rounds:
    """The values of every setup, one per round (None: not measured).

    State: soft.
    """

    def __init__(self, setups: Sequence[Setup]) -> None:
        self.setups = setups
        self._values: dict[str, list[Values | None]] = {one.name: [] for one in setups}

    def add(self, setup: Setup, values: Values | None) -> None:
        """Record the result of one measurement."""
        self._values[setup.name].append(values)

    def value(self, name: str, column: str) -> float | None:
        """The median of a setup's rounds."""
        there = [one[column] for one in self._values.get(name, ()) if one and column in one]
        return statistics.median(there) if there else None

    def ratio(self, name: str, other: str, column: str) -> float | None:
        """The median of the ratios of all rounds that have both."""
        if name not in self._values or other not in self._values:
            return None
        pairs = zip(self._values[name], self._values[other], strict=True)
        ratios = [ours[column] / theirs[column] for ours, theirs in pairs if ours and theirs]
        return statistics.median(ratios) if ratios else None

    def figures(self) -> Iterator[Figure]:
        """Every median and every ratio."""
        for setup in self.setups:
            for column in COLUMNS:
                value = self.value(setup.name, column.name)
                if value is not None:
                    yield Figure(f"{setup.name} {column.name}", column.unit, value)
        for name, other in COMPARED_PAIRS:
            for column in COLUMNS:
                ratio = self.ratio(name, other, column.name) if column.compared else None
                if ratio is not None:
                    yield Figure(f"{name}/{other} {column.name}", "×", ratio)

    def tables(self, rocketmq: str) -> Iterator[str]:
        """Tables of values and of ratios. `rocketmq` is that system's name and version."""
        titles = {
            one.name: f"{rocketmq if one.system is Name.ROCKETMQ else 'Kourou'}, {one.title}"
            for one in self.setups
        }
        lines = [["", *(column.title for column in COLUMNS)]]
        lines.append(["", *(column.unit for column in COLUMNS)])
        for name, title in titles.items():
            lines.append([title, *(_number(self.value(name, one.name)) for one in COLUMNS)])
        yield in_columns(lines)
        compared = [column for column in COLUMNS if column.compared]
        lines = [["×, medians of the rounds' ratios", *(column.title for column in compared)]]
        for name, other in COMPARED_PAIRS:
            ratios = [self.ratio(name, other, column.name) for column in compared]
            if any(ratio is not None for ratio in ratios):
                label = f"{titles[name]} / {titles[other]}"
                lines.append([label, *("" if one is None else f"{one:.2f}" for one in ratios)])
        if len(lines) > 1:
            yield in_columns(lines)


def in_columns(lines: Sequence[Sequence[str]]) -> str:
    """Text is left-aligned, numbers are right-aligned."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if column else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _number(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
