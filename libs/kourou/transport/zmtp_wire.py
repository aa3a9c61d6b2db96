"""A clear-text client connection that is opened, read and written on the event loop itself.

State: soft. All calls must be made on the loop on which it was opened.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket as socketlib
from collections.abc import Sequence

from kourou.errors import DecodeError
from kourou.runtime import Peer
from kourou.transport.addresses import next_peer_id, split_address
from kourou.transport.busy_poll import BusyPoll
from kourou.transport.tcp_link import Buffer
from kourou.transport.wire import WireEvent, WireOwner, WireTimeouts
from kourou.transport.zmtp import DEALER, OtherMechanism, Parts, ZmtpLink

TOGETHER_BYTES = 16_384
"""A queue of this size is written without waiting for the end of the loop iteration."""


class ZmtpWire:
    """A DEALER connection to `address` (`host:port`)."""

    def __init__(self, address: str, timeouts: WireTimeouts, owner: WireOwner) -> None:
        self._host, self._port = split_address(address)
        self._timeouts = timeouts
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._link: ZmtpLink | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ready = False
        self._behind = 0
        self._more: asyncio.Handle | None = None
        self._poll = BusyPoll(self._loop, timeouts.busy_poll_us)
        self._closed = False

    @property
    def is_outdated(self) -> bool:
        """Whether its keys have changed: it has none."""
        return False

    def open(self) -> None:
        """Start to connect."""
        self._dialling = self._loop.create_task(self._dial())

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._poll.stop()
        if self._dialling is not None:
            self._dialling.cancel()
        if self._timer is not None:
            self._timer.cancel()
        link, self._link = self._link, None
        if link is not None:
            if self._more is not None:
                self._more.cancel()
                self._send_more(link)
            descriptor = link.socket.fileno()
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
            link.socket.close()
            link.forget()

    # -- the connection ---------------------------------------------------------------------------

    async def _dial(self) -> None:
        limit_s = self._timeouts.connect_ms / 1_000 or None
        try:
            async with asyncio.timeout(limit_s):
                socket = await self._connected()
        except (OSError, TimeoutError, UnicodeError) as error:
            # UnicodeError: no DNS name can be so long.
            unknown = isinstance(error, socketlib.gaierror | UnicodeError)
            self._dialling = None
            self._end(WireEvent.UNKNOWN_HOST if unknown else WireEvent.REFUSED)
            return
        self._dialling = None
        where = (self._host, self._port)
        self._link = ZmtpLink(socket, Peer(next_peer_id(), "zmq", where), self._now_ms(), DEALER)
        self._loop.add_reader(socket.fileno(), self._readable)
        self._write(self._link)
        self._timer = self._loop.call_later(
            self._timeouts.greeting_ms / 1_000, self._fail, WireEvent.BAD_GREETING
        )

    async def _connected(self) -> socketlib.socket:
        """Connect to the first of the host's addresses that accepts. Raises OSError."""
        trouble = OSError("no address")
        for family, address in await self._addresses():
            socket = socketlib.socket(family, socketlib.SOCK_STREAM | socketlib.SOCK_NONBLOCK)
            try:
                socket.setsockopt(socketlib.IPPROTO_TCP, socketlib.TCP_NODELAY, 1)
                if self._timeouts.unread_ms and hasattr(socketlib, "TCP_USER_TIMEOUT"):
                    socket.setsockopt(
                        socketlib.IPPROTO_TCP, socketlib.TCP_USER_TIMEOUT, self._timeouts.unread_ms
                    )
                await self._loop.sock_connect(socket, address)
            except OSError as error:
                socket.close()
                trouble = error
            except BaseException:
                socket.close()
                raise
            else:
                return socket
        raise trouble

    async def _addresses(self) -> list[tuple[int, tuple[str, int]]]:
        try:
            version = ipaddress.ip_address(self._host).version
        except ValueError:  # a name: resolving it may take a while
            found = await self._loop.getaddrinfo(self._host, self._port, type=socketlib.SOCK_STREAM)
            return [(family, (str(to[0]), int(to[1]))) for family, _, _, _, to in found]
        family = socketlib.AF_INET if version == 4 else socketlib.AF_INET6
        return [(family, (self._host, self._port))]

    def _greeted(self, link: ZmtpLink) -> None:
        self._ready = True
        if self._timer is not None:
            self._timer.cancel()
        self._probe_later(link)
        self._owner.happened(self, WireEvent.READY)

    def _probe_later(self, link: ZmtpLink) -> None:
        self._timer = self._loop.call_later(self._timeouts.probe_ms / 1_000, self._probe, link)

    def _probe(self, link: ZmtpLink) -> None:
        if link.silent_probes * self._timeouts.probe_ms >= self._timeouts.silence_ms:
            self._end(WireEvent.LOST)
            return
        link.probe()
        self._write(link)
        self._probe_later(link)

    def _fail(self, kind: WireEvent) -> None:
        """End the connection after a failed handshake."""
        self._owner.happened(self, kind)
        self._end(WireEvent.LOST)

    def _end(self, kind: WireEvent) -> None:
        if not self._closed:
            self.close()
            self._owner.happened(self, kind)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1_000)

    # -- receive and send -------------------------------------------------------------------------

    def _readable(self) -> bool:
        """Read once; False if nothing arrived."""
        link = self._link
        assert link is not None
        frames: list[Parts] = []
        trouble: WireEvent | None = None
        try:
            count = link.read(frames, self._now_ms())
        except (BlockingIOError, InterruptedError):
            return False
        except OtherMechanism:
            count, trouble = 0, WireEvent.OTHER_MECHANISM
        except DecodeError:
            count, trouble = 0, None if self._ready else WireEvent.BAD_GREETING
        except OSError:  # reset: in any case it is gone
            count = 0
        if link.queue:
            self._write(link)
        if link.ready and not self._ready:
            self._greeted(link)
        if frames:
            self._poll.met()
            self._poll.stop()
        for parts in frames:
            if self._closed:  # by a callback
                return False
            self._owner.arrived(self, parts)
        if count or self._closed:
            return bool(count)
        if trouble is None and not self._ready:
            trouble = WireEvent.BAD_GREETING
        if trouble is not None:
            self._owner.happened(self, trouble)
        self._end(WireEvent.LOST)
        return False

    def send(self, parts: Sequence[Buffer]) -> bool:
        """Send a message; False if the queue is full.

        The first message of a loop iteration is sent immediately unless `gather` was called; the
        other messages of that iteration are sent together.
        """
        link = self._link
        if link is None:
            return False
        if link.blocked_since_ms:
            if self._behind >= self._timeouts.pipe_messages or link.overfull:
                return False
            self._behind += 1
            link.put_message(parts)
            return True
        link.put_message(parts)
        if self._more is None or link.queued_bytes >= TOGETHER_BYTES:
            self._write(link)
        self.gather()
        self._poll.begin()
        return True

    def gather(self) -> None:
        """Batch the messages sent until the end of the loop iteration."""
        if self._more is None and self._link is not None:
            self._more = self._loop.call_soon(self._send_more, self._link)

    def _send_more(self, link: ZmtpLink) -> None:
        self._more = None
        if link.queue and not link.blocked_since_ms:
            self._write(link)

    def _write(self, link: ZmtpLink) -> None:
        was_blocked = link.blocked_since_ms
        try:
            link.write(self._now_ms())
        except OSError:  # what arrived before the end is read first
            link.forget()
            self._loop.call_soon(self._broken, link)
        if link.blocked_since_ms and not was_blocked:
            self._loop.add_writer(link.socket.fileno(), self._writable, link)

    def _broken(self, link: ZmtpLink) -> None:
        while self._link is link and self._readable():
            pass
        if self._link is link:
            self._end(WireEvent.LOST)

    def _writable(self, link: ZmtpLink) -> None:
        self._write(link)
        if not link.queue:
            link.blocked_since_ms = 0
            self._behind = 0
            self._loop.remove_writer(link.socket.fileno())
            self._owner.room()
