"""The dashboard `groups`: lag, retries, dead letters, delayed messages and transactions."""

from __future__ import annotations

from generators.boards.asking import LEADS, line, or_0, quantile, rate, risen
from generators.grafana import Dashboard, Panel, Query, Row

GROUPS = Dashboard(
    "groups",
    "Consumer groups",
    "Lag, retries, dead letters, delayed messages and transactions.",
    [
        Row(
            "Lag",
            [
                line(
                    "Consumer lag",
                    "topk(15, sum by (consumer_group, topic) "
                    f"(rocketmq_consumer_lag_messages {LEADS}))",
                    "{{consumer_group}} {{topic}}",
                    width=12,
                ),
                line(
                    "Messages delivered",
                    f"topk(15, {rate('rocketmq_messages_out_total', 'consumer_group', 'topic')})",
                    "{{consumer_group}} {{topic}}",
                    unit="cps",
                    width=12,
                ),
                line(
                    "Connected consumers",
                    "sum by (consumer_group) (rocketmq_consumer_connections)",
                    "{{consumer_group}}",
                ),
                line(
                    "Locked queues (ordered consumption)",
                    or_0("sum by (consumer_group) (kourou_queue_locks)"),
                    "{{consumer_group}}",
                ),
                line(
                    "Unread messages that expire soon",
                    or_0(
                        "sum by (consumer_group, topic) "
                        f"(kourou_retention_unread_expiring_messages {LEADS})"
                    ),
                    "{{consumer_group}} {{topic}}",
                ),
            ],
        ),
        Row(
            "Retries, delays, transactions",
            [
                line(
                    "Messages sent back for a retry",
                    rate("kourou_messages_sent_back_total", "consumer_group"),
                    "{{consumer_group}}",
                    unit="cps",
                ),
                line(
                    "New dead letters",
                    or_0(risen("rocketmq_send_to_dlq_messages_total", "10m", "consumer_group")),
                    "{{consumer_group}}",
                    about="In the last ten minutes.",
                ),
                line(
                    "Unread messages deleted",
                    or_0(risen("kourou_retention_unread_deleted_total", "1h", "consumer_group")),
                    "{{consumer_group}}",
                    about="In the last hour.",
                ),
                line(
                    "Pending delayed messages",
                    "sum by (node_id) (kourou_delayed_waiting)",
                    "{{node_id}}",
                ),
                line(
                    "Delivery delay beyond the due time, p99",
                    quantile(0.99, "kourou_delayed_lateness", "node_id"),
                    "{{node_id}}",
                    unit="ms",
                ),
                line("Open transactions", "rocketmq_half_messages", "{{node_id}} {{instance}}"),
                Panel(
                    "Transactions per second",
                    [
                        Query(or_0(rate("rocketmq_commit_messages_total")), "committed"),
                        Query(or_0(rate("rocketmq_rollback_messages_total")), "rolled back"),
                    ],
                    unit="cps",
                ),
                line(
                    "Transaction check-backs",
                    rate("kourou_transaction_checks_total"),
                    "checks",
                    unit="cps",
                ),
            ],
        ),
    ],
)
