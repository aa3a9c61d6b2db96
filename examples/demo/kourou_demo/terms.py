"""Names and values that the demo's processes share."""

from __future__ import annotations

TOPIC = "flights"
GROUP = "boarding"
QUEUES = 8
BATCH = 512
"""Maximum number of messages per call of a consumer's handler."""

COMMIT_INTERVAL_MS = 1_000
"""Consumers commit every second instead of every five, which limits redeliveries after a kill."""

CALLS_TOPIC = "calls"
CALLS_GROUP = "gates"
DEPARTURES_TOPIC = "departures"
DEPARTURES_GROUP = "ramp"
REMINDERS_TOPIC = "reminders"
REMINDERS_GROUP = "phones"
TICKETS_TOPIC = "tickets"
TICKETS_GROUP = "passengers"
COUNTER_GROUP = "ticket-desks"
LATE_GROUP = "duty-managers"
OVERNIGHT_GROUP = "night-porters"
RADAR_TOPIC = "radar"
RADAR_GROUP = "radar-screens"

DELAYS_S = (1, 2, 3)
"""The delays of the brokers' levels 1, 2 and 3. The default levels go up to hours."""

BROKER_SETTINGS = {
    "mappedFileSizeCommitLog": str(256 << 20),
    "messageDelayLevel": " ".join(f"{delay_s}s" for delay_s in DELAYS_S),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "1000",
}
"""Smaller files than the default of 1 GiB, because the demo should not need 2 GiB of disk, and
seconds instead of minutes for timeouts. With such frequent check-backs, the default limit of 15
would soon be reached.
"""

GROUP_BROKER = "broker-r"
GROUP_SETTINGS = {
    "brokerName": GROUP_BROKER,
    "mappedFileSizeCommitLog": str(8 << 20),
    "slaveTimeout": "20000",
}
"""Settings of the three brokers that have one log. The election timeout is the default; a disk that
stalls for long is tolerated.
"""
