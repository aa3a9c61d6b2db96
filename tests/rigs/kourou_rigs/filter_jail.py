"""Simulated workers whose filters behave as the messages say (kourou_rigs.filter_records).

State: soft.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kourou_filter_server.interface import (
    LOST,
    BatchEvaluated,
    EvaluateBatch,
    Input,
    StartWorker,
    WorkerEnded,
    WorkerReady,
)
from kourou_rigs.filter_records import Does, Tally, cut, harm, wants

_ENDS = {Does.DIE: "died", Does.TIMEOUT: "timeout"}


class FilterJail:
    """At most `workers_max` workers; `later` schedules in ms, `push` receives their inputs."""

    def __init__(
        self,
        chance: random.Random,
        workers_max: int,
        tally: Tally,
        later: Callable[[int, Callable[[], None]], None],
        push: Callable[[Input], None],
    ) -> None:
        self.workers: dict[int, StartWorker] = {}
        self._random = chance
        self._workers_max = workers_max
        self._tally = tally
        self._later = later
        self._push = push
        self._judging: dict[int, EvaluateBatch] = {}

    def end(self, number: int) -> None:
        """End a worker that the filter server no longer needs."""
        self.workers.pop(number, None)
        self._judging.pop(number, None)

    def start(self, effect: StartWorker) -> None:
        """Start a worker; some time later it is ready, or its set-up fails."""
        self.workers[effect.worker] = effect
        self._tally.workers_max = max(self._tally.workers_max, len(self.workers))
        assert len(self.workers) <= self._workers_max, "too many workers"
        number = effect.worker

        def ready() -> None:
            if number in self.workers:
                if effect.source == b"setup":
                    del self.workers[number]
                    self._push(WorkerEnded(number, "setup", "it cannot begin"))
                else:
                    self._push(WorkerReady(number, 3_000))

        self._later(self._random.randrange(3, 40), ready)

    def evaluate(self, effect: EvaluateBatch) -> None:
        """Filter a batch, or end the worker."""
        worker = self.workers[effect.worker]  # fails unless the worker exists
        assert effect.worker not in self._judging, "a worker has one batch at a time"
        self._judging[effect.worker] = effect
        self._tally.batches += 1
        self._tally.largest_batch = max(self._tally.largest_batch, effect.count)
        records = [record for run in effect.records for record in cut(bytes(run))]
        assert len(records) == effect.count, "the count is that of the records"
        self._later(
            self._random.randrange(1, 8), lambda: self._results(effect, worker.version, records)
        )

    def _results(self, effect: EvaluateBatch, version: int, records: list[bytes]) -> None:
        number = effect.worker
        if self._judging.get(number) is not effect:
            return
        del self._judging[number]
        results = bytearray()
        for record in records:
            does = harm(record, version)
            if does in _ENDS:
                del self.workers[number]
                self._push(WorkerEnded(number, _ENDS[does], f"simulated {does.name}"))
                return
            if does is Does.LIE:
                wrong = self._random.choice((b"", b"\1" * (effect.count + 1), b"\7" * effect.count))
                self._push(BatchEvaluated(number, effect.batch, wrong))
                return
            if does:
                rest = b"\2" * (effect.count - len(results))
                kind = "raised" if does is Does.RAISE else "memory"
                reason = f"simulated {does.name}"
                evaluated = BatchEvaluated(
                    number, effect.batch, bytes(results) + rest, kind, reason, 9
                )
                self._push(evaluated)
                return
            results.append(wants(record, version))
        self._push(BatchEvaluated(number, effect.batch, bytes(results), micros=2 * effect.count))

    def kill_worker(self, number: int, kind: str = "died") -> None:
        """End a worker as an external SIGKILL does."""
        if self.workers.pop(number, None) is not None:
            self._judging.pop(number, None)
            self._push(WorkerEnded(number, kind, "killed by another process"))

    def kill_zygote(self) -> None:
        """End the zygote and thereby all workers."""
        for number in list(self.workers):
            self.kill_worker(number, LOST)
