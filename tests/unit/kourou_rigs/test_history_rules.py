"""Histories that the rules must refuse, each with one thing wrong, and one in which nothing is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kourou_rigs.history_rules import Place, broken_rules, rival_leaders
from kourou_rigs.send_history import History, Outcome

GROUPS = ("audit", "billing")
Run = tuple[History, dict[Place, str]]
QUEUES = 2


def good() -> Run:
    """Two producers, two queues, two groups; one send refused, one whose fate nobody was told."""
    history, log = History(), {}
    ends = dict.fromkeys((f"q{number}" for number in range(QUEUES)), 0)

    def store(queue: str, value: str, at_ms: float) -> int:
        offset, ends[queue] = ends[queue], ends[queue] + 1
        log[queue, offset] = value
        for group in GROUPS:
            history.read(group, at_ms, queue, offset, value)
        return offset

    for number in range(40):
        for producer in ("p0", "p1"):
            value, at_ms = f"{producer}-{number}", 10.0 * number
            queue = f"q{number % QUEUES}"
            outcome = {7: Outcome.FAIL, 9: Outcome.UNKNOWN}.get(number, Outcome.OK)
            stored = outcome is not Outcome.FAIL
            offset = store(queue, value, at_ms + 2) if stored else -1
            told = (queue, offset) if outcome is Outcome.OK else ("", -1)
            history.sent(producer, value, at_ms, at_ms + 5, outcome, *told)
    return history, log


def loses_an_acknowledged_message(history: History, log: dict[Place, str]) -> None:
    last = max(offset for queue, offset in log if queue == "q0")
    del log["q0", last]


def acknowledges_at_another_place(history: History, log: dict[Place, str]) -> None:
    history.sends[0] = replace(history.sends[0], offset=history.sends[1].offset)


def stores_what_it_refused(history: History, log: dict[Place, str]) -> None:
    log["q0", 100] = "p0-7"


def makes_one_up(history: History, log: dict[Place, str]) -> None:
    log["q0", sum(queue == "q0" for queue, _ in log)] = "p9-0"


def hands_out_what_vanishes(history: History, log: dict[Place, str]) -> None:
    """The last one of a queue, of which its producer knows nothing."""
    history.sent("p0", "tail", 900, 905, Outcome.UNKNOWN)
    history.read("audit", 903, "q0", sum(queue == "q0" for queue, _ in log), "tail")


def hands_out_something_else(history: History, log: dict[Place, str]) -> None:
    history.reads[5] = replace(history.reads[5], value=history.reads[11].value)


def hands_it_out_before_it_was_sent(history: History, log: dict[Place, str]) -> None:
    history.reads[20] = replace(history.reads[20], read_ms=-1.0)


def swaps_two(history: History, log: dict[Place, str]) -> None:
    """Everybody says the same, but the later one stands first."""
    changed = {"p0-20": log["q0", 24], log["q0", 24]: "p0-20"}
    at = next(place for place, value in log.items() if value == "p0-20")
    log[at], log["q0", 24] = log["q0", 24], log[at]
    places = {value: place for place, value in log.items()}
    history.sends[:] = [
        replace(row, queue=places[row.value][0], offset=places[row.value][1])
        if row.value in changed and row.outcome is Outcome.OK
        else row
        for row in history.sends
    ]
    history.reads[:] = [
        replace(row, value=log[row.queue, row.offset], read_ms=9_999.0) for row in history.reads
    ]


def leaves_a_gap(history: History, log: dict[Place, str]) -> None:
    log["q0", 500] = log.pop(("q0", 0))
    history.sends[0] = replace(history.sends[0], offset=500)
    history.reads[:] = [
        replace(row, offset=500) if (row.queue, row.offset) == ("q0", 0) else row
        for row in history.reads
    ]


def stores_one_twice(history: History, log: dict[Place, str]) -> None:
    log["q0", sum(queue == "q0" for queue, _ in log)] = "p0-9"


def forgets_a_group(history: History, log: dict[Place, str]) -> None:
    history.reads[:] = [
        row for row in history.reads if (row.group, row.value) != ("billing", "p1-30")
    ]


PLANTED: dict[Callable[[History, dict[Place, str]], None], str] = {
    loses_an_acknowledged_message: "lost",
    acknowledges_at_another_place: "one value",
    stores_what_it_refused: "phantom",
    makes_one_up: "phantom",
    hands_out_what_vanishes: "one value",
    hands_out_something_else: "one value",
    hands_it_out_before_it_was_sent: "phantom",
    swaps_two: "order",
    leaves_a_gap: "dense",
    stores_one_twice: "repeated",
    forgets_a_group: "unseen",
}


def test_a_good_history_breaks_no_rule():
    history, log = good()
    assert len(history.acknowledged()) == 76
    assert broken_rules(history, log, groups=GROUPS) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_refused(plant: Callable[[History, dict[Place, str]], None]):
    history, log = good()
    plant(history, log)
    rules = [line.partition(":")[0] for line in broken_rules(history, log, groups=GROUPS)]
    assert PLANTED[plant] in rules


def test_a_swap_breaks_the_order_alone():
    history, log = good()
    swaps_two(history, log)
    (line,) = broken_rules(history, log, groups=GROUPS)
    assert line.startswith("order: p0-")


def test_many_faults_of_a_kind_are_counted():
    history, log = good()
    log.clear()
    lines = broken_rules(history, log, groups=GROUPS)
    assert "76 in all" in lines[0]
    assert lines[0].count("was acknowledged at") == 5


def test_an_epoch_has_one_leader():
    logs = {"n0": [(1, "n0", 0), (2, "n1", 80)], "n1": [(2, "n1", 80)]}
    assert rival_leaders(logs) == []
    logs["n2"] = [(2, "n2", 80)]
    assert rival_leaders(logs) == ["epoch 2 was led by n1 from 80 and n2 from 80"]


def test_recovery_is_the_end_of_the_silence_that_a_fault_began():
    history = History()
    for at_ms in (0, 90, 110, 130, 1_330, 1_340, 2_000):
        history.sent("p", f"v{at_ms}", at_ms - 5, at_ms, Outcome.OK, "q", at_ms)
    history.sent("p", "unknown", 200, 700, Outcome.UNKNOWN)
    history.struck(100, "kill", leader=True)
    history.struck(100, "stop a follower")
    history.struck(3_000, "kill", leader=True)
    assert history.recoveries_ms() == [("kill", 1_230)]


def test_a_history_is_the_same_after_it_was_saved(tmp_path: Path):
    history, _ = good()
    history.struck(12.5, "kill -9 n1", leader=True)
    history.save(tmp_path / "history.jsonl")
    assert History.load(tmp_path / "history.jsonl") == history
