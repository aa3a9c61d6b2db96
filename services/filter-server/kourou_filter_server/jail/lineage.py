"""Makes a worker end with its parent, gain no privileges, and hide its memory."""

from __future__ import annotations

import ctypes
import os
import signal

from kourou_filter_server.jail import kernel


class Orphaned(Exception):
    """The parent ended before the parent-death signal was set, so this process is not needed."""


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the parent thread ends. Raises Orphaned if it has ended already."""
    kernel.prctl("SET_PDEATHSIG", kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        raise Orphaned(f"process {parent_pid} has ended")


def death_signal() -> int:
    """The signal sent when the parent dies, 0 for none; the kernel resets it in some cases."""
    held = ctypes.c_int(0)
    result = kernel.LIBC.prctl(kernel.PR_GET_PDEATHSIG, ctypes.byref(held), 0, 0, 0)
    kernel.checked("prctl GET_PDEATHSIG", result)
    return held.value


def gain_nothing() -> None:
    """Set no_new_privs, which Landlock and seccomp require. Raises OSError."""
    kernel.prctl("SET_NO_NEW_PRIVS", kernel.PR_SET_NO_NEW_PRIVS, 1)


def gains_nothing() -> bool:
    """Whether no_new_privs is set."""
    return kernel.prctl("GET_NO_NEW_PRIVS", kernel.PR_GET_NO_NEW_PRIVS) == 1


def hide_memory() -> None:
    """Prevent processes of the same user from attaching, reading memory or dumping core."""
    kernel.prctl("SET_DUMPABLE", kernel.PR_SET_DUMPABLE, 0)


def forget_signal_handlers() -> None:
    """Restore the default action of every signal, and unblock all."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
