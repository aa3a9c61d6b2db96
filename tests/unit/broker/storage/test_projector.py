"""Control events flow from the log into the event store, behind the data path's back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.storage.projector import HistoryExecutor, Projector
from kourou.engine.admin.history import EventFound, EventQuestion, HistoryFound, HistoryQuestion
from kourou.engine.control import CONTROL, encode_state
from kourou.engine.effects import AskHistory
from kourou.engine.inputs import HistoryAnswered
from kourou.engine.sends.recorder import BATCH_EVENTS
from kourou.errors import KourouError, MetadataUnavailable, Throttled
from kourou.events.control_events import Cause, GroupPut, Recorded, TopicPut, UnknownEvent
from kourou.eventstore import stream_rows
from kourou.model.limits import HISTORY_QUESTIONS_MAX
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.broker_admin import GetHistory
from kourou.runtime import Peer, Received, ReplyTo
from kourou_rigs.ailing_events import AilingEvents
from kourou_rigs.waiting import until


class Forbidden(ThreadPoolExecutor):
    """Threads that must not be used."""

    def submit(self, *arguments, **named):
        raise AssertionError("this thread is not for the event store")


def projector(
    site: Any,
    events: Any,
    below: Callable[[], int] | None = None,
    *,
    pause_s: float = 0.001,
    stop_s: float = 30.0,
) -> Projector:
    return Projector(
        site.store,
        events,
        site.control,
        below or (lambda: site.store.end),
        idle_s=pause_s,
        retry_s=pause_s,
        stop_s=stop_s,
    )


async def test_events_arrive_in_the_database(site, event_store) -> None:
    """By a thread of its own: the loop's own threads flush the log's files, for one."""
    asyncio.get_running_loop().set_default_executor(Forbidden())
    database = AilingEvents(event_store)
    one = projector(site, database)
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    assert one.behind == 1
    one.start()
    await until(lambda: one.behind == 0)
    site.record(GroupPut(GroupConfig("g")))
    await until(lambda: one.behind == 0)
    assert [each.event.type for each in event_store.events()] == ["TopicPut", "GroupPut"]
    await one.stop()
    assert database.closed


async def test_an_event_counts_as_lacking_before_it_is_in_the_queue(site, event_store) -> None:
    one = projector(site, AilingEvents(event_store))
    event = TopicPut(TopicConfig("a", 1, 1))
    site.parts().recorder.record([event], Cause("t", "test"), site.clock.now_ms())
    assert one.behind == 1


@pytest.mark.parametrize("closed", [False, True])
async def test_a_closed_state_is_not_what_a_newer_version_starts_from(
    site, event_store, monkeypatch, closed: bool
) -> None:
    """A snapshot would hide from it that it can read the event."""
    monkeypatch.setattr(stream_rows, "SNAPSHOT_AFTER_BYTES_MIN", 1)
    taken: list[object] = []
    database = AilingEvents(event_store)
    monkeypatch.setattr(type(event_store), "snapshot", lambda _, snapshot: taken.append(snapshot))
    name = "UserSuspended" if closed else "LeaseGranted"
    aggregate = "user/till" if closed else "lease"
    site.record(UnknownEvent(name, aggregate, b'{"type":"%s"}' % name.encode()))
    one = projector(site, database)
    one.start()
    await until(lambda: one.behind == 0)
    await one.stop()
    assert bool(taken) is not closed
    assert event_store.events()[0].event.type == name


async def test_only_what_is_flushed_is_projected(site, event_store) -> None:
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    safe = site.store.end
    site.record(GroupPut(GroupConfig("g")))
    one = projector(site, AilingEvents(event_store), lambda: safe)
    one.start()
    await until(lambda: one.behind == 1)
    await one.stop()
    assert event_store.info().next_offset == 1


async def test_a_database_gone_and_back_loses_nothing(site, event_store, caplog) -> None:
    database = AilingEvents(event_store)
    database.gone = True
    one = projector(site, database)
    one.start()
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    await until(lambda: one.trouble)
    assert one.behind == 1
    assert one.projected == 0
    database.gone = False
    await until(lambda: one.behind == 0)
    await until(lambda: not one.trouble)
    database.gone = True
    site.record(GroupPut(GroupConfig("g")))
    await until(lambda: one.trouble)
    database.gone = False
    await until(lambda: one.behind == 0)
    assert event_store.info().next_offset == 2
    assert caplog.text.count("not written to the event store") == 2, "once each time"
    await one.stop()


async def test_a_database_that_comes_back_as_it_was_earlier_is_brought_along(
    site, event_store, caplog
) -> None:
    """A replica took over that lacked the newest; what the log still has is not lost."""
    database = AilingEvents(event_store)
    one = projector(site, database)
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(5)))
    one.start()
    await until(lambda: one.projected == 5)
    database.gone = True
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    await until(lambda: one.trouble)
    event_store.truncate(2)
    database.gone = False
    await until(lambda: one.projected == 6)
    await one.stop()
    assert [each.offset for each in event_store.events()] == [0, 1, 2, 3, 4, 5]
    assert event_store.info().lost_before == 0
    assert "it is rebuilt" not in caplog.text


async def test_a_database_that_hangs_holds_up_neither_loop_nor_stop(
    site, event_store, caplog
) -> None:
    database = AilingEvents(event_store)
    one = projector(site, database, stop_s=0.01)
    one.start()
    await until(lambda: one.projected == 0 and not one.behind)
    database.hangs = True
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    await until(database.entered.is_set)
    assert one.behind == 1
    async with asyncio.timeout(60):
        await one.stop()
    assert database.released.is_set()
    assert database.closed
    assert "stopping without it" in caplog.text
    assert event_store.info().next_offset == 0


class Slow(AilingEvents):
    """It takes what it gets, however long that takes: nothing ends a call under way."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.appends = 0
        self.go_on = threading.Event()

    def append(self, batch):
        self.appends += 1
        self.entered.set()
        assert self.go_on.wait(60)
        return self._inner.append(batch)

    def abandon(self) -> None:
        self.go_on.set()


def record_groups(site, count: int) -> None:
    for first in range(0, count, 100):
        parts = site.parts()
        events = [GroupPut(GroupConfig(f"g{first + number}")) for number in range(100)]
        parts.recorder.record(events, Cause("t", "test"), site.clock.now_ms())
        site.perform(parts.appends.take_done())


async def test_a_stop_that_waits_no_longer_leaves_the_rest_in_the_log(site, event_store) -> None:
    """One more batch at most, not all that there are: 400 batches took minutes."""
    record_groups(site, 3 * BATCH_EVENTS)
    database = Slow(event_store)
    one = projector(site, database, stop_s=0.01)
    one.start()
    await until(database.entered.is_set)
    await one.stop()
    assert database.appends == 1
    assert database.closed
    assert event_store.info().next_offset == BATCH_EVENTS
    await projector(site, event_store).stop()
    assert event_store.info().next_offset == 3 * BATCH_EVENTS


async def test_a_stop_that_is_broken_off_projects_nothing_as_lost(site, event_store) -> None:
    """The store closes behind it, and from a closed one no event can be read."""
    record_groups(site, 2 * BATCH_EVENTS)
    database = Slow(event_store)
    one = projector(site, database)
    stopping = asyncio.create_task(one.stop())
    await until(database.entered.is_set)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    site.store.close()
    database.go_on.set()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others, timeout=60)
    assert database.appends == 1
    assert {each.event.type for each in event_store.events()} == {"GroupPut"}


async def test_a_stop_projects_the_rest_or_says_that_it_cannot(site, event_store, caplog) -> None:
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    await projector(site, AilingEvents(event_store)).stop()
    assert event_store.info().next_offset == 1
    site.record(GroupPut(GroupConfig("g")))
    database = AilingEvents(event_store)
    database.gone = True
    await projector(site, database).stop()
    assert "not in the event store" in caplog.text
    assert database.closed


async def test_a_gap_begins_anew_with_the_state(site, event_store) -> None:
    """The log no longer has what the database lacks."""
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(4)))

    class View:
        def __getattr__(self, name):
            return getattr(site.store, name)

        def queue_range(self, topic, queue_id):
            return 2, site.store.queue_range(topic, queue_id)[1]

    one = Projector(View(), AilingEvents(event_store), site.control, lambda: site.store.end)
    await one.stop()
    assert event_store.info().lost_before == 4
    assert encode_state(event_store.load(CONTROL)[0]) == encode_state(site.control)


async def test_a_history_that_is_another_logs_is_kept_aside(site, event_store, caplog) -> None:
    site.record(GroupPut(GroupConfig("g")), GroupPut(GroupConfig("h")))
    theirs = [Recorded(n, n, n, "", "", "", TopicPut(TopicConfig(f"theirs{n}"))) for n in range(3)]
    event_store.append(theirs)
    await projector(site, AilingEvents(event_store)).stop()
    assert encode_state(event_store.load(CONTROL)[0]) == encode_state(site.control)
    assert event_store.events(stream="control~1") == theirs
    assert "kept as control~1" in caplog.text


async def test_a_history_begins_anew_with_what_is_confirmed_only(site, event_store) -> None:
    """A follower's state may hold what its next leader takes back."""
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(2)))
    safe = site.store.end
    site.record(GroupPut(GroupConfig("g2")))
    later = site.store.end
    site.record(GroupPut(GroupConfig("taken back")))
    theirs = [Recorded(n, n, n, "", "", "", TopicPut(TopicConfig(f"theirs{n}"))) for n in range(3)]
    event_store.append(theirs)
    one = projector(site, AilingEvents(event_store), lambda: safe)
    one.start()
    async with asyncio.timeout(60):
        await one.step()
    assert one.trouble == "", "what both have cannot be compared yet"
    assert event_store.events() == theirs
    safe = later
    async with asyncio.timeout(60):
        await one.step()
    assert one.trouble == "the newest control events are not committed yet"
    assert event_store.events() == theirs, "the old one is kept until then"
    safe = site.store.end
    await one.stop()
    assert encode_state(event_store.load(CONTROL)[0]) == encode_state(site.control)


async def test_a_step_can_be_had_at_once(site, event_store) -> None:
    """A history query does not wait for the pause between two steps."""
    one = projector(site, event_store, pause_s=600)
    one.start()
    await one.step()
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    assert one.projected == 0
    async with asyncio.timeout(60):
        await one.step()
    assert one.projected == 1
    await one.stop()
    with pytest.raises(MetadataUnavailable, match="stopping"):
        await one.step()


async def test_a_step_that_fails_ends_too(site, event_store) -> None:
    database = AilingEvents(event_store)
    database.gone = True
    one = projector(site, database, pause_s=600)
    site.record(TopicPut(TopicConfig("a", 1, 1)))
    one.start()
    async with asyncio.timeout(60):
        await one.step()
    assert one.trouble == "the database is gone"
    database.gone = False
    async with asyncio.timeout(60):
        await one.step()
    assert (one.trouble, one.projected) == ("", 1)
    await one.stop()


# -- asking the event database off the loop, and coming back in time -------------------------------


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
        self.projector = projector(site, database, lambda: self.flushed, pause_s=600)
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
