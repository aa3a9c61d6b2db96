"""Every name that the popular dashboards of RocketMQ 4 ask for is one that a broker serves."""

from __future__ import annotations

import re

from kourou.broker.telemetry.exporter_page import EXPORTER_METRICS, LEFT_OUT
from kourou.telemetry.metric_table import METRICS, MetricKind

_PUT_TIMES = (
    "0ms 0to10ms 10to50ms 50to100ms 100to200ms 200to500ms 500to1s 1to2s 2to3s 3to4s 4to5s 5to10s "
    "10stomore"
)
_BOTH = (
    *(f"brokeruntime_pmdt_{span}" for span in _PUT_TIMES.split()),
    *(f"brokeruntime_{p}_threadpoolqueue_headwait_timemills" for p in ("pull", "query", "send")),
    "brokeruntime_commitlog_disk_ratio",
    "brokeruntime_commitlog_maxoffset",
    "brokeruntime_commitlog_minoffset",
    "brokeruntime_dispatch_behind_bytes",
    "brokeruntime_msg_gettotal_today_now",
    "brokeruntime_msg_gettotal_todaymorning",
    "brokeruntime_msg_gettotal_yesterdaymorning",
    "brokeruntime_msg_put_total_today_now",
    "brokeruntime_msg_puttotal_todaymorning",
    "brokeruntime_msg_puttotal_yesterdaymorning",
    "broker_qps",
    "broker_tps",
    "client_consume_fail_msg_count",
    "client_consume_ok_msg_tps",
    "client_consume_rt",
    "client_consumer_pull_rt",
    "client_consumer_pull_tps",
    "consumer_message_size",
    "consumer_offset",
    "consumer_tps",
    "group_get_latency_by_storetime",
    "producer_message_size",
    "producer_offset",
    "producer_tps",
)
OVERVIEW = (
    *_BOTH,
    "brokeruntime_commitlogdir_capacity_free",
    "brokeruntime_commitlogdir_capacity_total",
    "brokeruntime_consumequeue_disk_ratio",
    "brokeruntime_getfound_tps10",
    "brokeruntime_getmiss_tps10",
    "brokeruntime_gettotal_tps10",
    "brokeruntime_gettransfered_tps10",
    "brokeruntime_put_message_average_size",
    "brokeruntime_put_message_size_total",
    "brokeruntime_put_tps10",
    "client_consume_fail_msg_tps",
)
"""Of "RocketMQ Exporter Overview", Grafana's dashboard 10477, without their common beginning."""

DETAILED = (
    *_BOTH,
    "brokeruntime_earliest_message_timestamp",
    "group_diff",
    "group_retrydiff",
    "topic_dlq_offset",
    "topic_retry_offset",
)
"""Of the second dashboard in the exporter's repository, `rocketmq-exporter`."""


def test_every_name_of_the_popular_dashboards_is_served() -> None:
    assert (len(OVERVIEW), len(DETAILED)) == (51, 45)
    wanted = {f"rocketmq_{name}" for name in (*OVERVIEW, *DETAILED)}
    assert wanted - EXPORTER_METRICS.keys() == set()


def test_the_table_has_gauges_with_labels_and_sentences() -> None:
    for spec in EXPORTER_METRICS.values():
        assert re.fullmatch(r"rocketmq_[a-z0-9_]+", spec.name)
        assert spec.kind is MetricKind.GAUGE, "as the exporter has them, counters too"
        assert spec.labels
        assert spec.about


def test_no_name_has_two_meanings() -> None:
    """Both pages of one broker can be scraped side by side."""
    assert not EXPORTER_METRICS.keys() & METRICS.keys()
    assert all(reason for reason in LEFT_OUT.values())
