"""One TCP connection of a listener or a client, with framing and a send queue.

Frames are views of the bytes that were read: a read may contain many, and none is copied. Only an
incomplete frame is kept, in a buffer that the socket fills directly.

Invariants:
- An incomplete frame takes at most four times the bytes received of it, or 64 KiB, and never more
  than its length fields claim, which were checked first.
- `queued_bytes` is the total of `queue`, plus QUEUED_OVERHEAD_BYTES for each buffer.

State: soft.
"""

from __future__ import annotations

import socket as socketlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Generic, TypeVar

from kourou.model import limits
from kourou.runtime import Peer

Buffer = bytes | bytearray | memoryview

READ_BYTES = 262_144
"""Maximum bytes of one read: a few hundred sends, or a part of a large body."""

FIRST_PARTIAL_BYTES = 65_536
"""First buffer of an incomplete frame; GROWTH times what has arrived, if that is more."""

GROWTH = 4
"""Growth factor of a full buffer: most frames are complete before they need it."""

BUFFERS_A_CALL = 1_024
"""The operating system's limit for one `sendmsg`."""

QUEUED_OVERHEAD_BYTES = 128
"""Memory cost of a queued buffer in addition to its bytes, so that small ones count, too."""

FrameT = TypeVar("FrameT")


class TcpLink(ABC, Generic[FrameT]):
    """One connection of `peer`. Times are monotonic ms.

    `last_ms`: when something was last received or sent. `unfinished_since_ms`: when the incomplete
    frame began. `blocked_since_ms`: when the socket last accepted bytes while more were queued. The
    last two are 0 if they do not apply. `counted_bytes`: what the owner has counted of
    `unfinished_bytes`.
    """

    __slots__ = (
        "_filled",
        "_partial",
        "_wanted",
        "blocked_since_ms",
        "counted_bytes",
        "last_ms",
        "open",
        "peer",
        "queue",
        "queued_bytes",
        "socket",
        "unfinished_since_ms",
    )

    def __init__(self, socket: socketlib.socket, peer: Peer, now_ms: int) -> None:
        self.socket = socket
        self.peer = peer
        self.last_ms = now_ms
        self.open = True
        self.queue: deque[Buffer] = deque()
        self.queued_bytes = 0
        self.blocked_since_ms = 0
        self.unfinished_since_ms = 0
        self.counted_bytes = 0
        self._partial: bytearray | None = None
        self._filled = 0
        self._wanted = 0

    # -- receive ----------------------------------------------------------------------------------

    @property
    def unfinished_bytes(self) -> int:
        """Memory that the incomplete frame takes."""
        return 0 if self._partial is None else len(self._partial)

    @property
    def incomplete_since_ms(self) -> int:
        """When what `unfinished_bytes` counts began; 0 if there is nothing."""
        return self.unfinished_since_ms

    def read(self, frames: list[FrameT], now_ms: int) -> int:
        """Read from the socket once, and append the complete frames to `frames`.

        Returns the number of bytes received, 0 at the end of the stream. Raises BlockingIOError,
        OSError, and DecodeError for an invalid frame; valid frames before it are appended.
        """
        partial = self._partial
        if partial is None:
            data = self.socket.recv(READ_BYTES)
            if data:
                self._take(memoryview(data), frames, now_ms)
            return len(data)
        with memoryview(partial) as view:
            count = self.socket.recv_into(view[self._filled :])
        self._extend(count, frames, now_ms)
        return count

    def _extend(self, count: int, frames: list[FrameT], now_ms: int) -> None:
        """Note that `count` bytes were received into the buffer of the incomplete frame."""
        partial = self._partial
        assert partial is not None
        self._filled += count
        if self._filled == self._wanted:
            self._partial = None
            self._take(memoryview(partial), frames, now_ms)
        elif self._filled == len(partial):
            # The buffer grows with the bytes received, not with the claimed size: claims cost
            # nothing.
            partial += bytes(min((GROWTH - 1) * len(partial), self._wanted - len(partial)))

    def _take(self, view: memoryview, frames: list[FrameT], now_ms: int) -> None:
        at, wanted = self._cut(view, frames)
        if at == len(view):
            self.unfinished_since_ms = 0
            return
        rest = view[at:]
        if at or not self.unfinished_since_ms:
            self.unfinished_since_ms = now_ms
        self._wanted = wanted
        self._filled = len(rest)
        self._partial = bytearray(min(max(GROWTH * len(rest), FIRST_PARTIAL_BYTES), wanted))
        self._partial[: len(rest)] = rest

    @abstractmethod
    def _cut(self, view: memoryview, frames: list[FrameT]) -> tuple[int, int]:
        """Append the complete frames in `view`.

        Returns where they end, and how many bytes from there on are needed before the next call,
        which is more than there are. Raises DecodeError.
        """

    # -- send -------------------------------------------------------------------------------------

    def put(self, parts: Sequence[Buffer]) -> None:
        """Append bytes to the send queue."""
        queue = self.queue
        size = 0
        for part in parts:
            if part:
                queue.append(part)
                size += len(part) + QUEUED_OVERHEAD_BYTES
        self.queued_bytes += size

    def put_message(self, parts: Sequence[Buffer]) -> None:
        """Append a message to the send queue; a subclass may add the protocol's framing."""
        self.put(parts)

    @property
    def overfull(self) -> bool:
        """Is the queue larger than the limit per peer?"""
        return self.queued_bytes > limits.PEER_QUEUE_BYTES_MAX

    def write(self, now_ms: int) -> int:
        """Send as much as the socket accepts; returns the number of bytes. Raises OSError."""
        queue = self.queue
        written = 0
        while queue:
            parts = list(islice(queue, BUFFERS_A_CALL))
            try:
                count = self.socket.sendmsg(parts)
            except (BlockingIOError, InterruptedError):
                break
            written += count
            self._sent(parts, count)
        self._wrote(written, now_ms)
        return written

    def _wrote(self, written: int, now_ms: int) -> None:
        """Note when bytes were sent, and since when the rest waits."""
        if written:
            self.last_ms = now_ms
        if not self.queue:
            self.blocked_since_ms = 0
        elif written or not self.blocked_since_ms:
            self.blocked_since_ms = now_ms

    def _sent(self, parts: list[Buffer], count: int) -> None:
        queue = self.queue
        left = count
        for part in parts:
            size = len(part)
            if left < size:
                if left:
                    queue[0] = memoryview(part)[left:]
                    self.queued_bytes -= left
                return
            left -= size
            queue.popleft()
            self.queued_bytes -= size + QUEUED_OVERHEAD_BYTES

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def drop_queue(self) -> None:
        """Drop what waits to be sent: it cannot be sent any more."""
        self.queue.clear()
        self.queued_bytes = self.blocked_since_ms = 0

    def forget(self) -> None:
        """Release all buffers: the connection is over."""
        self.drop_queue()
        self._partial = None
