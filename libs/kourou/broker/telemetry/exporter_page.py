"""The page with the metric names of rocketmq-exporter, RocketMQ 4's Prometheus exporter.

The exporter is a client that queries each consumer of each group through its broker. Here the
broker sends the same request (code 307) by itself. All values are computed only when the page is
requested, which reads each queue of each group.

State: soft: open requests, and counter snapshots from recent page requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from operator import itemgetter, sub
from typing import Any

from kourou.broker.telemetry.measurements import Measurements
from kourou.broker.telemetry.metrics import first_ms
from kourou.clock import Clock
from kourou.engine.inputs import Input
from kourou.engine.ports import StoreView
from kourou.engine.statistics import Statistics
from kourou.engine.view import CoreView
from kourou.errors import Code, KourouError
from kourou.model.limits import EXPORTER_MEMBERS_MAX, EXPORTER_MEMBERS_MS_MAX
from kourou.model.names import DLQ_PREFIX, RETRY_PREFIX
from kourou.model.subscription import MessageModel
from kourou.model.units import MINUTE_MS, NS_PER_MS
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo, decode_consumer_running_info
from kourou.protocol.messages.groups import GetConsumerRunningInfo
from kourou.protocol.request import Request
from kourou.runtime import AskClient, Notify, Peer, Received, Reply, ReplyTo
from kourou.store.store import Store
from kourou.telemetry.metric_table import MetricKind, MetricSpec
from kourou.telemetry.metrics import Family, Labels, expose
from kourou.transport.addresses import next_peer_id

SNAPSHOT_MS = 1_000
"""More frequent page requests share a counter snapshot."""


class PageQuestions:
    """A protocol server whose only peer is the page, so that its requests pass through the core.

    `post` gives an input to the loop. Used on the running loop.
    """

    name = "page"

    def __init__(self, post: Callable[[Input], None], clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._peer = Peer(next_peer_id(), self.name, ("127.0.0.1", 0), self.name)
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}

    async def question(self, request: Request, timeout_ms: int) -> Reply:
        """Return the core's reply. Raises TimeoutError if there is none in time."""
        number = next(self._numbers)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        to = ReplyTo(self._peer, number)
        self._post(Received(to, request, (), self._clock.now_ms(), deadline_ms))
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await future
        finally:
            del self._waiting[number]

    def reply(self, reply: Reply) -> None:
        """Deliver a reply to the page, if it still waits for it."""
        future = self._waiting.get(reply.to.correlation)
        if future is not None and not future.done():
            future.set_result(reply)

    def notify(self, notice: Notify) -> None:
        """Do nothing: the page receives no notifications."""

    def ask(self, question: AskClient) -> None:
        """Do nothing: the page receives no requests."""

    def pause(self) -> None:
        """Do nothing: pending requests still get their replies."""

    def close(self) -> None:
        """Do nothing: there is no listener."""

    def statistics(self) -> Mapping[str, Any]:
        """Return nothing: there are no connections."""
        return {}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """Return nothing: there are no connections."""
        del base
        return []


class LastMinute:
    """The increase of counters in the last minute, or a little more, from snapshots.

    The counters were 0 at `began_ms` (monotonic).
    """

    def __init__(self, began_ms: int) -> None:
        self._looks: deque[tuple[int, Sequence[int]]] = deque([(began_ms, ())])

    def look(self, now_ms: int, counts: Sequence[int]) -> list[int] | None:
        """Take a snapshot and return the increase.

        None (unknown) if there is no snapshot that is one to two minutes old.
        """
        looks = self._looks
        while len(looks) > 1 and looks[1][0] <= now_ms - MINUTE_MS:
            looks.popleft()
        at_ms, before = looks[0]
        if now_ms - looks[-1][0] >= SNAPSHOT_MS:
            looks.append((now_ms, list(counts)))
        if now_ms - at_ms > 2 * MINUTE_MS:
            return None
        return list(map(sub, counts, before or [0] * len(counts)))


class ExporterPage:
    """Collects the values for a broker's page at each request."""

    def __init__(
        self,
        questions: PageQuestions,
        measurements: Measurements,
        clock: Clock,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._questions = questions
        self._measurements = measurements
        self._clock = clock
        self._now_ns = now_ns
        self._sends = LastMinute(clock.monotonic_ms())

    async def asked(self, view: CoreView) -> RequestedValues:
        """Collect the values; waits at most two seconds for consumers that do not reply."""
        wait_ms = await self._wait_ms()
        members = await self._members(view)
        sends = self._sends.look(self._clock.monotonic_ms(), self._measurements.rpc.stored())
        return RequestedValues(members, wait_ms, sends)

    async def _wait_ms(self) -> float:
        """Measure the queueing delay: the time until the loop has polled its sockets once."""
        began_ns = self._now_ns()
        for _ in range(2):
            await asyncio.sleep(0)
        return (self._now_ns() - began_ns) / NS_PER_MS

    async def _members(self, view: CoreView) -> list[ReportedConsumer]:
        membership = view.membership
        everybody = (
            (group, client_id)
            for group in membership.consumer_groups()
            for client_id in membership.consumer_ids(group)
        )
        chosen = list(islice(everybody, EXPORTER_MEMBERS_MAX))
        found = await asyncio.gather(*(self._member(view, *one) for one in chosen))
        return [member for member in found if member is not None]

    async def _member(self, view: CoreView, group: str, client_id: str) -> ReportedConsumer | None:
        """Return a consumer's running info; None if it does not reply."""
        peer = view.membership.consumer_peer(group, client_id)
        if peer is None:
            return None
        request = GetConsumerRunningInfo(consumer_group=group, client_id=client_id)
        try:
            reply = await self._questions.question(request, EXPORTER_MEMBERS_MS_MAX)
            if reply.code != Code.SUCCESS:
                return None
            info = decode_consumer_running_info(b"".join(reply.body) or b"{}")
        except (TimeoutError, KourouError):
            return None  # gone, slow, or an invalid reply: it has no samples
        host, port = peer.address
        return ReportedConsumer(group, client_id, f"{host}:{port}", info)


CLUSTERING = "1"
"""RocketMQ's number of the message model in which the broker keeps a group's progress."""

Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class ReportedConsumer:
    """A consumer that reported its running info."""

    group: str
    client_id: str
    address: str
    info: ConsumerRunningInfo


@dataclass(frozen=True, slots=True)
class RequestedValues:
    """Values that had to be requested: consumers, and the current queueing delay of a request.

    `sends`: counts of the last minute's sends by duration, in the buckets of `RpcLatency.stored`;
    None if not known yet.
    """

    members: Sequence[ReportedConsumer]
    wait_ms: float
    sends: Sequence[int] | None


def exporter_page(
    view: CoreView,
    store: Store,
    table: Mapping[str, str],
    asked: RequestedValues,
    *,
    address: str,
    wall_ms: int,
) -> bytes:
    """Return the page of one broker.

    `table` is its runtime table, `address` the address for clients.
    """
    families = _families(view, store, table, asked, address=address, wall_ms=wall_ms)
    return expose(families, EXPORTER_METRICS)


def _families(
    view: CoreView,
    store: Store,
    table: Mapping[str, str],
    asked: RequestedValues,
    *,
    address: str,
    wall_ms: int,
) -> Iterator[Family]:
    policy = view.policy
    here = {"cluster": policy.cluster_name, "broker": policy.broker_name}
    yield from _broker(here, view.statistics, policy.cluster_name, address)
    yield from _topics(here, view)
    yield from _groups(here, view, wall_ms)
    yield from _members(asked.members)
    runtime = {
        "cluster": policy.cluster_name,
        "brokerIP": address,
        "brokerHost": address.rpartition(":")[0],
        "des": table["brokerVersionDesc"],
        "boottime": table["bootTimestamp"],
        "broker_version": table["brokerVersion"],
    }
    yield from _runtime(runtime, view.store_view, store, table, asked)


def _broker(here: Labels, statistics: Statistics, cluster: str, address: str) -> Iterator[Family]:
    labels = {"cluster": here["cluster"], "brokerIP": address, "broker": here["broker"]}
    for name, item in (
        ("rocketmq_broker_tps", "BROKER_PUT_NUMS"),
        ("rocketmq_broker_qps", "BROKER_GET_NUMS"),
    ):
        yield Family.gauge(name, "", [(labels, _tps(statistics, item, cluster))])


def _tps(statistics: Statistics, item: str, key: str) -> float:
    """Return the rate per second of the last minute; 0 if nothing was counted under this key."""
    stats = statistics.item(item, key)
    return 0.0 if stats is None else stats.stats_minute.tps


# -- topics ---------------------------------------------------------------------------------------


def _topics(here: Labels, view: CoreView) -> Iterator[Family]:
    counted = [topic for topic in view.traffic.messages_in if not topic.startswith(_OF_GROUPS)]
    for name, item in (
        ("rocketmq_producer_tps", "TOPIC_PUT_NUMS"),
        ("rocketmq_producer_message_size", "TOPIC_PUT_SIZE"),
    ):
        samples = [({**here, "topic": t}, _tps(view.statistics, item, t)) for t in counted]
        yield Family.gauge(name, "", samples)
    plain: list[Sample] = []
    retries: list[Sample] = []
    dead: list[Sample] = []
    for topic in view.store_view.topics():
        end = sum(high for _, high in _ranges(view.store_view, topic))
        if topic.startswith(DLQ_PREFIX):
            dead.append(({**here, "group": topic.removeprefix(DLQ_PREFIX)}, end))
        else:
            found = retries if topic.startswith(RETRY_PREFIX) else plain
            found.append(({**here, "topic": topic}, end))
    yield Family.gauge("rocketmq_producer_offset", "", plain)
    yield Family.gauge("rocketmq_topic_retry_offset", "", retries)
    yield Family.gauge("rocketmq_topic_dlq_offset", "", dead)


_OF_GROUPS = (RETRY_PREFIX, DLQ_PREFIX)


def _ranges(view: StoreView, topic: str) -> Iterator[tuple[int, int]]:
    for queue_id in view.queue_ids(topic):
        span = view.queue_range(topic, queue_id)
        if span is not None:
            yield span


# -- groups ---------------------------------------------------------------------------------------


def _groups(here: Labels, view: CoreView, wall_ms: int) -> Iterator[Family]:
    for name, item, counts in (
        ("rocketmq_consumer_tps", "GROUP_GET_NUMS", view.traffic.messages_out),
        ("rocketmq_consumer_message_size", "GROUP_GET_SIZE", view.traffic.bytes_out),
        ("rocketmq_send_back_nums", "SNDBCK_PUT_NUMS", view.traffic.sent_back),
    ):
        samples = [
            (
                {**here, "topic": topic, "group": group},
                _tps(view.statistics, item, f"{topic}@{group}"),
            )
            for topic, group in counts
        ]
        yield Family.gauge(name, "", samples)
    offsets: list[Sample] = []
    ages: list[Sample] = []
    behind: dict[str, list[Sample]] = {"diff": [], "retrydiff": [], "dlqdiff": []}
    committed: set[tuple[str, str]] = set()
    for group, topic, queues in view.commits.entries():
        committed.add((group, topic))
        place = {**here, "topic": topic, "group": group}
        offsets.append((place, sum(queues.values())))
        lag, age_ms = _behind(view.store_view, topic, queues, wall_ms)
        ages.append((place, age_ms))
        known = view.membership.consumer_group(group)
        if known is None or known.message_model is MessageModel.CLUSTERING:
            members = 0 if known is None else len(known.members)
            behind[_kind(topic)].append((_lag(group, topic, members), lag))
    # A group has no commits in its dead-letter topic before dead letters are handled for the first
    # time.
    for topic in view.store_view.topics():
        group = topic.removeprefix(DLQ_PREFIX)
        if group != topic and (group, topic) not in committed:
            waiting = sum(high - low for low, high in _ranges(view.store_view, topic))
            behind["dlqdiff"].append((_lag(group, topic, 0), waiting))
    yield Family.gauge("rocketmq_consumer_offset", "", offsets)
    yield Family.gauge("rocketmq_group_get_latency_by_storetime", "", ages)
    for kind, lags in behind.items():
        yield Family.gauge(f"rocketmq_group_{kind}", "", lags)


def _lag(group: str, topic: str, members: int) -> Labels:
    return {
        "group": group,
        "topic": topic,
        "countOfOnlineConsumers": str(members),
        "msgModel": CLUSTERING,
    }


def _kind(topic: str) -> str:
    if topic.startswith(RETRY_PREFIX):
        return "retrydiff"
    return "dlqdiff" if topic.startswith(DLQ_PREFIX) else "diff"


def _behind(
    view: StoreView, topic: str, queues: Mapping[int, int], wall_ms: int
) -> tuple[int, int]:
    """Return the consumer lag, and the age in ms of the oldest message not consumed."""
    lag = age_ms = 0
    for queue_id, offset in queues.items():
        span = view.queue_range(topic, queue_id)
        if span is None:
            continue
        first = max(offset, span[0])
        if first < span[1]:
            lag += span[1] - first
            stored_ms = view.store_time(topic, queue_id, first)
            if stored_ms >= 0:
                age_ms = max(age_ms, wall_ms - stored_ms)
    return lag, age_ms


# -- consumers ------------------------------------------------------------------------------------


def _members(members: Sequence[ReportedConsumer]) -> Iterator[Family]:
    reported = [
        (
            {
                "clientAddr": member.address,
                "clientId": member.client_id,
                "group": member.group,
                "topic": topic,
            },
            rates,
        )
        for member in members
        for topic, rates in sorted(member.info.rates.items(), key=itemgetter(0))
    ]
    for name, field in (
        ("consume_fail_msg_count", "consume_failed_msgs"),
        ("consume_fail_msg_tps", "consume_failed_tps"),
        ("consume_ok_msg_tps", "consume_ok_tps"),
        ("consume_rt", "consume_rt"),
        ("consumer_pull_rt", "pull_rt"),
        ("consumer_pull_tps", "pull_tps"),
    ):
        samples = [(labels, getattr(rates, field)) for labels, rates in reported]
        yield Family.gauge(f"rocketmq_client_{name}", "", samples)


# -- the broker's runtime table -------------------------------------------------------------------


def _runtime(
    labels: Labels, view: StoreView, store: Store, table: Mapping[str, str], asked: RequestedValues
) -> Iterator[Family]:
    def gauge(name: str, value: float | None) -> Family:
        samples = [] if value is None else [(labels, value)]
        return Family.gauge(f"rocketmq_brokeruntime_{name}", "", samples)

    for place, span in enumerate(PUT_TIMES):
        yield gauge(f"pmdt_{span}", None if asked.sends is None else asked.sends[place])
    for name, (key, _) in RATES.items():
        for span, rate in zip(SPANS, table[key].split(), strict=True):
            yield gauge(f"{name}{span}", float(rate))
    for name, (key, _) in TOTALS.items():
        yield gauge(name, float(table[key]))
    for pool in POOLS:
        yield gauge(f"{pool}_threadpoolqueue_headwait_timemills", asked.wait_ms)
    total, free = store.usage()
    low, high = store.log_range()
    yield gauge("commitlogdir_capacity_total", total)
    yield gauge("commitlogdir_capacity_free", free)
    yield gauge("commitlog_minoffset", low)
    yield gauge("commitlog_maxoffset", high)
    yield gauge("earliest_message_timestamp", first_ms(view, low))


# -- the metrics of the exporter -------------------------------------------------------------------


_BROKER = ("cluster", "brokerIP", "broker")
_TOPIC = ("cluster", "broker", "topic")
_GROUP = ("cluster", "broker", "topic", "group")
_LAG = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_MEMBER = ("clientAddr", "clientId", "group", "topic")
_RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
PUT_TIMES = (
    *("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s"),
    *("1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore"),
)
"""RocketMQ 4's ranges of send latency."""


RATES = {
    "put_tps": ("putTps", "Messages stored a second"),
    "gettotal_tps": ("getTotalTps", "Pulls a second"),
    "getfound_tps": ("getFoundTps", "Pulls a second that brought messages"),
    "getmiss_tps": ("getMissTps", "Pulls a second that brought none"),
    "gettransfered_tps": ("getTransferedTps", "Messages delivered a second"),
}
"""Suffix of the exporter's name -> (key in the runtime table, description).

The value of the key holds three time spans.
"""


SPANS = {"10": "10 s", "60": "minute", "600": "ten minutes or more"}
TOTALS = {
    "msg_put_total_today_now": ("msgPutTotalTodayNow", "Messages stored since the start"),
    "msg_gettotal_today_now": ("msgGetTotalTodayNow", "Messages delivered since the start"),
    "msg_puttotal_todaymorning": ("msgPutTotalTodayMorning", "The same at the last midnight"),
    "msg_gettotal_todaymorning": ("msgGetTotalTodayMorning", "The same at the last midnight"),
    "msg_puttotal_yesterdaymorning": ("msgPutTotalYesterdayMorning", "At the midnight before"),
    "msg_gettotal_yesterdaymorning": ("msgGetTotalYesterdayMorning", "At the midnight before"),
    "put_message_size_total": ("putMessageSizeTotal", "Bytes stored since the start"),
    "put_message_average_size": ("putMessageAverageSize", "Bytes of a message on average"),
    "commitlog_disk_ratio": ("commitLogDiskRatio", "Share of the disk in use, from 0 to 1"),
    "consumequeue_disk_ratio": ("consumeQueueDiskRatio", "The same: they lie on one disk"),
    "dispatch_behind_bytes": ("dispatchBehindBytes", "Appended and not in the queues"),
}
"""Like RATES, but with one value each."""


POOLS = ("send", "pull", "query")


def _gauge_spec(name: str, about: str, labels: tuple[str, ...]) -> MetricSpec:
    return MetricSpec(name, MetricKind.GAUGE, about, labels)


def _runtime_spec(name: str, about: str) -> MetricSpec:
    return _gauge_spec(f"rocketmq_brokeruntime_{name}", about, _RUNTIME)


_ALL = (
    _gauge_spec("rocketmq_broker_tps", "Messages stored a second, in the last minute", _BROKER),
    _gauge_spec("rocketmq_broker_qps", "Messages delivered a second, in the last minute", _BROKER),
    _gauge_spec("rocketmq_producer_tps", "Messages stored a second, in the last minute", _TOPIC),
    _gauge_spec("rocketmq_producer_message_size", "Bytes stored a second, likewise", _TOPIC),
    _gauge_spec("rocketmq_producer_offset", "The ends of a topic's queues, added up", _TOPIC),
    _gauge_spec("rocketmq_topic_retry_offset", "The same of a retry topic", _TOPIC),
    _gauge_spec(
        "rocketmq_topic_dlq_offset",
        "The same of a group's dead letters",
        ("cluster", "broker", "group"),
    ),
    _gauge_spec("rocketmq_consumer_tps", "Messages delivered a second, in the last minute", _GROUP),
    _gauge_spec("rocketmq_consumer_message_size", "Bytes delivered a second, likewise", _GROUP),
    _gauge_spec("rocketmq_consumer_offset", "A group's offsets in a topic, added up", _GROUP),
    _gauge_spec(
        "rocketmq_send_back_nums", "Messages sent back a second, in the last minute", _GROUP
    ),
    _gauge_spec(
        "rocketmq_group_get_latency_by_storetime",
        "Age in ms of the oldest message that the group has not consumed; 0 without one",
        _GROUP,
    ),
    _gauge_spec("rocketmq_group_diff", "Messages not consumed, at this broker", _LAG),
    _gauge_spec("rocketmq_group_retrydiff", "The same in the retry topic", _LAG),
    _gauge_spec(
        "rocketmq_group_dlqdiff",
        "Dead letters of the group that were neither redelivered nor discarded",
        _LAG,
    ),
    _gauge_spec(
        "rocketmq_client_consume_fail_msg_count", "Messages that failed in the last hour", _MEMBER
    ),
    _gauge_spec("rocketmq_client_consume_fail_msg_tps", "Messages a second that failed", _MEMBER),
    _gauge_spec("rocketmq_client_consume_ok_msg_tps", "Messages a second that did not", _MEMBER),
    _gauge_spec("rocketmq_client_consume_rt", "Milliseconds of a handler, on average", _MEMBER),
    _gauge_spec("rocketmq_client_consumer_pull_rt", "Milliseconds of a pull, on average", _MEMBER),
    _gauge_spec("rocketmq_client_consumer_pull_tps", "Messages a second that were pulled", _MEMBER),
    *(
        _runtime_spec(f"pmdt_{span}", "Sends of the last minute that took so long to be answered")
        for span in PUT_TIMES
    ),
    *(
        _runtime_spec(f"{name}{span}", f"{about}, in the last {time_span}")
        for name, (_, about) in RATES.items()
        for span, time_span in SPANS.items()
    ),
    *(_runtime_spec(name, about) for name, (_, about) in TOTALS.items()),
    *(
        _runtime_spec(
            f"{pool}_threadpoolqueue_headwait_timemills",
            "Milliseconds that a request which comes now waits; there is one queue for all",
        )
        for pool in POOLS
    ),
    _runtime_spec("commitlogdir_capacity_total", "Bytes of the disk"),
    _runtime_spec("commitlogdir_capacity_free", "Those of them that are free"),
    _runtime_spec("commitlog_minoffset", "The first position of the log"),
    _runtime_spec("commitlog_maxoffset", "Its end"),
    _runtime_spec(
        "earliest_message_timestamp", "When the oldest message was stored, ms since 1970"
    ),
)


EXPORTER_METRICS: Mapping[str, MetricSpec] = {spec.name: spec for spec in _ALL}
"""What the page serves, so that dashboards made for RocketMQ 4 work.

A metric that this broker does not have is omitted, because a 0 would be read as a value.
"""
assert len(EXPORTER_METRICS) == len(_ALL), "a name is listed twice"


LEFT_OUT: Mapping[str, str] = {
    "rocketmq_brokeruntime_…_threadpoolqueue_size, …_capacity": (
        "nothing waits for a thread of a pool, so there are no such queues"
    ),
    "rocketmq_brokeruntime_remain_transientstore_buffer_numbs, …_dispatch_maxbuffer": (
        "RocketMQ's buffers before its log; this log is written by one system call"
    ),
    "rocketmq_brokeruntime_pagecache_lock_timemills": "this broker has no such lock",
    "rocketmq_brokeruntime_…_entiretime_max, …_put_latency_99": (
        "`rocketmq_rpc_latency` of the page without `names` has the whole distribution"
    ),
    "rocketmq_group_count, rocketmq_producer_count": (
        "`rocketmq_consumer_connections`, `rocketmq_producer_connections` of the other page"
    ),
}
"""Metrics of the exporter that are omitted, and why. No popular dashboard uses them."""
