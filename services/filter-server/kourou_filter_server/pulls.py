"""What is a consumer's pull answered, and when?

    a pull comes   its filter may run?  no: FILTER_FAILED, the offset stays
    ahead          an earlier answer went on there, and that is judged: it leaves at once
    upstream       the same pull, to the broker, without the filter, for more than was asked for
    its answer     no messages: handed on as it is
                   messages: to the worker
    the verdicts   some passed: as many as were asked for leave, with the offset behind them
                   none passed: upstream again from there, for a second at most; then
                   PULL_RETRY_IMMEDIATELY, with the new next offset

A message that cannot be judged: what was judged before it is answered first. If it is the first,
the filter's policy decides: hold answers FILTER_FAILED, skip passes it over when the broker has
recorded that, pass lets it through unfiltered.

Invariants: every pull gets one answer, or its peer is gone; no answer has a record that the filter
denied, or leaves out one that it wants; no next offset lies behind a record without a verdict; none
is larger than its consumer asked for.

State: soft. A consumer that gets no answer asks again from its own offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kourou.errors import Code, DecodeError
from kourou.model.filter import FilterFailure, FilterKey, FilterPolicy
from kourou.model.limits import FILTER_REASON_LENGTH_MAX, FILTERS_MAX
from kourou.protocol.messages.filter_server import RecordFilterSkip
from kourou.protocol.messages.pulling import PullFlag, PullMessage, PullResponse
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import Received
from kourou.runtime.peer import Peer
from kourou_filter_server.ahead import Ahead, Rest
from kourou_filter_server.catalogue import Catalogue
from kourou_filter_server.discipline import Discipline
from kourou_filter_server.effects import Filtered
from kourou_filter_server.inputs import BrokerAnswered, Buffer
from kourou_filter_server.jobs import Job
from kourou_filter_server.policy import ServerPolicy
from kourou_filter_server.pull import Pull, at_offset, lets_all_through, nowhere, upstream
from kourou_filter_server.records import NO, YES, offset_of
from kourou_filter_server.runner import Runners
from kourou_filter_server.statistics import FilterStatistics
from kourou_filter_server.turn import Turn, trouble_of

UPSTREAM_MS = 5_000
"""How long the broker may take for a pull beyond the time it may hold it."""

TELL_MS = 1_000
"""So long nothing but the offset may have moved: then the consumer is told, and can commit it."""

SAY_AGAIN_MS = 60_000
"""How often it is said that messages go through unfiltered."""

LEAVING = "this filter server is starting or stopping"
# Plain integers: an operation on a flag of an enum costs as much as the rest of a decision.
_SUSPEND = int(PullFlag.SUSPEND)
_CLASS_FILTER = int(PullFlag.CLASS_FILTER)

_YES = bytes([YES])
_FOUND = "FOUND"
_NO_MATCH = "NO_MATCHED_MESSAGE"


class Pulls:
    """All pulls under way. `uploaded` tells which filter of a group an old client means."""

    def __init__(
        self,
        turn: Turn,
        policy: ServerPolicy,
        catalogue: Catalogue,
        runners: Runners,
        discipline: Discipline,
        statistics: FilterStatistics,
        uploaded: Callable[[str, str], str],
    ) -> None:
        self._turn = turn
        self._policy = policy
        self._catalogue = catalogue
        self._runners = runners
        self._discipline = discipline
        self._statistics = statistics
        self._uploaded = uploaded
        self._pulls: dict[int, dict[int, Pull]] = {}
        self._count = 0
        self._parked: list[Pull] = []
        self._said_ms: dict[FilterKey, int] = {}
        self.judged_bytes = 0
        self.ahead = Ahead(turn, policy)

    def __len__(self) -> int:
        return self._count

    # -- arrival ----------------------------------------------------------------------------------

    def arrived(self, received: Received, request: PullMessage) -> None:
        """A pull came in."""
        self._statistics.pulls += 1
        to, policy = received.to, self._policy
        if to.oneway:
            return  # nobody wants to hear what comes of it
        if not request.sys_flag & _CLASS_FILTER:
            text = "this is a filter server: send pulls without a filter to its broker"
            self._refuse(received, Code.SYSTEM_ERROR, text)
        elif self._count >= policy.pulls_max:
            self._refuse(
                received, Code.POLLING_FULL, "too many pulls are waiting at this filter server"
            )
        elif self.judged_bytes >= policy.judged_bytes_max:
            self._refuse(
                received,
                Code.SYSTEM_BUSY,
                "too many bytes are waiting for filters at this filter server",
            )
        else:
            pull = self._opened(received, request)
            self._begin(pull, first=True)

    def _refuse(self, received: Received, code: Code, text: str) -> None:
        self._turn.do(Reply(received.to, code, text, nowhere()))

    def _opened(self, received: Received, request: PullMessage) -> Pull:
        policy, now_ms = self._policy, self._turn.now_ms
        hold_ms = 0
        if request.sys_flag & _SUSPEND:
            hold_ms = max(0, min(request.suspend_timeout_millis, policy.hold_ms_max))
        answer_by_ms = now_ms + hold_ms + policy.patience_ms
        if received.deadline_ms:
            answer_by_ms = min(answer_by_ms, received.deadline_ms - policy.answer_margin_ms)
        group = request.consumer_group
        pull = Pull(
            self,
            received,
            request,
            (group, request.subscription or self._uploaded(group, request.topic)),
            request.queue_offset,
            min(now_ms + hold_ms, answer_by_ms - policy.answer_margin_ms),
            answer_by_ms,
        )
        of_peer = self._pulls.setdefault(received.to.peer.id, {})
        before = of_peer.get(received.to.correlation)
        if before is not None:  # the peer gave that number twice, and can tell only one answer
            self._drop(before)
            of_peer = self._pulls.setdefault(received.to.peer.id, {})
        of_peer[received.to.correlation] = pull
        self._count += 1
        return pull

    def _begin(self, pull: Pull, *, first: bool) -> None:
        if pull.done:
            return
        if not self._catalogue.known:
            if first:
                self._catalogue.ask(lambda: self._begin(pull, first=False))
            else:
                text = "the broker of this filter server does not respond"
                self._answer(pull, Code.SERVICE_NOT_AVAILABLE, text)
            return
        standing = self._catalogue.standing(pull.key)
        if standing.failure is None:
            rest = self.ahead.take(pull.queue, pull.offset, standing)
            if rest is not None:
                self._answer_ahead(pull, rest)
                return
            self._runners.of(pull.key).warm()
        elif not lets_all_through(standing.failure, standing.policy):
            if not first:
                self._fail(pull, standing.failure, standing.reason)
            elif not self._catalogue.look_again(pull.key, lambda: self._begin(pull, first=False)):
                self._parked.append(pull)
            return
        self._ask(pull)

    def filters_changed(self) -> None:
        """Other filters may run now: look at pulls again that waited to ask for theirs."""
        self.ahead.filters_changed(self._catalogue.standing)
        parked, self._parked = self._parked, []
        for pull in parked:
            self._begin(pull, first=True)

    # -- upstream ---------------------------------------------------------------------------------

    def _ask(self, pull: Pull) -> None:
        request = pull.request
        hold_ms = max(0, pull.hold_until_ms - self._turn.now_ms)
        count = request.max_msg_nums
        if request.max_msg_bytes is not None and not pull.exact:  # else the limits are the broker's
            count = self._reach(pull, count)
        pull.beyond = count > request.max_msg_nums
        question = upstream(pull, hold_ms, count, self._policy.ahead_bytes)
        pull.asked = True
        pull.token = self._turn.ask(
            question,
            lambda answer: self._answered(pull, answer),
            timeout_ms=hold_ms + UPSTREAM_MS,
            to=pull.received.to,
        )

    def _reach(self, pull: Pull, count: int) -> int:
        standing = self._catalogue.standing(pull.key)
        if standing.failure is not None or standing.version is None:
            return count
        counts = self._statistics.of(pull.key, standing.version.version)
        return self.ahead.reach(pull.queue, count, counts)

    def _answered(self, pull: Pull, answer: BrokerAnswered) -> None:
        pull.token = 0
        place = answer.header if isinstance(answer.header, PullResponse) else None
        if answer.error is not None:
            self._answer(pull, Code.SERVICE_NOT_AVAILABLE, str(answer.error))
        elif answer.code != Code.SUCCESS:
            self._hand_on(pull, answer, place)
        elif place is None:
            self._answer(pull, Code.SYSTEM_ERROR, "the broker did not return the next offset")
        else:
            self._submit(pull, answer, place)

    def _hand_on(self, pull: Pull, answer: BrokerAnswered, place: PullResponse | None) -> None:
        """An answer without messages is the broker's matter, except that it tells how far we are.

        Whatever the code is: a body would be unfiltered, so none is handed on.
        """
        if answer.code == Code.PULL_NOT_FOUND and pull.advanced:
            self._answer(pull, Code.PULL_RETRY_IMMEDIATELY, _NO_MATCH, place)
        else:
            self._answer(pull, answer.code, answer.remark, place)

    def _submit(self, pull: Pull, answer: BrokerAnswered, place: PullResponse) -> None:
        run = answer.body[0] if len(answer.body) == 1 else b"".join(answer.body)
        try:
            job = Job(pull, pull.key, pull.request.topic, run)
        except DecodeError as error:
            self._answer(pull, Code.SYSTEM_ERROR, f"the broker's reply is malformed: {error}")
            return
        if not job.count:
            self._answer(pull, Code.SYSTEM_ERROR, "the broker found messages but sent none")
            return
        pull.job, pull.place, pull.remark = job, place, answer.remark
        pull.found_ms = self._turn.now_ms
        self.judged_bytes += len(job.run)
        self._runners.of(pull.key).submit(job)

    # -- verdicts ---------------------------------------------------------------------------------

    def stuck(self, pull: Pull, job: Job, kind: str, reason: str) -> bool:
        """See kourou_filter_server.jobs.Owner."""
        policy = self._catalogue.standing(pull.key).policy
        if policy is FilterPolicy.HOLD:
            self.close(pull, job, kind, reason)
            return False
        if policy is FilterPolicy.SKIP:
            job.noted.append((len(job.verdicts), kind, reason))
            job.verdicts.append(NO)
        else:
            self._let_through(pull, job, 1, kind, reason)
        pull.excused += 1
        if pull.excused < self._policy.passed_over_max or not job.left:
            return True
        self.close(pull, job, kind, reason)  # others wait for that worker, too
        return False

    def refused(self, pull: Pull, job: Job, kind: str, reason: str) -> None:
        """See kourou_filter_server.jobs.Owner."""
        standing = self._catalogue.standing(pull.key)
        if lets_all_through(standing.failure or kind, standing.policy):
            self._let_through(pull, job, job.left, kind, reason)
        self.close(pull, job, kind, reason)

    def _let_through(self, pull: Pull, job: Job, count: int, kind: str, reason: str) -> None:
        job.verdicts += _YES * count
        job.unfiltered += count
        standing = self._catalogue.standing(pull.key)
        if standing.version is not None:
            self._statistics.of(pull.key, standing.version.version).unfiltered += count
        said_ms = self._said_ms.get(pull.key)
        if said_ms is None or self._turn.now_ms - said_ms >= SAY_AGAIN_MS:
            if len(self._said_ms) >= FILTERS_MAX:
                self._said_ms.clear()
            self._said_ms[pull.key] = self._turn.now_ms
            self._turn.warn(
                f"messages of {job.topic} are delivered to {pull.key[0]} unfiltered, by "
                f"the policy of its filter {pull.key[1]}: {kind}: {reason}"
            )

    def close(self, pull: Pull, job: Job, kind: str, reason: str) -> None:
        """No more verdicts will come on this run; `kind` says why, if one is missing."""
        if pull.done or pull.job is not job:
            return
        if job.noted:
            self._record(pull, job, kind, reason)
        else:
            self._deliver(pull, job, len(job.verdicts), kind, reason)

    def _record(self, pull: Pull, job: Job, kind: str, reason: str) -> None:
        """What is passed over is recorded first, so that nobody has to guess what was lost."""
        request, noted = pull.request, job.noted
        first, why, text = noted[0]

        def recorded(answer: BrokerAnswered) -> None:
            pull.token = 0
            trouble = trouble_of(answer)
            if not trouble:
                self._statistics.of(pull.key, job.version).skipped += len(noted)
                self._deliver(pull, job, len(job.verdicts), kind, reason)
                return
            if answer.error is None:
                self._catalogue.ask()  # its policy may be another one by now
            because = f"{text}; it cannot be skipped: {trouble}"
            self._deliver(pull, job, first, why, because)

        pull.token = self._turn.ask(
            RecordFilterSkip(
                consumer_group=request.consumer_group,
                name=pull.key[1],
                version=job.version,
                topic=request.topic,
                queue_id=request.queue_id,
                offsets=[offset_of(job.run, job.bounds[number]) for number, _, _ in noted],
                reason=f"{why}: {text}"[:FILTER_REASON_LENGTH_MAX],
            ),
            recorded,
            to=pull.received.to,
        )

    def _deliver(self, pull: Pull, job: Job, count: int, kind: str, reason: str) -> None:
        """Answer by the first `count` verdicts, or go on upstream if none of those is yes."""
        place = pull.place
        assert place is not None
        if not count:
            if pull.advanced:  # say that first; the next pull begins at the message at fault
                self._no_match(pull, place, pull.offset)
            else:
                self._fail(pull, kind, reason, job.version)
            return
        readable = pull.remark in ("", _FOUND)
        if pull.beyond and not readable:  # which of its own messages cannot be read is to be told
            pull.exact = True
            self._release(pull)
            self._ask(pull)
            return
        whole = count == job.count
        behind = place.next_begin_offset if whole else offset_of(job.run, job.bounds[count])
        standing = self._catalogue.standing(pull.key)
        rest = Rest(job, count, behind, place, standing, pull.received.to.peer, pull.found_ms)
        rest.told(pull.request)
        pull.micros += job.micros
        body, next_offset = self._part(pull, rest)
        if body:
            self._answer(pull, Code.SUCCESS, pull.remark, at_offset(place, next_offset), (body,))
        elif not readable:  # some of its messages cannot be read
            own = pull.request.max_msg_bytes is not None
            code = Code.MESSAGE_CORRUPT if own else Code.PULL_RETRY_IMMEDIATELY
            self._answer(pull, code, pull.remark, at_offset(place, next_offset))
        elif not whole or next_offset <= pull.offset or self._turn.now_ms >= pull.hold_until_ms:
            self._no_match(pull, place, next_offset)
        else:
            pull.offset = next_offset
            pull.hold_until_ms = min(pull.hold_until_ms, self._turn.now_ms + TELL_MS)
            self._release(pull)
            self._ask(pull)

    # -- ahead ------------------------------------------------------------------------------------

    def _part(self, pull: Pull, rest: Rest) -> tuple[Buffer, int]:
        """What of this a pull is answered, and where the next one begins; more of it is kept."""
        job, before = rest.job, rest.at
        body, passed = self.ahead.part(pull.queue, rest, pull.request.max_msg_nums, pull.bytes_max)
        if job.version:
            counts = self._statistics.of(pull.key, job.version)
            counts.passed += passed
            counts.bytes_out += len(body)
        pull.seen += rest.at - before
        pull.passed += passed
        return body, rest.offset

    def _answer_ahead(self, pull: Pull, rest: Rest) -> None:
        self.ahead.commit(rest, pull.request)
        rest.peer = pull.received.to.peer
        body, next_offset = self._part(pull, rest)
        place = at_offset(rest.place, next_offset)
        self._answer(pull, Code.SUCCESS, _FOUND, place, (body,), rest.job.version)

    # -- answers ----------------------------------------------------------------------------------

    def _no_match(self, pull: Pull, place: PullResponse, next_offset: int) -> None:
        self._answer(pull, Code.PULL_RETRY_IMMEDIATELY, _NO_MATCH, at_offset(place, next_offset))

    def _fail(self, pull: Pull, kind: str, reason: str, version: int = 0) -> None:
        self._statistics.pulls_failed[kind] += 1
        where = at_offset(pull.place or nowhere(), pull.request.queue_offset)
        where = msgspec.structs.replace(where, filter_failure=kind)
        text = f"filter {pull.key[1]} of group {pull.key[0]} failed: {kind}: {reason}"
        self._answer(pull, Code.FILTER_FAILED, text, where, version=version)
        if kind == FilterFailure.RAISED and version:
            self._discipline.strike(pull.key, version, kind, reason)

    def _answer(
        self,
        pull: Pull,
        code: int,
        remark: str,
        place: PullResponse | None = None,
        body: Sequence[Buffer] = (),
        version: int = 0,
    ) -> None:
        to = pull.received.to
        job = pull.job
        version = version or (job.version if job is not None else 0)
        self._drop(pull)
        if to.traced:
            self._turn.do(Filtered(to, pull.key[1], version, pull.seen, pull.passed, pull.micros))
        place = place or nowhere()
        if version:
            place = msgspec.structs.replace(place, filter_version=version)
        self._turn.do(Reply(to, code, remark, place, body))

    def _drop(self, pull: Pull) -> None:
        """It is answered, or nobody waits for it any more."""
        pull.done = True
        self._turn.forget(pull.token)
        self._release(pull)
        peer, correlation = pull.received.to.peer.id, pull.received.to.correlation
        of_peer = self._pulls[peer]
        if of_peer.get(correlation) is pull:
            del of_peer[correlation]
            self._count -= 1
            if not of_peer:
                del self._pulls[peer]

    def _release(self, pull: Pull) -> None:
        job, pull.job = pull.job, None
        if job is not None:
            job.cancelled = True
            self.judged_bytes -= len(job.run)

    # -- time, and peers --------------------------------------------------------------------------

    def disconnected(self, peer: Peer) -> None:
        """A connection is gone."""
        self.ahead.lost(peer)
        for pull in list(self._pulls.get(peer.id, {}).values()):
            self._drop(pull)

    def tick(self) -> None:
        """Answer what must be answered now."""
        self.ahead.tick()
        self.filters_changed()
        now_ms = self._turn.now_ms
        late = [
            pull
            for of_peer in self._pulls.values()
            for pull in of_peer.values()
            if pull.answer_by_ms <= now_ms
        ]
        for pull in late:
            self._late(pull)

    def _late(self, pull: Pull) -> None:
        job = pull.job
        judged = 0
        if job is not None:
            judged = job.noted[0][0] if job.noted else len(job.verdicts)
        if job is not None and judged:
            pull.hold_until_ms = self._turn.now_ms
            self._turn.forget(pull.token)
            self._deliver(pull, job, judged, "", "")
        elif pull.advanced and pull.place is not None:
            self._no_match(pull, pull.place, pull.offset)
        elif not pull.asked:
            self._begin(pull, first=False)
        elif pull.token:
            self._answer(pull, Code.SERVICE_NOT_AVAILABLE, "the broker did not respond in time")
        else:
            text = (
                f"filter {pull.key[1]} of group {pull.key[0]} did not finish in time: it waits for "
            )
            self._answer(pull, Code.SYSTEM_BUSY, text + "a worker, or for other filters")

    def leave(self) -> None:
        """Answer all: this filter server ends."""
        for of_peer in list(self._pulls.values()):
            for pull in list(of_peer.values()):
                self._answer(pull, Code.SERVICE_NOT_AVAILABLE, LEAVING)
