"""The dashboard `replication`: who leads, how far copies are behind, the links of Raft groups.

Lives here: its questions. May not live here: how it looks (generators.grafana).
"""

from __future__ import annotations

from generators.boards.asking import line, rate
from generators.grafana import Dashboard, Panel, Query, Row

REPLICATION = Dashboard(
    "replication",
    "Replication",
    "Who leads, how far copies are behind, and the links of Raft groups.",
    [
        Row(
            "Copies",
            [
                line("Leads", "kourou_replication_leads", "{{node_id}} {{instance}}"),
                line(
                    "Epoch",
                    "kourou_replication_epoch",
                    "{{node_id}} {{instance}}",
                    about="Grows with each change of leader.",
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
                    "In sync: only of brokers that wait for copies (SYNC_MASTER).",
                ),
                line(
                    "Behind, in bytes",
                    "kourou_replication_lag_bytes",
                    "{{node_id}} copy {{broker_id}}, says {{instance}}",
                    unit="bytes",
                    width=12,
                ),
                line(
                    "Behind, in time",
                    "kourou_replication_lag_seconds",
                    "{{node_id}} copy {{broker_id}}, says {{instance}}",
                    unit="s",
                    width=12,
                ),
            ],
        ),
        Row(
            "Raft groups",
            [
                line("Links that stand", "kourou_raft_peer_connected", "{{instance}} to {{peer}}"),
                line(
                    "Said a second",
                    rate("kourou_raft_messages_sent_total", "instance", "peer"),
                    "{{instance}} to {{peer}}",
                    unit="cps",
                ),
                line(
                    "Not said",
                    rate("kourou_raft_messages_dropped_total", "instance", "peer"),
                    "{{instance}} to {{peer}}",
                    unit="cps",
                ),
                line(
                    "Clients' requests brought to the leader",
                    "kourou_raft_forwarding",
                    "{{instance}} to {{peer}}",
                ),
            ],
        ),
    ],
)
