"""Spark's readers: a batch's partitions, a stream's offsets, and the rows of each partition.

A reader is pickled for every task, so it contains values only; connections to brokers are opened on
first use.

State: soft. A stream's progress is in Spark's checkpoint. The group's offsets at the brokers are
committed for operators, and never read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kourou.clock import SystemClock
from kourou.errors import KourouError, Unavailable, UnknownOutcome
from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.bounds import Facts, offsets_at, subscribed
from kourou_spark_etl.source.data_loss import lost
from kourou_spark_etl.source.network import NetworkFacts
from kourou_spark_etl.source.network_reader import read_range
from kourou_spark_etl.source.offsets import Offsets, Span, next_end
from kourou_spark_etl.source.options import Edge, ReadOptions
from kourou_spark_etl.source.planning import QueueRange, planned
from kourou_spark_etl.source.pushdown import Narrowed
from kourou_spark_etl.source.store_reader import StoreFacts, read_store_range

_log = logging.getLogger("kourou.spark")


def facts_of(options: ReadOptions) -> Facts:
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

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
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

    def _check(self, queue: MessageQueue, span: Span, start: int, end: int) -> None:
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
        self._target: dict[MessageQueue, Span] | None = None
        self._clock = SystemClock()
        self._heard_ms = self._clock.monotonic_ms()
        self._known_facts: Facts | None = None
        self._told: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For tasks: the options only; connections stay in this process."""
        return {**self.__dict__, "_known_facts": None}

    @property
    def _facts(self) -> Facts:
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
        begin = Offsets.of_tree(start, what="the offsets of the checkpoint")
        self._tell(begin)
        spans = self._target if self._target is not None else self._spans()
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_end(begin, spans, count, self._lost).tree()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of all queues, for Spark's metrics."""
        return Offsets({queue: span.high for queue, span in self._spans().items()}).tree()

    def _spans(self) -> dict[MessageQueue, Span]:
        """The ranges of the queues; empty while no broker replies, for up to the read timeout."""
        try:
            spans = subscribed(self._options, self._facts, all_of=False)
        except (Unavailable, UnknownOutcome) as error:
            silent_ms = self._clock.monotonic_ms() - self._heard_ms
            if silent_ms > self._options.read_timeout_ms:
                raise
            _log.warning("brokers did not respond for %d ms: %s", silent_ms, error)
            return {}
        self._heard_ms = self._clock.monotonic_ms()
        return spans

    def _lost(self, queue: MessageQueue, begin: int, span: Span) -> None:
        lost(
            f"{queue!s} has offsets {span.low} to {span.high}, but the next offset to "
            f"read is {begin}",
            fail=self._options.fail_on_data_loss,
        )

    # -- batches ----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a batch; they depend on these two offsets and `minPartitions` alone."""
        return [
            *planned(Offsets.of_tree(start), Offsets.of_tree(end), self._options.min_partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one range."""
        return rows_of(self._options, partition, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` is processed: commit it for the group."""
        self._tell(Offsets.of_tree(end))

    def stop(self) -> None:
        """Close all connections."""
        facts, self._known_facts = self._known_facts, None
        if facts is not None:
            facts.close()

    def _tell(self, done: Offsets) -> None:
        """Commit for the group. A failure does not fail the query: the offsets are informative."""
        if not self._options.group or (self._told is not None and self._told.text() == done.text()):
            return
        before: Mapping[MessageQueue, int] = self._told or {}
        try:
            self._facts.commit(
                {queue: offset for queue, offset in done.items() if before.get(queue) != offset}
            )
        except KourouError as error:
            _log.warning(
                "the offsets of group %s could not be committed: %s", self._options.group, error
            )
            return
        self._told = done
