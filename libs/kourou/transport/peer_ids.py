"""Numbers for connections, whichever carrier they came in on.

State: soft, one counter a process.
"""

from __future__ import annotations

from itertools import count

_ids = count(1)


def next_peer_id() -> int:
    """An id for a new peer; never given twice in a process."""
    return next(_ids)
