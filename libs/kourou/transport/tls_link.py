"""A TCP connection that carries TLS, on the socket of the link: no thread and no transport.

Receiving: one raw read is decrypted completely, because only the raw socket reports that more can
be read. Decrypted bytes that stayed behind would wait for the next packet.

Sending: `write` encrypts at most SEAL_BYTES when nothing encrypted waits, so a slow reader costs
that much memory in addition to the replies themselves.

Invariants:
- The first `_sealed` buffers of `queue` are encrypted, the others are not; so an empty queue means
  that nothing waits, and all limits of the queue apply to both.
- Nothing is encrypted before the handshake is complete. From then on `peer` has the subject of the
  client's certificate, if there is one.

State: soft.
"""

from __future__ import annotations

import contextlib
import socket as socketlib
import ssl
from dataclasses import replace
from itertools import islice
from typing import cast

from kourou.errors import DecodeError
from kourou.runtime import Peer
from kourou.transport.tcp_link import (
    QUEUED_OVERHEAD_BYTES,
    READ_BYTES,
    Buffer,
    FrameT,
    TcpLink,
)
from kourou.transport.tls import certificate_subject, why

SEAL_BYTES = 65_536
"""Maximum plain bytes that are encrypted at a time: four records."""

WRITE_BYTES = 4 << 20
"""Maximum bytes of one `write`: encryption takes time that other connections wait for."""

RECORD_BYTES = 16_384
"""Maximum plain bytes of a record, and of what one call decrypts."""


class TlsLink(TcpLink[FrameT]):
    """One connection over TLS. `began_ms`: when the handshake began."""

    __slots__ = ("_incoming", "_outgoing", "_sealed", "_tls", "began_ms", "established")

    def __init__(
        self, socket: socketlib.socket, peer: Peer, now_ms: int, context: ssl.SSLContext
    ) -> None:
        super().__init__(socket, peer, now_ms)
        self.began_ms = now_ms
        self.established = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._sealed = 0

    # -- receive ----------------------------------------------------------------------------------

    def read(self, frames: list[FrameT], now_ms: int) -> int:
        """Read from the socket once, and append the complete frames to `frames`.

        As TcpLink.read. Raises DecodeError for a failed handshake, too; the alert for the peer is
        queued.
        """
        data = self.socket.recv(READ_BYTES)
        if not data:
            return 0
        self._incoming.write(data)
        trouble: ssl.SSLError | None = None
        count = len(data)
        try:
            self._decrypt(frames, now_ms)
            count = 0
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            count = 0
        except ssl.SSLError as error:
            trouble = error
        self._queue_control()
        if trouble is not None:
            what = "the TLS stream is broken" if self.established else "the TLS handshake failed"
            raise DecodeError(f"{what}: {why(trouble)}") from trouble
        if self.overfull:  # answers to the peer's key updates, which it does not read
            raise DecodeError(f"{self.queued_bytes} bytes wait")
        return count

    def _decrypt(self, frames: list[FrameT], now_ms: int) -> None:
        """Take what the received records contain; returns if the peer ended the stream.

        Raises SSLWantReadError when all is decrypted, SSLError, and DecodeError.
        """
        tls = self._tls
        if not self.established:
            tls.do_handshake()
            self.established = True
            self.peer = replace(self.peer, subject=certificate_subject(tls))
        while True:
            partial = self._partial
            if partial is None:
                piece = tls.read(RECORD_BYTES)
                if not piece:
                    return
                self._take(memoryview(piece), frames, now_ms)
                continue
            with memoryview(partial) as view, view[self._filled :] as room:
                count = cast("int", tls.read(len(room), room))  # typeshed knows the other form
            if not count:
                return
            self._extend(count, frames, now_ms)

    def _queue_control(self) -> None:
        """Queue what TLS itself sends: the handshake, alerts, key updates."""
        if self._outgoing.pending:
            self._put_sealed(self._outgoing.read())

    # -- send -------------------------------------------------------------------------------------

    def write(self, now_ms: int) -> int:
        """Encrypt and send as much as the socket accepts, at most about WRITE_BYTES.

        Returns the number of encrypted bytes. Raises OSError.
        """
        queue = self.queue
        written = 0
        while queue and written < WRITE_BYTES:
            if not self._sealed:
                self._seal()
            head = queue[0]
            try:
                count = self.socket.send(head)
            except (BlockingIOError, InterruptedError):
                break
            written += count
            if count == len(head):
                self._sealed -= 1
            self._sent([head], count)
        self._wrote(written, now_ms)
        return written

    def _seal(self) -> None:
        """Replace the first SEAL_BYTES of the queue by their encrypted form."""
        pieces: list[Buffer] = []
        size = 0
        for part in self.queue:
            piece = memoryview(part)[: SEAL_BYTES - size]
            pieces.append(piece)
            size += len(piece)
            if size == SEAL_BYTES:
                break
        plain: Buffer = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        view = memoryview(plain)
        while view:  # a call encrypts one record
            view = view[self._tls.write(view) :]
        self._sent(list(islice(self.queue, len(pieces))), size)
        self._put_sealed(self._outgoing.read())

    def _put_sealed(self, data: bytes) -> None:
        self.queue.insert(self._sealed, data)
        self._sealed += 1
        self.queued_bytes += len(data) + QUEUED_OVERHEAD_BYTES

    # -- end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the socket, with a close_notify if everything else was sent."""
        if self.established and not self.queue:
            with contextlib.suppress(OSError):  # it waits for the peer's close_notify; we do not
                self._tls.unwrap()
            with contextlib.suppress(OSError):  # the peer is gone, or does not read
                self.socket.send(self._outgoing.read())
        super().close()

    def drop_queue(self) -> None:
        """Drop what waits to be sent, encrypted or not."""
        super().drop_queue()
        self._sealed = 0
