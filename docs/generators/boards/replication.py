"""The dashboard `replication`: leaders, replication lag, connections of Raft groups."""

from __future__ import annotations

from generators.boards.asking import line, rate
from generators.grafana import Dashboard, Panel, Query, Row

REPLICATION = Dashboard(
    "replication",
    "Replication",
    "Leaders, replication lag and connections of Raft groups.",
    [
        Row(
            "Replicas",
            [
                line("Leader", "kourou_replication_leads", "{{node_id}} {{instance}}"),
                line(
                    "Epoch",
                    "kourou_replication_epoch",
                    "{{node_id}} {{instance}}",
                    about="Increases with each change of leader.",
                ),
                Panel(
                    "Followers",
                    [
                        Query(
                            "kourou_replication_followers and kourou_replication_leads == 1",
                            "{{node_id}}, attached",
                        ),
                        Query(
                            "kourou_replication_in_sync and kourou_replication_leads == 1",
                            "{{node_id}}, in sync",
                        ),
                    ],
                    "In sync: only for brokers that wait for replicas (SYNC_MASTER).",
                ),
                line(
                    "Replication lag in bytes",
                    "kourou_replication_lag_bytes",
                    "{{node_id}} replica {{broker_id}}, reported by {{instance}}",
                    unit="bytes",
                    width=12,
                ),
                line(
                    "Replication lag in time",
                    "kourou_replication_lag_seconds",
                    "{{node_id}} replica {{broker_id}}, reported by {{instance}}",
                    unit="s",
                    width=12,
                ),
            ],
        ),
        Row(
            "Raft groups",
            [
                line(
                    "Connections between members",
                    "kourou_raft_peer_connected",
                    "{{instance}} to {{peer}}",
                ),
                line(
                    "Messages sent per second",
                    rate("kourou_raft_messages_sent_total", "instance", "peer"),
                    "{{instance}} to {{peer}}",
                    unit="cps",
                ),
                line(
                    "Messages dropped per second",
                    rate("kourou_raft_messages_dropped_total", "instance", "peer"),
                    "{{instance}} to {{peer}}",
                    unit="cps",
                ),
                line(
                    "Client requests forwarded to the leader",
                    "kourou_raft_forwarding",
                    "{{instance}} to {{peer}}",
                ),
            ],
        ),
    ],
)
