"""The other end of a connection, as far as decisions may depend on it."""

from __future__ import annotations

from dataclasses import dataclass

MEMBERS = "members"
"""The listener for replicas of a log; it refuses clients."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of one connection. `id` is unique within the process and never reused.

    `carrier` names the transport ("zmq", "tcp", "local") for statistics only: no decision depends
    on it. `listener` is the name of the listener that accepted the connection.
    """

    id: int
    carrier: str
    address: tuple[str, int]
    listener: str = "internal"

    def __str__(self) -> str:
        return f"{self.carrier}:{self.address[0]}:{self.address[1]}#{self.id}"
