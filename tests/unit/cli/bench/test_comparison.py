"""Rounds, turns, ratios of one round, and the median of those."""

from __future__ import annotations

from collections import Counter

from kourou.cli.bench.comparison import Cell, Comparison, Result, turns
from kourou.cli.bench.driving import Outcome
from kourou.cli.bench.rows import Goal, Name, Row, Work
from kourou.errors import Unavailable

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


def test_everybody_begins_once_in_a_while() -> None:
    orders = [turns(["a", "b", "c"], number) for number in range(3)]  # type: ignore[list-item]
    assert orders == [["a", "b", "c"], ["a", "c", "b"], ["c", "a", "b"]]
    assert {order[0] for order in (turns(list(Name), n) for n in range(20))} == set(Name)


def test_the_same_work_is_measured_once_a_round() -> None:
    measured: list[tuple[Name, Work]] = []

    def measure(name: Name, work: Work) -> Outcome:
        measured.append((name, work))
        return outcome(len(measured))

    own = Row(
        "own",
        "",
        "rate",
        "msg/s",
        Goal(True, 0.9, Name.ITSELF),
        {Name.KOUROU: OTHER, Name.ITSELF: SEND},
    )
    results = Comparison(measure, lambda name, work: "").run([ROW, own], rounds=2)
    assert Counter(measured) == Counter(
        2 * [(Name.KOUROU, SEND), (Name.ROCKETMQ, SEND), (Name.KOUROU, OTHER)]
    )
    send, itself = results[0].cells[Name.KOUROU], results[1].cells[Name.ITSELF]
    assert send.values == itself.values
    assert len(send.values) == 2


def test_what_cannot_be_measured_says_why_and_stops_nothing() -> None:
    told: list[str] = []

    def measure(name: Name, work: Work) -> Outcome:
        if name is Name.KOUROU:
            raise Unavailable("2 messages are stored, 3 were sent")
        return outcome(7)

    def absent(name: Name, work: Work) -> str:
        return "is missing" if name is Name.REDIS else ""

    row = Row(
        "send", "", "rate", "msg/s", ROW.goal, {**ROW.works, Name.REDIS: SEND}, absent=ROW.absent
    )
    (found,) = Comparison(measure, absent, told.append).run([row], rounds=2)
    assert found.cells[Name.REDIS].absent == "is missing"
    assert found.cells[Name.NATS].absent == "no such thing"
    assert found.cells[Name.ROCKETMQ].values == [7, 7]
    assert found.cells[Name.KOUROU].values == [None, None]
    assert len(found.cells[Name.KOUROU].failures) == 2
    assert found.judged() is None
    assert sum("FAILED: 2 messages" in line for line in told) == 2
