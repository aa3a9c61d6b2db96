"""The requests of batch transactions: prepare, decide, resolve, abort.

State: soft: the time of the last cleanup. A request to resolve or abort does a bounded part of the
work and returns how much is left, so that other requests are not delayed.

Half messages that arrive when their batch is resolved already (from a task that was slow or ran
twice) are accepted, and discarded at a tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from kourou.access.model import SOME, Action, AnyOf, Need, ResourceType
from kourou.access.requirements import need_of_topic
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.sends.appends import Target
from kourou.engine.transactions import batches as rules
from kourou.engine.transactions.batch_log import BatchLog
from kourou.engine.transactions.batches import BatchPart
from kourou.engine.transactions.half_messages import (
    COMMIT,
    OP_TARGET,
    ROLLBACK,
    HalfRecord,
    committed,
    operation,
)
from kourou.engine.transactions.transaction_handler import TransactionHandler
from kourou.errors import BadRequest, Corrupt, KourouError, Rejected
from kourou.events.control_events import Cause, Event
from kourou.model.limits import BATCH_STEP_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
from kourou.model.names import SCHEDULE_TOPIC
from kourou.model.transaction import NONE, BatchQuery, check_attempt, check_query
from kourou.model.units import HOUR_MS
from kourou.protocol.bodies.broker_bodies import decode_attempts, decode_decision, encode_decision
from kourou.protocol.messages.sends import (
    AbortBatch,
    BatchStateResponse,
    BatchStepResponse,
    DecideBatch,
    GetBatchState,
    PrepareBatch,
    ResolveBatch,
)
from kourou.protocol.request import Request
from kourou.runtime import LogWarning, Received

LOOK_MS = 1_000
"""The time between two cleanups."""

_CHANGE_CLUSTER = Need(ResourceType.CLUSTER, "", (Action.UPDATE,))
_PUB_SOMEWHERE = Need(ResourceType.TOPIC, SOME, (Action.PUB,))


class BatchHandler:
    """Handles the requests about batches of one broker."""

    def __init__(
        self,
        context: BrokerContext,
        transactions: TransactionHandler,
        ends: BatchEnds,
        gate: AccessGate,
    ) -> None:
        self._control = context.control
        self._transactions = transactions
        self._ends = ends
        self._gate = gate
        self._pending_replies = context.pending_replies
        self._recorder = context.recorder
        self._pressure = context.pressure
        self._policy = context.policy
        self._next_look_ms = 0
        self._troubled = False

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            GetBatchState: self.state,
            PrepareBatch: self.prepare,
            DecideBatch: self.decide,
            ResolveBatch: self.resolve,
            AbortBatch: self.abort,
        }

    # -- requests -----------------------------------------------------------------------------

    def state(self, now_ms: int, received: Received, request: GetBatchState) -> list[Effect]:
        """Reply with the state of a query (30030) as soon as that state is committed."""
        query = check_query(request.query)
        known = self._known(query)
        return self._pending_replies.decided(
            now_ms, received, [], header=lambda: self._state_response(query), body=_winners(known)
        )

    def prepare(self, now_ms: int, received: Received, request: PrepareBatch) -> list[Effect]:
        """Record that this broker has what is to be committed, and waits for the decision (30031).

        The first time, the query becomes the sender's. Raises Rejected if messages are missing, or
        if there are more than were sent, and NoPermission as `_check_user`.
        """
        query, batch = _named(request.query, request.batch)
        self._check_user(received, query)
        attempts = decode_attempts(b"".join(received.body))
        batches = self._control.batches
        messages = sum(count for _, count in attempts.values())
        # The half messages of a resolved batch are gone, and need not be there.
        if batches.resolved(query) < batch:
            halves = self._transactions.halves.batches
            for partition, (attempt, count) in attempts.items():
                held = halves.held(query, (batch, partition, check_attempt(attempt)))
                if held != count:
                    raise Rejected(
                        f"this broker has {held} messages of partition {partition} of batch "
                        f"{batch}, but {count} were sent",
                        hint="write the batch again",
                    )
        if not request.coordinator:
            raise BadRequest(
                "the coordinator is missing: name the broker that decides about the batch"
            )
        user = self._gate.sender(received)
        events = rules.decide_prepare(batches, query, batch, request.coordinator, messages, user)
        return self._pending_replies.decided(
            now_ms, received, events, header=lambda: self._state_response(query)
        )

    def decide(self, now_ms: int, received: Received, request: DecideBatch) -> list[Effect]:
        """Commit a batch (30032). If it was decided before, the reply repeats that decision.

        Raises NoPermission as `_check_user`.
        """
        query, batch = _named(request.query, request.batch)
        self._check_user(received, query)
        wanted = decode_decision(b"".join(received.body))
        for attempt in wanted.winners.values():
            check_attempt(attempt)
        events = rules.decide_winners(
            self._control.batches,
            self._policy.broker_name,
            query,
            batch,
            wanted.winners,
            wanted.counts,
        )
        known = BatchQuery("", decided=batch, winners=wanted.winners, counts=wanted.counts)
        state = known if events else self._known(query)
        return self._pending_replies.decided(
            now_ms,
            received,
            events,
            header=lambda: self._state_response(query),
            body=_winners(state),
        )

    def resolve(self, now_ms: int, received: Received, request: ResolveBatch) -> list[Effect]:
        """Store the winners and discard the rest, up to and including this batch (30033).

        If no batch of the query was prepared here, it is not known whose messages they are: then
        this needs Update on the cluster. Raises NoPermission.
        """
        query, batch = _named(request.query, request.batch)
        self._check_user(received, query)
        batches, broker = self._control.batches, self._policy.broker_name
        rules.check_resolve(batches, broker, query, batch)
        decision = decode_decision(b"".join(received.body))
        done = batches.resolved(query) >= batch

        def wins(part: BatchPart) -> bool:
            number, partition, attempt = part.key
            return not done and number == batch and decision.winners.get(partition) == attempt

        parts = [
            part
            for part in self._transactions.halves.batches.of_query(query)
            if part.batch <= batch
        ]
        if parts and query not in batches.table:
            self._gate.need(received, _CHANGE_CLUSTER)
        header = self._step(parts, wins, received.wall_ms)
        events: list[Event] = []
        if not header.left:
            events = rules.decide_resolved(batches, broker, query, batch, last=request.last)
        return self._pending_replies.decided(now_ms, received, events, header=header)

    def abort(self, now_ms: int, received: Received, request: AbortBatch) -> list[Effect]:
        """Discard the half messages of attempts that their writers gave up (30034)."""
        query, attempts = check_query(request.query), check_attempt(request.attempts)
        parts = [
            part
            for part in self._transactions.halves.batches.of_query(query)
            if part.key[2].startswith(attempts)
            and not self._control.batches.waits(query, part.batch)
        ]
        header = self._step(parts, lambda _: False, received.wall_ms)
        return self._pending_replies.decided(now_ms, received, [], header=header)

    def _check_user(self, received: Received, query: str) -> None:
        """Raise NoPermission unless the query is the sender's, or may become it.

        It may if the sender may send to the topic of its first half message here, or to some topic
        while there is none: a query's coordinator need not have messages. Update on the cluster is
        enough for any query. The gate decides before an earlier request of the same batch is
        handled, so it may not know yet whose the query is.
        """
        known = self._control.batches.table.get(query)
        owner = "" if known is None else known.user
        sender = self._gate.sender(received)
        if not sender or sender == owner:
            return
        if not self._gate.may(received, _CHANGE_CLUSTER):
            self._gate.need(received, _CHANGE_CLUSTER if owner else self._need_to_begin(query))

    def _need_to_begin(self, query: str) -> Need | AnyOf:
        parts = self._transactions.halves.batches.of_query(query)
        if not parts:
            return _PUB_SOMEWHERE
        [(_, position)] = min(parts, key=lambda part: part.first_offset).first(1)
        topic, _ = self._transactions.read(position).real_target
        return need_of_topic(topic, Action.PUB)

    # -- cleanup ----------------------------------------------------------------------------------

    def tick(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """Discard half messages that are late or timed out, and forget unused queries."""
        if now_ms < self._next_look_ms or self._pressure.refusing:
            return []
        self._next_look_ms = now_ms + LOOK_MS
        try:
            warnings = self._discard_unwanted(now_ms, wall_ms)
            before_ms = wall_ms - self._policy.batch_memory_hours * HOUR_MS
            forgotten = rules.decide_forget(self._control.batches, before_ms)
            self._recorder.record(forgotten, Cause("broker", "no longer used"), wall_ms)
        except KourouError as error:
            # Nothing is lost: the next cleanup retries it.
            was_troubled, self._troubled = self._troubled, True
            if was_troubled:
                return []
            return [
                LogWarning(
                    "batch-discard-failed: the remains of batches cannot be discarded: %(error)s",
                    {"error": error},
                )
            ]
        self._troubled = False
        return warnings

    def _discard_unwanted(self, now_ms: int, wall_ms: int) -> list[Effect]:
        halves, batches = self._transactions.halves.batches, self._control.batches
        warnings: list[Effect] = []
        unwanted: list[BatchPart] = []
        for query in halves.queries():
            resolved = batches.resolved(query)
            for part in halves.of_query(query):
                late = part.batch <= resolved
                age_ms = now_ms - part.since_ms
                silent = age_ms > self._policy.batch_timeout_ms
                if late or (silent and not batches.waits(query, part.batch)):
                    unwanted.append(part)
                if silent and not late and unwanted and unwanted[-1] is part:
                    warnings.append(
                        LogWarning(
                            "batch-discarded: batch %(batch)d of query %(query)s: %(messages)d "
                            "half messages are discarded, because they were not committed within "
                            "%(age_s)d s",
                            {
                                "batch": part.batch,
                                "query": query,
                                "messages": len(part),
                                "age_s": age_ms // 1000,
                            },
                        )
                    )
        self._step(unwanted, lambda _: False, wall_ms)
        return warnings

    # -- a bounded part of the work ---------------------------------------------------------------

    def _step(
        self, parts: list[BatchPart], wins: Callable[[BatchPart], bool], wall_ms: int
    ) -> BatchStepResponse:
        """End a bounded number of half messages; parts for which `wins` is true are stored."""
        room = BATCH_STEP_MESSAGES_MAX
        committed = discarded = 0
        for part in parts:
            if room <= 0:
                break
            if wins(part):
                done = self._ends.commit(part, room, wall_ms)
                committed += done
                room = room - done if not len(part) else 0  # its bytes may have filled the step
            else:
                done = self._ends.discard(part, room, wall_ms)
                discarded += done
                room -= done
        left = sum(map(len, parts))
        return BatchStepResponse(committed=committed, discarded=discarded, left=left)

    def _known(self, query: str) -> BatchQuery:
        return self._control.batches.table.get(query) or BatchQuery("")

    def _state_response(self, query: str) -> BatchStateResponse:
        known = self._known(query)
        return BatchStateResponse(
            broker_name=self._policy.broker_name,
            coordinator=known.coordinator,
            prepared=known.prepared,
            decided=known.decided,
            resolved=known.resolved,
        )


def _named(query: str, batch: int) -> tuple[str, int]:
    if batch <= NONE:
        raise BadRequest(f"{batch} is not a batch number")
    return check_query(query), batch


def _winners(known: BatchQuery) -> list[bytes]:
    if known.decided <= known.resolved:
        return []
    return [encode_decision(known.winners, known.counts)]


class BatchEnds:
    """Ends half messages of one broker; `host` is the broker's encoded address.

    As in any transaction, a message precedes the op record that ends its half message, and a step
    is one append. Truncating the log keeps the order. So of one part, at most the first open half
    message can have its message stored already. The broker looks for that message by its key, once.
    """

    def __init__(
        self, context: BrokerContext, transactions: TransactionHandler, log: BatchLog
    ) -> None:
        self._transactions = transactions
        self._redirects = context.redirects
        self._log = log
        self._host = context.host

    def commit(self, part: BatchPart, count_max: int, wall_ms: int) -> int:
        """Store the messages of the first half messages of a part; return how many.

        At least one is stored if `count_max` allows one. Raises TopicNotFound, DiskFull, Throttled,
        Corrupt; half messages that could not be committed stay as they were.
        """
        done = self._commit_many(part, count_max, wall_ms) if part.proven else 0
        return done or self._commit_singly(part, count_max, wall_ms)

    def _commit_many(self, part: BatchPart, count_max: int, wall_ms: int) -> int:
        """Like `commit`, in one pass; return 0 and change nothing if a special case occurs."""
        transactions = self._transactions
        stored = self._log.read(part, count_max)
        if stored is None:
            return 0
        targets = [transactions.target_now(*target) for target in stored.real]
        messages = stored.committed(targets)
        fitting = np.cumsum(list(map(len, messages))).searchsorted(FRAME_RECORD_BYTES_MAX, "right")
        done = max(1, int(fitting))
        born_ms = max(transactions.store_ms, wall_ms)
        offsets = [offset for offset, _ in part.first(done)]
        ops = [operation(offset, born_ms, self._host) for offset in offsets]
        self._log.append_pairs(messages[:done], targets, stored.real_of[:done], ops, part, wall_ms)
        transactions.count_batch(COMMIT, done, stored.topics(done))
        return done

    def _commit_singly(self, part: BatchPart, count_max: int, wall_ms: int) -> int:
        """Like `commit`, message by message."""
        transactions = self._transactions
        born_ms = max(transactions.store_ms, wall_ms)
        drafts: list[tuple[Target, bytes]] = []
        topics: Counter[str] = Counter()
        size_bytes = done = 0
        for offset, position in part.first(count_max):
            try:
                record = transactions.read(position)
            except Rejected as error:
                raise Corrupt(
                    f"the half message at queue offset {offset} of a committed batch is "
                    f"missing: {error}"
                ) from error
            proven, part.proven = part.proven, True
            if proven or not self._was_committed(record):
                target, draft = self._final(record)
                if done and size_bytes + len(draft) > FRAME_RECORD_BYTES_MAX:
                    break
                size_bytes += len(draft)
                drafts.append((target, draft))
            topics[record.real_target[0]] += 1
            drafts.append((OP_TARGET, operation(offset, born_ms, self._host)))
            done += 1
        if done:
            self._log.append_ends(drafts, part, done, wall_ms)
            transactions.count_batch(COMMIT, done, topics)
        return done

    def discard(self, part: BatchPart, count_max: int, wall_ms: int) -> int:
        """Discard the first half messages of a part; return how many."""
        transactions = self._transactions
        born_ms = max(transactions.store_ms, wall_ms)
        drafts = [
            (OP_TARGET, operation(offset, born_ms, self._host))
            for offset, _ in part.first(count_max)
        ]
        if drafts:
            self._log.append_ends(drafts, part, len(drafts), wall_ms)
            transactions.count_batch(ROLLBACK, len(drafts), {})
        return len(drafts)

    def _final(self, record: HalfRecord) -> tuple[Target, bytes]:
        """Return the final message and its queue: the message's own queue, or a delay queue."""
        target = self._transactions.final_target(record)
        mark = record.mark
        level = 0 if mark is None else mark.delay_level
        draft = committed(record, target[1])
        if not level:
            return target, draft
        moved, place = self._redirects.delayed(draft, target, level)
        return place, moved

    def _was_committed(self, record: HalfRecord) -> bool:
        mark = record.mark
        if mark is not None and mark.delay_level:
            waiting = self._transactions.has_copy(record, SCHEDULE_TOPIC, COMMIT)
            return waiting or self._transactions.committed_copy(record)
        return self._transactions.committed_copy(record)
