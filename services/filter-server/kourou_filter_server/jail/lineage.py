"""A worker process ends with its parent, gains no privileges and cannot be inspected."""

from __future__ import annotations

import ctypes
import os
import signal

from kourou_filter_server.jail import kernel


class Orphaned(Exception):
    """The parent died before the kernel was asked to tell; nobody wants this process any more."""


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the thread that forked us ends. Raises Orphaned if it has ended already."""
    kernel.prctl("SET_PDEATHSIG", kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        raise Orphaned(f"process {parent_pid} has ended")


def death_signal() -> int:
    """The signal that comes when the parent dies, 0 for none; the kernel forgets it at times."""
    held = ctypes.c_int(0)
    result = kernel.LIBC.prctl(kernel.PR_GET_PDEATHSIG, ctypes.byref(held), 0, 0, 0)
    kernel.checked("prctl GET_PDEATHSIG", result)
    return held.value


def gain_nothing() -> None:
    """Set no_new_privs, without which neither Landlock nor seccomp may be used. Raises OSError."""
    kernel.prctl("SET_NO_NEW_PRIVS", kernel.PR_SET_NO_NEW_PRIVS, 1)


def gains_nothing() -> bool:
    """Whether no_new_privs is set."""
    return kernel.prctl("GET_NO_NEW_PRIVS", kernel.PR_GET_NO_NEW_PRIVS) == 1


def hide_memory() -> None:
    """Let no process of the same user attach, read our memory or get a core of it."""
    kernel.prctl("SET_DUMPABLE", kernel.PR_SET_DUMPABLE, 0)


def forget_signal_handlers() -> None:
    """Take every signal as the system does by default, and block none."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
