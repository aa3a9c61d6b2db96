"""The queue locks of a broker in memory (see kourou_rigs.wire_broker).

State: soft. Tests read and change `holders`.
"""

from __future__ import annotations

from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import decode_lock_batch, encode_locked_queues


class WireLocks:
    """(group, queue) -> client ID."""

    def __init__(self) -> None:
        self.holders: dict[tuple[str, MessageQueue], str] = {}

    def lock(self, body: bytes) -> bytes:
        """Acquire or refresh locks; returns the body of the reply."""
        wanted = decode_lock_batch(body)
        return encode_locked_queues(
            queue
            for queue in wanted.queues
            if self.holders.setdefault((wanted.group, queue), wanted.client_id) == wanted.client_id
        )

    def unlock(self, body: bytes) -> str:
        """Release locks; returns the group."""
        given = decode_lock_batch(body)
        for queue in given.queues:
            if self.holders.get((given.group, queue)) == given.client_id:
                del self.holders[given.group, queue]
        return given.group
