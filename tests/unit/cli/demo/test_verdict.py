"""The verdict is ok only when every number agrees with another one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kourou.cli.demo.verdict import Numbers, WorstDay

GOOD = Numbers(
    events=100,
    published=100,
    stored=100,
    consumed_unique=100,
    redelivered=7,
    queried=5,
    queried_expected=5,
    replayed=20,
    replayed_expected=20,
    worst_day=WorstDay(
        calls=40,
        calls_expected=40,
        retried=3,
        retried_expected=3,
        dead_letters=4,
        dead_letters_expected=4,
        resent=4,
        reminders=10,
        reminders_expected=10,
        tickets=8,
        tickets_expected=8,
        asked=2,
        asked_expected=2,
    ),
)


def test_agreeing_numbers_are_ok() -> None:
    assert GOOD.disagreements() == []
    assert json.loads(GOOD.as_json()) == {
        "published": 100,
        "stored": 100,
        "consumed_unique": 100,
        "redelivered": 7,
        "lost": 0,
        "queried": 5,
        "replayed": 20,
        "calls": 40,
        "out_of_order": 0,
        "retried": 3,
        "dead_letters": 4,
        "resent": 4,
        "reminders": 10,
        "early": 0,
        "tickets": 8,
        "unwanted_tickets": 0,
        "asked": 2,
        "ok": True,
    }


def test_the_keys_stand_in_the_order_that_is_promised() -> None:
    assert list(json.loads(GOOD.as_json())) == [
        "published",
        "stored",
        "consumed_unique",
        "redelivered",
        "lost",
        "queried",
        "replayed",
        "calls",
        "out_of_order",
        "retried",
        "dead_letters",
        "resent",
        "reminders",
        "early",
        "tickets",
        "unwanted_tickets",
        "asked",
        "ok",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"published": 99, "stored": 99, "consumed_unique": 99},
        {"stored": 101},
        {"consumed_unique": 99},
        {"consumed_unique": 101},
        {"queried": 4},
        {"queried": 0, "queried_expected": 0},
        {"replayed": 19},
        {"replayed": 0, "replayed_expected": 0},
        {"faults": ["the broker did not stop"]},
    ],
)
def test_any_disagreement_is_not_ok(change: dict[str, object]) -> None:
    bad = replace(GOOD, **change)
    assert bad.disagreements()
    assert json.loads(bad.as_json())["ok"] is False


@pytest.mark.parametrize(
    "change",
    [
        {"calls": 39},
        {"calls": 41},
        {"calls": 0, "calls_expected": 0},
        {"out_of_order": 1},
        {"retried": 2},
        {"retried": 0, "retried_expected": 0},
        {"dead_letters": 3},
        {"dead_letters": 5},
        {"dead_letters": 0, "dead_letters_expected": 0, "resent": 0},
        {"resent": 3},
        {"reminders": 9},
        {"reminders": 0, "reminders_expected": 0},
        {"early": 1},
        {"tickets": 7},
        {"tickets": 9},
        {"tickets": 0, "tickets_expected": 0},
        {"unwanted_tickets": 1},
        {"asked": 1},
        {"asked": 0, "asked_expected": 0},
    ],
)
def test_any_disagreement_of_the_second_act_is_not_ok(change: dict[str, int]) -> None:
    bad = replace(GOOD, worst_day=replace(GOOD.worst_day, **change))
    assert len(bad.disagreements()) == 1
    assert json.loads(bad.as_json())["ok"] is False
