"""The dashboard `overview`: availability, throughput, latency, lag."""

from __future__ import annotations

from generators.boards.asking import LEADS, SENDS, line, or_0, quantile, rate, risen, stat
from generators.grafana import Dashboard, Panel, Query, Row

OVERVIEW = Dashboard(
    "overview",
    "Overview",
    "Health, traffic, latency and lag of the whole suite.",
    [
        Row(
            "Now",
            [
                stat(
                    "Services offline",
                    'count(up{job=~"kourou.*|collector"} == 0) or on() vector(0)',
                    bad_above=1,
                ),
                stat(
                    "Firing alerts",
                    'count(ALERTS{alertname=~"Kourou.*",alertstate="firing"}) or on() vector(0)',
                    bad_above=1,
                ),
                stat(
                    "Brokers without a leader",
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
                    "Messages per second",
                    [
                        Query(rate("rocketmq_messages_in_total"), "stored"),
                        Query(rate("rocketmq_messages_out_total"), "delivered"),
                    ],
                    unit="cps",
                ),
                Panel(
                    "Bytes per second",
                    [
                        Query(rate("rocketmq_throughput_in_total"), "stored"),
                        Query(rate("rocketmq_throughput_out_total"), "delivered"),
                    ],
                    unit="Bps",
                ),
                Panel(
                    "Send latency",
                    [
                        Query(quantile(share, "rocketmq_rpc_latency", of=SENDS), name)
                        for share, name in ((0.5, "median"), (0.99, "p99"))
                    ],
                    "From arrival to reply at the broker; upper bounds of histogram buckets.",
                    unit="ms",
                ),
                line(
                    "Messages stored by broker",
                    rate("rocketmq_messages_in_total", "node_id"),
                    "{{node_id}}",
                    unit="cps",
                ),
                line(
                    "Consumer lag",
                    f"topk(10, sum by (consumer_group) (rocketmq_consumer_lag_messages {LEADS}))",
                    "{{consumer_group}}",
                    about="The ten groups with the largest lag.",
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
            "Inventory",
            [
                line("Services", 'sum by (service) (up{job=~"kourou.*"})', "{{service}}"),
                line(
                    "Registered brokers",
                    "sum by (cluster) (kourou_namesrv_brokers)",
                    "{{cluster}}",
                ),
                line("Topics with a route", "max(kourou_namesrv_topics)", "topics"),
                line(
                    "In-sync followers",
                    "kourou_replication_in_sync and kourou_replication_leads == 1",
                    "{{node_id}}",
                    about="Only for brokers that wait for replicas (SYNC_MASTER).",
                ),
                Panel(
                    "Client connections",
                    [
                        Query("sum(rocketmq_producer_connections)", "producers"),
                        Query("sum(rocketmq_consumer_connections)", "consumers"),
                    ],
                ),
                line(
                    "Spans dropped per second",
                    or_0(rate("kourou_trace_spans_dropped_total")),
                    "all services",
                    unit="cps",
                ),
            ],
        ),
    ],
)
