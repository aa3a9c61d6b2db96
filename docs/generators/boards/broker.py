"""The dashboard `broker`: requests, store, connections, event loop."""

from __future__ import annotations

from generators.boards.asking import PULLS, SENDS, line, or_0, quantile, rate
from generators.grafana import Dashboard, Panel, Query, Row

BROKER = Dashboard(
    "broker",
    "Broker",
    "Requests, store, connections and event loop of the brokers.",
    [
        Row(
            "Messages",
            [
                line(
                    "Messages stored by topic",
                    f"topk(10, {rate('rocketmq_messages_in_total', 'topic')})",
                    "{{topic}}",
                    unit="cps",
                ),
                line(
                    "Messages stored by type",
                    rate("rocketmq_messages_in_total", "message_type"),
                    "{{message_type}}",
                    unit="cps",
                ),
                line(
                    "Message size, p99",
                    quantile(0.99, "rocketmq_message_size", "node_id"),
                    "{{node_id}}",
                    unit="bytes",
                ),
                line(
                    "Messages delivered by group",
                    f"topk(10, {rate('rocketmq_messages_out_total', 'consumer_group')})",
                    "{{consumer_group}}",
                    unit="cps",
                ),
                line(
                    "Duplicate sends removed",
                    rate("kourou_repeats_removed_total", "node_id"),
                    "{{node_id}}",
                    unit="cps",
                ),
                line(
                    "Messages filtered out",
                    or_0(rate("kourou_messages_filtered_total")),
                    "messages",
                    unit="cps",
                ),
            ],
        ),
        Row(
            "Requests",
            [
                line(
                    "Replies per second",
                    f"topk(10, {rate('rocketmq_rpc_latency_count', 'request_code')})",
                    "{{request_code}}",
                    unit="cps",
                ),
                line(
                    "Send latency, p99",
                    quantile(0.99, "rocketmq_rpc_latency", "node_id", of=SENDS),
                    "{{node_id}}",
                    unit="ms",
                ),
                line(
                    "Pull latency, p99",
                    quantile(0.99, "rocketmq_rpc_latency", "node_id", of=PULLS),
                    "{{node_id}}",
                    unit="ms",
                    about="Without long polling.",
                ),
                line(
                    "Requests rejected",
                    or_0(rate("kourou_requests_refused_total", "response_code")),
                    "code {{response_code}}",
                    unit="cps",
                    about="2: overloaded, 14: the broker is read-only, 17: topic not found.",
                ),
                line("Long-polling pulls", "kourou_holds", "{{node_id}} {{instance}}"),
                line(
                    "Permission",
                    "rocketmq_broker_permission",
                    "{{node_id}} {{instance}}",
                    about="4: readable, 2: writable, 6: both.",
                ),
            ],
        ),
        Row(
            "Store",
            [
                Panel(
                    "Flush latency, p99",
                    [
                        Query(
                            quantile(0.99, "kourou_store_flush_latency", "node_id"),
                            "{{node_id}}, log",
                        ),
                        Query(
                            quantile(0.99, "kourou_store_checkpoint_latency", "node_id"),
                            "{{node_id}}, queues and index",
                        ),
                    ],
                    unit="ms",
                ),
                line(
                    "Log not flushed",
                    "rocketmq_storage_flush_behind_bytes",
                    "{{node_id}} {{instance}}",
                    unit="bytes",
                ),
                line(
                    "Log not dispatched to queues",
                    "rocketmq_storage_dispatch_behind_bytes",
                    "{{node_id}} {{instance}}",
                    unit="bytes",
                ),
                line("Log size", "rocketmq_storage_size", "{{node_id}} {{instance}}", unit="bytes"),
                line(
                    "Age of the oldest message",
                    "rocketmq_storage_message_reserve_time",
                    "{{node_id}} {{instance}}",
                    unit="ms",
                ),
                line(
                    "Disk level",
                    "kourou_store_disk_level",
                    "{{node_id}} {{instance}}",
                    about="0 normal, 1 cleaning, 2 forcing, 3 refusing, 4 starving.",
                ),
                line(
                    "Segments deleted",
                    or_0("sum by (reason) (increase(kourou_retention_segments_deleted_total[1h]))"),
                    "{{reason}}",
                    about="In the last hour.",
                ),
                line("Damaged regions", "kourou_quarantined_regions", "{{node_id}} {{instance}}"),
                line("Failed stores", "kourou_store_faulted", "{{node_id}} {{instance}}"),
            ],
        ),
        Row(
            "Connections and event loop",
            [
                line(
                    "Peers", "sum by (node_id, carrier) (kourou_peers)", "{{node_id}} {{carrier}}"
                ),
                Panel(
                    "Frames per second",
                    [
                        Query(rate("kourou_frames_in_total"), "in"),
                        Query(rate("kourou_frames_out_total"), "out"),
                    ],
                    unit="cps",
                ),
                Panel(
                    "Bytes per second",
                    [
                        Query(rate("kourou_bytes_in_total"), "in"),
                        Query(rate("kourou_bytes_out_total"), "out"),
                    ],
                    unit="Bps",
                ),
                line(
                    "Send queue of slow peers",
                    "sum by (node_type, carrier) (kourou_peer_queue_bytes)",
                    "{{node_type}} {{carrier}}",
                    unit="bytes",
                ),
                line(
                    "Peers disconnected",
                    rate("kourou_peers_cut_total", "node_type"),
                    "{{node_type}}",
                    unit="cps",
                ),
                line(
                    "Inputs per batch of the event loop",
                    "sum by (node_id) (rate(kourou_loop_inputs_total[$__rate_interval])) "
                    "/ sum by (node_id) (rate(kourou_loop_turns_total[$__rate_interval]))",
                    "{{node_id}}",
                    about="Grows with the load.",
                ),
            ],
        ),
    ],
)
