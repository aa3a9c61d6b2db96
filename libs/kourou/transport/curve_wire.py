"""An encrypted client connection: a libzmq DEALER socket, observed through its monitor.

A socket carries one connection and is closed with it. The library's reconnecting is not used, so
messages that were queued for a lost connection are not sent on the next one.

If several keys are known for the server, because it changes its own, the next one is tried when a
handshake fails; the owner learns of the last failure only.

State: soft. All calls must be made on the loop on which it was opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import zmq

from kourou.model import limits
from kourou.transport.curve_keys import ClientCurve
from kourou.transport.tcp_link import Buffer
from kourou.transport.wire import WireEvent, WireOwner, WireTimeouts
from kourou.transport.zmq_socket import (
    NOBLOCK,
    EdgeReader,
    ZmqMonitor,
    arm_dealer,
    endpoint_of,
    open_dealer,
    receive_rest,
    send_parts,
)

FULL_PIPE_RETRY_S = 0.05  # in addition to the socket's event, which another call may consume


class CurveWire:
    """A connection to `address`; the server's key is looked up under `named`."""

    def __init__(
        self, address: str, timeouts: WireTimeouts, owner: WireOwner, curve: ClientCurve, named: str
    ) -> None:
        self._endpoint = endpoint_of(address)
        self._timeouts = timeouts
        self._owner = owner
        self._curve = curve
        self._named = named
        self._pair = curve.own.pair
        self._server_keys: list[str] = []
        self._retry: asyncio.TimerHandle | None = None
        self._open = self._ready = False

    @property
    def is_outdated(self) -> bool:
        """Has its own key pair changed since it was opened?"""
        return self._curve.own.pair != self._pair

    def open(self) -> None:
        """Start to connect. Raises ConfigError if no key is known for the server."""
        self._server_keys = list(self._curve.servers.of(self._named))
        self._dial()

    def _dial(self) -> None:
        """Connect with the next key of the server."""
        socket = open_dealer(self._timeouts)
        arm_dealer(socket, self._pair, self._server_keys.pop(0))
        self._socket = socket
        self._monitor = ZmqMonitor(socket)
        socket.connect(self._endpoint)
        loop = self._loop = asyncio.get_running_loop()
        self._reader = EdgeReader(loop, socket, self._receive)
        self._monitor_reader = EdgeReader(loop, self._monitor.socket, self._watch)
        self._reader.start()
        self._monitor_reader.start()
        self._open, self._ready = True, False

    def close(self) -> None:
        """Close the connection, if it stands after what was sent, or after a second.

        Not at once: libzmq 4.3.5 aborts the process (session_base.cpp, line 233) if a connection
        ends just after its socket was closed without a linger period, amid a message of several
        parts.
        """
        if self._open:
            self._open = False
            if self._retry is not None:
                self._retry.cancel()
            self._reader.stop()
            self._monitor_reader.stop()
            self._monitor.close()
            self._socket.close(linger=None if self._ready else 0)

    def send(self, parts: Sequence[Buffer]) -> bool:
        """Send a message; False if the library's pipe is full."""
        try:
            send_parts(self._socket.send, parts, NOBLOCK)
        except zmq.Again:
            if self._retry is None:
                self._retry = self._loop.call_later(FULL_PIPE_RETRY_S, self._room)
            return False
        self._reader.touched()
        return True

    def gather(self) -> None:
        """Do nothing: the library's thread batches by itself."""

    def _room(self) -> None:
        self._retry = None
        self._owner.room()

    def _receive(self) -> bool:
        receive = self._socket.recv
        budget = limits.FRAME_BYTES_PER_TURN_MAX
        try:
            for _ in range(limits.FRAMES_PER_TURN_MAX):
                parts, size = receive_rest(receive, receive(NOBLOCK, False))
                budget -= size
                self._owner.arrived(self, parts)
                if not self._open:  # closed by a callback
                    return False
                if budget < 0:
                    return True
        except zmq.Again:
            if self._retry is not None:
                self._retry.cancel()
                self._room()
            return False
        return True

    def _watch(self) -> bool:
        for event in self._monitor.read():
            if event.kind is WireEvent.BAD_GREETING and self._server_keys:
                self.close()
                self._dial()
                return False
            self._ready = event.kind is WireEvent.READY
            if event.kind in (WireEvent.LOST, WireEvent.REFUSED):
                while self._open and self._receive():  # the replies that arrived before the end
                    pass
                if self._open:
                    self.close()
                    self._owner.happened(self, event.kind)
                return False
            self._owner.happened(self, event.kind)
            if not self._open:
                return False
        return False
