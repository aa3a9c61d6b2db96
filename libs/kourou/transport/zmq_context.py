"""One ZeroMQ context per process, and never a parent's after a fork.

A context owns I/O threads, and threads do not survive a fork: a child that used its parent's
context would wait for ever on threads that do not exist. So the process id is part of the key.

State: soft. `_orphans` keeps inherited contexts from being freed in a child, because freeing them
would close descriptors which the parent still uses.
"""

from __future__ import annotations

import os
import threading

import zmq

_lock = threading.Lock()
_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}
_orphans: list[zmq.Context[zmq.Socket[bytes]]] = []

SOCKETS_MAX = 8_192
"""Far above what one process needs; the library's own 1,023 is met by a client of many brokers."""


def process_context() -> zmq.Context[zmq.Socket[bytes]]:
    """The context of the running process; made on first use, from any thread."""
    pid = os.getpid()
    context = _contexts.get(pid)
    if context is None:
        with _lock:
            context = _contexts.get(pid)
            if context is None:
                context = zmq.Context()
                context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
                _contexts[pid] = context
    return context


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # the old one may have been held by a thread that is not here
    _orphans.extend(_contexts.values())
    _contexts.clear()


os.register_at_fork(after_in_child=_forked)
