"""Doing what the core decided: bytes first, answers behind them, and an end when the disk fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.broker.storage import effect_executor as executor
from kourou.broker.storage.effect_executor import INDEX_RETRY_MS, SPACE_RETRY_MS
from kourou.broker.storage.store_runtime import StoreRuntime
from kourou.engine.effects import Announce, ConfigChanged, DropTopic, Flush, Project, Wake
from kourou.engine.inputs import Dispatched, Flushed, RegistrationDone, SpaceChanged, StoreFailed
from kourou.engine.roles.quorum import QuorumLeaderRole
from kourou.errors import Code, StoreFaulted
from kourou.protocol.messages.groups import NotifyConsumerIdsChanged
from kourou.runtime import AskClient, LogWarning, Notify, Received, Reply, ReplyTo, Tick
from kourou.service.loop import SingleWriterLoop
from kourou.store.flush_schedule import WOKEN_PAUSE_MS, FlushPolicy
from kourou_rigs.engine import Engine
from kourou_rigs.executing import PEER, append, effect_executor, perform, send_to, settled
from kourou_rigs.kept_carriers import KeptCarriers
from kourou_rigs.quorum import GivenQuorum

OFTEN = FlushPolicy(interval_ms=1, least_pages=1, thorough_ms=1)


class Rig:
    """An executor over a store on a simulated disk; keeps what it posts and its failures."""

    def __init__(self, site, *, sync_flush: bool = False, **policies: FlushPolicy) -> None:
        self.site = site
        self.posted: list[Any] = []
        self.on_posted: Callable[[], object] = lambda: None
        self.protocols = KeptCarriers()
        self.failures: list[BaseException] = []
        self.changed: list[str] = []
        self.completed = 0
        self.failed = asyncio.Event()
        self.executor = effect_executor(
            site,
            protocols=self.protocols,
            post=self._post,
            config_changed=self.changed.append,
            register_now=self._announce,
            failed=self._fail,
            **policies,
        )
        self.core = site.core(sync_flush=sync_flush)
        self.parts = self.core.parts
        self.loop: SingleWriterLoop[Any, Any] | None = None

    def serve(self) -> None:
        """Connect core and executor by the real loop."""
        self.loop = SingleWriterLoop(
            self.core, self.executor.performers(), self.site.clock, on_failure=self._fail
        )
        self.loop.start()

    def _post(self, item) -> None:
        self.posted.append(item)
        self.on_posted()
        if self.loop is not None:
            self.loop.post(item)

    def _announce(self, number: int) -> None:
        self.completed += number
        if number:
            self._post(RegistrationDone(number))

    def _fail(self, error) -> None:
        self.failures.append(error)
        self.failed.set()

    def do(self, *effects) -> None:
        perform(self.executor, *effects)

    def append(self, count: int = 1, body: bytes = b"x") -> None:
        for _ in range(count):
            append(self.executor, self.parts, self.site.clock.now_ms(), body)

    def seen(self, kind: type) -> list[Any]:
        return [item for item in self.posted if isinstance(item, kind)]

    async def settled(self) -> None:
        await settled(self.executor)


@pytest.fixture
async def rig(site):
    made: list[Rig] = []

    def make(**options) -> Rig:
        made.append(Rig(site, **options))
        return made[-1]

    yield make
    for each in made:
        await each.executor.settle()


def received(correlation: int) -> Received:
    return Received(ReplyTo(PEER, correlation), send_to(), [b"x"], 1)


def codes(rig: Rig) -> dict[int, int]:
    return {reply.to.correlation: reply.code for reply in rig.protocols.replies}


def make_topic(rig: Rig) -> None:
    from kourou.engine.control import decide_start

    rig.do(*rig.core.start(0, 1, decide_start(rig.parts.control, rig.site.rules), "start"))


async def test_appends_are_projected_after_the_iteration_if_consumers_wait(rig) -> None:
    one = rig()
    one.append(3)
    one.do(Project())
    assert one.seen(Dispatched) == []
    assert one.site.store.dispatch_behind_bytes > 0
    await asyncio.sleep(0)
    (grown,) = one.seen(Dispatched)
    assert grown.queues[-1] == ("orders", 0, 3)
    assert one.site.store.dispatch_behind_bytes == 0


async def test_appends_without_waiting_consumers_are_projected_together(rig) -> None:
    one = rig()
    posted = asyncio.Event()
    one.on_posted = lambda: one.seen(Dispatched) and posted.set()
    one.append(2)
    await asyncio.sleep(0)
    one.append()
    assert one.seen(Dispatched) == []
    await posted.wait()
    (grown,) = one.seen(Dispatched)
    assert grown.queues[-1] == ("orders", 0, 3)


async def test_many_bytes_are_projected_without_waiting_consumers(rig, monkeypatch) -> None:
    monkeypatch.setattr(executor, "PROJECT_BYTES_MAX", 10_000)
    one = rig()
    one.append(body=bytes(9_000))
    await asyncio.sleep(0)
    assert one.seen(Dispatched) == []
    one.append(body=bytes(1_000))
    await asyncio.sleep(0)
    assert len(one.seen(Dispatched)) == 1


async def test_an_index_that_rested_catches_up_with_the_clock_and_the_core_knows(rig) -> None:
    one = rig()
    store = one.site.store
    store.hold_index(held=True)
    one.append(2)
    one.do(Project())
    await asyncio.sleep(0)
    (grown,) = one.seen(Dispatched)
    assert grown.indexed < store.dispatched == store.end
    one.executor.tick()
    assert store.indexed < store.end, "it rests still"
    store.hold_index(held=False)
    one.executor.tick()
    assert store.indexed < store.end, "not with every tick"
    one.site.clock.advance(INDEX_RETRY_MS)
    one.executor.tick()
    assert store.indexed == store.end
    one.append()
    one.do(Project())
    await asyncio.sleep(0)
    assert one.seen(Dispatched)[-1].indexed == store.end


async def test_the_core_is_woken_when_something_is_due_before_the_next_tick(rig) -> None:
    one = rig()
    one.do(Wake(3_600_000))
    one.do(Wake(0))  # a later one counts
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (tick,) = one.seen(Tick)
    assert tick == Tick(one.site.clock.now_ms(), one.site.clock.monotonic_ms())
    one.do(Wake(0))
    await one.executor.settle()
    await asyncio.sleep(0)
    assert len(one.seen(Tick)) == 1


@pytest.mark.feature("F094", "F095")
async def test_a_flush_asked_for_during_a_flush_follows_it(rig) -> None:
    one = rig()
    one.append()
    one.do(Flush())
    one.append()
    one.do(Flush(), Flush())
    await one.settled()
    flushed = [item.position for item in one.seen(Flushed)]
    assert 1 <= len(flushed) <= 2
    assert flushed[-1] == one.site.store.end == one.site.store.flushed


PATIENT = {"interval_ms": 10**9, "thorough_ms": 10**9}


@pytest.mark.feature("F098")
async def test_appends_wake_the_flush_as_soon_as_enough_is_dirty(rig) -> None:
    one = rig(log_flush=FlushPolicy(**PATIENT, least_pages=4, timed=False))
    one.site.clock.advance(WOKEN_PAUSE_MS)
    one.append(1, bytes(4_096 * 3))
    await one.settled()
    assert one.seen(Flushed) == [], "less than four pages wait for the clock"
    one.append(1, bytes(4_096))
    await one.settled()
    assert one.seen(Flushed) == [Flushed(one.site.store.end)]


async def test_what_comes_during_a_woken_flush_is_flushed_behind_it(rig) -> None:
    one = rig(log_flush=FlushPolicy(**PATIENT, least_pages=1, timed=False))
    one.site.clock.advance(WOKEN_PAUSE_MS)
    one.append(1, bytes(5_000))
    await asyncio.sleep(0)
    one.append(1, bytes(5_000))
    await one.settled()
    one.site.clock.advance(WOKEN_PAUSE_MS)
    one.executor.tick()
    await one.settled()
    assert one.site.store.dirty_bytes == 0


@pytest.mark.fault
@pytest.mark.feature("F094")
async def test_after_a_failed_flush_nothing_is_acknowledged_and_the_process_ends_once(rig) -> None:
    one = rig(sync_flush=True, log_flush=OFTEN)
    make_topic(one)
    one.serve()
    await one.settled()
    one.posted.clear()
    one.site.disk.fail_sync(1)
    one.loop.offer_all([received(1), received(2)])
    await one.settled()
    await asyncio.sleep(0)
    one.loop.offer_all([received(3)])
    one.site.clock.advance(1_000)
    one.executor.tick()
    one.do(Flush())
    await asyncio.wait_for(one.failed.wait(), 60)
    await one.settled()
    answers = codes(one)
    assert answers == {1: Code.OUTCOME_UNKNOWN, 2: Code.OUTCOME_UNKNOWN, 3: Code.STORE_FAULTED}
    assert len(one.seen(StoreFailed)) == 1
    assert one.seen(Flushed) == []
    assert len(one.failures) == 1
    assert isinstance(one.failures[0], StoreFaulted)


@pytest.mark.fault
async def test_a_write_that_fails_leaves_no_answer_behind(rig, monkeypatch) -> None:
    one = rig()
    make_topic(one)
    one.serve()

    def append(*_args) -> None:
        raise StoreFaulted("EIO")

    monkeypatch.setattr(one.site.store, "append", append)
    one.loop.offer_all([received(1)])
    assert one.protocols.replies == []
    assert not one.loop.running
    assert len(one.failures) == 1


@pytest.mark.fault
@pytest.mark.parametrize("error", [OSError(errno.EIO, "I/O error"), ZeroDivisionError("a bug")])
@pytest.mark.parametrize(
    "step", ["dispatch", "plan_checkpoint", "save_checkpoint", "allocate_next"]
)
async def test_any_failure_of_the_store_ends_the_process(rig, monkeypatch, step, error) -> None:
    one = rig(queue_flush=OFTEN)

    def broken(*_args, **_options):
        raise error

    one.append()
    await one.settled()
    monkeypatch.setattr(one.site.store, step, broken)
    match step:
        case "dispatch":
            one.executor.dispatch()
        case "allocate_next":
            one.executor._allocate()
        case _:
            one.executor._units_dirty_bytes = 1 << 20
            one.site.clock.advance(10)
            one.executor.tick()
    await one.settled()
    assert len(one.seen(StoreFailed)) == 1
    await asyncio.wait_for(one.failed.wait(), 60)
    assert one.failures == [error]
    monkeypatch.undo()


@pytest.mark.fault
async def test_a_full_disk_is_reported_and_allocation_is_retried_later(
    rig, monkeypatch, caplog
) -> None:
    from kourou.store.store import Space

    one = rig()
    store, tries = one.site.store, []
    end = store.space.allocated_end

    def allocate() -> Space:
        tries.append(1)
        return Space(end, True)

    monkeypatch.setattr(store, "allocate_next", allocate)
    monkeypatch.setattr(type(store), "space_wanted", property(lambda _self: True))
    one.append()
    await one.settled()
    assert one.seen(SpaceChanged) == [SpaceChanged(end, True)]
    one.append(5)
    one.executor.tick()
    await one.settled()
    assert len(tries) == 1, "appends that still fit do not knock at every record"
    for _ in range(3):
        one.site.clock.advance(SPACE_RETRY_MS)
        one.executor.tick()
        await one.settled()
    assert len(tries) == 4
    assert caplog.text.count("the disk is full") == 1
    monkeypatch.setattr(store, "allocate_next", lambda: Space(end + 1, False))
    one.site.clock.advance(SPACE_RETRY_MS)
    one.executor.tick()
    await one.settled()
    assert one.posted[-1] == SpaceChanged(end + 1, False)


async def test_a_checkpoint_on_a_full_disk_is_made_up_for(rig, monkeypatch) -> None:
    from kourou.errors import DiskFull

    one = rig(queue_flush=OFTEN)
    one.append(300)
    await asyncio.sleep(0)
    good = one.site.store.save_checkpoint

    def full(_plan) -> None:
        raise DiskFull("no")

    monkeypatch.setattr(one.site.store, "save_checkpoint", full)
    one.site.clock.advance(10)
    one.executor.tick()
    await one.settled()
    assert one.failures == []
    saved = []
    monkeypatch.setattr(
        one.site.store, "save_checkpoint", lambda plan: (good(plan), saved.append(plan))
    )
    one.site.clock.advance(10)
    one.executor.tick()
    await one.settled()
    assert len(saved) == 1, "what was dirty still is"


async def test_a_checkpoint_that_takes_long_rests_long(rig, monkeypatch) -> None:
    one = rig(queue_flush=OFTEN)
    saved = []

    def slow(_plan) -> None:
        one.site.clock.advance(1_000)
        saved.append(one.site.clock.monotonic_ms())

    monkeypatch.setattr(one.site.store, "save_checkpoint", slow)
    for after_ms, expected in ((10, 1), (8_999, 1), (1, 2)):
        one.append(1)
        await asyncio.sleep(0)
        one.site.clock.advance(after_ms)
        one.executor.tick()
        await one.settled()
        assert len(saved) == expected


async def test_a_dropped_topic_is_projected_first_and_then_gone(rig) -> None:
    one = rig()
    one.append(2)
    one.do(DropTopic("orders"))
    (grown,) = one.seen(Dispatched)
    assert grown.queues[-1] == ("orders", 0, 2)
    assert one.site.store.queue_ids("orders") == []


async def test_the_other_effects_go_where_they_belong(rig, caplog) -> None:
    one = rig()
    to = ReplyTo(PEER, 7)
    notice = NotifyConsumerIdsChanged(consumer_group="g")
    question = AskClient(3, PEER, notice, (), 1_000)
    one.do(
        Reply(to, Code.SYSTEM_ERROR, "no", None, (b"a", b"b")),
        Notify(PEER, notice),
        question,
        ConfigChanged("topics"),
        Announce(1),
        LogWarning("disk-odd: look at %(path)s", {"path": "this"}),
        LogWarning("disk-full: 100 % full"),
    )
    assert one.protocols.replies == [Reply(to, Code.SYSTEM_ERROR, "no", None, (b"a", b"b"))]
    assert one.protocols.notices == [Notify(PEER, notice)]
    assert one.protocols.questions == [question]
    assert one.changed == ["topics"]
    assert one.completed == 1
    assert caplog.messages[-2:] == ["disk-odd: look at this", "disk-full: 100 % full"]


async def test_after_settling_nothing_is_started(rig) -> None:
    one = rig(log_flush=OFTEN)
    one.append()
    await one.executor.settle()
    one.site.clock.advance(1_000)
    one.executor.tick()
    one.do(Flush())
    assert not one.executor._tasks


# -- what the projections of an open store learn from a new core -----------------------------------


def test_history_has_nothing_that_another_leader_may_take_back() -> None:
    quorum = GivenQuorum(leader="n0")
    engine = Engine(role=QuorumLeaderRole(7, quorum))
    attached: list[Callable[[], int]] = []
    store_runtime = StoreRuntime.__new__(StoreRuntime)
    store_runtime.projector = SimpleNamespace(attach=lambda _control, safe: attached.append(safe))  # type: ignore[assignment]  # as much of one as is asked
    store_runtime.mirror = SimpleNamespace(renew=lambda: None)  # type: ignore[assignment]  # likewise
    flushed = engine.core.parts.confirmations.flushed
    store_runtime.store = SimpleNamespace(flushed=flushed)  # type: ignore[assignment]  # likewise
    store_runtime.serve(engine.core.view)
    (safe,) = attached
    assert flushed > 0 == safe()
    quorum.confirm(engine)
    assert safe() == flushed
