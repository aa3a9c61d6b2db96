"""The names and figures that the demo's processes agree on."""

from __future__ import annotations

TOPIC = "flights"
GROUP = "boarding"
QUEUES = 8
BATCH = 512
"""Messages a member takes at once."""

COMMIT_INTERVAL_MS = 1_000
"""Members commit each second instead of every five, so that a kill costs fewer redeliveries."""

CALLS_TOPIC = "calls"
CALLS_GROUP = "gates"
DEPARTURES_TOPIC = "departures"
DEPARTURES_GROUP = "ramp"
REMINDERS_TOPIC = "reminders"
REMINDERS_GROUP = "phones"
TICKETS_TOPIC = "tickets"
TICKETS_GROUP = "passengers"
DESK_GROUP = "ticket-desks"
LATE_GROUP = "duty-managers"
OVERNIGHT_GROUP = "night-porters"
RADAR_TOPIC = "radar"
RADAR_GROUP = "radar-screens"

DELAYS_S = (1, 2, 3)
"""The delays of the brokers' levels 1, 2 and 3. Usual ones go up to hours."""

BROKER_SETTINGS = {
    "mappedFileSizeCommitLog": str(256 << 20),
    "messageDelayLevel": " ".join(f"{delay_s}s" for delay_s in DELAYS_S),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "1000",
}
"""Smaller files than the usual 1 GiB, for the demo should not need 2 GiB of disk; and what takes
minutes as a rule takes seconds. Asking that often, the usual 15 questions would soon be over."""

GROUP_BROKER = "broker-r"
GROUP_SETTINGS = {
    "brokerName": GROUP_BROKER,
    "mappedFileSizeCommitLog": str(8 << 20),
    "slaveTimeout": "20000",
}
"""Of the three brokers that have one log. How soon they miss their leader is as usual; a disk that
stalls for long is waited for."""
