"""Rounds, turns, ratios of one round, and the median of those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kourou.errors import Unavailable
from kourou_bench.comparison import Cell, Comparison, Result, turns
from kourou_bench.driving import Outcome
from kourou_bench.measure import Measured, Sample, steady, warmed
from kourou_bench.rows import JAVA, JAVA5, ROWS, Goal, Name, Row, Work

SEND = Work("send", in_flight=64)
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


def test_systems_stay_for_all_rounds_and_take_turns() -> None:
    bench = Bench()
    (found,) = Comparison(bench.prepare, lambda name, work: "").run([ROW], rounds=3)
    ours, theirs = Name.KOUROU, Name.ROCKETMQ
    assert bench.prepared == [(ours, SEND), (theirs, SEND)]
    assert bench.log[:2] == [("warm", ours), ("warm", theirs)]
    turns = [name for what, name in bench.log[2:]]
    assert turns == [ours, theirs, theirs, ours, theirs, ours]
    assert bench.open == []
    assert found.cells[ours].server_us == [2, 2, 2]
    assert found.cells[theirs].client_us == [3, 3, 3]


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


# -- every row compares like with like; goals are met from the right side --------------------------


def test_every_row_has_kourou_and_the_system_of_its_goal() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert Name.KOUROU in row.works
        assert row.goal.of is None or row.goal.of in row.works
        assert row.goal.of is not None or row.unit in {"s", "MB"}
        assert not set(row.works) & set(row.absent or {})
        assert len({work.flush for work in row.works.values()}) == 1, "durability differs"


def test_where_the_java_client_is_compared_it_does_the_same_work_at_both() -> None:
    ours = {row.works[Name.KOUROU].client: row.works for row in ROWS}
    assert set(ours) == {"", JAVA, JAVA5}
    for client, peer in ((JAVA, Name.ROCKETMQ), (JAVA5, Name.ROCKETMQ5)):
        rows = [row for row in ROWS if row.name.startswith(f"{client}-")]
        assert len(rows) == 12
        for row in rows:
            assert row.works[Name.KOUROU].client == client
            assert replace(row.works[Name.KOUROU], client="") == row.works[peer]
            assert row.goal.of is peer
    for row in [row for row in ROWS if not row.name.startswith("java")]:
        assert all(work.client == "" for work in row.works.values())


def test_goals_are_met_from_the_right_side() -> None:
    more, less = Goal(True, 3, Name.ROCKETMQ), Goal(False, 200, None)
    assert [more.reached(value) for value in (2.9, 3, 3.1)] == [False, True, True]
    assert [less.reached(value) for value in (199, 200, 201)] == [True, True, False]
    assert (more.text("msg/s"), less.text("MB")) == ("≥ 3 ×", "≤ 200 MB")


# -- A work is warm when two windows in a row are alike and enough time has passed -----------------


def outcome_of_measure(seconds: float, **values: float) -> Outcome:
    return Outcome(work="send", values=values, sent=0, stored=0, seconds=seconds)


@pytest.mark.parametrize(
    ("paces", "expected"),
    [
        ([], False),
        ([100], False),
        ([50, 100], False),
        ([100, 94], False),
        ([100, 95], True),
        ([95, 100], True),
        ([10, 100, 101], True),
        ([100, 101, 10], False),
    ],
)
def test_two_windows_in_a_row_must_be_alike(paces: Sequence[float], expected: bool) -> None:
    assert steady(paces) is expected


def test_warming_up_goes_on_until_windows_are_alike_and_long_enough() -> None:
    rates = iter([50.0, 80.0, 100.0, 101.0, 0.0])
    assert warmed(lambda: outcome_of_measure(5, rate=next(rates)), 10, 1_000) == ""
    assert list(rates) == [0.0]
    rates = iter([100.0] * 5)
    assert warmed(lambda: outcome_of_measure(5, rate=next(rates)), 20, 1_000) == ""
    assert list(rates) == [100.0], "steady from the first two, but twenty seconds are asked for"


def test_what_does_not_become_steady_says_so() -> None:
    now = [0.0]
    rates = iter([100.0, 10.0] * 20)

    def window() -> Outcome:
        now[0] += 5
        return outcome_of_measure(5, rate=next(rates))

    assert warmed(window, 20, 120, lambda: now[0]) == "not steady after 120 s"
    assert len(list(rates)) == 40 - 24
