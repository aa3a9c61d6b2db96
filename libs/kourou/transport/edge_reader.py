"""Waking an event loop for a ZeroMQ socket, whose descriptor tells of changes and not of states.

The descriptor of a ZeroMQ socket becomes readable once when its state changes, and reading *or
sending* may swallow that signal. So after each look the socket's EVENTS are asked again, and
whoever sends outside a look calls `touched`, which asks once per turn of the loop. A look that
stopped at its own limit is continued in the next turn, so other work gets its turn in between.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

from kourou.transport.zmq_socket import has_input


class EdgeReader:
    """Calls `look` while the socket has input. `look` returns True if it stopped before the end."""

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
        """Begin; also looks once, since a signal given earlier is not repeated."""
        self._loop.add_reader(self._descriptor, self._run)
        self._again()

    def stop(self) -> None:
        """Look no more. May be called twice, and from within a look."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    def touched(self) -> None:
        """The socket was sent to or asked: check it again in this turn of the loop."""
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
        if self._descriptor < 0:  # stopped, or its socket closed, by what it found
            return
        if more or has_input(self._socket):
            self._again()
