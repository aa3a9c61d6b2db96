"""Who is on the other end of a connection, as much as a decision may know of it."""

from __future__ import annotations

from dataclasses import dataclass

MEMBERS = "members"
"""The listener on which those who copy a log meet; clients are refused there."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One connection's far end. `id` is unique for the life of the process and never reused.

    `carrier` names the transport ("zmq", "tcp", "local") for statistics only: no decision looks at
    it. `listener` is the name of the listener the connection came in on.
    """

    id: int
    carrier: str
    address: tuple[str, int]
    listener: str = "internal"

    def __str__(self) -> str:
        return f"{self.carrier}:{self.address[0]}:{self.address[1]}#{self.id}"
