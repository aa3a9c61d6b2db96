"""One call of the core per turn, effects in order, and an end when something breaks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from kourou.service import loop as loop_module
from kourou.service.loop import SingleWriterLoop
from kourou_rigs.clock import ManualClock
from kourou_rigs.waiting import until


class Echo:
    """Each input becomes an effect; "bad" breaks an invariant."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.times: list[int] = []

    def handle(self, now_ms: int, inputs: Sequence[str]) -> list[object]:
        self.times.append(now_ms)
        self.batches.append(list(inputs))
        assert "bad" not in inputs, "an invariant"
        return [int(item) if item.isdigit() else item for item in inputs]


class Setup:
    def __init__(self, **options: Any) -> None:
        self.core = Echo()
        self.done: list[object] = []
        self.refused: list[str] = []
        self.failures: list[BaseException] = []
        self.clock = ManualClock()
        performer = {int: self.done.append, str: self.perform_text}
        self.loop: SingleWriterLoop[str, object] = SingleWriterLoop(
            self.core,
            performer,
            self.clock,
            on_failure=self.failures.append,
            refuse=self.refused.append,
            **options,
        )

    def perform_text(self, text: str) -> None:
        if text == "explode":
            raise ZeroDivisionError
        self.done.append(text)
        if text == "again":
            self.loop.post("more")


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_arrives_in_one_turn_is_one_batch() -> None:
    setup = Setup()
    setup.loop.post("early")
    setup.loop.start()
    for item in ("1", "a", "2"):
        setup.loop.post(item)
    assert setup.core.batches == []
    await turns()
    assert setup.core.batches == [["early", "1", "a", "2"]]
    assert setup.done == ["early", 1, "a", 2]
    assert setup.core.times == [setup.clock.monotonic_ms()]
    setup.loop.stop()


async def test_a_burst_is_handled_at_once() -> None:
    setup = Setup()
    setup.loop.start()
    setup.loop.post("before")
    setup.loop.offer_all(["a", "b"])
    assert setup.core.batches == [["before", "a", "b"]]
    await turns()
    assert len(setup.core.batches) == 1
    setup.loop.stop()


async def test_patient_inputs_are_handled_with_those_that_come_next() -> None:
    setup = Setup()
    setup.loop.start()
    await turns()
    setup.loop.offer_all(["a", "b"], patient=True)
    assert setup.core.batches == []
    setup.loop.offer_all(["c"])
    assert setup.core.batches == [["a", "b", "c"]]
    setup.loop.offer_all(["d"], patient=True)
    setup.loop.post("fact")
    await turns()
    assert setup.core.batches[1:] == [["d", "fact"]]
    setup.loop.stop()


async def test_patient_inputs_are_handled_soon_although_nothing_comes() -> None:
    setup = Setup()
    setup.loop.start()
    for item in ("a", "b"):
        setup.loop.offer_all([item], patient=True)
        await until(lambda item=item: item in setup.done)
    assert setup.core.batches == [["a"], ["b"]]
    setup.loop.stop()


async def test_many_patient_inputs_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "PATIENT_INPUTS", 3)
    setup = Setup()
    setup.loop.start()
    setup.loop.offer_all(["a", "b"], patient=True)
    assert setup.core.batches == []
    setup.loop.offer_all(["c"], patient=True)
    assert setup.core.batches == [["a", "b", "c"]]
    setup.loop.stop()


async def test_what_comes_after_follows_the_next_turn() -> None:
    setup = Setup()
    setup.loop.start()
    await turns()
    setup.loop.offer_after(["end"])
    setup.loop.offer_all(["a", "b"])
    assert setup.core.batches == [["a", "b"]], "their replies can be written before"
    await turns()
    assert setup.core.batches[1:] == [["end"]]
    setup.loop.stop()


async def test_what_comes_after_is_handled_soon_although_nothing_comes() -> None:
    setup = Setup()
    setup.loop.start()
    for item in ("a", "b"):
        setup.loop.offer_after([item])
        assert item not in setup.done
        await until(lambda item=item: item in setup.done)
    assert setup.core.batches == [["a"], ["b"]]
    setup.loop.stop()


async def test_much_that_comes_after_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "PATIENT_S", 3_600)
    monkeypatch.setattr(loop_module, "PATIENT_INPUTS", 3)
    setup = Setup()
    setup.loop.start()
    await turns()
    setup.loop.offer_after(["a", "b"])
    setup.loop.offer_after(["c"])
    await turns()
    assert setup.core.batches == [["a", "b", "c"]]
    setup.loop.stop()


async def test_what_comes_after_counts_for_the_limit_of_the_inbox() -> None:
    setup = Setup(inbox_inputs_max=2)
    setup.loop.start()
    setup.loop.offer_after(["a", "b", "c"])
    assert (setup.refused, setup.loop.refused) == (["c"], 1)
    assert not setup.loop.offer("d")
    setup.loop.stop()


async def test_what_a_performer_posts_comes_in_the_next_turn() -> None:
    setup = Setup()
    setup.loop.start()
    setup.loop.offer_all(["again", "x"])
    assert setup.done == ["again", "x"]
    await turns()
    assert setup.core.batches == [["again", "x"], ["more"]]
    setup.loop.stop()


async def test_too_many_waiting_requests_are_refused_but_facts_are_not() -> None:
    setup = Setup(inbox_inputs_max=2)
    setup.loop.start()
    assert [setup.loop.offer(item) for item in "abc"] == [True, True, False]
    setup.loop.post("fact")
    await turns()
    assert setup.refused == ["c"]
    assert setup.core.batches == [["a", "b", "fact"]]
    assert setup.loop.statistics() == {
        "turns": 1,
        "inputs": 3,
        "refused": 1,
        "largest_batch": 3,
        "waiting": 0,
    }
    setup.loop.stop()


@pytest.mark.parametrize(
    ("item", "kind"), [("bad", AssertionError), ("explode", ZeroDivisionError)]
)
async def test_a_failure_stops_everything(
    item: str, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    setup.loop.start()
    with caplog.at_level(logging.CRITICAL, "kourou.service"):
        setup.loop.offer_all(["1", item])
    assert [type(error) for error in setup.failures] == [kind]
    assert not setup.loop.running
    assert "2 x str" in caplog.text
    setup.loop.post("later")
    await turns()
    assert len(setup.core.batches) == 1
    assert len(setup.failures) == 1


async def test_posts_from_threads_arrive_once_and_in_order() -> None:
    setup = Setup()
    setup.loop.post_threadsafe("0")
    setup.loop.start()

    def work() -> None:
        for number in range(1, 2_000):
            assert setup.loop.post_threadsafe(str(number))

    thread = threading.Thread(target=work)
    await until(lambda: setup.done == [0])
    thread.start()
    await until(lambda: len(setup.done) == 2_000)
    thread.join()
    assert setup.done == list(range(2_000))
    setup.loop.stop()


def test_a_post_after_the_loop_closed_is_rejected() -> None:
    setup = Setup()

    async def begin() -> None:
        setup.loop.start()
        setup.loop.stop()

    asyncio.run(begin())
    assert not setup.loop.post_threadsafe("too late")


async def test_ticks_come_until_it_stops() -> None:
    setup = Setup()
    setup.loop.start(lambda: "tick", interval_ms=1)
    await until(lambda: setup.done.count("tick") >= 3)
    setup.loop.stop()
    assert setup.loop._tick is None
