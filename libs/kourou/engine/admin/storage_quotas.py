"""Refuses sends to topics whose messages take more than a quota of stored bytes.

A topic's stored bytes are the records in the log that its queues still refer to; those of a user
are the ones of all topics that it created. They become fewer only as retention deletes old
messages, or an operator a topic, so a refusal is an error, not a delay. What a broker stores by
itself is not refused: retries, dead letters, messages that are due, the ends of transactions.

Topics are measured every LOOK_MS, so a topic may exceed its quota by what arrives in that time.

State: soft, bounded by the queues of limited topics. After a start the broker counts again, at most
UNITS_PER_LOOK messages at a time; what is not counted yet is not there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping

from kourou.engine.admin.quota_gate import QuotaOutcome
from kourou.engine.context import BrokerContext
from kourou.engine.ports import StoreView
from kourou.errors import Rejected
from kourou.model.quota import Quota, QuotaKey, QuotaKind, QuotaUnit
from kourou.runtime import LogWarning

LOOK_MS = 1_000
BLOCK_UNITS = 1 << 16
"""Sums are kept by blocks of so many messages, so a deletion costs one block, not the queue."""

UNITS_PER_LOOK = 16 * BLOCK_UNITS
"""At most so many messages are counted at a time: 20 MB of queue files, a few milliseconds."""


class StoredQueue:
    """The stored bytes of one queue: sums of its blocks from `first` to `next`."""

    __slots__ = ("_blocks", "first", "next", "size_bytes")

    def __init__(self, first: int) -> None:
        self.first = self.next = first
        self.size_bytes = 0
        self._blocks: deque[int] = deque()

    def drop_before(self, first: int, measure: Callable[[int, int], int]) -> None:
        """Note that messages below offset `first` were deleted."""
        block = first // BLOCK_UNITS
        for _ in range(min(len(self._blocks), block - self.first // BLOCK_UNITS)):
            self.size_bytes -= self._blocks.popleft()
        self.first = first
        self.next = max(self.next, first)
        if self._blocks:
            rest = measure(first, min(self.next, (block + 1) * BLOCK_UNITS))
            self.size_bytes += rest - self._blocks[0]
            self._blocks[0] = rest

    def count_to(self, end: int, units_max: int, measure: Callable[[int, int], int]) -> int:
        """Count messages below offset `end`; return how many, at most `units_max`."""
        before = self.next
        end = min(end, before + units_max)
        while self.next < end:
            block = self.next // BLOCK_UNITS
            until = min(end, (block + 1) * BLOCK_UNITS)
            found = measure(self.next, until)
            if block - self.first // BLOCK_UNITS == len(self._blocks):
                self._blocks.append(0)
            self._blocks[-1] += found
            self.size_bytes += found
            self.next = until
        return self.next - before


class StoredBytes:
    """The stored bytes of topics, as far as they are counted."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._queues: dict[tuple[str, int], StoredQueue] = {}
        self._left = 0

    def begin(self, topics: Iterable[str]) -> None:
        """Begin a look at these topics; others are forgotten."""
        known = set(topics)
        self._queues = {key: one for key, one in self._queues.items() if key[0] in known}
        self._left = UNITS_PER_LOOK

    def of(self, topic: str) -> int:
        """Count what is new, within the limit of this look, and return the topic's bytes."""
        return sum(self._of_queue(topic, queue_id) for queue_id in self._view.queue_ids(topic))

    def _of_queue(self, topic: str, queue_id: int) -> int:
        first, end = self._view.queue_range(topic, queue_id) or (0, 0)
        queue = self._queues.get((topic, queue_id))
        if queue is None or first < queue.first or end < queue.next:  # another queue by now
            queue = self._queues[topic, queue_id] = StoredQueue(first)

        def measure(begin: int, until: int) -> int:
            return self._view.queue_bytes(topic, queue_id, begin, until)

        if first > queue.first:
            queue.drop_before(first, measure)
        self._left -= queue.count_to(end, self._left, measure)
        return queue.size_bytes


class StorageQuotas:
    """Which topics are over a quota of stored bytes, by the last look."""

    def __init__(
        self, context: BrokerContext, counts: MutableMapping[tuple[QuotaUnit, QuotaOutcome], int]
    ) -> None:
        self._quotas = context.control.quotas
        self._topics = context.control.topics
        self._stored = StoredBytes(context.view)
        self._counts = counts
        self._look_ms = 0
        self.full: dict[str, str] = {}
        """Why sends to these topics are refused."""

    def check(self, topic: str) -> None:
        """Raise Rejected if the topic, or the user who created it, is over its quota."""
        why = self.full.get(topic)
        if why is not None:
            self._counts[QuotaUnit.STORED_BYTES, QuotaOutcome.REFUSED] += 1
            raise Rejected(
                f"{why}; nothing was stored",
                hint="wait until old messages are deleted, delete a topic, or raise the quota: "
                "kourou quota set",
            )

    def tick(self, now_ms: int) -> Iterator[LogWarning]:
        """Look if it is time to; yields a warning for each topic that is over its quota now."""
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        before, self.full = self.full, self._topics_over()
        for topic, why in self.full.items():
            if topic not in before:
                yield LogWarning(
                    "quota-reached: sends to topic %(topic)s are refused: %(why)s",
                    {"topic": topic, "why": why},
                )

    def _topics_over(self) -> dict[str, str]:
        """Return the topics that are over a quota, and why."""
        if all(quota.stored_bytes is None for quota in self._quotas.table.values()):
            return {}
        limited = {topic: quotas for topic in self._topics.table if (quotas := self._limits(topic))}
        self._stored.begin(limited)
        used: Counter[QuotaKey] = Counter()
        for topic, quotas in limited.items():
            size_bytes = self._stored.of(topic)
            for key in quotas:
                used[key] += size_bytes
        full: dict[str, str] = {}
        for topic, quotas in limited.items():
            for (kind, name), limit in quotas.items():
                if used[kind, name] >= limit:
                    whose = f"topic {name}" if kind is QuotaKind.TOPIC else f"user {name}'s topics"
                    full[topic] = (
                        f"the messages of {whose} take {used[kind, name]} bytes at this broker, "
                        f"and the quota is {QuotaUnit.STORED_BYTES.amount(limit)}"
                    )
        return full

    def _limits(self, topic: str) -> dict[QuotaKey, int]:
        """Return the limits that the topic's messages count for."""
        names = {QuotaKind.TOPIC: topic, QuotaKind.USER: self._topics.creators.get(topic, "")}
        found: dict[QuotaKey, int] = {}
        for kind, name in names.items():
            quota: Quota | None = self._quotas.of(kind, name) if name else None
            if quota is not None and quota.stored_bytes is not None:
                found[kind, name] = quota.stored_bytes
        return found
