"""Does something in a forked child and brings home what came of it."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

_TOLD_BYTES = 65_536


def in_child(act: Callable[[], object], *, tell_fd: int | None = None) -> str:
    """What `act` returned as text; "EPERM" for an OSError; "TypeError: …"; "killed by SIGSYS".

    `act` may not rely on threads, nor on this process's event loop. The child has one thread, also
    where a library starts another in every child (a namespace of users is for such a process only).
    With `tell_fd` the child tells through that descriptor and has it instead of the pipe's own; for
    walls that leave only one.
    """
    reading, writing = os.pipe()
    with children_alone():
        pid = os.fork()
    if pid == 0:
        if tell_fd is not None:
            os.dup2(writing, tell_fd)
            writing = tell_fd
        try:
            os.write(writing, _outcome(act).encode())
        finally:
            os._exit(0)  # and never back into the test's own code
    os.close(writing)
    told = b""
    while part := os.read(reading, _TOLD_BYTES):
        told += part
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return told.decode()


@contextmanager
def children_alone() -> Iterator[None]:
    """Whoever is forked meanwhile has one thread, and for its whole life when it stays in here.

    For code that forks by itself and is meant for a process without such libraries. A span
    processor of OpenTelemetry, for one, starts its thread in every child until it is collected,
    also when it has long been shut down.

    A thread is refused there, as a kernel at its limit does. One that silently never ran would be
    waited for: each living tracer provider of OpenTelemetry gives its threads 5 s in every child.
    """
    parent, start = os.getpid(), threading.Thread.start

    def start_in_parent(thread: threading.Thread) -> None:
        if os.getpid() != parent:
            raise RuntimeError("can't start new thread")
        start(thread)

    with mock.patch.object(threading.Thread, "start", start_in_parent):
        yield


def _outcome(act: Callable[[], object]) -> str:
    try:
        return str(act())
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what came of it
        return f"{type(error).__name__}: {error}"
