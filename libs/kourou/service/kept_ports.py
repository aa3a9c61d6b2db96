"""Reserves free ports before the processes that listen on them are started.

Ports are never from the ephemeral range, which Linux uses for outgoing connections and for
listeners on port 0: one of those could occupy a port before its service does, or while the service
restarts.

A socket that is bound but does not listen reserves its port: no other process can bind it without
SO_REUSEADDR. Every service sets that option, so it can bind the port, and again after a restart.

State: soft; ports stay reserved while this process lives.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"

PORTS = range(12_000, 22_000)
"""Below the ephemeral range of Linux, even after a broker adds 10,011 to its port."""


def free_port(*shifts: int) -> int:
    """Return a currently free port whose ports at distance `shifts` are free as well.

    It is not reserved; use `KeptPorts` for that.
    """
    while True:
        port = random.choice(PORTS)
        if all(_is_free(port + shift) for shift in (0, *shifts)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))  # on every interface, as RocketMQ's servers do
        except OSError:
            return False
    return True


class KeptPorts:
    """Ports by name: a name keeps its port until `release`."""

    def __init__(self) -> None:
        self._kept: dict[str, socket.socket] = {}

    def __getitem__(self, name: str) -> int:
        """Return the port of that name; the first access reserves a free one."""
        if name not in self._kept:
            self._kept[name] = _kept_socket()
        return int(self._kept[name].getsockname()[1])

    def release(self) -> None:
        """Release all ports."""
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()


def _kept_socket() -> socket.socket:
    """Return a socket that is bound to a free port.

    SO_REUSEADDR is set after binding, so that no two sockets share a port.
    """
    while True:
        kept = socket.socket()
        try:
            kept.bind((LOOPBACK, random.choice(PORTS)))
        except OSError:
            kept.close()
            continue
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return kept
