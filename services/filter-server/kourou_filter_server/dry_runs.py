"""TRY_FILTER, the dry run: a filter's results for the last messages of a topic, and their cost.

A dry run has a worker of its own, which ends with it; its failures are not counted. Messages are
evaluated one by one, so each has its own result and cost. If the worker ends during a message, a
new one is started, up to WORKERS in total; then the dry run ends. Its time is limited; at the limit
it returns the results so far.

The messages are the last ones of the topic, over all its queues. Each queue contributes the same
number; if a queue has fewer, the others contribute more. They are pulled with a group that always
exists and commits nothing, so no consumer's progress changes.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from kourou.errors import BadRequest, Code, KourouError, Throttled
from kourou.filtering.python_rules import CheckAllowance, check_source
from kourou.model.filter import FilterFailure, FilterKey
from kourou.model.limits import (
    FILTER_SOURCE_BYTES_MAX,
    FILTER_TRIED_BYTES_MAX,
    FILTER_TRIED_MESSAGES_MAX,
    PULL_SIZE_BYTES_MAX,
)
from kourou.model.message import StoredMessage
from kourou.model.names import FILTER_SERVER_GROUP
from kourou.model.subscription import MATCH_ALL, TAG
from kourou.protocol.bodies.filter_bodies import (
    FilterTrial,
    TriedMessage,
    decode_filters,
    encode_filter_trial,
)
from kourou.protocol.bodies.statistics_bodies import decode_topic_stats
from kourou.protocol.messages.broker_admin import GetTopicStatsInfo
from kourou.protocol.messages.filter_server import GetFilters, TryFilter
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.protocol.record.message_record import decode_record
from kourou.runtime import Peer, Received, Reply, ReplyTo
from kourou_filter_server.context import CoreContext, ServerPolicy, trouble_of
from kourou_filter_server.interface import (
    LOST,
    BatchEvaluated,
    BrokerAnswered,
    EvaluateBatch,
    WorkerEnded,
    WorkerReady,
)
from kourou_filter_server.jobs import YES, bounds_of
from kourou_filter_server.slots import Slots, WorkerSlot

# -- the last messages of a topic -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sampled:
    """One message: its bytes, and the decoded message; None if it cannot be decoded."""

    record: memoryview
    message: StoredMessage | None


@dataclass(slots=True)
class _Tail:
    """The messages of one queue that are still to be fetched."""

    queue_id: int
    at: int
    end: int
    found: list[Sampled] = field(default_factory=list)


class Sample:
    """Fetches `count` messages of `topic`, then calls `done` with them, or with an error."""

    def __init__(
        self,
        context: CoreContext,
        to: ReplyTo,
        topic: str,
        count: int,
        done: Callable[[list[Sampled], int, str], None],
    ) -> None:
        self._context = context
        self._to = to
        self._topic = topic
        self._count = count
        self._done = done
        self._tails: list[_Tail] = []
        self._size_bytes = 0
        self._token = context.ask(GetTopicStatsInfo(topic=topic), self._bounds_received, to=to)

    def stop(self) -> None:
        """Cancel: `done` will not be called."""
        self._context.forget(self._token)

    def _bounds_received(self, answer: BrokerAnswered) -> None:
        if self._ended(answer):
            return
        try:
            table = decode_topic_stats(b"".join(answer.body))
        except KourouError as error:
            self._done([], Code.SYSTEM_ERROR, str(error))
            return
        bounds = {queue.queue_id: (at.min_offset, at.max_offset) for queue, at in table.items()}
        shares = shared({queue: high - low for queue, (low, high) in bounds.items()}, self._count)
        self._tails = [
            _Tail(queue, bounds[queue][1] - share, bounds[queue][1])
            for queue, share in shares.items()
            if share
        ]
        self._go_on()

    def _go_on(self) -> None:
        """Pull from the first queue that has not contributed its share; then finish."""
        for tail in self._tails:
            if tail.at < tail.end and self._size_bytes < FILTER_TRIED_BYTES_MAX:
                self._pull(tail)
                return
        found = [one for tail in self._tails for one in tail.found]
        found.sort(key=lambda one: one.message.store_timestamp if one.message else 0)
        self._done(found, Code.SUCCESS, "")

    def _pull(self, tail: _Tail) -> None:
        def answered(answer: BrokerAnswered) -> None:
            if answer.code not in _PLACED and self._ended(answer):
                return
            self._take(tail, answer)
            self._go_on()

        self._token = self._context.ask(
            PullMessage(
                consumer_group=FILTER_SERVER_GROUP,
                topic=self._topic,
                queue_id=tail.queue_id,
                queue_offset=tail.at,
                max_msg_nums=tail.end - tail.at,
                sys_flag=int(PullFlag.SUBSCRIPTION),
                subscription=MATCH_ALL,
                expression_type=TAG,
                max_msg_bytes=PULL_SIZE_BYTES_MAX,
            ),
            answered,
            to=self._to,
        )

    def _take(self, tail: _Tail, answer: BrokerAnswered) -> None:
        place = answer.header
        if isinstance(place, PullResponse) and place.next_begin_offset > tail.at:
            tail.at = place.next_begin_offset
        else:
            tail.at = tail.end  # no more messages here
        if answer.code != Code.SUCCESS:
            return
        run = memoryview(b"".join(answer.body))
        self._size_bytes += len(run)
        try:
            bounds = bounds_of(run)
        except KourouError:  # malformed reply: skip the rest of this queue
            tail.at = tail.end
            return
        for begin, end in pairwise(bounds):
            tail.found.append(Sampled(run[begin:end], _read(run[begin:end])))

    def _ended(self, answer: BrokerAnswered) -> bool:
        trouble = trouble_of(answer)
        if trouble:
            code = Code.SERVICE_NOT_AVAILABLE if answer.error is not None else answer.code
            self._done([], code, trouble)
        return bool(trouble)


_PLACED = (
    Code.SUCCESS,
    Code.PULL_NOT_FOUND,
    Code.PULL_RETRY_IMMEDIATELY,
    Code.PULL_OFFSET_MOVED,
    Code.MESSAGE_CORRUPT,
)


def _read(record: memoryview) -> StoredMessage | None:
    try:
        return decode_record(record, verify=False, decompress=False)
    except KourouError:  # the worker reports the error
        return None


def shared(lengths: Mapping[int, int], count: int) -> dict[int, int]:
    """The number of messages from each queue, together `count` if there are that many."""
    shares = dict.fromkeys(sorted(lengths), 0)
    left = count
    while left > 0:
        able = [queue for queue in shares if shares[queue] < lengths[queue]]
        if not able:
            break
        each = max(1, left // len(able))
        for queue in able:
            more = min(each, lengths[queue] - shares[queue], left)
            shares[queue] += more
            left -= more
    return shares


# -- dry runs -------------------------------------------------------------------------------------

WORKERS = 4
_MS = 1_000


@dataclass(slots=True)
class _Found:
    """The results so far."""

    messages: list[TriedMessage] = field(default_factory=list)
    passed: int = 0
    failed: int = 0
    micros: int = 0
    start_micros: int = 0


class DryRun:
    """One dry run; the SlotUser of its worker. `over` is called after its reply."""

    def __init__(
        self,
        context: CoreContext,
        slots: Slots,
        received: Received,
        request: TryFilter,
        deadline_ms: int,
        over: Callable[[DryRun], None],
    ) -> None:
        self.received = received
        self.deadline_ms = deadline_ms
        self._context = context
        self._slots = slots
        self._request = request
        self._over = over
        self._source = b"".join(received.body)
        self._version: int | None = None
        self._sha256 = ""
        self._token = 0
        self._sample: Sample | None = None
        self._messages: list[Sampled] = []
        self._worker: WorkerSlot | None = None
        self._workers = 0
        self._at = 0
        self._found = _Found()
        self._done = False

    def begin(self) -> None:
        """Fetch the source, then the messages."""
        request = self._request
        if self._source:
            try:
                _check(request.name, self._source)
            except KourouError as error:
                self._answer(error.wire_code, str(error))
                return
            self._take_sample()
            return
        question = GetFilters(
            consumer_group=request.consumer_group,
            name=request.name,
            version=request.version,
            with_source=request.version is not None,
        )
        self._token = self._context.ask(question, self._source_received, to=self.received.to)

    def _source_received(self, answer: BrokerAnswered) -> None:
        trouble = trouble_of(answer)
        if trouble:
            code = Code.SERVICE_NOT_AVAILABLE if answer.error is not None else answer.code
            self._answer(code, trouble)
            return
        request = self._request
        key = (request.consumer_group, request.name)
        try:
            found = [one for one in decode_filters(b"".join(answer.body)) if one.key == key]
        except KourouError as error:
            self._answer(Code.SYSTEM_ERROR, str(error))
            return
        wanted = request.version or self._version or (found[0].newest if found else None)
        version = found[0].version(wanted) if found and wanted is not None else None
        if version is None:
            text = f"group {key[0]} has no such version of filter {key[1]}"
            self._answer(Code.QUERY_NOT_FOUND, text)
        elif version.source is not None:
            self._source, self._version = version.source.encode(), version.version
            self._take_sample()
        elif request.version is not None or self._version is not None:
            self._answer(Code.SYSTEM_ERROR, "the broker did not return the source of that version")
        else:  # the newest version is known now: fetch its source
            self._version = version.version
            question = GetFilters(
                consumer_group=key[0], name=key[1], version=version.version, with_source=True
            )
            self._token = self._context.ask(question, self._source_received, to=self.received.to)

    def _take_sample(self) -> None:
        request = self._request
        count = min(request.count, FILTER_TRIED_MESSAGES_MAX)
        self._sample = Sample(self._context, self.received.to, request.topic, count, self._sampled)

    def _sampled(self, messages: list[Sampled], code: int, trouble: str) -> None:
        self._sample = None
        if trouble:
            self._answer(code, trouble)
        elif self._slots.full:
            self._answer(Code.SYSTEM_BUSY, "all workers of this filter server are busy")
        else:
            self._messages = messages
            self._slots.want(self)

    # -- its worker -------------------------------------------------------------------------------

    @property
    def key(self) -> FilterKey:
        """The filter that is tried."""
        return self._request.consumer_group, self._request.name

    @property
    def has_work(self) -> bool:
        """Always true: the worker is needed until the dry run ends."""
        return True

    def granted(self) -> None:
        """Start its worker in the free slot."""
        if not self._done:
            self._workers += 1
            self._worker = self._slots.start(
                self, self.key, self._version or 0, self._source, lasting=False
            )

    def give_up(self, worker: WorkerSlot) -> None:
        """Never called, because its worker is not `lasting`."""
        raise AssertionError(f"worker {worker.number} belongs to a dry run")

    def worker_ready(self, worker: WorkerSlot, item: WorkerReady) -> None:
        """The worker is ready: continue with the next message."""
        self._found.start_micros += item.start_micros
        self._try_next(worker)

    def _try_next(self, worker: WorkerSlot) -> None:
        if self._at >= len(self._messages):
            self._finish("", "")
            return
        worker.busy = True
        worker.batch += 1
        record = self._messages[self._at].record
        topic, wall_ms = self._request.topic, self._context.wall_ms
        self._context.do(EvaluateBatch(worker.number, worker.batch, topic, wall_ms, 1, (record,)))

    def worker_evaluated(self, worker: WorkerSlot, item: BatchEvaluated) -> None:
        """Note the result of a message."""
        if len(item.results) != 1 or (not item.kind and item.results[0] > YES):
            self._slots.end(worker)
            self._worker = None
            self._unevaluated(FilterFailure.LIED.value, "invalid results")
            return
        passed = None if item.kind else item.results[0] == YES
        self._note(passed, f"{item.kind}: {item.reason}" if item.kind else "", item.micros)
        self._try_next(worker)

    def worker_ended(self, worker: WorkerSlot, item: WorkerEnded) -> None:
        """The worker died during a message, or could not set up the filter."""
        self._worker = None
        if not worker.ready and item.kind != LOST:
            self._finish(item.kind, item.reason)
        else:
            self._unevaluated(item.kind, item.reason)

    def _unevaluated(self, kind: str, reason: str) -> None:
        if self._at < len(self._messages) and kind != LOST:
            self._note(None, f"{kind}: {reason}", 0)
        if self._at >= len(self._messages):
            self._finish("", "")
        elif self._workers >= WORKERS:
            self._finish(kind, reason)
        else:
            self._slots.want(self)

    def _note(self, passed: bool | None, reason: str, micros: int) -> None:
        sampled = self._messages[self._at]
        self._at += 1
        found, message = self._found, sampled.message
        found.passed += passed is True
        found.failed += passed is None
        found.micros += micros
        found.messages.append(
            TriedMessage(
                queue_id=-1 if message is None else message.queue_id,
                offset=-1 if message is None else message.offset,
                message_id="" if message is None else message.message_id,
                tag="" if message is None else message.tag or "",
                keys="" if message is None else " ".join(message.keys),
                passed=passed,
                reason=reason,
                micros=micros,
            )
        )

    # -- its end ----------------------------------------------------------------------------------

    def late(self) -> None:
        """The time limit is reached: reply with the results so far."""
        self._finish(FilterFailure.TIMEOUT.value, "the time limit of the dry run is reached")

    def _finish(self, kind: str, reason: str) -> None:
        found = self._found
        dry_run = FilterTrial(
            topic=self._request.topic,
            version=self._version,
            messages=found.messages,
            seen=len(found.messages),
            passed=found.passed,
            failed=found.failed,
            micros=found.micros,
            start_micros=found.start_micros,
            failure=kind,
            reason=reason,
        )
        self._answer(Code.SUCCESS, "", encode_filter_trial(dry_run))

    def _answer(self, code: int, remark: str, body: bytes = b"") -> None:
        if self._done:
            return
        self._context.do(Reply(self.received.to, code, remark, None, (body,) if body else ()))
        self.drop()

    def drop(self) -> None:
        """End the dry run and its worker."""
        self._done = True
        self._context.forget(self._token)
        if self._sample is not None:
            self._sample.stop()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            self._slots.end(worker)
        self._over(self)


class DryRuns:
    """All dry runs in progress."""

    def __init__(self, context: CoreContext, policy: ServerPolicy, slots: Slots) -> None:
        self._context = context
        self._policy = policy
        self._slots = slots
        self._dry_runs: list[DryRun] = []
        self._allowance = CheckAllowance()

    def __len__(self) -> int:
        return len(self._dry_runs)

    def begin(self, received: Received, request: TryFilter) -> None:
        """Start a dry run, or reject it."""
        if len(self._dry_runs) >= self._policy.trials_max:
            text = f"{self._policy.trials_max} dry runs are in progress already, the maximum"
            self._context.do(Reply(received.to, Code.SYSTEM_BUSY, text))
            return
        if request.count < 1:
            text = f"count is {request.count}; it must be at least 1"
            self._context.do(Reply(received.to, Code.SYSTEM_ERROR, text))
            return
        try:
            size = sum(map(len, received.body))  # a larger source is rejected without a check
            self._allowance.take(self._context.now_ms, min(size, FILTER_SOURCE_BYTES_MAX))
        except Throttled as error:
            self._context.do(Reply(received.to, error.wire_code, str(error)))
            return
        deadline_ms = self._context.now_ms + self._policy.trial_ms_max
        if received.deadline_ms:
            deadline_ms = min(deadline_ms, received.deadline_ms - self._policy.answer_margin_ms)
        dry_run = DryRun(
            self._context, self._slots, received, request, deadline_ms, self._dry_runs.remove
        )
        self._dry_runs.append(dry_run)
        dry_run.begin()

    def tick(self) -> None:
        """End the dry runs whose time is up."""
        for dry_run in [one for one in self._dry_runs if one.deadline_ms <= self._context.now_ms]:
            dry_run.late()

    def disconnected(self, peer: Peer) -> None:
        """Drop the dry runs of a closed connection."""
        for dry_run in [one for one in self._dry_runs if one.received.to.peer == peer]:
            dry_run.drop()

    def leave(self) -> None:
        """End all dry runs, because this filter server ends."""
        for dry_run in list(self._dry_runs):
            dry_run.late()


def _check(name: str, source: bytes) -> None:
    """Check the source as an upload would. Raises BadRequest."""
    if len(source) > FILTER_SOURCE_BYTES_MAX:
        raise BadRequest(
            f"the source of a filter must have at most {FILTER_SOURCE_BYTES_MAX} bytes"
        )
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the source is not UTF-8 at byte {error.start}") from error
    check_source(text, name)
