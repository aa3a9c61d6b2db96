"""One ZeroMQ context per process; a context is never used after a fork.

A context owns I/O threads, and threads do not survive a fork: a child that used its parent's
context would wait forever for threads that do not exist. Therefore contexts are keyed by process
id.

State: soft. `_orphans` keeps inherited contexts from being freed in a child, because freeing them
would close descriptors that the parent still uses.
"""

from __future__ import annotations

import os
import threading

import zmq

_lock = threading.Lock()
_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}
_orphans: list[zmq.Context[zmq.Socket[bytes]]] = []

SOCKETS_MAX = 8_192
"""Limit of sockets, far above the need of one process.

A client of many brokers reaches the library's default of 1,023.
"""


def process_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return the context of the running process; created on first use, from any thread."""
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
    _lock = threading.Lock()  # a thread that does not exist here may have held the old one
    _orphans.extend(_contexts.values())
    _contexts.clear()


os.register_at_fork(after_in_child=_forked)
