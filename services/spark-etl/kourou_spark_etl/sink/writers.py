"""The writers that Spark runs: `write` in tasks, `commit` and `abort` on the driver.

A stream's batch is (ID of the query, number of the batch), both from Spark's checkpoint, so a batch
that is repeated after a crash has the same name. A batch write is a query of its own with one
batch, unless the options name it (txnAppId, txnVersion). Every run of a task is an attempt with a
unique name; Spark reports one attempt of each partition to the driver, and that one wins.

The drafts of a task go to their brokers in frames, one at a time for each broker.

State: soft: the frames of a task; the ID of a batch write, which is sent to its tasks with the
writer.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kourou.client.producer.sender import worth_another_attempt
from kourou.client.session.client_session import Session
from kourou.client.session.connections import header_of
from kourou.client.session.route_table import QueueMap
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import DecodeError, KourouError, Unavailable, error_from_code
from kourou.model.limits import FRAME_RECORD_BYTES_MAX, FRAME_RECORDS_MAX
from kourou.model.transaction import BatchMark
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou.protocol.messages.sends import Target as FrameTarget
from kourou.protocol.table import STORED_BUT
from kourou_spark_etl.sink.columns import rows_of
from kourou_spark_etl.sink.commits import LONGEST_PAUSE_MS, BatchCommits, WrittenAttempt
from kourou_spark_etl.sink.draft_columns import Drafts, drafts_of, topics_of
from kourou_spark_etl.sink.messages import GROUP, DraftBuilder, DraftTarget
from kourou_spark_etl.sink.options import WriteOptions
from kourou_spark_etl.source.network import OpenClient

# -- sending drafts -------------------------------------------------------------------------------

ATTEMPT_MS = 10_000
PAUSE_MS = 50
_QUEUE_TARGETS_MAX = 65_535


class _Frame:
    """The drafts of one request to a broker."""

    __slots__ = ("address", "drafts", "queue_target_of", "queue_targets", "size_bytes")

    def __init__(self, address: str) -> None:
        self.address = address
        self.queue_targets: dict[tuple[str, int], int] = {}
        self.queue_target_of: list[int] = []
        self.drafts: list[bytes] = []
        self.size_bytes = 0

    def add(self, queue_target: tuple[str, int], draft: bytes) -> None:
        self.queue_target_of.append(
            self.queue_targets.setdefault(queue_target, len(self.queue_targets))
        )
        self.drafts.append(draft)
        self.size_bytes += len(draft)

    def extend(
        self,
        queue_targets: Sequence[tuple[str, int]],
        queue_target_of: npt.NDArray[np.int64],
        drafts: Sequence[bytes],
        size_bytes: int,
    ) -> None:
        """Add drafts of `size_bytes` in total; `target_of[i]` is the index in `queue_targets` of
        draft i.
        """
        used, which = np.unique(queue_target_of, return_inverse=True)
        own = [
            self.queue_targets.setdefault(queue_targets[number], len(self.queue_targets))
            for number in used.tolist()
        ]
        self.queue_target_of += np.asarray(own)[which].tolist()
        self.drafts += drafts
        self.size_bytes += size_bytes

    def has_room(self, size_bytes: int) -> bool:
        if not self.drafts:
            return True
        return (
            len(self.drafts) < FRAME_RECORDS_MAX
            and len(self.queue_targets) < _QUEUE_TARGETS_MAX
            and self.size_bytes + size_bytes <= FRAME_RECORD_BYTES_MAX
        )


class Sender:
    """Sends the drafts of one task. `counts` is the number of drafts for each broker."""

    def __init__(self, client: OpenClient, timeout_ms: int) -> None:
        self._client = client
        self._session = client.session
        self._timeout_ms = timeout_ms
        self._filling: dict[str, _Frame] = {}
        self._under_way: dict[str, Callable[[], None]] = {}
        self.counts: Counter[str] = Counter()

    def put(self, target: DraftTarget, draft: bytes) -> None:
        """Add a draft to a frame; blocks while its broker is slow. Raises KourouError."""
        name = target.broker_name
        frame = self._filling.get(name)
        if frame is None:
            frame = self._filling[name] = _Frame(target.address)
        elif not frame.has_room(len(draft)):
            self._send(name, frame)
            frame = self._filling[name] = _Frame(target.address)
        frame.add((target.topic, target.queue_id), draft)
        self.counts[name] += 1

    def put_many(self, made: Drafts) -> None:
        """Add drafts of one broker, in their order."""
        name, number = made.broker_name, 0
        sizes = np.fromiter(map(len, made.drafts), np.int64, len(made.drafts))
        ends = sizes.cumsum()
        self.counts[name] += len(made.drafts)
        while number < len(made.drafts):
            frame = self._filling.get(name)
            if frame is None:
                frame = self._filling[name] = _Frame(made.address)
            before = int(ends[number - 1]) if number else 0
            room = FRAME_RECORD_BYTES_MAX - frame.size_bytes
            end = int(ends.searchsorted(before + room, "right"))
            end = min(end, number + FRAME_RECORDS_MAX - len(frame.drafts))
            if end <= number and frame.drafts:
                self._send(name, self._filling.pop(name))
                continue
            end = max(end, number + 1)
            size_bytes = int(ends[end - 1]) - before
            frame.extend(
                made.queue_targets,
                made.queue_target_of[number:end],
                made.drafts[number:end],
                size_bytes,
            )
            number = end

    def finish(self) -> None:
        """Send the remaining drafts and wait until brokers have stored all. Raises KourouError."""
        for name, frame in self._filling.items():
            self._send(name, frame)
        self._filling = {}
        for name in list(self._under_way):
            self._under_way.pop(name)()

    def _send(self, name: str, frame: _Frame) -> None:
        before = self._under_way.pop(name, None)
        if before is not None:
            before()
        self._under_way[name] = self._client.submit(_sent(self._session, frame, self._timeout_ms))


async def _sent(session: Session, frame: _Frame, timeout_ms: int) -> None:
    """Send a frame until all of it is stored. Raises the last error if that is not possible."""
    deadline_ms = session.clock.monotonic_ms() + timeout_ms
    attempt, pause_ms = 1, PAUSE_MS
    while True:
        try:
            left = await _attempt(session, frame, attempt, deadline_ms)
            if left is None:
                return
            frame, error = left
        except KourouError as failure:
            error = failure
        out_of_time = session.clock.monotonic_ms() + pause_ms >= deadline_ms
        if out_of_time or not worth_another_attempt(error):
            raise error
        await asyncio.sleep(pause_ms / 1000)
        attempt, pause_ms = attempt + 1, min(2 * pause_ms, LONGEST_PAUSE_MS)


async def _attempt(
    session: Session, frame: _Frame, attempt: int, deadline_ms: int
) -> tuple[_Frame, KourouError] | None:
    """Send a frame once. Returns the rejected drafts and the error, or None."""
    left_ms = deadline_ms - session.clock.monotonic_ms()
    if left_ms <= 0:
        raise Unavailable("the time limit for sending is reached")
    settings = _SETTINGS
    request = SendRecords(
        targets=[FrameTarget(topic, queue_id) for topic, queue_id in frame.queue_targets],
        target_of=np.asarray(frame.queue_target_of, "<u2").tobytes()
        if len(frame.queue_targets) > 1
        else b"",
        sizes=np.asarray(list(map(len, frame.drafts)), "<u4").tobytes(),
        producer_group=GROUP,
        default_topic=settings.create_topic_key,
        default_topic_queue_nums=settings.default_topic_queue_nums,
        attempt=attempt,
    )
    reply = await session.connections.ask(
        frame.address,
        request,
        body=b"".join(frame.drafts),
        timeout_ms=min(left_ms, ATTEMPT_MS),
        also=STORED_BUT,
    )
    codes = header_of(reply, SendRecordsResponse).target_codes
    remarks = header_of(reply, SendRecordsResponse).target_remarks
    if len(codes) != len(frame.queue_targets) or len(remarks) != len(codes):
        raise DecodeError("the reply to a send has another number of queues than the request")
    if not any(codes):
        return None
    errors = [
        error_from_code(code, remark) for code, remark in zip(codes, remarks, strict=True) if code
    ]
    for error in errors:
        if not worth_another_attempt(error):
            raise error
    left = _Frame(frame.address)
    queue_targets = list(frame.queue_targets)
    for number, draft in zip(frame.queue_target_of, frame.drafts, strict=True):
        if codes[number]:
            left.add(queue_targets[number], draft)
    return left, errors[0]


_SETTINGS = ProducerSettings(producer_group=GROUP)


# -- writers --------------------------------------------------------------------------------------

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
        messages = DraftBuilder(options, mark, clock.now_ms(), random.SystemRandom())
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
    messages: DraftBuilder,
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
    written = [WrittenAttempt(one.partition, one.attempt, one.counts) for one in done]
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
                _log.warning(
                    "batch-committed-nevertheless: batch %(batch)d of query %(query)s was "
                    "committed nevertheless",
                    {"batch": batch, "query": query},
                )
    except KourouError as error:
        # The job's own error is reported already; brokers discard the messages after a timeout.
        _log.warning(
            "batch-discard-postponed: the messages of batch %(batch)d of query %(query)s are "
            "discarded later: %(error)s",
            {"batch": batch, "query": query, "error": error},
        )
