"""TRY_FILTER, the dry run: a filter's results for the last messages of a topic, and their cost.

A dry run has a worker of its own, which ends with it; its failures are not counted. Messages are
evaluated one by one, so each has its own result and cost. If the worker ends during a message, a
new one is started, up to WORKERS in total; then the dry run ends. Its time is limited; at the limit
it returns the results so far.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kourou.errors import BadRequest, Code, KourouError, Throttled
from kourou.filtering.python_rules import CheckAllowance, check_source
from kourou.model.filter import FilterFailure, FilterKey
from kourou.model.limits import FILTER_SOURCE_BYTES_MAX, FILTER_TRIED_MESSAGES_MAX
from kourou.protocol.bodies.filter_bodies import (
    FilterTrial,
    TriedMessage,
    decode_filters,
    encode_filter_trial,
)
from kourou.protocol.messages.filter_server import GetFilters, TryFilter
from kourou.runtime.core import Peer, Received, Reply
from kourou_filter_server.effects import Judge
from kourou_filter_server.inputs import LOST, BrokerAnswered, Judged, WorkerEnded, WorkerReady
from kourou_filter_server.policy import ServerPolicy
from kourou_filter_server.records import YES
from kourou_filter_server.sample import Sample, Sampled
from kourou_filter_server.slots import Slots, Worker
from kourou_filter_server.turn import Turn, trouble_of

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


class Trial:
    """One dry run; an Attendant of its worker. `over` is called after its reply."""

    def __init__(
        self,
        turn: Turn,
        slots: Slots,
        received: Received,
        request: TryFilter,
        deadline_ms: int,
        over: Callable[[Trial], None],
    ) -> None:
        self.received = received
        self.deadline_ms = deadline_ms
        self._turn = turn
        self._slots = slots
        self._request = request
        self._over = over
        self._source = b"".join(received.body)
        self._version: int | None = None
        self._sha256 = ""
        self._token = 0
        self._sample: Sample | None = None
        self._messages: list[Sampled] = []
        self._worker: Worker | None = None
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
        self._token = self._turn.ask(question, self._told, to=self.received.to)

    def _told(self, answer: BrokerAnswered) -> None:
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
            self._token = self._turn.ask(question, self._told, to=self.received.to)

    def _take_sample(self) -> None:
        request = self._request
        count = min(request.count, FILTER_TRIED_MESSAGES_MAX)
        self._sample = Sample(self._turn, self.received.to, request.topic, count, self._sampled)

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

    def give_up(self, worker: Worker) -> None:
        """Never called, because its worker is not `lasting`."""
        raise AssertionError(f"worker {worker.number} belongs to a dry run")

    def worker_ready(self, worker: Worker, item: WorkerReady) -> None:
        """The worker is ready: continue with the next message."""
        self._found.start_micros += item.start_micros
        self._try_next(worker)

    def _try_next(self, worker: Worker) -> None:
        if self._at >= len(self._messages):
            self._finish("", "")
            return
        worker.busy = True
        worker.batch += 1
        record = self._messages[self._at].record
        topic, wall_ms = self._request.topic, self._turn.wall_ms
        self._turn.do(Judge(worker.number, worker.batch, topic, wall_ms, 1, (record,)))

    def worker_judged(self, worker: Worker, item: Judged) -> None:
        """Note the result of a message."""
        if len(item.verdicts) != 1 or (not item.kind and item.verdicts[0] > YES):
            self._slots.end(worker)
            self._worker = None
            self._unjudged(FilterFailure.LIED.value, "invalid results")
            return
        passed = None if item.kind else item.verdicts[0] == YES
        self._note(passed, f"{item.kind}: {item.reason}" if item.kind else "", item.micros)
        self._try_next(worker)

    def worker_ended(self, worker: Worker, item: WorkerEnded) -> None:
        """The worker died during a message, or could not set up the filter."""
        self._worker = None
        if not worker.ready and item.kind != LOST:
            self._finish(item.kind, item.reason)
        else:
            self._unjudged(item.kind, item.reason)

    def _unjudged(self, kind: str, reason: str) -> None:
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
        trial = FilterTrial(
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
        self._answer(Code.SUCCESS, "", encode_filter_trial(trial))

    def _answer(self, code: int, remark: str, body: bytes = b"") -> None:
        if self._done:
            return
        self._turn.do(Reply(self.received.to, code, remark, None, (body,) if body else ()))
        self.drop()

    def drop(self) -> None:
        """End the dry run and its worker."""
        self._done = True
        self._turn.forget(self._token)
        if self._sample is not None:
            self._sample.stop()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            self._slots.end(worker)
        self._over(self)


class Trials:
    """All dry runs in progress."""

    def __init__(self, turn: Turn, policy: ServerPolicy, slots: Slots) -> None:
        self._turn = turn
        self._policy = policy
        self._slots = slots
        self._trials: list[Trial] = []
        self._allowance = CheckAllowance()

    def __len__(self) -> int:
        return len(self._trials)

    def begin(self, received: Received, request: TryFilter) -> None:
        """Start a dry run, or reject it."""
        if len(self._trials) >= self._policy.trials_max:
            text = f"{self._policy.trials_max} dry runs are in progress already, the maximum"
            self._turn.do(Reply(received.to, Code.SYSTEM_BUSY, text))
            return
        if request.count < 1:
            text = f"count is {request.count}; it must be at least 1"
            self._turn.do(Reply(received.to, Code.SYSTEM_ERROR, text))
            return
        try:
            size = sum(map(len, received.body))  # a larger source is rejected without a check
            self._allowance.take(self._turn.now_ms, min(size, FILTER_SOURCE_BYTES_MAX))
        except Throttled as error:
            self._turn.do(Reply(received.to, error.wire_code, str(error)))
            return
        deadline_ms = self._turn.now_ms + self._policy.trial_ms_max
        if received.deadline_ms:
            deadline_ms = min(deadline_ms, received.deadline_ms - self._policy.answer_margin_ms)
        trial = Trial(self._turn, self._slots, received, request, deadline_ms, self._trials.remove)
        self._trials.append(trial)
        trial.begin()

    def tick(self) -> None:
        """End the dry runs whose time is up."""
        for trial in [one for one in self._trials if one.deadline_ms <= self._turn.now_ms]:
            trial.late()

    def disconnected(self, peer: Peer) -> None:
        """Drop the dry runs of a closed connection."""
        for trial in [one for one in self._trials if one.received.to.peer == peer]:
            trial.drop()

    def leave(self) -> None:
        """End all dry runs, because this filter server ends."""
        for trial in list(self._trials):
            trial.late()


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
