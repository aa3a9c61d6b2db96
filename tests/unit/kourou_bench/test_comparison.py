"""Rounds, turns, ratios of one round, and the median of those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kourou.errors import Unavailable
from kourou_bench.comparison import Cell, Comparison, Result, turns
from kourou_bench.driving import Outcome
from kourou_bench.measure import Measured, Sample
from kourou_bench.rows import Goal, Name, Row, Work

SEND = Work("send", in_flight=64)
OTHER = Work("send")
ROW = Row(
    "send",
    "send",
    "rate",
    "msg/s",
    Goal(True, 3, Name.ROCKETMQ),
    {Name.KOUROU: SEND, Name.ROCKETMQ: SEND},
    absent={Name.NATS: "no such thing"},
)


def outcome(rate: float) -> Outcome:
    return Outcome(work="send", values={"rate": rate}, sent=1, stored=1)


def result(ours: list[float | None], theirs: list[float | None]) -> Result:
    return Result(ROW, {Name.KOUROU: Cell(ours), Name.ROCKETMQ: Cell(theirs)})


def test_the_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    one = result([10, 40, 30], [10, 10, 10])
    assert one.ratios(Name.ROCKETMQ) == [1, 4, 3]
    assert one.ratio(Name.ROCKETMQ) == 3
    drifting = result([10, 100, 1_000], [5, 100, 250])
    assert drifting.ratio(Name.ROCKETMQ) == 2  # of medians it would be 1


def test_rounds_without_both_figures_have_no_ratio() -> None:
    assert result([10, None, 30], [None, 5, 10]).ratios(Name.ROCKETMQ) == [3]
    assert result([10], [None]).ratio(Name.ROCKETMQ) is None
    assert result([10], [5]).ratio(Name.REDIS) is None
    assert Cell([None, 3, 1]).median == 2


def test_a_goal_without_a_peer_speaks_of_the_value() -> None:
    row = Row("memory", "", "rss_mb", "MB", Goal(False, 200, None), {Name.KOUROU: SEND})
    assert Result(row, {Name.KOUROU: Cell([150, 190, 180])}).judged() == 180
    assert result([9], [3]).judged() == 3


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_everybody_begins_equally_often(count: int) -> None:
    names = list(Name)[:count]
    orders = [turns(names, number) for number in range(2 * count)]
    assert all(sorted(order) == sorted(names) for order in orders)
    assert Counter(order[0] for order in orders) == dict.fromkeys(names, 2)


class Bench:
    """Remembers what was prepared, and who worked when."""

    def __init__(self, fails: Name | None = None, unsteady: str = "") -> None:
        self.prepared: list[tuple[Name, Work]] = []
        self.open: list[Name] = []
        self.log: list[tuple[str, Name]] = []
        self.fails = fails
        self.unsteady = unsteady

    @contextmanager
    def prepare(self, name: Name, work: Work) -> Iterator[Measured]:
        self.prepared.append((name, work))
        self.open.append(name)
        yield Player(self, name)
        self.open.remove(name)


class Player:
    def __init__(self, bench: Bench, name: Name) -> None:
        self.bench, self.name = bench, name

    def warm_up(self) -> str:
        self.bench.log.append(("warm", self.name))
        return self.bench.unsteady

    def sample(self) -> Sample:
        assert self.name in self.bench.open
        self.bench.log.append(("measure", self.name))
        if self.name is self.bench.fails:
            raise Unavailable("2 messages are stored, 3 were sent")
        return Sample(outcome(len(self.bench.log)), server_us=2.0, client_us=3.0)


BOTH = Row(
    "send",
    "send",
    "rate",
    "msg/s",
    Goal(True, 3, Name.ROCKETMQ),
    {Name.KOUROU: SEND, Name.ROCKETMQ: SEND},
)


def test_systems_stay_for_all_rounds_and_take_turns() -> None:
    bench = Bench()
    (found,) = Comparison(bench.prepare, lambda name, work: "").run([BOTH], rounds=3)
    ours, theirs = Name.KOUROU, Name.ROCKETMQ
    assert bench.prepared == [(ours, SEND), (theirs, SEND)]
    assert bench.log[:2] == [("warm", ours), ("warm", theirs)]
    turns = [name for what, name in bench.log[2:]]
    assert turns == [ours, theirs, theirs, ours, theirs, ours]
    assert bench.open == []
    assert found.cells[ours].server_us == [2, 2, 2]
    assert found.cells[theirs].client_us == [3, 3, 3]


def test_rows_with_the_same_works_are_measured_together() -> None:
    bench = Bench()
    other = replace(BOTH, name="again")
    third = replace(BOTH, name="third", works={Name.KOUROU: OTHER, Name.ROCKETMQ: OTHER})
    first, second, last = Comparison(bench.prepare, lambda name, work: "").run(
        [BOTH, other, third], rounds=2
    )
    assert [work for _, work in bench.prepared] == [SEND, SEND, OTHER, OTHER]
    assert first.cells[Name.KOUROU].values == second.cells[Name.KOUROU].values
    assert len(last.cells[Name.KOUROU].values) == 2


def test_itself_is_ours_under_other_circumstances() -> None:
    bench = Bench()
    row = replace(BOTH, works={Name.KOUROU: OTHER, Name.ITSELF: SEND})
    (found,) = Comparison(bench.prepare, lambda name, work: "").run([row], rounds=1)
    assert bench.prepared == [(Name.KOUROU, OTHER), (Name.KOUROU, SEND)]
    assert None not in (found.cells[Name.ITSELF].median, found.cells[Name.KOUROU].median)


def test_what_cannot_be_measured_says_why_and_stops_nothing() -> None:
    view: list[str] = []
    bench = Bench(fails=Name.KOUROU, unsteady="not steady after 120 s")

    def absent(name: Name, work: Work) -> str:
        return "is missing" if name is Name.REDIS else ""

    row = replace(ROW, works={**ROW.works, Name.REDIS: SEND})
    (found,) = Comparison(bench.prepare, absent, view.append).run([row], rounds=2)
    assert found.cells[Name.REDIS].absent == "is missing"
    assert found.cells[Name.NATS].absent == "no such thing"
    assert found.cells[Name.NATS].values == [None, None]
    assert None not in found.cells[Name.ROCKETMQ].values
    assert found.cells[Name.ROCKETMQ].unsteady == "not steady after 120 s"
    assert found.cells[Name.KOUROU].values == [None, None]
    assert len(found.cells[Name.KOUROU].failures) == 2
    assert found.judged() is None
    assert sum("FAILED: 2 messages" in line for line in view) == 2
