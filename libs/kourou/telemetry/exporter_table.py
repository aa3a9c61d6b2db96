"""The metrics of rocketmq-exporter (RocketMQ 4's Prometheus exporter) that Kourou provides.

A broker serves them on `/metrics?names=exporter`, so that dashboards made for RocketMQ 4 work. A
metric that this broker does not have is omitted, because a 0 would be read as a value.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.telemetry.metric_table import MetricKind, MetricSpec

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


def _gauge(name: str, about: str, labels: tuple[str, ...]) -> MetricSpec:
    return MetricSpec(name, MetricKind.GAUGE, about, labels)


def _runtime(name: str, about: str) -> MetricSpec:
    return _gauge(f"rocketmq_brokeruntime_{name}", about, _RUNTIME)


_ALL = (
    _gauge("rocketmq_broker_tps", "Messages stored a second, in the last minute", _BROKER),
    _gauge("rocketmq_broker_qps", "Messages delivered a second, in the last minute", _BROKER),
    _gauge("rocketmq_producer_tps", "Messages stored a second, in the last minute", _TOPIC),
    _gauge("rocketmq_producer_message_size", "Bytes stored a second, likewise", _TOPIC),
    _gauge("rocketmq_producer_offset", "The ends of a topic's queues, added up", _TOPIC),
    _gauge("rocketmq_topic_retry_offset", "The same of a retry topic", _TOPIC),
    _gauge(
        "rocketmq_topic_dlq_offset",
        "The same of a group's dead letters",
        ("cluster", "broker", "group"),
    ),
    _gauge("rocketmq_consumer_tps", "Messages delivered a second, in the last minute", _GROUP),
    _gauge("rocketmq_consumer_message_size", "Bytes delivered a second, likewise", _GROUP),
    _gauge("rocketmq_consumer_offset", "A group's offsets in a topic, added up", _GROUP),
    _gauge("rocketmq_send_back_nums", "Messages sent back a second, in the last minute", _GROUP),
    _gauge(
        "rocketmq_group_get_latency_by_storetime",
        "Age in ms of the oldest message that the group has not consumed; 0 without one",
        _GROUP,
    ),
    _gauge("rocketmq_group_diff", "Messages not consumed, at this broker", _LAG),
    _gauge("rocketmq_group_retrydiff", "The same in the retry topic", _LAG),
    _gauge(
        "rocketmq_group_dlqdiff",
        "Dead letters of the group that were neither redelivered nor discarded",
        _LAG,
    ),
    _gauge(
        "rocketmq_client_consume_fail_msg_count", "Messages that failed in the last hour", _MEMBER
    ),
    _gauge("rocketmq_client_consume_fail_msg_tps", "Messages a second that failed", _MEMBER),
    _gauge("rocketmq_client_consume_ok_msg_tps", "Messages a second that did not", _MEMBER),
    _gauge("rocketmq_client_consume_rt", "Milliseconds of a handler, on average", _MEMBER),
    _gauge("rocketmq_client_consumer_pull_rt", "Milliseconds of a pull, on average", _MEMBER),
    _gauge("rocketmq_client_consumer_pull_tps", "Messages a second that were pulled", _MEMBER),
    *(
        _runtime(f"pmdt_{span}", "Sends of the last minute that took so long to be answered")
        for span in PUT_TIMES
    ),
    *(
        _runtime(f"{name}{span}", f"{about}, in the last {told}")
        for name, (_, about) in RATES.items()
        for span, told in SPANS.items()
    ),
    *(_runtime(name, about) for name, (_, about) in TOTALS.items()),
    *(
        _runtime(
            f"{pool}_threadpoolqueue_headwait_timemills",
            "Milliseconds that a request which comes now waits; there is one queue for all",
        )
        for pool in POOLS
    ),
    _runtime("commitlogdir_capacity_total", "Bytes of the disk"),
    _runtime("commitlogdir_capacity_free", "Those of them that are free"),
    _runtime("commitlog_minoffset", "The first position of the log"),
    _runtime("commitlog_maxoffset", "Its end"),
    _runtime("earliest_message_timestamp", "When the oldest message was stored, ms since 1970"),
)

EXPORTER_METRICS: Mapping[str, MetricSpec] = {spec.name: spec for spec in _ALL}
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
