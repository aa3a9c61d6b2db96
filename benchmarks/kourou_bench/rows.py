"""The rows of a comparison, the workload of each system in a row, and the goals.

A workload is a value: adjacent rows that have the same workloads for all systems are measured
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kourou.errors import ConfigError

BACKLOG = 1_000_000
DELAYED = 100_000
RT_SENDS = 100_000
"""Messages of one run of an mqadmin command that measures sends; `--backlog` scales it and DELAYED.
"""
HUGE_BACKLOG = 50_000_000
HUGE_LOG_BYTES = 10 * 1024**3
RECORD_OVERHEAD_BYTES = 200
"""Approximate size of a record without its body; only used to reach the length of log of a row."""


class Name(StrEnum):
    """The systems, by their names in JSON; `itself` is Kourou under different conditions."""

    KOUROU = "kourou"
    ROCKETMQ = "rocketmq"
    ROCKETMQ5 = "rocketmq5"
    KAFKA = "kafka"
    NATS = "nats"
    REDIS = "redis"
    GATEWAY = "gateway"
    ITSELF = "itself"


PEERS = (Name.ROCKETMQ, Name.ROCKETMQ5, Name.KAFKA, Name.NATS, Name.REDIS)
JAVA, JAVA5 = "java", "java5"
COLD = frozenset({"idle", "restart"})
"""Kinds of workload that start a server."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one system does for one row.

    `kind` is a driver's workload, `idle` (start and memory) or `restart`. `in_flight` sends are in
    flight at any time, each with `batch` messages. `backlog` counts messages that are stored before
    the timer starts. For `restart`, `messages` are bytes of log. `client` is the system's own, or
    `java` (4.9) or `java5`, which are RocketMQ's clients on Kourou's servers. `delay_level` is
    RocketMQ's, and `pace` the maximum number of messages sent per second; 0 means no limit.
    """

    kind: str
    flush: str = "async"
    in_flight: int = 1
    batch: int = 1
    handler: str = "message"
    queues: int = 4
    topics: int = 1
    messages: int = 0
    backlog: int = 0
    client: str = ""
    delay_level: int = 0
    pace: int = 0


@dataclass(frozen=True, slots=True)
class Goal:
    """A target: at least (or at most) `number` times the value of `of`, or `number` itself."""

    at_least: bool
    number: float
    of: Name | None

    def text(self, unit: str) -> str:
        """The goal as text for a table."""
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.number:g} {unit}" if self.of is None else f"{sign} {self.number:g} ×"

    def reached(self, value: float) -> bool:
        """True if a ratio (or, for an absolute goal, a value) reaches the goal."""
        return value >= self.number if self.at_least else value <= self.number


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: one value of each system's outcome."""

    name: str
    about: str
    value: str
    unit: str
    goal: Goal
    works: Mapping[Name, Work]
    absent: Mapping[Name, str] | None = None
    huge: bool = False


def _all(work: Work, *, without: Name | None = None, **others: Work) -> dict[Name, Work]:
    works = dict.fromkeys((name for name in (Name.KOUROU, *PEERS) if name is not without), work)
    return works | {Name(name): other for name, other in others.items()}


def _times(number: float, of: Name = Name.ROCKETMQ, *, at_least: bool = True) -> Goal:
    return Goal(at_least, number, of)


_SEND_64 = Work("send", in_flight=64)
_SEND_1000 = Work("send", in_flight=1_000)
_BATCH_32 = Work("send", in_flight=8, batch=32)
_SEND_1 = Work("send")
_SYNC_64 = Work("send", flush="sync", in_flight=64)
_DRAIN = Work("consume", messages=BACKLOG)
_LATENCY = Work("latency")
_IDLE = Work("idle")
_MANY_QUEUES = Work("send", in_flight=64, topics=10, queues=1_000)
_RESTART = Work("restart", messages=HUGE_LOG_BYTES)
_BEHIND_BACKLOG = Work("send", in_flight=64, backlog=HUGE_BACKLOG)
_ONE_BY_ONE = "nats-py publishes one message a request"
_DELAYED = Work("delayed", in_flight=64, messages=DELAYED, delay_level=3)
_DELAYED_PACED = replace(_DELAYED, pace=10_000)
_TX_64 = Work("transactions", in_flight=64)
_TX_1 = Work("transactions")
_TX_64_UNWAITED = replace(_TX_64, kind="transactions-unwaited")
_TX_1_UNWAITED = replace(_TX_1, kind="transactions-unwaited")


def _both(work: Work) -> dict[Name, Work]:
    """Workloads of features that only RocketMQ also has."""
    return {Name.KOUROU: work, Name.ROCKETMQ: work, Name.ROCKETMQ5: work}


def _blocking(work: Work) -> dict[Name, Work]:
    """The same workload with blocking threads, as RocketMQ's client always uses and kourou.sync
    does.
    """
    return _both(work) | {Name.KOUROU: replace(work, kind=f"blocking-{work.kind}")}


def _java(name: str, about: str, value: str, unit: str, goal: Goal, work: Work) -> tuple[Row, ...]:
    """Rows for RocketMQ's clients (4.9 and 5): on Kourou's servers and on its own servers."""
    return tuple(
        Row(
            f"{client}-{name}",
            f"RocketMQ's Java client{version}: {about}",
            value,
            unit,
            replace(goal, of=peer),
            {Name.KOUROU: replace(work, client=client), peer: work},
        )
        for client, version, peer in (
            (JAVA, "", Name.ROCKETMQ),
            (JAVA5, " 5", Name.ROCKETMQ5),
        )
    )


_RATE = ("rate", "msg/s")
_MEDIAN = ("p50_ms", "ms")
_MEAN = ("mean_ms", "ms")
_CHECK_RT = Work("check-send-rt", messages=RT_SENDS)
_CLUSTER_RT = Work("cluster-rt", messages=RT_SENDS)

_JAVA_ROWS: tuple[tuple[Row, ...], ...] = (
    _java("send-64", "send, 64 threads", *_RATE, _times(1.5), _SEND_64),
    _java(
        "send-1", "send, 1 thread: median round trip", *_MEDIAN, _times(1, at_least=False), _SEND_1
    ),
    _java("batch-32", "batches of 32, 8 threads", *_RATE, _times(1), _BATCH_32),
    _java("batch-1", "batches of 32, 1 thread", *_RATE, _times(1), Work("send", batch=32)),
    _java("tx-64", "transactions, 64 threads", *_RATE, _times(1), _TX_64),
    _java("tx-1", "transactions, 1 thread", *_RATE, _times(1), _TX_1),
    _java(
        "async-64",
        "send with callbacks, 64 in flight",
        *_RATE,
        _times(1),
        Work("send-async", in_flight=64),
    ),
    _java(
        "oneway",
        "one way, 64 threads, one in 1,000 with a reply",
        *_RATE,
        _times(1),
        Work("oneway", in_flight=64),
    ),
    _java(
        "oneway-1",
        "one way, 1 thread, one in 1,000 with a reply",
        *_RATE,
        _times(1),
        Work("oneway"),
    ),
    _java("consume", "consume a backlog, one message per call", *_RATE, _times(1), _DRAIN),
    _java("check-rt", "mqadmin checkMsgSendRT", *_MEAN, _times(1, at_least=False), _CHECK_RT),
    _java("cluster-rt", "mqadmin clusterRT", *_MEAN, _times(1, at_least=False), _CLUSTER_RT),
)

ROWS: tuple[Row, ...] = (
    Row(
        "send-64",
        "send, 64 in flight",
        "rate",
        "msg/s",
        _times(3),
        _all(_SEND_64),
    ),
    Row(
        "send-1000",
        "send, 1,000 in flight (RocketMQ: 64 threads)",
        "rate",
        "msg/s",
        _times(5),
        # redis-py uses a connection per send in flight: four pipelines of 250 suit it better
        _all(
            _SEND_1000,
            rocketmq=_SEND_64,
            rocketmq5=_SEND_64,
            redis=Work("send", in_flight=4, batch=250),
        ),
    ),
    Row(
        "batch-32",
        "send, batches of 32, 8 in flight",
        "rate",
        "msg/s",
        _times(1.5),
        _all(_BATCH_32, without=Name.NATS),
        absent={Name.NATS: _ONE_BY_ONE},
    ),
    Row(
        "send-1",
        "send, 1 in flight: median round trip",
        "p50_ms",
        "ms",
        _times(0.8, at_least=False),
        _all(_SEND_1),
    ),
    Row(
        "consume-message",
        "consume a backlog, one message per call",
        "rate",
        "msg/s",
        _times(2),
        _all(_DRAIN),
    ),
    Row(
        "consume-batch",
        "consume a backlog, one batch per call",
        "rate",
        "msg/s",
        _times(3),
        _all(replace(_DRAIN, handler="batch")),
    ),
    Row(
        "latency-p50",
        "producer to handler, idle: p50",
        "p50_ms",
        "ms",
        _times(0.5, at_least=False),
        _all(_LATENCY),
    ),
    Row(
        "latency-p99",
        "producer to handler, idle: p99",
        "p99_ms",
        "ms",
        _times(0.3, at_least=False),
        _all(_LATENCY),
    ),
    Row(
        "sync-64",
        "send, flushed before the reply, 64 in flight",
        "rate",
        "msg/s",
        _times(2.5),
        _all(_SYNC_64),
    ),
    Row(
        "oneway",
        "send one way, one in 1,000 with a reply",
        "rate",
        "msg/s",
        _times(1),
        _both(Work("oneway", in_flight=4)),
    ),
    Row(
        "ordered",
        "consume a backlog in order, one message per call",
        "rate",
        "msg/s",
        _times(1),
        _both(Work("ordered", messages=BACKLOG)),
    ),
    Row(
        "broadcast",
        "broadcast to two consumers",
        "rate",
        "msg/s",
        _times(1),
        _both(Work("broadcast", messages=BACKLOG)),
    ),
    Row(
        "filtered",
        "a backlog through an SQL filter that passes 1 %",
        "rate",
        "msg/s",
        _times(1),
        _both(Work("filtered", messages=BACKLOG)),
    ),
    Row(
        "delay-rate",
        "100,000 delayed, sent at once: delivery",
        "rate",
        "msg/s",
        _times(1),
        _both(_DELAYED),
    ),
    Row(
        "delay-p50",
        "100,000 delayed, 10,000 a second: lateness, p50",
        "p50_ms",
        "ms",
        _times(1, at_least=False),
        _both(_DELAYED_PACED),
    ),
    Row(
        "delay-p99",
        "100,000 delayed, 10,000 a second: lateness, p99",
        "p99_ms",
        "ms",
        _times(1, at_least=False),
        _both(_DELAYED_PACED),
    ),
    Row(
        "tx-64",
        "transactions (half and commit), 64 in flight",
        "rate",
        "msg/s",
        _times(2),
        _both(_TX_64),
    ),
    Row(
        "tx-1",
        "transactions (half and commit), 1 in flight",
        "rate",
        "msg/s",
        _times(1),
        _both(_TX_1),
    ),
    Row(
        "tx-64-unwaited",
        "transactions without a wait for the end, 64 in flight",
        "rate",
        "msg/s",
        _times(2),
        _both(_TX_64) | {Name.KOUROU: _TX_64_UNWAITED},
    ),
    Row(
        "tx-1-unwaited",
        "transactions without a wait for the end, 1 in flight",
        "rate",
        "msg/s",
        _times(1),
        _both(_TX_1) | {Name.KOUROU: _TX_1_UNWAITED},
    ),
    Row(
        "blocking-send-1",
        "kourou.sync: send, 1 thread: median round trip",
        *_MEDIAN,
        _times(0.8, at_least=False),
        _blocking(_SEND_1),
    ),
    Row(
        "blocking-batch-1",
        "kourou.sync: batches of 32, 1 thread",
        *_RATE,
        _times(1),
        _blocking(Work("send", batch=32)),
    ),
    Row(
        "blocking-tx-1",
        "kourou.sync: transactions, 1 thread",
        *_RATE,
        _times(1),
        _blocking(_TX_1),
    ),
    *(first for first, _ in _JAVA_ROWS),
    *(second for _, second in _JAVA_ROWS),
    Row(
        "queues",
        "send to 10,000 queues; itself: to 4",
        "rate",
        "msg/s",
        _times(0.9, Name.ITSELF),
        {Name.KOUROU: _MANY_QUEUES, Name.ITSELF: _SEND_64},
    ),
    Row(
        "start",
        "start to first acknowledged send",
        "start_s",
        "s",
        Goal(False, 3, None),
        _all(_IDLE),
    ),
    Row(
        "memory",
        "idle memory of all servers, RSS",
        "rss_mb",
        "MB",
        Goal(False, 60, None),
        _all(_IDLE),
    ),
    Row(
        "backlog",
        "send behind 50 M messages; itself: empty",
        "rate",
        "msg/s",
        _times(0.95, Name.ITSELF),
        {Name.KOUROU: _BEHIND_BACKLOG, Name.ITSELF: _SEND_64},
        huge=True,
    ),
    Row(
        "restart",
        "kill -9 with a 10 GB log, to first send",
        "start_s",
        "s",
        Goal(False, 5, None),
        {Name.KOUROU: _RESTART},
        huge=True,
    ),
)


def select(only: Sequence[str], *, huge: bool) -> list[Row]:
    """The selected rows; raises ConfigError for unknown names."""
    known = {row.name: row for row in ROWS}
    wrong = [name for name in only if name not in known]
    if wrong:
        raise ConfigError(f"--only {','.join(wrong)}: rows are {', '.join(known)}")
    if only:
        return [row for row in ROWS if row.name in only]
    return [row for row in ROWS if huge or not row.huge]
