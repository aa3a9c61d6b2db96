"""Landlock: no file can be opened, created, moved or listed, whatever rights the process has.

In addition to files it forbids TCP (from ABI 4), and abstract sockets and signals to processes
outside (from ABI 6). State: none.
"""

from __future__ import annotations

import ctypes
import os
import struct

from kourou_filter_server.jail.kernel import syscall

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same on every architecture
_ASK_VERSION = 1

_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_FILE_RIGHTS_NOW = 16
"""The number of file rights that an ABI has: refer came with 2, truncate with 3, ioctl with 5."""

_TCP_BIND_AND_CONNECT = 0b11
_SCOPE_SOCKETS_AND_SIGNALS = 0b11


def abi() -> int:
    """The kernel's Landlock version. Raises OSError: ENOSYS or EOPNOTSUPP if it has none."""
    return syscall("landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)


def ruleset(version: int) -> bytes:
    """Everything that this version can forbid (struct landlock_ruleset_attr)."""
    files = (1 << _FILE_RIGHTS.get(version, _FILE_RIGHTS_NOW)) - 1
    if version < 4:
        return struct.pack("<Q", files)
    if version < 6:
        return struct.pack("<QQ", files, _TCP_BIND_AND_CONNECT)
    return struct.pack("<QQQ", files, _TCP_BIND_AND_CONNECT, _SCOPE_SOCKETS_AND_SIGNALS)


def forbid_everything() -> None:
    """Forbid everything to this process and its children, permanently. Raises OSError.

    Requires no_new_privs.
    """
    rules = ruleset(abi())
    made = syscall("landlock", _CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    try:
        syscall("landlock", _RESTRICT_SELF, made, 0)
    finally:
        os.close(made)
