"""The dashboard `overview`: is all there, how much passes, how long it takes, who is behind.

Lives here: its questions. May not live here: how it looks (generators.grafana).
"""

from __future__ import annotations

from generators.boards.asking import LEADS, SENDS, line, or_0, quantile, rate, risen, stat
from generators.grafana import Dashboard, Panel, Query, Row

OVERVIEW = Dashboard(
    "overview",
    "Overview",
    "Is all there, how much passes, how long it takes, who is behind.",
    [
        Row(
            "Now",
            [
                stat(
                    "Services away",
                    'count(up{job=~"kourou.*|collector"} == 0) or on() vector(0)',
                    bad_above=1,
                ),
                stat(
                    "Alerts",
                    'count(ALERTS{alertname=~"Kourou.*",alertstate="firing"}) or on() vector(0)',
                    bad_above=1,
                ),
                stat(
                    "Logs without a leader",
                    "count(max by (cluster, node_id) (kourou_replication_leads) == 0)"
                    " or on() vector(0)",
                    bad_above=1,
                ),
                stat(
                    "Fullest disk",
                    "max(kourou_store_disk_used_ratio)",
                    unit="percentunit",
                    bad_above=0.75,
                ),
                stat(
                    "Dead letters, last hour",
                    or_0(risen("rocketmq_send_to_dlq_messages_total", "1h")),
                    bad_above=1,
                ),
                stat("Largest lag", or_0(f"max(rocketmq_consumer_lag_messages {LEADS})")),
            ],
        ),
        Row(
            "Traffic",
            [
                Panel(
                    "Messages a second",
                    [
                        Query(rate("rocketmq_messages_in_total"), "stored"),
                        Query(rate("rocketmq_messages_out_total"), "delivered"),
                    ],
                    unit="cps",
                ),
                Panel(
                    "Bytes a second",
                    [
                        Query(rate("rocketmq_throughput_in_total"), "stored"),
                        Query(rate("rocketmq_throughput_out_total"), "delivered"),
                    ],
                    unit="Bps",
                ),
                Panel(
                    "A send takes",
                    [
                        Query(quantile(share, "rocketmq_rpc_latency", of=SENDS), name)
                        for share, name in ((0.5, "median"), (0.99, "99 %"))
                    ],
                    "From its arrival to its answer at the broker; the ends of buckets.",
                    unit="ms",
                ),
                line(
                    "Stored by broker",
                    rate("rocketmq_messages_in_total", "node_id"),
                    "{{node_id}}",
                    unit="cps",
                ),
                line(
                    "Lag of groups",
                    f"topk(10, sum by (consumer_group) (rocketmq_consumer_lag_messages {LEADS}))",
                    "{{consumer_group}}",
                    about="Messages not consumed; the ten worst.",
                ),
                line(
                    "Disks",
                    "kourou_store_disk_used_ratio",
                    "{{node_id}} {{instance}}",
                    unit="percentunit",
                ),
            ],
        ),
        Row(
            "Who is there",
            [
                line("Services", 'sum by (service) (up{job=~"kourou.*"})', "{{service}}"),
                line(
                    "Brokers at the name server",
                    "sum by (cluster) (kourou_namesrv_brokers)",
                    "{{cluster}}",
                ),
                line("Topics with a route", "max(kourou_namesrv_topics)", "topics"),
                line(
                    "Followers that count",
                    "kourou_replication_in_sync and kourou_replication_leads == 1",
                    "{{node_id}}",
                    about="Only of brokers that wait for copies (SYNC_MASTER).",
                ),
                Panel(
                    "Connections of clients",
                    [
                        Query("sum(rocketmq_producer_connections)", "producers"),
                        Query("sum(rocketmq_consumer_connections)", "consumers"),
                    ],
                ),
                line(
                    "Spans lost a second",
                    or_0(rate("kourou_trace_spans_dropped_total")),
                    "all services",
                    unit="cps",
                ),
            ],
        ),
    ],
)
