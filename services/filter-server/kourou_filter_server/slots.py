"""Worker slots: the limit of workers, and which filter gets the next one.

Invariant: there are never more workers than `workers_max`, counted from StartWorker to EndWorker or
WorkerEnded.

If all slots are taken, a filter that requests a worker gets the slot of the filter that has been
idle for longest. If no filter is idle, it gets the slot that has been in use for longest, and for
at least `turn_ms`. Slots are shared fairly between groups, however many filters they have: the
group with the fewest workers is served first, and an active worker is only taken from the same
group or from a group with more workers. No request waits forever.

State: soft.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from kourou.model.filter import FilterKey
from kourou_filter_server.context import CoreContext, ServerPolicy
from kourou_filter_server.interface import (
    BatchEvaluated,
    EndWorker,
    StartWorker,
    WorkerEnded,
    WorkerReady,
)


class SlotUser(Protocol):
    """The user of a worker: a filter or a dry run."""

    @property
    def key(self) -> FilterKey:
        """Its group, and the filter's name."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether there are messages for its worker."""
        ...

    def granted(self) -> None:
        """A slot is free: it may start one worker now, if it still needs it."""
        ...

    def give_up(self, worker: WorkerSlot) -> None:
        """Its worker, which is not busy, is taken away."""
        ...

    def worker_ready(self, worker: WorkerSlot, item: WorkerReady) -> None:
        """Its worker has set up the filter."""
        ...

    def worker_ended(self, worker: WorkerSlot, item: WorkerEnded) -> None:
        """Its worker has ended."""
        ...

    def worker_evaluated(self, worker: WorkerSlot, item: BatchEvaluated) -> None:
        """Its worker has filtered a batch."""
        ...


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """One sandboxed process. `since_ms`: ready since then; `used_ms`: when it last had a batch."""

    number: int
    attendant: SlotUser
    version: int
    sha256: str
    lasting: bool
    ready: bool = False
    busy: bool = False
    since_ms: int = 0
    used_ms: int = 0
    batch: int = 0


class Slots:
    """All workers of this filter server."""

    def __init__(self, context: CoreContext, policy: ServerPolicy) -> None:
        self._context = context
        self._policy = policy
        self._workers: dict[int, WorkerSlot] = {}
        self._numbers = 0
        self._waiting: list[SlotUser] = []
        self._granting = False

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def busy(self) -> int:
        """The number of workers with a batch in progress."""
        return sum(one.busy for one in self._workers.values())

    @property
    def waiting(self) -> int:
        """The number of filters that wait for a slot."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether no slot is free and none can be freed now."""
        return len(self._workers) >= self._policy.workers_max and not self._spare()

    # -- requests for slots -----------------------------------------------------------------------

    def want(self, attendant: SlotUser) -> None:
        """Request a slot; `granted` is called when there is one, possibly immediately."""
        if attendant not in self._waiting:
            self._waiting.append(attendant)
            self.grant()

    def grant(self) -> None:
        """Assign the free slots to those that wait."""
        if self._granting:  # `give_up` may request a slot again
            return
        self._granting = True
        while (wanting := self._next()) is not None:
            self._waiting.remove(wanting)
            wanting.granted()
        self._granting = False

    def _next(self) -> SlotUser | None:
        """The next one that may start a worker, after freeing a slot for it if necessary."""
        if len(self._workers) < self._policy.workers_max and len(self._waiting) <= 1:
            return self._waiting[0] if self._waiting else None
        held = Counter(worker.attendant.key[0] for worker in self._workers.values())
        spare = self._spare()
        for wanting in sorted(self._waiting, key=lambda one: held[one.key[0]]):
            if len(self._workers) < self._policy.workers_max:
                return wanting
            group = wanting.key[0]
            for worker in spare:
                owner = worker.attendant.key[0]
                if not worker.attendant.has_work or owner == group or held[owner] > held[group]:
                    self._forget(worker)
                    worker.attendant.give_up(worker)
                    return wanting
        return None

    def start(
        self,
        attendant: SlotUser,
        key: tuple[str, str],
        version: int,
        source: bytes,
        sha256: str = "",
        *,
        lasting: bool = True,
    ) -> WorkerSlot:
        """Start a worker. `lasting`: its slot may be taken away."""
        assert len(self._workers) < self._policy.workers_max, "no worker process is free"
        self._numbers += 1
        worker = WorkerSlot(self._numbers, attendant, version, sha256, lasting)
        worker.used_ms = self._context.now_ms
        self._workers[worker.number] = worker
        group, name = key
        self._context.do(StartWorker(worker.number, group, name, version, source))
        return worker

    def end(self, worker: WorkerSlot) -> None:
        """End a worker, whatever it is doing."""
        self._forget(worker)
        self.grant()

    def must_yield(self, worker: WorkerSlot) -> bool:
        """Whether it has had its slot for `turn_ms` while others wait."""
        return (
            bool(self._waiting)
            and self._had_turn(worker)
            and len(self._workers) >= self._policy.workers_max
        )

    def _forget(self, worker: WorkerSlot) -> None:
        if self._workers.pop(worker.number, None) is not None:
            self._context.do(EndWorker(worker.number))

    def _had_turn(self, worker: WorkerSlot) -> bool:
        return self._context.now_ms - worker.since_ms >= self._policy.turn_ms

    def _spare(self) -> list[WorkerSlot]:
        """Workers whose slot may be taken away, in order: idle ones, then those over `turn_ms`."""
        idle = [one for one in self._workers.values() if one.lasting and one.ready and not one.busy]
        resting = [one for one in idle if not one.attendant.has_work]
        tired = [one for one in idle if one.attendant.has_work and self._had_turn(one)]
        return [
            *sorted(resting, key=lambda one: (one.used_ms, one.number)),
            *sorted(tired, key=lambda one: (one.since_ms, one.number)),
        ]

    # -- events of workers ------------------------------------------------------------------------

    def ready(self, item: WorkerReady) -> None:
        """A worker is ready; ignored if it was ended in the meantime."""
        worker = self._workers.get(item.worker)
        if worker is not None:
            worker.ready = True
            worker.since_ms = worker.used_ms = self._context.now_ms
            worker.attendant.worker_ready(worker, item)

    def ended(self, item: WorkerEnded) -> None:
        """A worker has ended."""
        worker = self._workers.pop(item.worker, None)
        if worker is not None:
            worker.attendant.worker_ended(worker, item)
            self.grant()

    def evaluated(self, item: BatchEvaluated) -> None:
        """A worker has filtered a batch."""
        worker = self._workers.get(item.worker)
        if worker is not None and worker.busy and worker.batch == item.batch:
            worker.busy = False
            worker.used_ms = self._context.now_ms
            worker.attendant.worker_evaluated(worker, item)

    def tick(self) -> None:
        """End the workers that have been idle for too long."""
        late = self._context.now_ms - self._policy.worker_idle_ms
        for worker in list(self._workers.values()):
            resting = worker.lasting and worker.ready and not worker.busy
            if resting and worker.used_ms <= late and not worker.attendant.has_work:
                self._forget(worker)
                worker.attendant.give_up(worker)
        self.grant()
