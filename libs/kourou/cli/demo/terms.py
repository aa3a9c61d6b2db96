"""The names and figures that the demo's processes agree on."""

from __future__ import annotations

TOPIC = "flights"
GROUP = "boarding"
QUEUES = 8
BATCH = 512
"""Messages a member takes at once."""

COMMIT_INTERVAL_MS = 1_000
"""Members commit each second instead of every five, so that a kill costs fewer redeliveries."""
