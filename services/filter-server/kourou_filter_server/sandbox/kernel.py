"""The system calls by which a process gives up rights, most of them without a function in Python.

    namespaces    no network, no shared memory of others, no host name of ours
    capabilities  no privileges of root
    Landlock      no file can be opened, created, moved or listed, whatever rights the process has;
                  no TCP (from ABI 4), no abstract sockets and signals to others (from ABI 6)
    lineage       the process ends with its parent, gains no privileges and hides its memory
    descriptors   /dev/null three times, one socket, and nothing else

State: none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct

PR_SET_PDEATHSIG, PR_GET_PDEATHSIG = 1, 2
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS = 38, 39
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

LIBC = ctypes.CDLL(None, use_errno=True)


def checked(name: str, result: int) -> int:
    """Return the `result` of the C call `name`; if it is negative, raise OSError with its errno."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(name: str, option: int, argument: int = 0) -> int:
    """Call prctl(2); `name` is the option's name for the error. Raises OSError."""
    zero = ctypes.c_ulong(0)
    result = LIBC.prctl(option, ctypes.c_ulong(argument), zero, zero, zero)
    return checked(f"prctl {name}", result)


def syscall(name: str, number: int, *arguments: object) -> int:
    """Make a system call for which the C library has no function. Raises OSError."""
    return checked(name, LIBC.syscall(ctypes.c_long(number), *arguments))


def error_text(error: OSError) -> str:
    """The error's text without its number: "unshare: Operation not permitted"."""
    return error.strerror or str(error)


# -- namespaces ------------------------------------------------------------------------------------

USER, NETWORK, IPC, UTS = 0x1000_0000, 0x4000_0000, 0x0800_0000, 0x0400_0000

NAMESPACES = {
    USER: "user namespaces",
    NETWORK: "network namespaces",
    IPC: "ipc namespaces",
    UTS: "uts namespaces",
}
"""The namespaces that a worker leaves; the user namespace is required for leaving the others."""


def leave_namespaces(kinds: int = USER | NETWORK | IPC | UTS) -> None:
    """Enter new, empty namespaces of these kinds. Raises OSError."""
    checked("unshare", LIBC.unshare(kinds))


# -- capabilities ----------------------------------------------------------------------------------

_VERSION_3 = 0x2008_0522
_SETS = 6
_CAPABILITIES_MAX = 64


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_capabilities() -> None:
    """Drop every capability permanently. Raises OSError."""
    for number in range(_CAPABILITIES_MAX):
        try:
            prctl("CAPBSET_DROP", PR_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # the kernel has no more capabilities
    prctl("CAP_AMBIENT", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header, nothing = _Header(_VERSION_3, 0), (ctypes.c_uint32 * _SETS)()
    checked("capset", LIBC.capset(ctypes.byref(header), nothing))


def capability_count() -> int:
    """The number of capabilities in the process's permitted set. Raises OSError."""
    header, sets = _Header(_VERSION_3, 0), (ctypes.c_uint32 * _SETS)()
    checked("capget", LIBC.capget(ctypes.byref(header), sets))
    return (sets[1] | sets[4] << 32).bit_count()


# -- Landlock --------------------------------------------------------------------------------------

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same on every architecture
_ASK_VERSION = 1

_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_FILE_RIGHTS_NOW = 16
"""The number of file rights that an ABI has: refer came with 2, truncate with 3, ioctl with 5."""

_TCP_BIND_AND_CONNECT = 0b11
_SCOPE_SOCKETS_AND_SIGNALS = 0b11


def landlock_abi() -> int:
    """The kernel's Landlock version. Raises OSError: ENOSYS or EOPNOTSUPP if it has none."""
    return syscall("landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)


def landlock_ruleset(version: int) -> bytes:
    """Everything that this version can forbid (struct landlock_ruleset_attr)."""
    files = (1 << _FILE_RIGHTS.get(version, _FILE_RIGHTS_NOW)) - 1
    if version < 4:
        return struct.pack("<Q", files)
    if version < 6:
        return struct.pack("<QQ", files, _TCP_BIND_AND_CONNECT)
    return struct.pack("<QQQ", files, _TCP_BIND_AND_CONNECT, _SCOPE_SOCKETS_AND_SIGNALS)


def apply_landlock() -> None:
    """Forbid everything to this process and its children, permanently. Raises OSError.

    Requires no_new_privs.
    """
    rules = landlock_ruleset(landlock_abi())
    made = syscall("landlock", _CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    try:
        syscall("landlock", _RESTRICT_SELF, made, 0)
    finally:
        os.close(made)


# -- lineage ---------------------------------------------------------------------------------------


class Orphaned(Exception):
    """The parent ended before the parent-death signal was set, so this process is not needed."""


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the parent thread ends. Raises Orphaned if it has ended already."""
    prctl("SET_PDEATHSIG", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        raise Orphaned(f"process {parent_pid} has ended")


def death_signal() -> int:
    """The signal sent when the parent dies, 0 for none; the kernel resets it in some cases."""
    held = ctypes.c_int(0)
    result = LIBC.prctl(PR_GET_PDEATHSIG, ctypes.byref(held), 0, 0, 0)
    checked("prctl GET_PDEATHSIG", result)
    return held.value


def set_no_new_privs() -> None:
    """Set no_new_privs, which Landlock and seccomp require. Raises OSError."""
    prctl("SET_NO_NEW_PRIVS", PR_SET_NO_NEW_PRIVS, 1)


def has_no_new_privs() -> bool:
    """Whether no_new_privs is set."""
    return prctl("GET_NO_NEW_PRIVS", PR_GET_NO_NEW_PRIVS) == 1


def hide_memory() -> None:
    """Prevent processes of the same user from attaching, reading memory or dumping core."""
    prctl("SET_DUMPABLE", PR_SET_DUMPABLE, 0)


def reset_signal_handlers() -> None:
    """Restore the default action of every signal, and unblock all."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


# -- descriptors -----------------------------------------------------------------------------------

CHANNEL_FD = 3
"""The only descriptor that may be read and written: the socket to the parent."""

DESCRIPTORS_MAX = 256
"""The zygote's limit of open descriptors, and the range in which they are closed."""


def keep_only(channel: int, *, keep_stderr: bool = False) -> None:
    """Make `channel` descriptor 3, make 1 and 2 /dev/null like 0, and close all others."""
    if channel != CHANNEL_FD:
        os.dup2(channel, CHANNEL_FD, inheritable=False)
    os.dup2(0, 1)
    if not keep_stderr:
        os.dup2(0, 2)
    os.closerange(CHANNEL_FD + 1, DESCRIPTORS_MAX)
