"""The CURVE authenticator: one per process, consulted by ZeroMQ at each handshake.

ZeroMQ sends each authentication request to an in-process address (ZAP,
https://rfc.zeromq.org/spec/27/). If no authenticator is bound there, it would accept any key, so
the sockets require one (ZAP_ENFORCE_DOMAIN), and each listener has a domain of its own. A separate
thread answers the requests, so a busy loop does not delay handshakes. The thread starts with the
first listener that has keys and ends with the process, because its address cannot be bound again
immediately.

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
_quiet.setLevel(logging.CRITICAL)  # it would repeat what this module logs
_numbers = count(1)


class _Provider:
    """The authenticator's callback for one domain."""

    def __init__(self, allowed: AllowedKeys, address: Callable[[], str]) -> None:
        self._allowed = allowed
        self._address = address
        self._complaints = RateLimitedLog(_log, SystemClock())

    def callback(self, domain: str, key: bytes) -> bool:
        """May the client with this public key (Z85) connect?"""
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
    """The process's authenticator; it starts with the first listener."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._domains: set[str] = set()
        self._running: ThreadAuthenticator | None = None
        self._orphans: list[ThreadAuthenticator] = []

    def open(self, allowed: AllowedKeys, address: Callable[[], str]) -> str:
        """Register a domain whose clients are checked against `allowed`; returns its name."""
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
        """Remove the domain of a closed listener."""
        with self._lock:
            running = self._running
            if running is None or domain not in self._domains:
                return
            self._domains.discard(domain)
            running.certs.pop(domain, None)
            running.credentials_providers.pop(domain, None)

    def end(self) -> None:
        """Stop the thread before the interpreter exits, which would otherwise wait for it."""
        with self._lock:
            running, self._running = self._running, None
            self._domains.clear()
            if running is not None and self._pid == os.getpid():
                running.stop()

    def forked(self) -> None:
        """Reset in a forked child: it has no such thread, and the sockets are the parent's."""
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
    """Register a domain for a listener at `address` that accepts the clients in `allowed`.

    Returns its name, for `close_domain`. `address` is called when a refusal is logged, because the
    port may be known only after binding.
    """
    return _gate.open(allowed, address)


def close_domain(domain: str) -> None:
    """Remove the domain of a closed listener."""
    _gate.close(domain)
