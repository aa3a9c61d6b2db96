"""Rates and lag of the demo's picture."""

from __future__ import annotations

import pytest

from kourou_demo.picture import MemberPicture, Picture, Rate


def test_the_lag_is_what_is_available_and_not_delivered() -> None:
    members = [MemberPicture("a", 30), MemberPicture("b", 20)]
    assert Picture(goal=100, available=70, members=members).lag == 20
    assert Picture(goal=100, available=40, members=members).lag == 0


def test_a_rate_follows_its_counter() -> None:
    rate = Rate()
    assert rate.read(10.0, 500) == 0.0
    assert rate.read(11.0, 1_500) == pytest.approx(1_000)
    assert rate.read(11.0, 1_500) == pytest.approx(1_000)
    assert rate.read(11.35, 1_500) == pytest.approx(500)
    assert rate.read(20.0, 1_500) == pytest.approx(0)
