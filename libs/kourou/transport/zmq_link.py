"""A server's view of one libzmq connection: its peer, its send queue, its error count.

ZeroMQ identifies connections by a routing id that the server assigned (five bytes, the first is
zero). A peer that chose its own id is refused, because a peer that takes another client's fixed id
would lock that client out.

Invariants: a file descriptor belongs to at most one link, so a new link on a descriptor proves that
the former one is gone; `queued_bytes` is the total of `queue`; peer ids are never reused.

State: soft.
"""

from __future__ import annotations

import os
import socket as socketlib
from collections import deque
from collections.abc import Iterator, Sequence

from kourou.model import limits
from kourou.runtime.core import Peer
from kourou.transport.tcp_link import Buffer

_ROUTING_ID_BYTES = 5


def server_assigned(routing_id: bytes) -> bool:
    """Was this routing id assigned by the server's socket?"""
    return len(routing_id) == _ROUTING_ID_BYTES and routing_id[0] == 0


class Link:
    """One peer's connection.

    `stuck_since_ms`: since when the queue has made no progress; 0 if it is empty.
    """

    __slots__ = (
        "descriptor",
        "faults",
        "open",
        "peer",
        "queue",
        "queued_bytes",
        "routing_id",
        "stuck_since_ms",
    )

    def __init__(self, routing_id: bytes, descriptor: int, peer: Peer) -> None:
        self.routing_id = routing_id
        self.descriptor = descriptor
        self.peer = peer
        self.queue: deque[tuple[Sequence[Buffer], int]] = deque()
        self.queued_bytes = 0
        self.stuck_since_ms = 0
        self.faults = 0
        self.open = True

    def enqueue(self, parts: Sequence[Buffer], size: int, now_ms: int) -> bool:
        """Queue a message for later; False if the peer's queue is full."""
        if (
            len(self.queue) >= limits.SOCKET_HWM_MESSAGES
            or self.queued_bytes + size > limits.PEER_QUEUE_BYTES_MAX
        ):
            return False
        if not self.queue:
            self.stuck_since_ms = now_ms
        self.queue.append((parts, size))
        self.queued_bytes += size
        return True

    def sent_first(self, now_ms: int) -> None:
        """Remove the oldest message, which was sent: the peer is not stuck, even if others wait."""
        _, size = self.queue.popleft()
        self.queued_bytes -= size
        self.stuck_since_ms = now_ms if self.queue else 0


class LinkTable:
    """The links of one socket, indexed by routing id, by peer and by descriptor."""

    def __init__(self) -> None:
        self.by_routing_id: dict[bytes, Link] = {}
        self.by_peer: dict[int, Link] = {}
        self._by_descriptor: dict[int, Link] = {}
        self.standing: set[int] = set()

    def __len__(self) -> int:
        return len(self.by_peer)

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self.by_peer.values()))

    @property
    def full(self) -> bool:
        """Is the maximum number of peers reached?"""
        return len(self.by_peer) >= limits.PEERS_MAX

    def add(self, link: Link) -> Link | None:
        """Add a link; returns the former link of its descriptor, which is therefore gone."""
        former = self._by_descriptor.get(link.descriptor)
        self.by_routing_id[link.routing_id] = link
        self.by_peer[link.peer.id] = link
        self._by_descriptor[link.descriptor] = link
        return former

    def on_descriptor(self, descriptor: int) -> Link | None:
        """Return the link whose connection has this descriptor."""
        return self._by_descriptor.get(descriptor)

    def remove(self, link: Link) -> bool:
        """Remove a link; False if it was removed before."""
        if not link.open:
            return False
        link.open = False
        del self.by_peer[link.peer.id]
        if self.by_routing_id.get(link.routing_id) is link:
            del self.by_routing_id[link.routing_id]
        if self._by_descriptor.get(link.descriptor) is link:
            del self._by_descriptor[link.descriptor]
        link.queue.clear()
        link.queued_bytes = 0
        return True


def far_end(descriptor: int) -> tuple[str, int] | None:
    """Return the peer's address for a connection's descriptor; None if it is not a connection."""
    return _on_duplicate(descriptor, None)


def cut(descriptor: int, address: tuple[str, int]) -> bool:
    """Shut the connection down, if `descriptor` still is the connection from `address`.

    ZeroMQ has no call to close one connection of a ROUTER. Its own reader notices the shutdown and
    closes the connection, which frees what was queued for a peer that does not read.
    """
    return _on_duplicate(descriptor, address) is not None


def _on_duplicate(descriptor: int, address: tuple[str, int] | None) -> tuple[str, int] | None:
    """Query a duplicate, because the original may be closed at any moment.

    With `address`, also shut it down if that is its peer.
    """
    try:
        duplicate = socketlib.socket(fileno=os.dup(descriptor))
    except OSError:
        return None
    with duplicate:
        try:
            found = duplicate.getpeername()
            where = (str(found[0]), int(found[1]))
            if address is not None:
                if where != address:
                    return None
                duplicate.shutdown(socketlib.SHUT_RDWR)
        except (OSError, IndexError, ValueError):  # no longer a socket, or without an address
            return None
        return where
