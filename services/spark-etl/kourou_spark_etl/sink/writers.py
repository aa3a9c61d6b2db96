"""The writers that Spark runs: `write` in tasks, `commit` and `abort` on the driver.

A stream's batch is (ID of the query, number of the batch), both from Spark's checkpoint, so a batch
that is repeated after a crash has the same name. A batch write is a query of its own with one
batch, unless the options name it (txnAppId, txnVersion). Every run of a task is an attempt with a
unique name; Spark reports one attempt of each partition to the driver, and that one wins.

State: none but the ID of a batch write, which is sent to its tasks with the writer.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kourou.client.session.routes import QueueMap
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import KourouError, Unavailable
from kourou.model.transaction import BatchMark
from kourou_spark_etl.sink.columns import rows_of
from kourou_spark_etl.sink.commits import BatchCommits, Written
from kourou_spark_etl.sink.draft_columns import drafts_of, topics_of
from kourou_spark_etl.sink.messages import Messages
from kourou_spark_etl.sink.options import WriteOptions
from kourou_spark_etl.sink.sender import Sender
from kourou_spark_etl.source.network import OpenClient

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"
"""The property that Spark sets for every task of a stream."""

_log = logging.getLogger("kourou.spark")


@dataclass
class TaskDone(WriterCommitMessage):
    """A task's report to the driver. `relied`: it wrote no rows, because the batch was decided."""

    query: str
    batch: int
    partition: int
    attempt: str
    counts: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    relied: bool = False


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("kourou").save()`."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._query = options.app_id or f"job-{uuid.uuid4().hex}"
        self._batch = options.app_version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Write one attempt at one partition."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return write_partition(
            self._options, self._columns, iterator, (self._query, self._batch), partition
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit, after all partitions are written."""
        _commit(self._options, _done(messages), last=not self._options.app_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job failed: discard everything, including messages of dead tasks."""
        prefix = "" if self._options.app_id else "t"
        attempts = [prefix] if prefix else [one.attempt for one in _done(messages)]
        _abort(self._options, self._query, self._batch, attempts, for_good=not self._options.app_id)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("kourou").start()`."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Write one attempt at one partition of a batch."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_PROPERTY)
        batch = None if context is None else context.getLocalProperty(BATCH_PROPERTY)
        if context is None or not query or not batch:
            raise Unavailable("Spark did not pass the query and batch to the task")
        name = query, int(batch)
        return write_partition(self._options, self._columns, iterator, name, context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a batch, after all its partitions are written."""
        _commit(self._options, _done(messages), last=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task or the commit failed. Messages of dead tasks are discarded at the next commit."""
        done = _done(messages)
        if done:
            attempts = [one.attempt for one in done]
            _abort(self._options, done[0].query, batchId, attempts, for_good=False)


def write_partition(
    options: WriteOptions,
    columns: tuple[str, ...],
    batches: Iterator[pa.RecordBatch],
    name: tuple[str, int],
    partition: int,
) -> TaskDone:
    """Send the rows of one partition of the batch (query, batch).

    Raises KourouError; then the attempt never counts.
    """
    query, batch = name
    attempt = f"t{uuid.uuid4().hex}"
    done = TaskDone(query, batch, partition, attempt)
    with OpenClient(options.name_servers) as client:
        mark = None
        if options.exactly_once:
            known = client.run(_commits(client, options, query).look())
            if known.is_decided(batch):
                for _ in batches:  # consume the rows that Spark still sends
                    pass
                done.relied = True
                return done
            mark = BatchMark(query, batch, partition, attempt)
        clock = client.session.clock
        messages = Messages(options, mark, clock.now_ms(), random.SystemRandom())
        sender = Sender(client, options.send_timeout_ms)
        for rows in batches:
            _put(client, rows, columns, messages, sender, done.rows)
            done.rows += rows.num_rows
        sender.finish()
    done.counts = dict(sender.counts)
    return done


def _put(
    client: OpenClient,
    rows: pa.RecordBatch,
    columns: tuple[str, ...],
    messages: Messages,
    sender: Sender,
    first: int,
) -> None:
    """Send the rows of an Arrow batch, if possible as columns; the first row has number `first`."""

    def learn(topic: str) -> None:
        if not messages.knows(topic):
            messages.learn(client.run(_route(client, topic)))

    topics = topics_of(rows, columns, messages)
    for topic in topics or ():
        learn(topic)
    made = drafts_of(rows, columns, messages) if topics else None
    if made is not None:
        for one in made:
            sender.put_many(one)
        return
    for number, row in enumerate(rows_of(rows, columns), first):
        topic = messages.topic_of(row, number)
        learn(topic)
        sender.put(*messages.draft(row, topic, number))


async def _route(client: OpenClient, topic: str) -> QueueMap:
    settings = ProducerSettings()
    return await client.session.routes.find(
        topic,
        default_topic=settings.create_topic_key,
        default_queue_nums=settings.default_topic_queue_nums,
    )


def _commits(client: OpenClient, options: WriteOptions, query: str) -> BatchCommits:
    return BatchCommits(
        client.session,
        query,
        timeout_ms=options.commit_timeout_ms,
        coordinator=options.coordinator,
    )


def _done(messages: Sequence[WriterCommitMessage | None]) -> list[TaskDone]:
    return [one for one in messages if isinstance(one, TaskDone)]


def _commit(options: WriteOptions, done: list[TaskDone], *, last: bool) -> None:
    if not options.exactly_once or not done:
        return
    written = [Written(one.partition, one.attempt, one.counts) for one in done]
    relied = any(one.relied for one in done)
    with OpenClient(options.name_servers) as client:
        commits = _commits(client, options, done[0].query)
        client.run(commits.commit(done[0].batch, written, relied=relied, last=last))


def _abort(
    options: WriteOptions, query: str, batch: int, attempts: list[str], *, for_good: bool
) -> None:
    if not options.exactly_once or not attempts:
        return
    try:
        with OpenClient(options.name_servers) as client:
            commits = _commits(client, options, query)
            if client.run(commits.abort(batch, attempts, for_good=for_good)):
                _log.warning("batch %d of query %s was committed nevertheless", batch, query)
    except KourouError as error:
        # The job's own error is reported already; brokers discard the messages after a timeout.
        _log.warning(
            "the messages of batch %d of query %s are discarded later: %s", batch, query, error
        )
