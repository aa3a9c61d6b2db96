"""Namespaces: the process has no network, no shared memory of others and no host name of ours."""

from __future__ import annotations

from kourou_filter_server.jail.kernel import LIBC, checked

USER, NETWORK, IPC, UTS = 0x1000_0000, 0x4000_0000, 0x0800_0000, 0x0400_0000

NAMES = {
    USER: "user namespaces",
    NETWORK: "network namespaces",
    IPC: "ipc namespaces",
    UTS: "uts namespaces",
}
"""The namespaces that a worker leaves; the user namespace is required for leaving the others."""


def leave(kinds: int = USER | NETWORK | IPC | UTS) -> None:
    """Enter new, empty namespaces of these kinds. Raises OSError."""
    checked("unshare", LIBC.unshare(kinds))
