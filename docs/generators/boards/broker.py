"""The dashboard `broker`: requests, the store, connections, the loop.

Lives here: its questions. May not live here: how it looks (generators.grafana).
"""

from __future__ import annotations

from generators.boards.asking import PULLS, SENDS, line, or_0, quantile, rate
from generators.grafana import Dashboard, Panel, Query, Row

BROKER = Dashboard(
    "broker",
    "Broker",
    "What brokers do: requests, the store, connections, the loop.",
    [
        Row(
            "Messages",
            [
                line(
                    "Stored by topic",
                    f"topk(10, {rate('rocketmq_messages_in_total', 'topic')})",
                    "{{topic}}",
                    unit="cps",
                ),
                line(
                    "Stored by type",
                    rate("rocketmq_messages_in_total", "message_type"),
                    "{{message_type}}",
                    unit="cps",
                ),
                line(
                    "Size of messages, 99 %",
                    quantile(0.99, "rocketmq_message_size", "node_id"),
                    "{{node_id}}",
                    unit="bytes",
                ),
                line(
                    "Delivered by group",
                    f"topk(10, {rate('rocketmq_messages_out_total', 'consumer_group')})",
                    "{{consumer_group}}",
                    unit="cps",
                ),
                line(
                    "Repeated sends recognised",
                    rate("kourou_repeats_removed_total", "node_id"),
                    "{{node_id}}",
                    unit="cps",
                ),
                line(
                    "Passed over by subscriptions",
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
                    "Answers a second",
                    f"topk(10, {rate('rocketmq_rpc_latency_count', 'request_code')})",
                    "{{request_code}}",
                    unit="cps",
                ),
                line(
                    "A send takes, 99 %",
                    quantile(0.99, "rocketmq_rpc_latency", "node_id", of=SENDS),
                    "{{node_id}}",
                    unit="ms",
                ),
                line(
                    "A pull takes, 99 %",
                    quantile(0.99, "rocketmq_rpc_latency", "node_id", of=PULLS),
                    "{{node_id}}",
                    unit="ms",
                    about="Those that had not to wait for messages.",
                ),
                line(
                    "Refused",
                    or_0(rate("kourou_requests_refused_total", "response_code")),
                    "code {{response_code}}",
                    unit="cps",
                    about="2: busy, 14: the broker may not be written to, 17: no such topic.",
                ),
                line("Pulls that wait", "kourou_holds", "{{node_id}} {{instance}}"),
                line(
                    "Permission",
                    "rocketmq_broker_permission",
                    "{{node_id}} {{instance}}",
                    about="4 may be read, 2 may be written, 6 both.",
                ),
            ],
        ),
        Row(
            "Store",
            [
                Panel(
                    "A flush takes, 99 %",
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
                    "Appended and not flushed",
                    "rocketmq_storage_flush_behind_bytes",
                    "{{node_id}} {{instance}}",
                    unit="bytes",
                ),
                line(
                    "Appended and not in queues",
                    "rocketmq_storage_dispatch_behind_bytes",
                    "{{node_id}} {{instance}}",
                    unit="bytes",
                ),
                line("Log", "rocketmq_storage_size", "{{node_id}} {{instance}}", unit="bytes"),
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
                line("Faulted stores", "kourou_store_faulted", "{{node_id}} {{instance}}"),
            ],
        ),
        Row(
            "Connections and the loop",
            [
                line(
                    "Peers", "sum by (node_id, carrier) (kourou_peers)", "{{node_id}} {{carrier}}"
                ),
                Panel(
                    "Frames a second",
                    [
                        Query(rate("kourou_frames_in_total"), "in"),
                        Query(rate("kourou_frames_out_total"), "out"),
                    ],
                    unit="cps",
                ),
                Panel(
                    "Bytes a second",
                    [
                        Query(rate("kourou_bytes_in_total"), "in"),
                        Query(rate("kourou_bytes_out_total"), "out"),
                    ],
                    unit="Bps",
                ),
                line(
                    "Waiting for peers that do not read",
                    "sum by (node_type, carrier) (kourou_peer_queue_bytes)",
                    "{{node_type}} {{carrier}}",
                    unit="bytes",
                ),
                line(
                    "Peers cut off",
                    rate("kourou_peers_cut_total", "node_type"),
                    "{{node_type}}",
                    unit="cps",
                ),
                line(
                    "Inputs in a turn of the loop",
                    "sum by (node_id) (rate(kourou_loop_inputs_total[$__rate_interval])) "
                    "/ sum by (node_id) (rate(kourou_loop_turns_total[$__rate_interval]))",
                    "{{node_id}}",
                    about="The more at once, the busier it is.",
                ),
            ],
        ),
    ],
)
