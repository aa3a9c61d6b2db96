"""Spark's readers: a batch's partitions, a stream's offsets, and the rows of each partition.

A reader is pickled for every task, so it contains values only; connections to brokers are opened on
first use.

A range of a queue is read from its broker with several pulls in flight at a time, so the start of
the next one is predicted: a pull requests as many messages as fit into a reply, by the sizes of the
previous ones. If fewer arrive, the rest is requested and read first, so rows keep their order. The
broker verified the records when it read them. Only their structure is checked here: checksums would
cost as much as everything else.

State: soft. A stream's progress is in Spark's checkpoint. The group's offsets at the brokers are
committed for operators, and never read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource import Filter as SparkFilter
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kourou.client.consumer.puller import Pulled, Puller, PullParams
from kourou.client.filters.expressions import subscription_of
from kourou.client.filters.pulls import failure_of
from kourou.client.filters.python_filter import Filter
from kourou.client.settings.consumer_settings import FilterFailover
from kourou.clock import SystemClock
from kourou.errors import (
    Code,
    Corrupt,
    FilterFailed,
    KourouError,
    Rejected,
    TimedOut,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
    error_from_code,
)
from kourou.model.filter import FilterFailure
from kourou.model.limits import PULL_SIZE_BYTES_MAX
from kourou.model.topic import MessageQueue
from kourou.protocol.record.columns import RecordColumns, scan
from kourou_spark_etl.source.arrow_rows import ArrowRows
from kourou_spark_etl.source.network import NetworkFacts, OpenClient
from kourou_spark_etl.source.offsets import OffsetSpan, QueueOffsets, next_end
from kourou_spark_etl.source.options import DEFAULT_GROUP, Edge, ReadOptions
from kourou_spark_etl.source.ranges import (
    Narrowed,
    OffsetFacts,
    QueueRange,
    lost,
    offsets_at,
    planned,
    subscribed,
)
from kourou_spark_etl.source.store_reader import StoreFacts, read_store_range

# -- a range of a queue, from its broker ----------------------------------------------------------

HOLD_MS = 2_000
"""The long-poll time for messages that the broker has but has not committed yet."""

PULL_TIMEOUT_MS = 15_000
_FILTER_STAYS = frozenset(
    {
        FilterFailure.MISSING,
        FilterFailure.DISABLED,
        FilterFailure.QUARANTINED,
        FilterFailure.RAISED,
    }
)
"""Filter failures that a repeated request does not resolve."""

RETRY_MS_MIN = 20
RETRY_MS_MAX = 1_000


@dataclass(slots=True)
class _PendingPull:
    """A pull in flight for the offsets [begin, until)."""

    begin: int
    until: int
    answer: Callable[[], Pulled | None]


def read_range(
    options: ReadOptions, part: QueueRange, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in order. Opens a client, and closes it at the end."""
    with OpenClient(options.name_servers) as client:
        yield from _RangeRead(client, options, part, columns).batches()


class _RangeRead:
    def __init__(
        self,
        client: OpenClient,
        options: ReadOptions,
        part: QueueRange,
        columns: tuple[str, ...],
    ) -> None:
        self._client = client
        self._options = options
        self._part = part
        self._queue = part.queue
        session = client.session
        group = options.group or DEFAULT_GROUP
        self._subscription = subscription_of(
            part.topic, options.wanted, version=session.clock.now_ms()
        )
        filters = None
        if isinstance(options.wanted, Filter):
            filters = session.filter_pulls(group, FilterFailover.ANOTHER)
            filters.uploads.want(options.wanted)
        self._puller = Puller(
            group, session.connections, session.routes, session.clock, filters=filters, raw=True
        )
        self._rows = ArrowRows(columns, self._subscription.tags)
        self._step = options.pull_batch_size
        self._measured = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; one batch for each pull."""
        flights: deque[_PendingPull] = deque()
        planned = self._part.begin
        while flights or planned < self._part.end:
            # One pull at a time until sizes are known: the start of the next one would be a guess.
            window = self._options.pull_window if self._measured else 1
            while planned < self._part.end and len(flights) < window:
                until = min(self._part.end, planned + self._step)
                flights.append(self._launch(planned, until))
                planned = until
            flight = flights.popleft()
            pulled = flight.answer()
            if pulled is None:
                continue  # lost messages, which are skipped
            done = min(pulled.next_offset, flight.until)
            self._learn(flight, done, pulled)
            if done < flight.until:
                flights.appendleft(self._launch(done, flight.until))
            if pulled.body is not None and len(pulled.body):
                yield from self._rows_of(pulled.body, flight)

    def _launch(self, begin: int, until: int) -> _PendingPull:
        return _PendingPull(begin, until, self._client.submit(self._pull(begin, until)))

    def _learn(self, flight: _PendingPull, done: int, pulled: Pulled) -> None:
        """Adapt the pull size to the reply: nine tenths of what fits."""
        self._measured = True
        asked, came = flight.until - flight.begin, done - flight.begin
        size = 0 if pulled.body is None else len(pulled.body)
        if came < asked:
            self._step = max(1, came * 9 // 10)
        elif asked >= self._step and size < PULL_SIZE_BYTES_MAX * 7 // 10:
            self._step = min(self._options.pull_batch_size, self._step * 5 // 4 + 1)

    def _rows_of(self, body: memoryview, flight: _PendingPull) -> Iterator[pa.RecordBatch]:
        records = self._checked(body, flight)
        # A filter may return messages beyond the requested range.
        if len(records) and int(records.queue_offsets[-1]) >= flight.until:
            records = records.select(records.queue_offsets < flight.until)
        if len(records):
            batch = self._rows.batch(self._queue, records)
            if batch.num_rows:
                yield batch

    def _checked(self, body: memoryview, flight: _PendingPull) -> RecordColumns:
        records = scan(body)
        offsets = records.queue_offsets
        if int(records.sizes.sum()) != len(body):
            raise Corrupt(f"{self._queue!s}: a pull ends with bytes that are not a record")
        if (records.queue_ids != self._queue.queue_id).any():
            raise Corrupt(f"a pull of {self._queue!s} returned messages of another queue")
        if int(offsets[0]) < flight.begin or (np.diff(offsets) <= 0).any():
            raise Corrupt(f"{self._queue!s}: the offsets of a pull do not ascend")
        return records

    # -- one pull, on the client's thread ---------------------------------------------------------

    async def _pull(self, begin: int, until: int) -> Pulled | None:
        """Pull until a reply advances beyond `begin`; None for lost messages, which are skipped.

        Retries while a broker does not reply, or has not committed its messages, for up to
        `readTimeoutMs`.
        """
        clock = self._client.session.clock
        end_ms = clock.monotonic_ms() + self._options.read_timeout_ms
        pause_ms = RETRY_MS_MIN
        failure: KourouError | None = None
        while (left_ms := end_ms - clock.monotonic_ms()) > 0:
            timeout_ms = min(PULL_TIMEOUT_MS, left_ms)
            params = PullParams(
                until - begin,
                PULL_SIZE_BYTES_MAX,
                min(HOLD_MS, timeout_ms // 2),
                timeout_ms,
            )
            try:
                pulled = await self._puller.pull(self._queue, begin, self._subscription, params)
                if pulled.code in (Code.SUCCESS, Code.PULL_RETRY_IMMEDIATELY):
                    if pulled.next_offset > begin:
                        return pulled
                    failure = Unavailable(
                        f"{self._queue!s}: the broker does not advance beyond offset {begin}"
                    )
                elif pulled.code == Code.PULL_NOT_FOUND:
                    failure = Unavailable(f"the queue ends at {pulled.max_offset} at the broker")
                else:
                    return await self._other(pulled, begin, until)
            except (Unavailable, UnknownOutcome) as error:
                if isinstance(error, FilterFailed) and error.kind in _FILTER_STAYS:
                    raise
                failure = error
                self._client.session.routes.stale(self._queue.topic)
            except Rejected as error:
                if not await self._is_gone(error):
                    raise
                self._lost(f"{self._queue!s} does not exist any more: {error}")
                return None
            await asyncio.sleep(min(pause_ms, left_ms) / 1_000)
            pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
        raise TimedOut(
            f"{self._queue!s}@{begin} could not be read within "
            f"{self._options.read_timeout_ms} ms: {failure}",
            hint="check that its broker is online; the option 'readTimeoutMs' sets the time limit",
        )

    async def _other(self, pulled: Pulled, begin: int, until: int) -> Pulled | None:
        """Handle a reply without messages."""
        if pulled.code == Code.PULL_OFFSET_MOVED:
            span = f"{pulled.min_offset} to {pulled.max_offset}"
            if not (self._part.fresh and begin < pulled.min_offset):
                self._lost(
                    f"{self._queue!s} has offsets {span}; the messages from {begin} on were "
                    "deleted before they were read"
                )
            if not begin < pulled.next_offset < until:
                return None
            return pulled
        if pulled.code == Code.MESSAGE_CORRUPT:
            self._lost(f"{self._queue!s} is damaged at {begin}: {pulled.remark}")
            return pulled if pulled.next_offset > begin else None
        if pulled.code == Code.FILTER_FAILED:
            raise failure_of(self._queue, pulled)
        raise error_from_code(pulled.code, pulled.remark)

    def _lost(self, message: str) -> None:
        lost(message, fail=self._options.fail_on_data_loss)

    async def _is_gone(self, error: Rejected) -> bool:
        """Whether the topic was deleted, or has fewer queues now."""
        if isinstance(error, TopicNotFound):
            return True
        try:
            known = await self._client.session.routes.refresh(self._queue.topic)
        except TopicNotFound:
            return True
        return self._queue not in known.readable


_log = logging.getLogger("kourou.spark")


# -- readers --------------------------------------------------------------------------------------


def facts_of(options: ReadOptions) -> OffsetFacts:
    """The information source that the options select."""
    if options.path is not None:
        return StoreFacts(options.path, options.broker_name)
    return NetworkFacts(options.name_servers, options.group)


def rows_of(
    options: ReadOptions, part: InputPartition, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; none for the placeholder that Spark creates for an empty batch."""
    if not isinstance(part, QueueRange):
        return iter(())
    if options.path is not None:
        return read_store_range(options, part, columns)
    return read_range(options, part, columns)


class BatchReader(DataSourceReader):
    """All messages between two places, as of the start of the query."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._narrowed = Narrowed(by_time=options.path is None)

    def pushFilters(self, filters: list[SparkFilter]) -> Iterator[SparkFilter]:
        """Apply filters on queues and offsets; Spark tests the returned ones row by row."""
        return self._narrowed.take(filters)

    def partitions(self) -> list[InputPartition]:
        """The ranges to read, by the brokers' current offsets."""
        options = self._options
        facts = facts_of(options)
        try:
            spans = subscribed(options, facts, all_of=True)
            start = offsets_at(
                options.starting or Edge.EARLIEST, spans, facts, option="startingOffsets"
            )
            end = offsets_at(options.ending or Edge.LATEST, spans, facts, option="endingOffsets")
            for queue, span in spans.items():
                self._check(queue, span, start[queue], end[queue])
            start, end = self._narrowed.narrow(start, end, facts)
        finally:
            facts.close()
        return [*planned(start, end, options.min_partitions)]

    def _check(self, queue: MessageQueue, span: OffsetSpan, start: int, end: int) -> None:
        fail = self._options.fail_on_data_loss
        if start < span.low:
            lost(f"{queue!s} starts at offset {span.low}, the read at {start}", fail=fail)
        if end > span.high:
            lost(f"{queue!s} ends at {span.high}, the read at {end}", fail=fail)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one range."""
        return rows_of(self._options, partition, self._columns)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of messages. Offsets are those of Spark's checkpoint."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._target: dict[MessageQueue, OffsetSpan] | None = None
        self._clock = SystemClock()
        self._heard_ms = self._clock.monotonic_ms()
        self._known_facts: OffsetFacts | None = None
        self._committed: QueueOffsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For tasks: the options only; connections stay in this process."""
        return {**self.__dict__, "_known_facts": None}

    @property
    def _facts(self) -> OffsetFacts:
        if self._known_facts is None:
            self._known_facts = facts_of(self._options)
        return self._known_facts

    # -- offsets ----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """The start of a query without a checkpoint."""
        options = self._options
        spans = subscribed(options, self._facts, all_of=True)
        place = options.starting or Edge.LATEST
        start = offsets_at(place, spans, self._facts, option="startingOffsets")
        for queue, span in spans.items():
            if not span.low <= start[queue] <= span.high:
                self._lost(queue, start[queue], span)
        return start.tree()

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`, or no limit."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the current ends of the queues."""
        self._target = subscribed(self._options, self._facts, all_of=True)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch. Everything before `start` is processed, so it is committed."""
        begin = QueueOffsets.of_tree(start, what="the offsets of the checkpoint")
        self._commit_group(begin)
        spans = self._target if self._target is not None else self._spans()
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_end(begin, spans, count, self._lost).tree()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of all queues, for Spark's metrics."""
        return QueueOffsets({queue: span.high for queue, span in self._spans().items()}).tree()

    def _spans(self) -> dict[MessageQueue, OffsetSpan]:
        """The ranges of the queues; empty while no broker replies, for up to the read timeout."""
        try:
            spans = subscribed(self._options, self._facts, all_of=False)
        except (Unavailable, UnknownOutcome) as error:
            silent_ms = self._clock.monotonic_ms() - self._heard_ms
            if silent_ms > self._options.read_timeout_ms:
                raise
            _log.warning(
                "brokers-silent: brokers did not respond for %(silent_ms)d ms: %(error)s",
                {"silent_ms": silent_ms, "error": error},
            )
            return {}
        self._heard_ms = self._clock.monotonic_ms()
        return spans

    def _lost(self, queue: MessageQueue, begin: int, span: OffsetSpan) -> None:
        lost(
            f"{queue!s} has offsets {span.low} to {span.high}, but the next offset to "
            f"read is {begin}",
            fail=self._options.fail_on_data_loss,
        )

    # -- batches ----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a batch; they depend on these two offsets and `minPartitions` alone."""
        return [
            *planned(
                QueueOffsets.of_tree(start), QueueOffsets.of_tree(end), self._options.min_partitions
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one range."""
        return rows_of(self._options, partition, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` is processed: commit it for the group."""
        self._commit_group(QueueOffsets.of_tree(end))

    def stop(self) -> None:
        """Close all connections."""
        facts, self._known_facts = self._known_facts, None
        if facts is not None:
            facts.close()

    def _commit_group(self, done: QueueOffsets) -> None:
        """Commit for the group. A failure does not fail the query: the offsets are informative."""
        if not self._options.group or (
            self._committed is not None and self._committed.text() == done.text()
        ):
            return
        before: Mapping[MessageQueue, int] = self._committed or {}
        try:
            self._facts.commit(
                {queue: offset for queue, offset in done.items() if before.get(queue) != offset}
            )
        except KourouError as error:
            _log.warning(
                "progress-commit-failed: the offsets of group %(group)s could not be committed: "
                "%(error)s",
                {"group": self._options.group, "error": error},
            )
            return
        self._committed = done
