"""Connection ids that are unique in the process, for all transports.

State: soft, one counter per process.
"""

from __future__ import annotations

from itertools import count

_ids = count(1)


def next_peer_id() -> int:
    """Return an id for a new peer; an id is never reused within a process."""
    return next(_ids)
