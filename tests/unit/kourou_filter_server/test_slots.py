from __future__ import annotations

from kourou_filter_server.context import CoreContext, ServerPolicy
from kourou_filter_server.interface import (
    BatchEvaluated,
    EndWorker,
    StartWorker,
    WorkerEnded,
    WorkerReady,
)
from kourou_filter_server.slots import Slots, WorkerSlot


class Holder:
    """Wants one worker as often as it is asked to."""

    def __init__(self, slots: Slots, name: str, group: str = "group") -> None:
        self.slots = slots
        self.key = (group, name)
        self.has_work = False
        self.worker: WorkerSlot | None = None
        self.heard: list[str] = []

    def granted(self) -> None:
        self.worker = self.slots.start(self, self.key, 1, b"")

    def give_up(self, worker: WorkerSlot) -> None:
        assert worker is self.worker
        self.worker = None

    def worker_ready(self, worker: WorkerSlot, item: WorkerReady) -> None:
        self.heard.append("ready")

    def worker_ended(self, worker: WorkerSlot, item: WorkerEnded) -> None:
        self.worker = None
        self.heard.append(item.kind)

    def worker_evaluated(self, worker: WorkerSlot, item: BatchEvaluated) -> None:
        self.heard.append("judged")


def holding(workers_max: int, count: int) -> tuple[CoreContext, Slots, list[Holder]]:
    context = CoreContext()
    slots = Slots(context, ServerPolicy(workers_max=workers_max, turn_ms=1_000))
    holders = [Holder(slots, str(number)) for number in range(count)]
    for number, holder in enumerate(holders[:workers_max]):
        context.begin(number)
        slots.want(holder)
        assert holder.worker is not None
        slots.ready(WorkerReady(holder.worker.number))
    return context, slots, holders


def test_the_one_that_rested_longest_gives_its_worker_up() -> None:
    context, slots, (first, second, third) = holding(2, 3)
    context.begin(10)
    slots.want(third)
    assert first.worker is None
    assert second.worker is not None
    assert third.worker is not None
    assert [type(effect) for effect in context.effects] == [EndWorker, StartWorker]


def test_one_with_work_keeps_its_worker_for_its_turn() -> None:
    context, slots, (first, second, third) = holding(2, 3)
    first.has_work = second.has_work = True
    context.begin(500)
    slots.want(third)
    assert third.worker is None
    assert slots.full
    context.begin(1_000)
    slots.tick()
    assert first.worker is None  # it had its second, the other one a millisecond less
    assert third.worker is not None


def test_a_busy_worker_is_not_taken_away() -> None:
    context, slots, (first, second) = holding(1, 2)
    assert first.worker is not None
    first.worker.busy, first.worker.batch = True, 1
    context.begin(5_000)
    slots.want(second)
    assert second.worker is None
    assert slots.must_yield(first.worker)
    slots.evaluated(BatchEvaluated(first.worker.number, 1, b""))
    slots.tick()
    assert second.worker is not None


def test_what_ends_makes_room() -> None:
    _, slots, (first, second) = holding(1, 2)
    first.has_work = True
    slots.want(second)
    assert first.worker is not None
    slots.ended(WorkerEnded(first.worker.number, "died", ""))
    assert first.heard == ["ready", "died"]
    assert second.worker is not None
    assert len(slots) == 1


def test_of_what_was_ended_nothing_is_heard() -> None:
    _, slots, (first, _second) = holding(1, 2)
    worker = first.worker
    assert worker is not None
    slots.end(worker)
    slots.ended(WorkerEnded(worker.number, "died", ""))
    slots.ready(WorkerReady(worker.number))
    slots.evaluated(BatchEvaluated(worker.number, 0, b""))
    assert first.heard == ["ready"]


def test_a_worker_without_work_ends_after_a_while() -> None:
    context, slots, (first,) = holding(1, 1)
    context.begin(ServerPolicy().worker_idle_ms - 1)
    slots.tick()
    assert first.worker is not None
    context.begin(ServerPolicy().worker_idle_ms)
    slots.tick()
    assert first.worker is None
    assert not len(slots)


def test_groups_share_however_many_filters_they_have() -> None:
    context, slots, greedy = holding(2, 6)
    modest = Holder(slots, "only", group="another")
    for holder in greedy:
        holder.has_work = True
    modest.has_work = True
    for holder in greedy[2:]:
        slots.want(holder)
    context.begin(500)
    slots.want(modest)
    context.begin(1_001)
    slots.tick()
    # Four filters of the other group have waited for longer.
    assert modest.worker is not None
    slots.ready(WorkerReady(modest.worker.number))
    for second in range(2, 8):
        context.begin(1_000 * second)
        for holder in greedy:
            if holder.worker is None:
                slots.want(holder)
            elif not holder.worker.ready:
                slots.ready(WorkerReady(holder.worker.number))
        slots.tick()
        assert modest.worker is not None, "its own turn is over, but the others have no fewer"
    assert slots.waiting
    modest.has_work = False
    slots.tick()
    assert modest.worker is None, "who rests makes room for anybody"
