"""Ends the half messages of a batch, a few at a time: they are stored in their queues or discarded.

As in any transaction, a message precedes the op record that ends its half message, and a step is
one append. Truncating the log keeps the order. So of one part, at most the first open half message
can have its message stored already. The broker looks for that message by its key, once.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from kourou.engine.sends.appends import Target
from kourou.engine.sends.topic_rewrite import Redirects
from kourou.engine.transactions.batch_halves import BatchPart
from kourou.engine.transactions.batch_log import BatchLog
from kourou.engine.transactions.half_messages import (
    COMMIT,
    OP_TARGET,
    ROLLBACK,
    HalfRecord,
    committed,
    operation,
)
from kourou.engine.transactions.transaction_handler import Transactions
from kourou.errors import Corrupt, Rejected
from kourou.model.limits import FRAME_RECORD_BYTES_MAX
from kourou.model.names import SCHEDULE_TOPIC


class BatchEnds:
    """Ends half messages of one broker; `host` is the broker's encoded address."""

    def __init__(
        self, transactions: Transactions, redirects: Redirects, log: BatchLog, host: bytes
    ) -> None:
        self._transactions = transactions
        self._redirects = redirects
        self._log = log
        self._host = host

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
