"""Free ports of this machine that are chosen before the processes that listen on them start.

A socket that is bound and does not listen keeps the system from giving its port to others. Every
service sets SO_REUSEADDR, so it can bind the port all the same, and bind it again after a restart.

Lives here: choosing and keeping ports. May not live here: what listens on them.

State: soft; ports are kept while this process lives.
"""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


class KeptPorts:
    """Ports by name: the same name has the same port until `release`."""

    def __init__(self) -> None:
        self._kept: dict[str, socket.socket] = {}

    def __getitem__(self, name: str) -> int:
        """The port of that name; a free one at first."""
        if name not in self._kept:
            kept = self._kept[name] = socket.socket()
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind((LOOPBACK, 0))
        return int(self._kept[name].getsockname()[1])

    def release(self) -> None:
        """Let others have the ports."""
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()
