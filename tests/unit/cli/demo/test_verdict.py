"""The verdict is ok only when every number agrees with another one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kourou.cli.demo.verdict import Numbers

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
