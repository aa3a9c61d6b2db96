"""Free ports of this machine that are chosen before the processes that listen on them start.

No port is from the ephemeral range, which Linux gives to connections and to listeners on port 0:
one of them could take a port before its service does, or while the service restarts.

A socket that is bound and does not listen reserves its port: nothing else binds it without
SO_REUSEADDR. Every service sets that, so it can bind the port, and bind it again after a restart.

State: soft; ports are kept while this process lives.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"

PORTS = range(12_000, 22_000)
"""Below the ephemeral range of Linux, also where a broker adds 10,011 to its port."""


def free_port(*shifts: int) -> int:
    """A port that is free at this moment, as are the ports at distance `shifts` from it.

    It is not reserved; `KeptPorts` reserves.
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
    """Ports by name: the same name has the same port until `release`."""

    def __init__(self) -> None:
        self._kept: dict[str, socket.socket] = {}

    def __getitem__(self, name: str) -> int:
        """The port of that name; a free one at first."""
        if name not in self._kept:
            self._kept[name] = _kept_socket()
        return int(self._kept[name].getsockname()[1])

    def release(self) -> None:
        """Let others have the ports."""
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()


def _kept_socket() -> socket.socket:
    """A socket bound to a free port; SO_REUSEADDR is set afterwards, so that no two share one."""
    while True:
        kept = socket.socket()
        try:
            kept.bind((LOOPBACK, random.choice(PORTS)))
        except OSError:
            kept.close()
            continue
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return kept
