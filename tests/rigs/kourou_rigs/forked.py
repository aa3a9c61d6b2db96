"""Runs a function in a forked child and returns its outcome."""

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
    """The result of `act` as text; "EPERM" for an OSError; "TypeError: …"; "killed by SIGSYS".

    `act` may not use threads or this process's event loop. The child has one thread, even if a
    library starts a thread in every child, because user namespaces require a single-threaded
    process. With `tell_fd` the child reports through that descriptor instead of the pipe's; this is
    for sandboxes that leave only one descriptor open.
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
            os._exit(0)  # never return into the test's code
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
    """Keep processes that are forked in the block single-threaded, as long as they stay in it.

    For code that forks and requires a single-threaded process. A span processor of OpenTelemetry,
    for example, starts its thread in every child until it is collected, even after its shutdown.

    Starting a thread in a child fails, as at the kernel's thread limit. A thread that silently
    never ran would be waited for: each living tracer provider of OpenTelemetry waits 5 s for its
    threads in every child.
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
    except BaseException as error:  # noqa: BLE001 - any error is an outcome
        return f"{type(error).__name__}: {error}"
