"""Works beyond plain sends: their counts are checked, and what came early is no figure."""

from __future__ import annotations

import time

import pytest

from kourou.errors import Unavailable
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou_bench import features
from kourou_bench.features import Lateness
from kourou_bench.loading import promised

DELAY_MS = 1_000


def at(now: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: now[0])


async def test_lateness_counts_from_the_end_of_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5_000_000_700_000]
    at(now, monkeypatch)
    lateness = Lateness(2, 40, DELAY_MS)
    body = lateness.body()
    assert len(body) == 40
    lateness.sent = 7
    for now[0] in (5_001_002_000_000, 5_001_005_000_000):
        lateness.take(body)
    await lateness.drain.wait()
    assert lateness.late_ns == [2_000_000, 5_000_000]
    assert lateness.waiting == 7


async def test_a_message_that_comes_early_makes_the_figures_void(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [5_000_000_700_000]
    at(now, monkeypatch)
    lateness = Lateness(1, 40, DELAY_MS)
    body = lateness.body()
    now[0] = 5_000_999_900_000
    lateness.take(body)
    with pytest.raises(Unavailable, match="100 µs early"):
        await lateness.drain.wait()


def test_a_send_that_is_not_quite_ok_makes_the_figures_void() -> None:
    queue = MessageQueue("t", "b", 0)
    promised(SendResult(SendStatus.SEND_OK, "", queue, 0))
    with pytest.raises(Unavailable, match="FLUSH_DISK_TIMEOUT"):
        promised(SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "", queue, 0))


def test_both_drivers_filter_alike_and_answer_as_often(pytestconfig: pytest.Config) -> None:
    java = pytestconfig.rootpath / "benchmarks" / "java"
    consuming = (java / "Consuming.java").read_text(encoding="utf-8")
    sending = (java / "RocketmqDriver.java").read_text(encoding="utf-8")
    assert f"int PASSES = {features.PASSES};" in consuming
    assert features.FILTER.expression == f"region = 'north' AND amount > {features.PASSES - 2}"
    assert "\"region = 'north' AND amount > \" + (PASSES - 2)" in consuming
    assert f"int ONEWAY_RUN = {features.ONEWAY_RUN:_};" in sending
