"""A broker's metrics under the names of rocketmq-exporter, RocketMQ 4's Prometheus exporter.

They are computed only when the page is requested, which reads each queue of each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from kourou.engine.parts import BrokerParts
from kourou.engine.ports import StoreView
from kourou.engine.statistics import Statistics
from kourou.model.names import DLQ_PREFIX, RETRY_PREFIX
from kourou.model.subscription import MessageModel
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo
from kourou.serving.metrics import first_ms
from kourou.store.store import Store
from kourou.telemetry.exporter_table import POOLS, PUT_TIMES, RATES, SPANS, TOTALS
from kourou.telemetry.metrics import Family, Labels

CLUSTERING = "1"
"""RocketMQ's number of the message model in which the broker keeps a group's progress."""

Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer that reported its running info."""

    group: str
    client_id: str
    address: str
    info: ConsumerRunningInfo


@dataclass(frozen=True, slots=True)
class Asked:
    """Values that had to be requested: consumers, and the current queueing delay of a request.

    `sends`: counts of the last minute's sends by duration, in the buckets of `RpcLatency.stored`;
    None if not known yet.
    """

    members: Sequence[Member]
    wait_ms: float
    sends: Sequence[int] | None


def exporter_families(
    parts: BrokerParts,
    store: Store,
    table: Mapping[str, str],
    asked: Asked,
    *,
    address: str,
    wall_ms: int,
) -> Iterator[Family]:
    """Return the page of one broker.

    `table` is its runtime table, `address` the address for clients.
    """
    policy = parts.policy
    here = {"cluster": policy.cluster_name, "broker": policy.broker_name}
    yield from _broker(here, parts.statistics, policy.cluster_name, address)
    yield from _topics(here, parts)
    yield from _groups(here, parts, wall_ms)
    yield from _members(asked.members)
    runtime = {
        "cluster": policy.cluster_name,
        "brokerIP": address,
        "brokerHost": address.rpartition(":")[0],
        "des": table["brokerVersionDesc"],
        "boottime": table["bootTimestamp"],
        "broker_version": table["brokerVersion"],
    }
    yield from _runtime(runtime, parts.view, store, table, asked)


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


def _topics(here: Labels, parts: BrokerParts) -> Iterator[Family]:
    counted = [topic for topic in parts.traffic.messages_in if not topic.startswith(_OF_GROUPS)]
    for name, item in (
        ("rocketmq_producer_tps", "TOPIC_PUT_NUMS"),
        ("rocketmq_producer_message_size", "TOPIC_PUT_SIZE"),
    ):
        samples = [({**here, "topic": t}, _tps(parts.statistics, item, t)) for t in counted]
        yield Family.gauge(name, "", samples)
    plain: list[Sample] = []
    retries: list[Sample] = []
    dead: list[Sample] = []
    for topic in parts.view.topics():
        end = sum(high for _, high in _ranges(parts.view, topic))
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


def _groups(here: Labels, parts: BrokerParts, wall_ms: int) -> Iterator[Family]:
    for name, item, counts in (
        ("rocketmq_consumer_tps", "GROUP_GET_NUMS", parts.traffic.messages_out),
        ("rocketmq_consumer_message_size", "GROUP_GET_SIZE", parts.traffic.bytes_out),
        ("rocketmq_send_back_nums", "SNDBCK_PUT_NUMS", parts.traffic.sent_back),
    ):
        samples = [
            (
                {**here, "topic": topic, "group": group},
                _tps(parts.statistics, item, f"{topic}@{group}"),
            )
            for topic, group in counts
        ]
        yield Family.gauge(name, "", samples)
    offsets: list[Sample] = []
    ages: list[Sample] = []
    behind: dict[str, list[Sample]] = {"diff": [], "retrydiff": [], "dlqdiff": []}
    committed: set[tuple[str, str]] = set()
    for group, topic, queues in parts.commits.entries():
        committed.add((group, topic))
        place = {**here, "topic": topic, "group": group}
        offsets.append((place, sum(queues.values())))
        lag, age_ms = _behind(parts.view, topic, queues, wall_ms)
        ages.append((place, age_ms))
        known = parts.membership.consumer_group(group)
        if known is None or known.message_model is MessageModel.CLUSTERING:
            members = 0 if known is None else len(known.members)
            behind[_kind(topic)].append((_lag(group, topic, members), lag))
    # A group has no commits in its dead-letter topic before dead letters are handled for the first
    # time.
    for topic in parts.view.topics():
        group = topic.removeprefix(DLQ_PREFIX)
        if group != topic and (group, topic) not in committed:
            waiting = sum(high - low for low, high in _ranges(parts.view, topic))
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


def _members(members: Sequence[Member]) -> Iterator[Family]:
    told = [
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
        told_so = [(labels, getattr(rates, field)) for labels, rates in told]
        yield Family.gauge(f"rocketmq_client_{name}", "", told_so)


# -- the broker's runtime table -------------------------------------------------------------------


def _runtime(
    labels: Labels, view: StoreView, store: Store, table: Mapping[str, str], asked: Asked
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
