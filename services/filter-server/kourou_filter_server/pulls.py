"""Handles pulls: fetches messages from the broker, filters them, and sends the replies.

    pull arrives   may the filter run?  no: FILTER_FAILED, the offset does not move
    prefetched     messages that continue at this offset are filtered already: immediate reply
    upstream       the same pull goes to the broker, without the filter, for more messages
    broker reply   no messages: passed on as it is
                   messages: go to the worker
    results        some passed: up to the requested number are sent, with the offset after them
                   none passed: upstream again from there, for at most a second; then
                   PULL_RETRY_IMMEDIATELY, with the new next offset

If a message cannot be evaluated, the messages before it are sent first. If it is the first one, the
filter's policy decides: hold replies FILTER_FAILED, skip leaves the message out after the broker
has recorded that, pass delivers it unfiltered.

Invariants: every pull gets one reply, unless its peer is gone; no reply contains a record that the
filter rejected, or omits one that passed; no next offset is beyond a record without a result; no
reply is larger than its consumer asked for.

State: soft. A consumer that gets no reply pulls again from its own offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from kourou.errors import Code, DecodeError
from kourou.model.filter import FilterFailure, FilterKey, FilterPolicy
from kourou.model.limits import FILTER_REASON_LENGTH_MAX, FILTERS_MAX, PULL_SIZE_BYTES_MAX
from kourou.model.subscription import MATCH_ALL, TAG
from kourou.protocol.messages.filter_server import RecordFilterSkip
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.runtime import LogWarning, Peer, Received, Reply
from kourou_filter_server.catalogue import Catalogue
from kourou_filter_server.context import CoreContext, FilterStatistics, ServerPolicy, trouble_of
from kourou_filter_server.discipline import Discipline
from kourou_filter_server.interface import BrokerAnswered, Buffer, Filtered
from kourou_filter_server.jobs import NO, YES, FilterJob, offset_of
from kourou_filter_server.prefetch import COMMIT_OFFSET, Prefetch, Queue, Remainder
from kourou_filter_server.runner import Runners

# Plain integers, because operations on enum flags are as expensive as the rest of a decision.
_SUSPEND = int(PullFlag.SUSPEND)
_SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)
_CLASS_FILTER = int(PullFlag.CLASS_FILTER)


@dataclass(slots=True, eq=False)
class Pull:
    """One pull in progress; owns the run of records that is filtered for it.

    `offset` is the next one to request from the broker: all records before it were filtered, and
    none of them passed. No reply is necessary before `hold_until_ms`; one is due at `answer_by_ms`.
    `beyond`: more was requested from the broker than the consumer asked for; `exact`: this is not
    allowed. `found_ms` is when the broker last returned messages for it.
    """

    owner: ConsumerPulls
    received: Received
    request: PullMessage
    key: FilterKey
    offset: int
    hold_until_ms: int
    answer_by_ms: int
    token: int = 0
    job: FilterJob | None = None
    place: PullResponse | None = None
    remark: str = ""
    asked: bool = False
    beyond: bool = False
    exact: bool = False
    found_ms: int = 0
    excused: int = 0
    seen: int = 0
    passed: int = 0
    micros: int = 0
    done: bool = False

    @property
    def queue(self) -> Queue:
        """The filter and the queue that it reads."""
        request = self.request
        return self.key, request.topic, request.queue_id

    @property
    def bytes_max(self) -> int:
        """The maximum number of message bytes in its reply."""
        size = self.request.max_msg_bytes
        return PULL_SIZE_BYTES_MAX if size is None else min(size, PULL_SIZE_BYTES_MAX)

    @property
    def advanced(self) -> bool:
        """Whether records were filtered of which none passed."""
        return self.offset > self.request.queue_offset

    def evaluated(self, job: FilterJob) -> None:
        """Every record has a result."""
        self.owner.close(self, job, "", "")

    def stuck(self, job: FilterJob, kind: str, reason: str) -> bool:
        """The record after the last result cannot be evaluated."""
        return self.owner.stuck(self, job, kind, reason)

    def refused(self, job: FilterJob, kind: str, reason: str) -> None:
        """The filter cannot run."""
        self.owner.refused(self, job, kind, reason)


def matches_everything(failure: str, policy: FilterPolicy) -> bool:
    """Whether all messages pass by policy. Missing and disabled filters never let messages pass."""
    switched_off = (FilterFailure.MISSING, FilterFailure.DISABLED)
    return policy is FilterPolicy.PASS and failure not in switched_off


def upstream(pull: Pull, hold_ms: int, count: int, bytes_beyond: int) -> PullMessage:
    """The pull request to the broker: without the filter, and possibly for more messages."""
    request = pull.request
    flags = request.sys_flag & ~(_CLASS_FILTER | _SUSPEND) | _SUBSCRIPTION
    if pull.asked:
        flags &= ~COMMIT_OFFSET  # one commit is enough
    if hold_ms:
        flags |= _SUSPEND
    size = request.max_msg_bytes
    if size is not None and count > request.max_msg_nums:
        size = max(size, bytes_beyond)
    return msgspec.structs.replace(
        request,
        queue_offset=pull.offset,
        max_msg_nums=count,
        max_msg_bytes=size,
        sys_flag=flags,
        suspend_timeout_millis=hold_ms,
        subscription=MATCH_ALL,
        sub_version=0,
        expression_type=TAG,
    )


def nowhere() -> PullResponse:
    """The header of a reply without offsets."""
    return PullResponse(suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0)


def at_offset(place: PullResponse, next_offset: int) -> PullResponse:
    """The same header with another next offset."""
    if place.next_begin_offset == next_offset:
        return place
    return msgspec.structs.replace(place, next_begin_offset=next_offset)


# -- all pulls ------------------------------------------------------------------------------------

UPSTREAM_MS = 5_000
"""How long the broker may take for a pull, in addition to the long-poll time."""

NOTIFY_WITHIN_MS = 1_000
"""The maximum time in which only the offset advances before the consumer gets a reply."""

LOG_AGAIN_MS = 60_000
"""The minimum interval between warnings that messages are delivered unfiltered."""

LEAVING = "this filter server is starting or stopping"

_YES = bytes([YES])
_FOUND = "FOUND"
_NO_MATCH = "NO_MATCHED_MESSAGE"


class ConsumerPulls:
    """All pulls in progress. `uploaded` returns the filter that a group uploaded for a topic.

    `fetched` is called with the bytes and the number of messages that a pull returns.
    """

    def __init__(
        self,
        context: CoreContext,
        policy: ServerPolicy,
        catalogue: Catalogue,
        runners: Runners,
        discipline: Discipline,
        statistics: FilterStatistics,
        uploaded: Callable[[str, str], str],
        fetched: Callable[[Received, int, int], None],
    ) -> None:
        self._context = context
        self._fetched = fetched
        self._policy = policy
        self._catalogue = catalogue
        self._runners = runners
        self._discipline = discipline
        self._statistics = statistics
        self._uploaded = uploaded
        self._pulls: dict[int, dict[int, Pull]] = {}
        self._count = 0
        self._parked: list[Pull] = []
        self._logged_ms: dict[FilterKey, int] = {}
        self.waiting_bytes = 0
        self.prefetch = Prefetch(context, policy)

    def __len__(self) -> int:
        return self._count

    # -- arrival ----------------------------------------------------------------------------------

    def arrived(self, received: Received, request: PullMessage) -> None:
        """Handle a new pull request."""
        self._statistics.pulls += 1
        to, policy = received.to, self._policy
        if to.oneway:
            return  # no reply is expected
        if not request.sys_flag & _CLASS_FILTER:
            text = "this is a filter server: send pulls without a filter to its broker"
            self._refuse(received, Code.SYSTEM_ERROR, text)
        elif self._count >= policy.pulls_max:
            self._refuse(
                received, Code.POLLING_FULL, "too many pulls are waiting at this filter server"
            )
        elif self.waiting_bytes >= policy.waiting_bytes_max:
            self._refuse(
                received,
                Code.SYSTEM_BUSY,
                "too many bytes are waiting for filters at this filter server",
            )
        else:
            pull = self._opened(received, request)
            self._begin(pull, first=True)

    def _refuse(self, received: Received, code: Code, text: str) -> None:
        self._context.do(Reply(received.to, code, text, nowhere()))

    def _opened(self, received: Received, request: PullMessage) -> Pull:
        policy, now_ms = self._policy, self._context.now_ms
        hold_ms = 0
        if request.sys_flag & _SUSPEND:
            hold_ms = max(0, min(request.suspend_timeout_millis, policy.hold_ms_max))
        answer_by_ms = now_ms + hold_ms + policy.filter_wait_ms
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
        if before is not None:  # the peer reused this number, so it can only match one reply
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
        status = self._catalogue.status(pull.key)
        if status.failure is None:
            remainder = self.prefetch.take(pull.queue, pull.offset, status)
            if remainder is not None:
                self._answer_prefetched(pull, remainder)
                return
            self._runners.of(pull.key).warm()
        elif not matches_everything(status.failure, status.policy):
            if not first:
                self._fail(pull, status.failure, status.reason)
            elif not self._catalogue.look_again(pull.key, lambda: self._begin(pull, first=False)):
                self._parked.append(pull)
            return
        self._ask(pull)

    def filters_changed(self) -> None:
        """Drop outdated prefetched records, and retry the pulls that wait for a filter."""
        self.prefetch.filters_changed(self._catalogue.status)
        parked, self._parked = self._parked, []
        for pull in parked:
            self._begin(pull, first=True)

    # -- upstream ---------------------------------------------------------------------------------

    def _ask(self, pull: Pull) -> None:
        request = pull.request
        hold_ms = max(0, pull.hold_until_ms - self._context.now_ms)
        count = request.max_msg_nums
        if request.max_msg_bytes is not None and not pull.exact:  # else the broker's limits apply
            count = self._reach(pull, count)
        pull.beyond = count > request.max_msg_nums
        question = upstream(pull, hold_ms, count, self._policy.ahead_bytes)
        pull.asked = True
        pull.token = self._context.ask(
            question,
            lambda answer: self._answered(pull, answer),
            timeout_ms=hold_ms + UPSTREAM_MS,
            to=pull.received.to,
        )

    def _reach(self, pull: Pull, count: int) -> int:
        status = self._catalogue.status(pull.key)
        if status.failure is not None or status.version is None:
            return count
        counts = self._statistics.of(pull.key, status.version.version)
        return self.prefetch.reach(pull.queue, count, counts)

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
        """Pass on a broker reply without messages; after filtered records the code becomes a retry.

        The body is never passed on, whatever the code is, because it would be unfiltered.
        """
        if answer.code == Code.PULL_NOT_FOUND and pull.advanced:
            self._answer(pull, Code.PULL_RETRY_IMMEDIATELY, _NO_MATCH, place)
        else:
            self._answer(pull, answer.code, answer.remark, place)

    def _submit(self, pull: Pull, answer: BrokerAnswered, place: PullResponse) -> None:
        run = answer.body[0] if len(answer.body) == 1 else b"".join(answer.body)
        try:
            job = FilterJob(pull, pull.key, pull.request.topic, run)
        except DecodeError as error:
            self._answer(pull, Code.SYSTEM_ERROR, f"the broker's reply is malformed: {error}")
            return
        if not job.count:
            self._answer(pull, Code.SYSTEM_ERROR, "the broker found messages but sent none")
            return
        pull.job, pull.place, pull.remark = job, place, answer.remark
        pull.found_ms = self._context.now_ms
        self.waiting_bytes += len(job.run)
        self._runners.of(pull.key).submit(job)

    # -- results ----------------------------------------------------------------------------------

    def stuck(self, pull: Pull, job: FilterJob, kind: str, reason: str) -> bool:
        """See kourou_filter_server.jobs.Owner."""
        policy = self._catalogue.status(pull.key).policy
        if policy is FilterPolicy.HOLD:
            self.close(pull, job, kind, reason)
            return False
        if policy is FilterPolicy.SKIP:
            job.noted.append((len(job.results), kind, reason))
            job.results.append(NO)
        else:
            self._evaluate_nothing(pull, job, 1, kind, reason)
        pull.excused += 1
        if pull.excused < self._policy.passed_over_max or not job.left:
            return True
        self.close(pull, job, kind, reason)  # other pulls wait for that worker
        return False

    def refused(self, pull: Pull, job: FilterJob, kind: str, reason: str) -> None:
        """See kourou_filter_server.jobs.Owner."""
        status = self._catalogue.status(pull.key)
        if matches_everything(status.failure or kind, status.policy):
            self._evaluate_nothing(pull, job, job.left, kind, reason)
        self.close(pull, job, kind, reason)

    def _evaluate_nothing(
        self, pull: Pull, job: FilterJob, count: int, kind: str, reason: str
    ) -> None:
        job.results += _YES * count
        job.unfiltered += count
        status = self._catalogue.status(pull.key)
        if status.version is not None:
            self._statistics.of(pull.key, status.version.version).unfiltered += count
        logged_ms = self._logged_ms.get(pull.key)
        if logged_ms is None or self._context.now_ms - logged_ms >= LOG_AGAIN_MS:
            if len(self._logged_ms) >= FILTERS_MAX:
                self._logged_ms.clear()
            self._logged_ms[pull.key] = self._context.now_ms
            group, name = pull.key
            self._context.do(
                LogWarning(
                    "messages-unfiltered: messages of %(topic)s are delivered to %(group)s "
                    "unfiltered, by the policy of its filter %(filter)s: %(kind)s: %(reason)s",
                    {
                        "topic": job.topic,
                        "group": group,
                        "filter": name,
                        "kind": kind,
                        "reason": reason,
                    },
                )
            )

    def close(self, pull: Pull, job: FilterJob, kind: str, reason: str) -> None:
        """No more results will come for this run; `kind` is the reason if one is missing."""
        if pull.done or pull.job is not job:
            return
        if job.noted:
            self._record(pull, job, kind, reason)
        else:
            self._deliver(pull, job, len(job.results), kind, reason)

    def _record(self, pull: Pull, job: FilterJob, kind: str, reason: str) -> None:
        """Record skipped messages at the broker before the reply, so that losses are known."""
        request, noted = pull.request, job.noted
        first, why, text = noted[0]

        def recorded(answer: BrokerAnswered) -> None:
            pull.token = 0
            trouble = trouble_of(answer)
            if not trouble:
                self._statistics.of(pull.key, job.version).skipped += len(noted)
                self._deliver(pull, job, len(job.results), kind, reason)
                return
            if answer.error is None:
                self._catalogue.ask()  # the policy may have changed
            because = f"{text}; it cannot be skipped: {trouble}"
            self._deliver(pull, job, first, why, because)

        pull.token = self._context.ask(
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

    def _deliver(self, pull: Pull, job: FilterJob, count: int, kind: str, reason: str) -> None:
        """Reply with the first `count` results, or request more if none of them passed."""
        place = pull.place
        assert place is not None
        if not count:
            if pull.advanced:  # report the progress first; the next pull fails
                self._no_match(pull, place, pull.offset)
            else:
                self._fail(pull, kind, reason, job.version)
            return
        readable = pull.remark in ("", _FOUND)
        if pull.beyond and not readable:  # request again, exactly what was asked for
            pull.exact = True
            self._release(pull)
            self._ask(pull)
            return
        whole = count == job.count
        behind = place.next_begin_offset if whole else offset_of(job.run, job.bounds[count])
        status = self._catalogue.status(pull.key)
        remainder = Remainder(
            job, count, behind, place, status, pull.received.to.peer, pull.found_ms
        )
        remainder.note_commit(pull.request)
        pull.micros += job.micros
        body, next_offset = self._part(pull, remainder)
        if body:
            self._answer(pull, Code.SUCCESS, pull.remark, at_offset(place, next_offset), (body,))
        elif not readable:  # some messages are unreadable
            own = pull.request.max_msg_bytes is not None
            code = Code.MESSAGE_CORRUPT if own else Code.PULL_RETRY_IMMEDIATELY
            self._answer(pull, code, pull.remark, at_offset(place, next_offset))
        elif not whole or next_offset <= pull.offset or self._context.now_ms >= pull.hold_until_ms:
            self._no_match(pull, place, next_offset)
        else:
            pull.offset = next_offset
            pull.hold_until_ms = min(pull.hold_until_ms, self._context.now_ms + NOTIFY_WITHIN_MS)
            self._release(pull)
            self._ask(pull)

    # -- prefetched records -----------------------------------------------------------------------

    def _part(self, pull: Pull, remainder: Remainder) -> tuple[Buffer, int]:
        """The records of a reply to this pull, and the next offset; the remainder is kept."""
        job, before = remainder.job, remainder.at
        body, passed = self.prefetch.part(
            pull.queue, remainder, pull.request.max_msg_nums, pull.bytes_max
        )
        if job.version:
            counts = self._statistics.of(pull.key, job.version)
            counts.passed += passed
            counts.bytes_out += len(body)
        pull.seen += remainder.at - before
        pull.passed += passed
        return body, remainder.offset

    def _answer_prefetched(self, pull: Pull, remainder: Remainder) -> None:
        self.prefetch.commit(remainder, pull.request)
        remainder.peer = pull.received.to.peer
        body, next_offset = self._part(pull, remainder)
        place = at_offset(remainder.place, next_offset)
        self._answer(pull, Code.SUCCESS, _FOUND, place, (body,), remainder.job.version)

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
            self._discipline.count_failure(pull.key, version, kind, reason)

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
            self._context.do(
                Filtered(to, pull.key[1], version, pull.seen, pull.passed, pull.micros)
            )
        place = place or nowhere()
        if body:
            self._fetched(pull.received, sum(map(len, body)), pull.passed)
        if version:
            place = msgspec.structs.replace(place, filter_version=version)
        self._context.do(Reply(to, code, remark, place, body))

    def _drop(self, pull: Pull) -> None:
        """Forget a pull that has its reply, or whose peer is gone."""
        pull.done = True
        self._context.forget(pull.token)
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
            self.waiting_bytes -= len(job.run)

    # -- changed rights, timeouts and closed connections ------------------------------------------

    def rights_changed(self) -> None:
        """Let pulls that wait for messages come again: a consumer may have no right to them now.

        What is being filtered was read before, and is delivered.
        """
        waiting = [
            pull
            for of_peer in self._pulls.values()
            for pull in of_peer.values()
            if pull.job is None
        ]
        for pull in waiting:
            self._no_match(pull, pull.place or nowhere(), pull.offset)

    def disconnected(self, peer: Peer) -> None:
        """Forget the pulls of a closed connection."""
        self.prefetch.lost(peer)
        for pull in list(self._pulls.get(peer.id, {}).values()):
            self._drop(pull)

    def tick(self) -> None:
        """Reply to pulls whose time is up."""
        self.prefetch.tick()
        self.filters_changed()
        now_ms = self._context.now_ms
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
        evaluated = 0
        if job is not None:
            evaluated = job.noted[0][0] if job.noted else len(job.results)
        if job is not None and evaluated:
            pull.hold_until_ms = self._context.now_ms
            self._context.forget(pull.token)
            self._deliver(pull, job, evaluated, "", "")
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
        """Reply to all pulls, because this filter server ends."""
        for of_peer in list(self._pulls.values()):
            for pull in list(of_peer.values()):
                self._answer(pull, Code.SERVICE_NOT_AVAILABLE, LEAVING)
