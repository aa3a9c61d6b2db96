"""An order setting is said with all its brokers, and leaves out none that does not tell."""

from __future__ import annotations

import pytest

from kourou.errors import Unavailable
from kourou_console.api.topic_changes import OrderPlan
from kourou_console.lists import Missing

BOTH = {"broker-a": 4, "broker-b": 4}
AWAY = [Missing("broker-b", "it swaps")]


def test_a_setting_that_stays_says_nothing_and_needs_nobody() -> None:
    plan = OrderPlan("orders", BOTH, dict(reversed(BOTH.items())), AWAY)
    assert plan.said(preview=True) == []
    plan.check()


def test_all_brokers_are_named() -> None:
    (put,) = OrderPlan("orders", {}, BOTH).said(preview=False)
    assert put == "The order setting of orders is broker-a:4;broker-b:4 at every name server."
    (gone,) = OrderPlan("orders", BOTH).said(preview=True)
    assert gone.endswith("would be removed for all brokers: broker-a, broker-b.")


def test_a_setting_that_would_leave_one_out_is_refused() -> None:
    plan = OrderPlan("orders", {}, {"broker-a": 4}, AWAY)
    assert plan.said(preview=True)[-1] == "That is refused while broker-b does not respond."
    with pytest.raises(Unavailable, match="it swaps"):
        plan.check()
