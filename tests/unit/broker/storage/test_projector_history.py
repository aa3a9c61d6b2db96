"""Asking the event database off the loop, and coming back in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.storage.projector import HistoryExecutor, Projector
from kourou.engine.admin.history import EventFound, EventQuestion, HistoryFound, HistoryQuestion
from kourou.engine.effects import AskHistory
from kourou.engine.inputs import HistoryAnswered
from kourou.errors import KourouError, MetadataUnavailable, Throttled
from kourou.events.control_events import TopicPut
from kourou.model.limits import HISTORY_QUESTIONS_MAX
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.broker_admin import GetHistory
from kourou.runtime.core import Peer, Received, ReplyTo
from kourou_rigs.ailing_events import AilingEvents

PATIENT_MS = 30_000


class Bench:
    """An executor over a real projection, without a core; keeps the results."""

    def __init__(self, site: Any, database: AilingEvents) -> None:
        self.site = site
        self.database = database
        self.flushed = site.store.end
        self.flushes = 0
        self.answers: list[HistoryAnswered] = []
        self.came = asyncio.Event()
        self.projector = Projector(
            site.store, database, site.control, lambda: self.flushed, idle_s=600, retry_s=600
        )
        self.executor = HistoryExecutor(
            database,
            lambda: self.projector,
            flush=self.flush,
            post=self.post,
            audit_folder=Path("no-audit"),
        )
        self.numbers = iter(range(1, 1_000))

    def flush(self) -> None:
        self.flushes += 1
        self.flushed = self.site.store.end

    def post(self, item: HistoryAnswered) -> None:
        self.answers.append(item)
        self.came.set()

    def ask(self, question: Any = None, *, upto: int = 0, wait_ms: int = PATIENT_MS) -> ReplyTo:
        to = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), next(self.numbers))
        received = Received(to, GetHistory(max_count=1), [], 0)
        effect = AskHistory(received, question or HistoryQuestion("", 10), upto, wait_ms)
        self.executor.performers()[AskHistory](effect)
        return to

    async def answer(self, **named: Any) -> HistoryAnswered:
        to = self.ask(**named)
        async with asyncio.timeout(60):
            while not any(each.received.to == to for each in self.answers):
                self.came.clear()
                await self.came.wait()
        return next(each for each in self.answers if each.received.to == to)


@pytest.fixture
async def bench(site: Any, event_store: Any) -> AsyncIterator[Bench]:
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    made = Bench(site, AilingEvents(event_store))
    made.projector.start()
    yield made
    made.executor.stop()
    made.database.hangs, made.database.error = False, None
    await made.projector.stop()


async def test_what_was_decided_just_now_is_flushed_projected_and_returned(bench: Bench) -> None:
    await bench.projector.step()
    bench.site.record(TopicPut(TopicConfig("b", 1, 1)))
    upto = bench.site.control.next_offset
    found = (await bench.answer(question=EventQuestion(upto - 1), upto=upto)).found
    assert isinstance(found, EventFound)
    assert found.recorded.event == TopicPut(TopicConfig("b", 1, 1))
    assert bench.flushes == 1
    assert (await bench.answer(upto=upto)).error is None
    assert bench.flushes == 1, "nothing is flushed for what is projected"
    assert bench.executor.statistics() == {"asked": 2, "unavailable": 0, "waiting": 0}


async def test_an_unreachable_database_is_reported_and_queried_again_each_time(
    bench: Bench,
) -> None:
    bench.database.error = MetadataUnavailable("it is gone")
    bench.site.record(TopicPut(TopicConfig("b", 1, 1)))
    upto = bench.site.control.next_offset
    for _ in range(2):
        assert str((await bench.answer(upto=upto)).error) == "it is gone"
    bench.database.error = None
    found = (await bench.answer(upto=upto)).found
    assert isinstance(found, HistoryFound)
    assert found.end == upto
    assert bench.executor.statistics()["unavailable"] == 2


async def test_one_that_goes_away_after_it_had_everything(bench: Bench) -> None:
    assert (await bench.answer(upto=1)).error is None
    bench.database.error = MetadataUnavailable("it is gone")
    assert isinstance((await bench.answer(upto=1)).error, MetadataUnavailable)


@pytest.mark.parametrize("lagging", [False, True])
async def test_one_that_hangs_is_not_waited_for_beyond_the_time(
    bench: Bench, lagging: bool
) -> None:
    """Whether it hangs while it is brought along, or while it is asked."""
    assert (await bench.answer(upto=1)).error is None
    if lagging:
        bench.site.record(TopicPut(TopicConfig("b", 1, 1)))
    bench.database.hangs = True
    error = (await bench.answer(upto=1 + lagging, wait_ms=30)).error
    assert isinstance(error, MetadataUnavailable)
    assert "did not respond within 30 ms" in str(error)
    bench.database.hangs = False
    bench.database.released.set()
    assert (await bench.answer(upto=1 + lagging)).error is None


async def test_too_many_questions_are_refused_and_not_queued(bench: Bench) -> None:
    assert (await bench.answer(upto=1)).error is None
    bench.database.hangs = True
    for _ in range(HISTORY_QUESTIONS_MAX):
        bench.ask(upto=1)
    assert len(bench.answers) == 1
    error = (await bench.answer(upto=1)).error
    assert isinstance(error, Throttled)
    assert bench.executor.statistics()["waiting"] == HISTORY_QUESTIONS_MAX
    bench.database.released.set()


async def test_a_bug_answers_and_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    assert (await bench.answer(upto=1)).error is None
    bench.database.error = ZeroDivisionError("of ours")
    error = (await bench.answer(upto=1)).error
    assert type(error) is KourouError
    assert "ZeroDivisionError" in str(error)
    assert "reading the history failed" in caplog.text


async def test_a_stop_leaves_no_query_waiting(bench: Bench) -> None:
    assert (await bench.answer(upto=1)).error is None
    bench.database.hangs = True
    waiting = [bench.ask(upto=1) for _ in range(4)]
    await asyncio.to_thread(bench.database.entered.wait, 20)
    assert bench.executor.stop() == waiting
    await asyncio.sleep(0)
    assert len(bench.answers) == 1
    assert bench.executor.statistics()["waiting"] == 0


async def test_before_the_broker_serves_history_is_unavailable(site: Any, event_store: Any) -> None:
    answer: asyncio.Future[HistoryAnswered] = asyncio.get_running_loop().create_future()
    executor = HistoryExecutor(
        event_store,
        lambda: None,
        flush=lambda: None,
        post=answer.set_result,
        audit_folder=Path("no-audit"),
    )
    to = ReplyTo(Peer(1, "local", ("127.0.0.1", 1)), 1)
    received = Received(to, GetHistory(max_count=1), [], 0)
    executor.performers()[AskHistory](AskHistory(received, HistoryQuestion("", 1), 0, PATIENT_MS))
    assert isinstance((await answer).error, MetadataUnavailable)
    executor.stop()
