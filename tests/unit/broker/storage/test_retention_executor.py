"""Looking at the disk, deleting in a task and a thread, and what is told back."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kourou.engine.control import decide_start
from kourou.engine.effects import CleanProjections, DeleteLogBefore, DiskStarving
from kourou.engine.inputs import DiskMeasured, LogShrunk, SpaceChanged
from kourou.errors import DiskFull
from kourou.events.control_events import Cause, GroupPut, TopicPut
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.service.loop import SingleWriterLoop
from kourou_rigs.executing import append, effect_executor, perform, settled

DAY = 86_400_000
SEGMENT = 64 * 1024


class Rig:
    """A broker's core and executor on a simulated disk, with a clock that stands still."""

    def __init__(self, site) -> None:
        self.site = site
        self.posted: list[Any] = []
        self.failures: list[BaseException] = []
        self.executor = effect_executor(site, post=self._post, failed=self.failures.append)
        self.core = site.core()
        self.parts = self.core.parts
        self.do(*self.core.start(0, 1, decide_start(self.parts.control, site.rules), "start"))
        self.loop: SingleWriterLoop[Any, Any] | None = None

    def serve(self) -> None:
        self.loop = SingleWriterLoop(
            self.core, self.executor.performers(), self.site.clock, on_failure=self.failures.append
        )
        self.loop.start()

    def _post(self, item) -> None:
        self.posted.append(item)
        if self.loop is not None:
            self.loop.post(item)

    def do(self, *effects) -> None:
        perform(self.executor, *effects)

    async def fill(self, segments: int) -> None:
        """Write so many segments of `orders`, and make a checkpoint."""
        while self.site.store.end < segments * SEGMENT + 100:
            space = self.site.store.allocate_next(self.site.store.end + 2 * SEGMENT)
            self.core.handle(0, [SpaceChanged(*space)])
            append(self.executor, self.parts, self.site.clock.now_ms(), bytes(4_000))
        await self.settled()
        self.site.store.dispatch()
        self.site.store.checkpoint()

    def looks(self) -> list[DiskMeasured]:
        return [item for item in self.posted if isinstance(item, DiskMeasured)]

    async def tick(self, ms: int = 1_000) -> None:
        self.site.clock.advance(ms)
        self.executor.tick()
        await self.settled()

    async def settled(self) -> None:
        await settled(self.executor)


@pytest.fixture
async def rig(site):
    made = Rig(site)
    yield made
    await made.executor.settle()


@pytest.mark.feature("F122")
async def test_the_disk_is_looked_at_each_second(rig) -> None:
    await rig.fill(2)
    for _ in range(25):
        await rig.tick(100)
    assert len(rig.looks()) == 3
    look = rig.looks()[-1]
    assert (look.total_bytes, look.free_bytes) == rig.site.store.usage()
    assert [segment.start for segment in look.segments] == [0, SEGMENT]
    assert look.deletable_end == rig.site.store.end
    assert not look.full
    assert 0 <= look.hour <= 23


async def test_a_full_disk_is_looked_at_at_once(rig) -> None:
    await rig.fill(2)
    await rig.tick()
    rig.site.disk.capacity_bytes = 0
    rig.posted.clear()
    rig.site.store._log.allocated_end = rig.site.store.end  # there is no spare segment
    rig.executor._allocate()
    await rig.settled()
    assert [look.full for look in rig.looks()] == [True]


@pytest.mark.feature("F120", "F121")
async def test_what_the_core_decides_is_deleted_and_reported(rig) -> None:
    await rig.fill(4)
    rig.do(DeleteLogBefore(2 * SEGMENT + 5))
    await rig.settled()
    assert rig.posted[-1] == LogShrunk(2 * SEGMENT)
    assert rig.site.store.log_range()[0] == 2 * SEGMENT
    assert len(rig.site.disk.list_dir(rig.site.store.paths.commit_log)) >= 3
    assert not rig.failures


async def test_what_is_recorded_of_a_deletion_is_on_disk_before_the_first_file_goes(
    rig, monkeypatch
) -> None:
    await rig.fill(3)
    rig.parts.recorder.record([GroupPut(GroupConfig("g"))], Cause("t"), 1)
    rig.do(*rig.parts.appends.take_done())
    flushed = []
    remove = rig.site.store.remove
    monkeypatch.setattr(
        rig.site.store,
        "remove",
        lambda deletion: (flushed.append(rig.site.store.flushed), remove(deletion)),
    )
    rig.do(DeleteLogBefore(SEGMENT))
    await rig.settled()
    assert flushed == [rig.site.store.end]


@pytest.mark.feature("F121")
@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_a_step_of_the_wall_clock_ages_nothing_and_is_logged(rig, step, caplog) -> None:
    await rig.fill(3)
    await rig.tick()
    before = [segment.age_ms for segment in rig.looks()[-1].segments]
    rig.site.clock.step_wall(step)
    await rig.tick()
    assert [segment.age_ms for segment in rig.looks()[-1].segments] == [
        age + 1_000 for age in before
    ]
    assert caplog.text.count("the system clock was changed") == 1
    assert rig.site.store.ages.steps == 1


@pytest.mark.feature("F121", "F122", "F123", "F126", "F341")
async def test_three_days_in_the_life_of_a_log(rig, caplog) -> None:
    """Loop, core, executor and store together, by the hour; with the clock set back and forth."""
    await rig.fill(4)
    rig.serve()
    await rig.tick()
    for hour in range(71):
        rig.site.clock.step_wall(DAY if hour % 2 else -DAY)
        await rig.tick(3_600_000)
    assert rig.site.store.log_range()[0] == 0, "71 hours are not 72"
    for _ in range(25):
        await rig.tick(3_600_000)
    assert rig.site.store.log_range()[0] > 0
    assert not rig.failures


@pytest.mark.feature("F125", "F351")
async def test_a_small_disk_goes_on_taking_messages(rig) -> None:
    """The disk holds 40 segments; 200 are written, and no send is refused for good."""
    rig.site.disk.capacity_bytes = 40 * SEGMENT
    rig.serve()
    group = [TopicPut(TopicConfig("orders", 1, 1)), GroupPut(GroupConfig("slow"))]
    rig.parts.recorder.record(group, Cause("t"), 1)
    rig.do(*rig.parts.appends.take_done())
    rig.parts.commits.commit("slow", "orders", 0, 0)
    for segments in range(4, 200, 4):
        await rig.fill(segments)
        await rig.tick()
        await rig.tick()
    total, free = rig.site.store.usage()
    assert rig.site.store.log_range()[0] > 150 * SEGMENT
    assert (total - free) / total < 0.9
    assert rig.parts.retention.unread_deleted["orders", "slow"] > 1_000
    assert not rig.failures


async def test_queues_are_cleaned_of_what_a_crash_left(rig) -> None:
    await rig.fill(3)
    calls = []
    good = rig.site.store.deletion
    rig.site.store.deletion = lambda position: (calls.append(position), good(position))[1]
    await rig.tick()
    await rig.tick()
    assert calls == [0], "once, when it begins"
    rig.do(CleanProjections())
    await rig.settled()
    assert calls == [0, 0]
    assert not [item for item in rig.posted if isinstance(item, LogShrunk)]


async def test_a_starving_disk_is_spared(site) -> None:
    site.store.close()
    site.open(reserve_bytes=1 << 20)
    rig = Rig(site)
    assert site.store.reserve.held
    rig.do(DiskStarving(True))
    await rig.settled()
    assert not site.store.reserve.held
    assert site.store._index.held
    rig.do(DiskStarving(False))
    await rig.settled()
    assert site.store.reserve.held
    assert not site.store._index.held
    await rig.executor.settle()


async def test_ages_are_written_down(rig) -> None:
    await rig.fill(2)
    await rig.tick()
    first = rig.site.disk.read(rig.site.store.paths.ages)
    assert b'"65536":' in first
    await rig.tick(600_000)
    assert rig.site.disk.read(rig.site.store.paths.ages) != first


async def test_ages_wait_for_a_disk_with_room(rig) -> None:
    await rig.fill(2)
    rig.site.disk.capacity_bytes = 0
    await rig.tick()
    assert not rig.site.disk.exists(rig.site.store.paths.ages)
    assert not rig.failures
    rig.site.disk.capacity_bytes = 1 << 40
    await rig.tick(600_000)
    assert rig.site.disk.exists(rig.site.store.paths.ages)


@pytest.mark.fault
async def test_a_deletion_without_room_for_its_checkpoint_goes_on(rig, monkeypatch, caplog) -> None:
    await rig.fill(3)

    def full(_plan) -> None:
        raise DiskFull("no")

    monkeypatch.setattr(rig.site.store, "save_checkpoint", full)
    rig.do(DeleteLogBefore(SEGMENT))
    await rig.settled()
    assert rig.posted[-1] == LogShrunk(SEGMENT)
    assert "without a checkpoint" in caplog.text
    monkeypatch.undo()


@pytest.mark.fault
@pytest.mark.parametrize("step", ["unlink", "sync_dir"])
async def test_a_disk_that_fails_while_deleting_ends_the_process(rig, monkeypatch, step) -> None:
    await rig.fill(3)

    def broken(_path) -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(rig.site.disk, step, broken)
    rig.do(DeleteLogBefore(SEGMENT))
    await rig.settled()
    assert rig.site.store.fault is not None
    assert not [item for item in rig.posted if isinstance(item, LogShrunk)]
    monkeypatch.undo()


@pytest.mark.fault
async def test_a_disk_that_cannot_be_looked_at_ends_the_process(rig, monkeypatch) -> None:
    def broken() -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(rig.site.store, "usage", broken)
    await rig.tick()
    assert rig.executor._faulted
    await rig.tick()
    assert rig.looks() == []


@pytest.mark.fault
async def test_a_store_that_failed_deletes_nothing(rig) -> None:
    await rig.fill(3)
    rig.site.store._log.fail("EIO")
    rig.do(DeleteLogBefore(SEGMENT))
    await rig.settled()
    assert "0" * 20 in rig.site.disk.list_dir(rig.site.store.paths.commit_log)
