"""One TCP connection of a listener or a client: bytes that come, bytes that are to leave.

Frames are views of the bytes that were read: a read may hold many, and none is copied. Only a frame
that is not whole yet is kept aside, in a buffer that the socket itself fills.

Invariants:  an unfinished frame takes at most four times what has come of it, or 64 KiB, and never
             more than its lengths claim, which were checked first
             `queued_bytes` is the sum over `queue`, plus QUEUED_OVERHEAD_BYTES for each buffer

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
from kourou.runtime.peer import Peer

Buffer = bytes | bytearray | memoryview

READ_BYTES = 262_144
"""What one look at a connection takes at most: some hundred sends, or a part of a large body."""

FIRST_PARTIAL_BYTES = 65_536
"""The first buffer of a frame that is not whole, or a multiple of what has come if that is more."""

GROWTH = 4
"""How much larger it gets when it is full: most frames are whole before that."""

BUFFERS_A_CALL = 1_024
"""The system's limit for one `sendmsg`."""

QUEUED_OVERHEAD_BYTES = 128
"""What a waiting buffer costs beside its bytes: small ones must count, too."""

FrameT = TypeVar("FrameT")


class TcpLink(ABC, Generic[FrameT]):
    """One connection of `peer`. Times are monotonic ms.

    `last_ms` is when something last came or left, `unfinished_since_ms` when the frame began that
    is not whole yet, `blocked_since_ms` when the socket last took something while more waited; 0
    where there is none.
    """

    __slots__ = (
        "_filled",
        "_partial",
        "_wanted",
        "blocked_since_ms",
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
        self._partial: bytearray | None = None
        self._filled = 0
        self._wanted = 0

    # -- in ---------------------------------------------------------------------------------------

    @property
    def unfinished_bytes(self) -> int:
        """What the frame that is not whole yet takes of the memory."""
        return 0 if self._partial is None else len(self._partial)

    def read(self, frames: list[FrameT], now_ms: int) -> int:
        """Take what the socket has, once, and add the frames that are whole now.

        Returns how many bytes came, 0 at the end of the stream. Raises BlockingIOError, OSError,
        and DecodeError for bytes that are no frame; frames before them are added all the same.
        """
        partial = self._partial
        if partial is None:
            data = self.socket.recv(READ_BYTES)
            if data:
                self._take(memoryview(data), frames, now_ms)
            return len(data)
        with memoryview(partial) as view:
            count = self.socket.recv_into(view[self._filled :])
        self._filled += count
        if self._filled == self._wanted:
            self._partial = None
            self._take(memoryview(partial), frames, now_ms)
        elif self._filled == len(partial):
            # It grows with what has come, not with what was claimed: claims cost nothing.
            partial += bytes(min((GROWTH - 1) * len(partial), self._wanted - len(partial)))
        return count

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
        """Add the frames that are whole in `view`.

        Returns where they end, and how many bytes from there on are wanted before the next look,
        more than are there. Raises DecodeError.
        """

    # -- out --------------------------------------------------------------------------------------

    def put(self, parts: Sequence[Buffer]) -> None:
        """Add bytes to what shall leave."""
        queue = self.queue
        size = 0
        for part in parts:
            if part:
                queue.append(part)
                size += len(part) + QUEUED_OVERHEAD_BYTES
        self.queued_bytes += size

    def put_message(self, parts: Sequence[Buffer]) -> None:
        """Add a message to what shall leave, in the protocol's framing; here it is framed."""
        self.put(parts)

    @property
    def overfull(self) -> bool:
        """Does more wait than a peer may keep waiting?"""
        return self.queued_bytes > limits.PEER_QUEUE_BYTES_MAX

    def write(self, now_ms: int) -> int:
        """Send as much as the socket takes; how many bytes that was. Raises OSError."""
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
        if written:
            self.last_ms = now_ms
        if not queue:
            self.blocked_since_ms = 0
        elif written or not self.blocked_since_ms:
            self.blocked_since_ms = now_ms
        return written

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

    def forget(self) -> None:
        """Let go of all that is kept: the connection is over."""
        self.queue.clear()
        self.queued_bytes = 0
        self._partial = None
