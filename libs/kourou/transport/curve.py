"""Encrypted connections between parties that know each other's keys: ZeroMQ's CURVE.

Lives here: what a listener or a connection is told, and what a failed handshake means. May not live
here: files (kourou.transport.curve_keys), who is let in (kourou.transport.curve_gate).

A server has a pair and a list of clients; a client has a pair and knows the server's public key
before it dials. Either side can tell a stranger at the handshake, so no request of a stranger is
ever read. The same pair may serve a process as a server and as a client.

A handshake that fails looks to the library's user as silence. So the monitor's events are read
here, and a request ends with what is wrong and what to do about it.

State: none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import zmq

from kourou.model import limits
from kourou.transport.curve_gate import close_domain, open_domain
from kourou.transport.curve_keys import AllowedKeys, KeyPair, ServerKeys
from kourou.transport.zmq_monitor import Happening

OVERHEAD_BYTES = 64
"""What encryption adds to a frame at most: 33 bytes."""


@dataclass(frozen=True, slots=True)
class ServerCurve:
    """What a listener needs: its pair, and whom it lets in."""

    pair: KeyPair
    allowed: AllowedKeys

    def arm(self, socket: zmq.Socket[bytes], address: Callable[[], str]) -> str:
        """Tell a socket that is not bound yet; returns what `disarm` wants when it is closed.

        `address` is where it listens, for the log.
        """
        domain = open_domain(self.allowed, address)
        _make_room(socket)
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, self.pair.secret.encode())
        socket.set(zmq.ZAP_DOMAIN, domain.encode())
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
        return domain

    def disarm(self, domain: str) -> None:
        """The socket is closed."""
        close_domain(domain)


@dataclass(frozen=True, slots=True)
class ClientCurve:
    """What a process needs that dials: its pair, and the keys of servers."""

    pair: KeyPair
    servers: ServerKeys

    def arm(self, socket: zmq.Socket[bytes], address: str) -> None:
        """Tell a socket that is not connected yet; ConfigError if no key is known for `address`.

        Files are read if they have changed, so a key that is added is found by the next attempt.
        """
        _make_room(socket)
        socket.set(zmq.CURVE_SERVERKEY, self.servers.of(address).encode())
        socket.set(zmq.CURVE_PUBLICKEY, self.pair.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, self.pair.secret.encode())


def _make_room(socket: zmq.Socket[bytes]) -> None:
    """The library's limit is for frames as they travel; ours is for what is in them."""
    socket.set(zmq.MAXMSGSIZE, limits.FRAME_SIZE_BYTES_MAX + OVERHEAD_BYTES)


def trouble_of(happening: Happening, curve: ClientCurve | None) -> str:
    """What a failed handshake means to the one who dialled, and what to do.

    One that a server has cut off (BAD_GREETING) may be any of them: what the server said of it may
    have been lost with the connection.
    """
    if happening is Happening.NOT_LET_IN and curve is not None:
        return (
            f"it knows this client and does not let it in: the public key {curve.pair.public} "
            "belongs where curveClients of that server says (for followers, members and filter "
            "servers also curveMembers)"
        )
    if happening is Happening.OTHER_MECHANISM:
        if curve is None:
            return (
                "it wants CURVE keys and this side has none: set curveKeyFile and curveServerKey "
                "(KOUROU_CURVE_KEY_FILE, KOUROU_CURVE_SERVER_KEY)"
            )
        return (
            "it speaks in clear text and this side insists on CURVE: give that server a "
            "curveKeyFile, or take curveKeyFile (KOUROU_CURVE_KEY_FILE) away here"
        )
    if curve is not None:
        return (
            "the handshake failed: the public key that is known for it is not its own, or it has "
            f"none; compare {curve.servers.place} with the server's .key file"
        )
    return (
        "the other side does not speak ZeroMQ, or refused this client: if it wants CURVE keys, set "
        "curveKeyFile and curveServerKey (KOUROU_CURVE_KEY_FILE, KOUROU_CURVE_SERVER_KEY)"
    )


def refusal_of(happening: Happening, curve: ServerCurve | None) -> str:
    """The same for the one who was dialled, for its log; "" for what the gate has said."""
    if happening is Happening.OTHER_MECHANISM:
        if curve is None:
            return "a client insists on CURVE, and this listener has no keys (curveKeyFile)"
        return "a client has no CURVE keys, and this listener wants them"
    if happening is Happening.BAD_GREETING and curve is not None:
        return "a client's handshake failed; it may know another public key of this server"
    return ""
