"""After each answer, one step."""

from __future__ import annotations

import pytest

from kourou.client.consumer.puller import PullAction, PullStep, step_after
from kourou.errors import Code


def step(code, *, progressed=True, elapsed_ms=100, pull_interval_ms=0):
    return step_after(
        code,
        progressed=progressed,
        elapsed_ms=elapsed_ms,
        pull_interval_ms=pull_interval_ms,
        exception_pause_ms=1000,
    )


@pytest.mark.feature("F187", "F189")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.SUCCESS, PullStep()),
        (Code.PULL_NOT_FOUND, PullStep()),
        (Code.PULL_RETRY_IMMEDIATELY, PullStep()),
        (Code.PULL_OFFSET_MOVED, PullStep(PullAction.CORRECT_OFFSET)),
        (Code.MESSAGE_CORRUPT, PullStep(PullAction.SKIP_CORRUPT)),
        (Code.FILTER_FAILED, PullStep(PullAction.FILTER_FAILED, 1000)),
        (Code.FLOW_CONTROL, PullStep(pause_ms=20)),
        (Code.SYSTEM_BUSY, PullStep(pause_ms=20)),
        (Code.POLLING_FULL, PullStep(pause_ms=20)),
        (Code.SUBSCRIPTION_NOT_EXIST, PullStep(PullAction.HEARTBEAT, 200)),
        (Code.SUBSCRIPTION_NOT_LATEST, PullStep(PullAction.HEARTBEAT, 200)),
        (Code.SUBSCRIPTION_GROUP_NOT_EXIST, PullStep(PullAction.HEARTBEAT, 200)),
        (Code.SYSTEM_ERROR, PullStep(PullAction.FIND_ROUTE, 1000)),
        (Code.TOPIC_NOT_EXIST, PullStep(PullAction.FIND_ROUTE, 1000)),
        (9_999, PullStep(PullAction.FIND_ROUTE, 1000)),
    ],
)
def test_the_table(code, expected):
    assert step(code) == expected


@pytest.mark.feature("F200", "F312")
def test_the_pull_interval_slows_pulls_that_bring_messages():
    assert step(Code.SUCCESS, pull_interval_ms=70) == PullStep(pause_ms=70)
    assert step(Code.PULL_RETRY_IMMEDIATELY, pull_interval_ms=70) == PullStep()


@pytest.mark.parametrize("code", [Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY])
def test_an_empty_answer_at_once_is_not_asked_again_at_once(code):
    assert step(code, progressed=False, elapsed_ms=1).pause_ms > 0
    assert step(code, progressed=False, elapsed_ms=15_000).pause_ms == 0
    assert step(code, progressed=True, elapsed_ms=1).pause_ms == 0


@pytest.mark.parametrize("code", [Code.PULL_OFFSET_MOVED, Code.MESSAGE_CORRUPT])
def test_a_correction_that_leads_nowhere_does_not_spin(code):
    assert step(code, progressed=False).pause_ms > 0
