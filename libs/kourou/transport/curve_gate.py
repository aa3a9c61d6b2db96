"""Who may come in by CURVE: the one that ZeroMQ asks at each handshake, one for a process.

ZeroMQ asks an address inside the process (ZAP, https://rfc.zeromq.org/spec/27/). Without an answer
there it would let in any key, so sockets insist on one (ZAP_ENFORCE_DOMAIN), and each listener has
a domain of its own. The answer is given by a thread, so that a busy loop keeps nobody waiting; it
begins with the first listener that has keys, and ends with the process: its address cannot be taken
again at once.

State: soft. Like contexts, a gate belongs to one process and is not used after a fork.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from itertools import count

from zmq.auth.thread import ThreadAuthenticator

from kourou.clock import SystemClock
from kourou.transport.curve_keys import AllowedKeys
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.zmq_context import process_context

_log = logging.getLogger("kourou.transport")
_quiet = logging.getLogger("kourou.transport.zap")
_quiet.setLevel(logging.CRITICAL)  # it would repeat in its own words what is said here
_numbers = count(1)


class _Provider:
    """What the authenticator asks about one domain."""

    def __init__(self, allowed: AllowedKeys, address: Callable[[], str]) -> None:
        self._allowed = allowed
        self._address = address
        self._complaints = RateLimitedLog(_log, SystemClock())

    def callback(self, domain: str, key: bytes) -> bool:
        """May the client with this public key (Z85) come in?"""
        del domain
        allowed = self._allowed.allows(key.decode("ascii"))
        if not allowed:
            self._complaints.warning(
                "refused",
                "refused a client at %s: its public key %s is not in curveClients or curveMembers",
                self._address(),
                key.decode("ascii"),
            )
        return allowed


class _Gate:
    """The authenticator, from the first listener on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._domains: set[str] = set()
        self._running: ThreadAuthenticator | None = None
        self._orphans: list[ThreadAuthenticator] = []

    def open(self, allowed: AllowedKeys, address: Callable[[], str]) -> str:
        """A domain whose clients are judged by `allowed`."""
        with self._lock:
            if self._running is None:
                self._running = ThreadAuthenticator(process_context(), log=_quiet)
                self._running.start()
            domain = f"kourou-{next(_numbers)}"
            provider = _Provider(allowed, address)
            self._running.configure_curve_callback(domain, provider)
            self._domains.add(domain)
            return domain

    def close(self, domain: str) -> None:
        """That listener is gone."""
        with self._lock:
            running = self._running
            if running is None or domain not in self._domains:
                return
            self._domains.discard(domain)
            running.certs.pop(domain, None)
            running.credentials_providers.pop(domain, None)

    def end(self) -> None:
        """Before the interpreter ends: a thread that it left behind would be waited for."""
        with self._lock:
            running, self._running = self._running, None
            self._domains.clear()
            if running is not None and self._pid == os.getpid():
                running.stop()

    def forked(self) -> None:
        """In a child: the thread is not here, and its sockets are the parent's."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        if self._running is not None:
            self._orphans.append(self._running)
        self._running = None
        self._domains.clear()


_gate = _Gate()
os.register_at_fork(after_in_child=_gate.forked)
atexit.register(_gate.end)


def open_domain(allowed: AllowedKeys, address: Callable[[], str]) -> str:
    """A domain for a listener at `address`, in which `allowed` decides; `close_domain` ends it.

    `address` is for the log, and asked when it is needed: a port may be known later.
    """
    return _gate.open(allowed, address)


def close_domain(domain: str) -> None:
    """The listener is closed."""
    _gate.close(domain)
