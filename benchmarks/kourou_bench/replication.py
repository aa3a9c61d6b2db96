"""What replication costs: which setups are measured beside which, and their figures."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kourou.errors import ConfigError
from kourou.protocol.replicas_body import ReplicasTold
from kourou_bench.figures import Figure
from kourou_bench.rows import Name

ASYNC, SYNC = "ASYNC_MASTER", "SYNC_MASTER"
RAFT_MEMBERS = 3
KIB = 1_024
NS_IN_US = 1_000

Values = Mapping[str, float]
"""The figures of one measurement, by the names of COLUMNS."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Servers of one log: `role` as in their settings file, "" for a Raft group.

    `flush` is that of master and slave; whoever leads a Raft group is not asked, as a majority has
    flushed before it answers.
    """

    name: str
    title: str
    system: Name = Name.KOUROU
    role: str = ""
    flush: str = "async"
    followers: int = 1

    @property
    def raft(self) -> int:
        """Of how many members a Raft group is; 0 for a master, with slaves or without."""
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
BESIDE = (
    ("async", "rocketmq-async"),
    ("sync", "rocketmq-sync"),
    ("raft", "sync"),
    ("raft", "sync-flush"),
    ("async", "alone"),
    ("sync", "alone"),
)
"""Whose figures are divided by whose."""


class Column(NamedTuple):
    """A figure: its name in JSON and in a table, its unit, and whether ratios of it say a thing."""

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
    """The setups of these names, all if there are none; ConfigError for a name that is none."""
    known = [setup.name for setup in SETUPS]
    wrong = [name for name in only if name not in known]
    if wrong:
        raise ConfigError(f"--only {','.join(wrong)}: setups are {', '.join(known)}")
    return [setup for setup in SETUPS if not only or setup.name in only]


# -- one measurement -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Spent:
    """What servers computed, in ns, while so many messages were sent."""

    leader_ns: int
    followers_ns: int

    def values(self, messages: int) -> dict[str, float]:
        """In microseconds a message."""
        return {
            "leader_us": self.leader_ns / NS_IN_US / messages,
            "followers_us": self.followers_ns / NS_IN_US / messages,
        }


class Lag(NamedTuple):
    """How far the last follower was behind, and where the log ended then."""

    end: int
    lag_bytes: int
    lag_ms: int


def lag_of(told: ReplicasTold) -> Lag | None:
    """What a leader tells of its followers; None if it has none."""
    if not told.followers:
        return None
    behind = max(one.lag_bytes for one in told.followers)
    return Lag(told.end, behind, max(one.lag_ms or 0 for one in told.followers))


def lag_values(samples: Sequence[Lag]) -> dict[str, float]:
    """Of the samples between which the log grew: nobody sends before, and nobody behind."""
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


# -- all of them -----------------------------------------------------------------------------------
class Rounds:
    """The values of every setup, one a round (None: not measured).

    State: soft.
    """

    def __init__(self, setups: Sequence[Setup]) -> None:
        self.setups = setups
        self._values: dict[str, list[Values | None]] = {one.name: [] for one in setups}

    def add(self, setup: Setup, values: Values | None) -> None:
        """What came of one measurement."""
        self._values[setup.name].append(values)

    def value(self, name: str, column: str) -> float | None:
        """The median of a setup's rounds."""
        there = [one[column] for one in self._values.get(name, ()) if one and column in one]
        return statistics.median(there) if there else None

    def ratio(self, name: str, beside: str, column: str) -> float | None:
        """The median of the ratios of each round that has both."""
        if name not in self._values or beside not in self._values:
            return None
        pairs = zip(self._values[name], self._values[beside], strict=True)
        ratios = [ours[column] / theirs[column] for ours, theirs in pairs if ours and theirs]
        return statistics.median(ratios) if ratios else None

    def figures(self) -> Iterator[Figure]:
        """Every median, and every ratio."""
        for setup in self.setups:
            for column in COLUMNS:
                value = self.value(setup.name, column.name)
                if value is not None:
                    yield Figure(f"{setup.name} {column.name}", column.unit, value)
        for name, beside in BESIDE:
            for column in COLUMNS:
                ratio = self.ratio(name, beside, column.name) if column.compared else None
                if ratio is not None:
                    yield Figure(f"{name}/{beside} {column.name}", "×", ratio)

    def tables(self, rocketmq: str) -> Iterator[str]:
        """For people: figures, then ratios. `rocketmq` is that system's name and version."""
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
        for name, beside in BESIDE:
            ratios = [self.ratio(name, beside, column.name) for column in compared]
            if any(ratio is not None for ratio in ratios):
                label = f"{titles[name]} / {titles[beside]}"
                lines.append([label, *("" if one is None else f"{one:.2f}" for one in ratios)])
        if len(lines) > 1:
            yield in_columns(lines)


def in_columns(lines: Sequence[Sequence[str]]) -> str:
    """Words to the left, numbers to the right."""
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
