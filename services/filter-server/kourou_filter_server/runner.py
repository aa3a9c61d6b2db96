"""One filter: its current worker, the worker that will replace it, and the runs to filter.

Reload: the worker of the old version serves until the one of the new version is ready. A disabled
or quarantined version stops immediately.

Batches: runs wait in one queue. A batch takes records from the first run, and from the following
ones while they are of the same topic; a run that is longer than a batch continues at the end of the
queue. So the message queues of a group take turns.

Batch size: a fast filter gets large batches, which have the least overhead. A slow filter gets
small ones, and so does a new version whose speed is unknown. Small batches let its queue advance in
small steps, keep its deadline short (the deadline grows with the batch), and spread the pulls
behind it over time, so that the broker does not have to serve them all at once.

Failures: if a worker ends during a batch, each message of the batch is evaluated alone by a new
worker. The message during which that one ends, too, is the cause. The end of the first worker
counts as a failure of the version, that of the second does not. If no message is the cause and the
first worker died (no timeout or invalid reply), its failure is cancelled.

State: soft.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kourou.errors import KourouError
from kourou.model.filter import FilterFailure, FilterKey, FilterVersion
from kourou.protocol.bodies.filter_bodies import decode_filters
from kourou.protocol.messages.filter_server import GetFilters
from kourou.runtime import LogWarning
from kourou_filter_server.catalogue import Catalogue
from kourou_filter_server.context import CoreContext, FilterStatistics, ServerPolicy, trouble_of
from kourou_filter_server.discipline import Discipline
from kourou_filter_server.interface import (
    LOST,
    BatchEvaluated,
    BrokerAnswered,
    EvaluateBatch,
    WorkerEnded,
    WorkerReady,
)
from kourou_filter_server.jobs import CrashSearch, FilterJob
from kourou_filter_server.slots import Slots, WorkerSlot

# -- batch size -----------------------------------------------------------------------------------

BATCH_US = 20_000
"""The target for the time of a filter in one batch."""

SLOW_MESSAGES = 32
"""The minimum batch size: what one pull asks for. It keeps a filter that needs long for a batch of
any size from getting single messages.
"""

_KEEP = 4
"""A batch has a weight of a quarter in the average, all earlier ones the rest."""


class Pace:
    """The speed of the running version. `most` is the maximum batch size of every filter."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._version = 0
        self._us = 0.0

    def evaluated(self, version: int, count: int, micros: int) -> None:
        """Record a batch: `count` messages in `micros` µs of processor time."""
        if not count:
            return
        now_us = micros / count
        if version == self._version:
            now_us = self._us + (now_us - self._us) / _KEEP
        self._version, self._us = version, now_us

    def messages(self, version: int) -> int:
        """The size of its next batch."""
        slow = min(SLOW_MESSAGES, self._most)
        if version != self._version:
            return slow
        return max(slow, min(self._most, int(BATCH_US / max(self._us, 0.01))))


# -- the runner -----------------------------------------------------------------------------------

NOT_JUDGED = 2
_NOT_KNOWN = bytes(range(NOT_JUDGED, 256))

Part = tuple[FilterJob, int]
"""A job, and the number of its records in a batch."""


class FilterRunner:
    """Filters runs of records with the active version of one filter."""

    def __init__(
        self,
        key: FilterKey,
        context: CoreContext,
        policy: ServerPolicy,
        catalogue: Catalogue,
        slots: Slots,
        discipline: Discipline,
        statistics: FilterStatistics,
    ) -> None:
        self.key = key
        self._context = context
        self._policy = policy
        self._catalogue = catalogue
        self._slots = slots
        self._discipline = discipline
        self._statistics = statistics
        self._jobs: deque[FilterJob] = deque()
        self._parts: list[Part] = []
        self._current: WorkerSlot | None = None
        self._next: WorkerSlot | None = None
        self._wanted: FilterVersion | None = None
        self._source: bytes | None = None
        self._fetching = 0
        self._warm = False
        self._failed: tuple[str, str] | None = None
        self._not_before_ms = 0
        self._pace = Pace(policy.batch_messages_max)

    # -- runs -------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether runs wait or a batch is in progress."""
        return bool(self._jobs or self._parts)

    @property
    def version(self) -> int | None:
        """The running version."""
        return None if self._current is None else self._current.version

    @property
    def idle(self) -> bool:
        """Whether this runner has neither work nor state to keep."""
        return not (self.has_work or self._current or self._next or self._fetching or self._failed)

    def warm(self) -> None:
        """Start a worker in advance, because messages are expected."""
        if self._current is None:
            self._warm = True
            self.advance()

    def submit(self, job: FilterJob) -> None:
        """Filter this run. Its owner is called back, possibly before this returns."""
        self._jobs.append(job)
        self.advance()

    # -- state changes ----------------------------------------------------------------------------

    def advance(self) -> None:
        """Take the next possible steps: stop, fetch the source, start a worker, send a batch."""
        status = self._catalogue.status(self.key)
        if status.failure is not None:
            self._stop()
            self._failed = None
            self._refuse(status.failure.value, status.reason)
            return
        assert status.version is not None
        self._aim(status.version)
        if self._failed is not None:
            if self._context.now_ms < self._not_before_ms:
                self._refuse(*self._failed)
                return
            self._failed = None
        if not self._runs(self._current) and self._next is None:
            self._request_worker()
        self._dispatch()

    def _aim(self, wanted: FilterVersion) -> None:
        if _same(self._wanted, wanted):
            return
        self._wanted = wanted
        self._source = None
        self._failed = None
        self._not_before_ms = 0
        if self._fetching:
            self._context.forget(self._fetching)
            self._fetching = 0
        if self._next is not None:
            ended, self._next = self._next, None
            self._slots.end(ended)

    def _runs(self, worker: WorkerSlot | None) -> bool:
        """Whether this worker runs the wanted version."""
        wanted = self._wanted
        return (
            worker is not None
            and wanted is not None
            and (worker.version, worker.sha256) == (wanted.version, wanted.sha256)
        )

    def _request_worker(self) -> None:
        if not (self.has_work or self._warm or self._current is not None):
            return
        if self._context.now_ms < self._not_before_ms:
            return
        if self._source is None:
            self._fetch()
        else:
            self._slots.want(self)

    def granted(self) -> None:
        """Start a worker in the free slot, if it is still needed."""
        wanted, source = self._wanted, self._source
        if wanted is None or source is None or self._next is not None or self._runs(self._current):
            return
        if not (self.has_work or self._warm or self._current is not None):
            return
        self._next = self._slots.start(self, self.key, wanted.version, source, wanted.sha256)

    def _fetch(self) -> None:
        if self._fetching:
            return
        assert self._wanted is not None
        group, name = self.key
        request = GetFilters(
            consumer_group=group, name=name, version=self._wanted.version, with_source=True
        )
        self._fetching = self._context.ask(request, self._fetched)

    def _fetched(self, answer: BrokerAnswered) -> None:
        self._fetching = 0
        trouble = trouble_of(answer)
        if not trouble:
            trouble = self._take_source(answer)
        if trouble:
            self._not_before_ms = self._context.now_ms + self._policy.start_again_ms
            group, name = self.key
            self._context.do(
                LogWarning(
                    "filter-source-missing: the source of version %(version)s of filter %(filter)s "
                    "of group %(group)s is not available: %(error)s",
                    {
                        "version": "unknown" if self._wanted is None else self._wanted.version,
                        "filter": name,
                        "group": group,
                        "error": trouble,
                    },
                )
            )
            return
        self.advance()

    def _take_source(self, answer: BrokerAnswered) -> str:
        wanted = self._wanted
        assert wanted is not None
        try:
            filters = decode_filters(b"".join(answer.body))
        except KourouError as error:
            return str(error)
        for one in filters:
            found = one.version(wanted.version)
            if one.key == self.key and found is not None and found.source is not None:
                if found.sha256 != wanted.sha256:
                    return "its source differs from the announced one"
                self._source = found.source.encode()
                return ""
        return "the broker does not have it"

    def _stop(self) -> None:
        """End the workers. Their runs are put back: they will be refused, or filtered later."""
        self._warm = False
        self._requeue_parts()
        for worker in (self._current, self._next):
            if worker is not None:
                self._slots.end(worker)
        self._current = self._next = None

    def _requeue_parts(self) -> None:
        for job, _ in reversed(self._parts):
            if not job.cancelled:
                self._jobs.appendleft(job)
        self._parts = []

    def _refuse(self, kind: str, reason: str) -> None:
        jobs, self._jobs = self._jobs, deque()
        for job in jobs:
            if not job.cancelled:
                job.owner.refused(job, kind, reason)

    # -- batches ----------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        worker = self._current
        if worker is None or worker.busy or not self._jobs:
            return
        if self._slots.must_yield(worker):
            self._slots.grant()
            if self._current is None:
                return
        parts: list[Part] = []
        pieces: list[memoryview] = []
        topic, total, size = "", 0, 0
        most = self._pace.messages(worker.version)
        while self._jobs and total < most:
            job = self._jobs[0]
            if job.cancelled:
                self._jobs.popleft()
                continue
            if parts and (job.topic != topic or job.alone or parts[0][0].alone):
                break
            if job.version != worker.version:
                job.begin_again(worker.version)
            count = job.next_count(most - total, self._policy.batch_bytes_max - size)
            if not count:
                if parts:
                    break
                count = 1  # a single record may exceed the batch limit
            self._jobs.popleft()
            topic = job.topic
            parts.append((job, count))
            pieces.append(job.piece(count))
            total += count
            size += len(pieces[-1])
        if not parts:
            return
        self._parts = parts
        worker.busy = True
        worker.batch += 1
        self._statistics.of(self.key, worker.version).bytes_in += size
        self._context.do(
            EvaluateBatch(worker.number, worker.batch, topic, self._context.wall_ms, total, pieces)
        )

    def worker_evaluated(self, worker: WorkerSlot, item: BatchEvaluated) -> None:
        """Process the results of a batch, up to the record at which the filter failed."""
        if worker is not self._current:
            return
        wrong = _wrong(item, sum(count for _, count in self._parts))
        if wrong:
            self._slots.end(worker)
            self._current = None
            self._search_cause(worker.version, FilterFailure.LIED.value, wrong)
            self.advance()
            return
        counts = self._statistics.of(self.key, worker.version)
        parts, self._parts = self._parts, []
        total, at = len(item.results), 0
        evaluated = total
        for number, (job, count) in enumerate(parts):
            piece = item.results[at : at + count]
            at += count
            bad = piece.find(NOT_JUDGED) if item.kind else -1
            job.micros += item.micros * count // total
            if bad < 0:
                self._go_on(job, piece)
                continue
            evaluated = at - count + bad
            for later, _ in reversed(parts[number + 1 :]):  # the worker did not evaluate them
                self._jobs.appendleft(later)
            job.results += piece[:bad]
            self._stuck(job, worker.version, item.kind, item.reason)
            break
        counts.evaluated(evaluated, item.micros)
        self._pace.evaluated(worker.version, evaluated, item.micros)
        if item.kind == FilterFailure.MEMORY:
            self._discipline.count_failure(self.key, worker.version, item.kind, item.reason)
        self._switch()
        self.advance()

    def _go_on(self, job: FilterJob, results: bytes) -> None:
        if job.cancelled:
            return
        job.results += results
        self._put_back(job)

    def _put_back(self, job: FilterJob) -> None:
        if not job.alone:
            self._note_innocent(job)
        if job.left:
            self._jobs.append(job)
        else:
            job.owner.evaluated(job)

    def _stuck(self, job: FilterJob, version: int, kind: str, reason: str) -> None:
        self._statistics.of(self.key, version).failed(kind, reason, self._context.wall_ms)
        if not job.cancelled and job.owner.stuck(job, kind, reason):
            self._put_back(job)

    # -- ended workers ----------------------------------------------------------------------------

    def _search_cause(self, version: int, kind: str, reason: str) -> None:
        """Handle a worker that ended during its batch: find the message that is the cause."""
        parts, self._parts = self._parts, []
        if not parts:
            return
        at_ms, job = self._context.now_ms, parts[0][0]
        if sum(count for _, count in parts) == 1:
            crash_search = job.crash_search
            counted = crash_search is not None and not crash_search.found
            if crash_search is not None:
                crash_search.found = True
            self._stuck(job, version, kind, reason)
            if counted:  # together with the batch of the first worker
                return
        else:
            counts = self._statistics.of(self.key, version)
            counts.failed(kind, reason, self._context.wall_ms)
            crash_search = CrashSearch(kind, at_ms, version, len(parts))
            for each, count in reversed(parts):
                if not each.cancelled:
                    each.alone_to, each.crash_search = len(each.results) + count, crash_search
                    self._jobs.appendleft(each)
        self._discipline.count_failure(self.key, version, kind, reason)

    def _note_innocent(self, job: FilterJob) -> None:
        crash_search, job.crash_search = job.crash_search, None
        if crash_search is None:
            return
        crash_search.open -= 1
        if (
            not crash_search.open
            and not crash_search.found
            and crash_search.kind == FilterFailure.DIED
        ):
            self._discipline.take_back(crash_search.at_ms, self.key, crash_search.version)

    def worker_ready(self, worker: WorkerSlot, item: WorkerReady) -> None:
        """A worker of the new version is ready."""
        counts = self._statistics.of(self.key, worker.version)
        counts.starts += 1
        counts.start_micros += item.start_micros
        self._warm = False
        self._switch()
        self.advance()

    def _switch(self) -> None:
        """Replace the current worker by the new one, between two batches."""
        new, old = self._next, self._current
        if new is None or not new.ready or (old is not None and old.busy):
            return
        self._current, self._next = new, None
        if old is not None:
            self._slots.end(old)

    def worker_ended(self, worker: WorkerSlot, item: WorkerEnded) -> None:
        """A worker died, timed out, sent an invalid reply, or could not set up its filter."""
        lost = item.kind == LOST
        if worker is self._current:
            self._current = None
            if lost:
                self._requeue_parts()
            else:
                self._search_cause(worker.version, item.kind, item.reason)
            self._switch()
        elif worker is self._next:
            self._next = None
            self._not_before_ms = self._context.now_ms + self._policy.start_again_ms
            if not lost and not worker.ready:
                self._failed_to_start(worker.version, item)
        if lost:
            self._not_before_ms = self._context.now_ms  # the executor itself waits for the zygote
        self.advance()

    def _failed_to_start(self, version: int, item: WorkerEnded) -> None:
        """Stop the filter: the enabled version cannot run, and the old one must not."""
        self._failed = (item.kind, item.reason)
        self._statistics.of(self.key, version).failed(item.kind, item.reason, self._context.wall_ms)
        group, name = self.key
        self._context.do(
            LogWarning(
                "filter-start-failed: version %(version)d of filter %(filter)s of group %(group)s "
                "cannot start: %(kind)s: %(reason)s",
                {
                    "version": version,
                    "filter": name,
                    "group": group,
                    "kind": item.kind,
                    "reason": item.reason,
                },
            )
        )
        self._stop()
        self._discipline.count_failure(self.key, version, item.kind, item.reason)

    def give_up(self, worker: WorkerSlot) -> None:
        """Release a worker whose slot another filter gets; waiting runs get the next worker."""
        if worker is self._current:
            self._current = None
        elif worker is self._next:
            self._next = None
        if self._jobs and self._source is not None and self._next is None:
            self._slots.want(self)


class Runners:
    """The runners of all active filters, by key."""

    def __init__(self, make: Callable[[FilterKey], FilterRunner]) -> None:
        self._make = make
        self._runners: dict[FilterKey, FilterRunner] = {}

    def of(self, key: FilterKey) -> FilterRunner:
        """The runner of a filter; created if necessary."""
        found = self._runners.get(key)
        if found is None:
            found = self._runners[key] = self._make(key)
        return found

    def known(self, key: FilterKey) -> FilterRunner | None:
        """The runner of a filter, or None."""
        return self._runners.get(key)

    def advance(self, key: FilterKey | None = None) -> None:
        """Advance the runner of one filter or of all, and remove idle runners."""
        for one, runner in list(self._runners.items()):
            if key is None or one == key:
                runner.advance()
            if runner.idle:
                del self._runners[one]


def _same(one: FilterVersion | None, other: FilterVersion) -> bool:
    return one is not None and (one.version, one.sha256) == (other.version, other.sha256)


def _wrong(item: BatchEvaluated, count: int) -> str:
    """What is wrong with the results of a batch; "" if they are valid."""
    results = item.results
    if len(results) != count:
        return f"{len(results)} results for {count} messages"
    unevaluated = len(results) - len(results.translate(None, _NOT_KNOWN))
    if bool(item.kind) != bool(unevaluated) or results.translate(None, b"\0\1\2"):
        return "invalid results"
    return ""
