"""System calls for which Python 3.11 has no function."""

from __future__ import annotations

import ctypes
import os

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


def words(error: OSError) -> str:
    """The error's text without its number: "unshare: Operation not permitted"."""
    return error.strerror or str(error)
