"""Integrates a ZeroMQ socket, whose file descriptor is edge-triggered, with an event loop.

The descriptor of a ZeroMQ socket becomes readable once when the socket's state changes, and reading
*or sending* may consume that signal. Therefore the socket's EVENTS are checked again after each
`look`, and code that sends outside of `look` calls `touched`, which checks once per loop iteration.
A `look` that stopped at its own limit continues in the next iteration, so other callbacks run in
between.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

from kourou.transport.zmq_socket import has_input


class EdgeReader:
    """Calls `look` while the socket has input. `look` returns True if it stopped at its limit."""

    __slots__ = ("_descriptor", "_look", "_looking", "_loop", "_pending", "_socket")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        look: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._socket = socket
        self._look = look
        self._descriptor = int(socket.get(zmq.FD))
        self._pending: asyncio.Handle | None = None
        self._looking = False

    def start(self) -> None:
        """Start. Also calls `look` once, because an earlier signal is not repeated."""
        self._loop.add_reader(self._descriptor, self._run)
        self._again()

    def stop(self) -> None:
        """Stop calling `look`. May be called twice, and from within `look`."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    def touched(self) -> None:
        """Check the socket again in this loop iteration, because it was sent to or queried."""
        if self._pending is None and not self._looking and self._descriptor >= 0:
            self._pending = self._loop.call_soon(self._check)

    def _again(self) -> None:
        if self._pending is None:
            self._pending = self._loop.call_soon(self._run)

    def _check(self) -> None:
        self._pending = None
        if has_input(self._socket):
            self._run()

    def _run(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._looking = True
        try:
            more = self._look()
        finally:
            self._looking = False
        if self._descriptor < 0:  # `look` stopped it or closed its socket
            return
        if more or has_input(self._socket):
            self._again()
