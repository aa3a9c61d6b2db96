"""How many workers there may be, and whose turn it is to have one.

Invariant: never are there more workers than `workers_max`, counted from StartWorker to EndWorker or
WorkerEnded.

A filter that wants a worker when all are taken gets that of the filter which has had nothing to do
for longest; if all have something to do, of the one which has had its turn for longest, and at
least `turn_ms`. Groups share, whatever number of filters they have: who has the fewest workers is
the first to get one, and one with something to do is taken only from the own group, or from one
that has more of them. Nobody who wants one waits for ever.

State: soft.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from kourou.model.filter import FilterKey
from kourou_filter_server.effects import EndWorker, StartWorker
from kourou_filter_server.inputs import Judged, WorkerEnded, WorkerReady
from kourou_filter_server.policy import ServerPolicy
from kourou_filter_server.turn import Turn


class Attendant(Protocol):
    """Whom a worker serves."""

    @property
    def key(self) -> FilterKey:
        """Its group, and the filter's name."""
        ...

    @property
    def has_work(self) -> bool:
        """Is there something for its worker to do?"""
        ...

    def granted(self) -> None:
        """There is room: it may start one worker now, or not want it any more."""
        ...

    def give_up(self, worker: Worker) -> None:
        """That worker is taken away; it is not busy."""
        ...

    def worker_ready(self, worker: Worker, item: WorkerReady) -> None:
        """It has set up its filter."""
        ...

    def worker_ended(self, worker: Worker, item: WorkerEnded) -> None:
        """It is no more."""
        ...

    def worker_judged(self, worker: Worker, item: Judged) -> None:
        """It has judged a batch."""
        ...


@dataclass(slots=True, eq=False)
class Worker:
    """One process in the jail. `since_ms`: ready since; `used_ms`: when it last had a batch."""

    number: int
    attendant: Attendant
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

    def __init__(self, turn: Turn, policy: ServerPolicy) -> None:
        self._turn = turn
        self._policy = policy
        self._workers: dict[int, Worker] = {}
        self._numbers = 0
        self._waiting: list[Attendant] = []
        self._granting = False

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def busy(self) -> int:
        """How many of them judge a batch now."""
        return sum(one.busy for one in self._workers.values())

    @property
    def waiting(self) -> int:
        """How many filters wait for one."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Is there no room, and nobody who could give one up now?"""
        return len(self._workers) >= self._policy.workers_max and not self._spare()

    # -- having one -------------------------------------------------------------------------------

    def want(self, attendant: Attendant) -> None:
        """It wants to start a worker; it is `granted` that, perhaps at once."""
        if attendant not in self._waiting:
            self._waiting.append(attendant)
            self.grant()

    def grant(self) -> None:
        """Let those start a worker for whom there is room."""
        if self._granting:  # whoever gives one up may want another one
            return
        self._granting = True
        while (wanting := self._next()) is not None:
            self._waiting.remove(wanting)
            wanting.granted()
        self._granting = False

    def _next(self) -> Attendant | None:
        """Who may start a worker now, after another one has made room for it if need be."""
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
        attendant: Attendant,
        key: tuple[str, str],
        version: int,
        source: bytes,
        sha256: str = "",
        *,
        lasting: bool = True,
    ) -> Worker:
        """Start a worker. `lasting`: it may be taken away from its attendant."""
        assert len(self._workers) < self._policy.workers_max, "no worker process is free"
        self._numbers += 1
        worker = Worker(self._numbers, attendant, version, sha256, lasting)
        worker.used_ms = self._turn.now_ms
        self._workers[worker.number] = worker
        group, name = key
        self._turn.do(StartWorker(worker.number, group, name, version, source))
        return worker

    def end(self, worker: Worker) -> None:
        """End a worker, whatever it does."""
        self._forget(worker)
        self.grant()

    def must_yield(self, worker: Worker) -> bool:
        """Has it had its turn while others wait for a worker?"""
        return (
            bool(self._waiting)
            and self._had_turn(worker)
            and len(self._workers) >= self._policy.workers_max
        )

    def _forget(self, worker: Worker) -> None:
        if self._workers.pop(worker.number, None) is not None:
            self._turn.do(EndWorker(worker.number))

    def _had_turn(self, worker: Worker) -> bool:
        return self._turn.now_ms - worker.since_ms >= self._policy.turn_ms

    def _spare(self) -> list[Worker]:
        """Workers that may be taken away, who is to give up first before the others."""
        idle = [one for one in self._workers.values() if one.lasting and one.ready and not one.busy]
        resting = [one for one in idle if not one.attendant.has_work]
        tired = [one for one in idle if one.attendant.has_work and self._had_turn(one)]
        return [
            *sorted(resting, key=lambda one: (one.used_ms, one.number)),
            *sorted(tired, key=lambda one: (one.since_ms, one.number)),
        ]

    # -- what happens to them ---------------------------------------------------------------------

    def ready(self, item: WorkerReady) -> None:
        """One is ready; of one that was ended meanwhile nobody wants to hear."""
        worker = self._workers.get(item.worker)
        if worker is not None:
            worker.ready = True
            worker.since_ms = worker.used_ms = self._turn.now_ms
            worker.attendant.worker_ready(worker, item)

    def ended(self, item: WorkerEnded) -> None:
        """One is no more."""
        worker = self._workers.pop(item.worker, None)
        if worker is not None:
            worker.attendant.worker_ended(worker, item)
            self.grant()

    def judged(self, item: Judged) -> None:
        """One has judged a batch."""
        worker = self._workers.get(item.worker)
        if worker is not None and worker.busy and worker.batch == item.batch:
            worker.busy = False
            worker.used_ms = self._turn.now_ms
            worker.attendant.worker_judged(worker, item)

    def tick(self) -> None:
        """End those that have had nothing to do for long."""
        late = self._turn.now_ms - self._policy.worker_idle_ms
        for worker in list(self._workers.values()):
            resting = worker.lasting and worker.ready and not worker.busy
            if resting and worker.used_ms <= late and not worker.attendant.has_work:
                self._forget(worker)
                worker.attendant.give_up(worker)
        self.grant()
