"""Encrypted and authenticated connections with ZeroMQ's CURVE mechanism.

A server has a key pair and a list of allowed clients. A client has a key pair and knows the
server's public key before it connects. Each side detects an unknown peer during the handshake, so
requests of unknown peers are never read. A process may use the same key pair as a server and as a
client.

ZeroMQ does not report a failed handshake to its user. Therefore the events of the socket's monitor
are translated here, and a request fails with the cause and the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.transport.curve_keys import AllowedKeys, KeyPair, ServerKeys
from kourou.transport.wire import Happening


@dataclass(frozen=True, slots=True)
class ServerCurve:
    """The keys of a listener: its key pair, and the clients that it accepts."""

    pair: KeyPair
    allowed: AllowedKeys


@dataclass(frozen=True, slots=True)
class ClientCurve:
    """The keys of a process that connects: its key pair, and the public keys of servers."""

    pair: KeyPair
    servers: ServerKeys


def trouble_of(happening: Happening, curve: ClientCurve | None) -> str:
    """Return the cause of a failed handshake for the connecting side, and the remedy.

    BAD_GREETING (the server closed the connection) may be any cause, because the server's error
    message may have been lost with the connection.
    """
    if happening is Happening.NOT_LET_IN and curve is not None:
        return (
            f"the server refused this client: add the public key {curve.pair.public} to its "
            "curveClients (for followers, Raft members and filter servers also to curveMembers)"
        )
    if happening is Happening.OTHER_MECHANISM:
        if curve is None:
            return (
                "the server requires CURVE keys, and this client has none: set curveKeyFile and "
                "curveServerKey "
                "(KOUROU_CURVE_KEY_FILE, KOUROU_CURVE_SERVER_KEY)"
            )
        return (
            "the server is not encrypted, and this client requires CURVE: set curveKeyFile at the "
            "server, or remove curveKeyFile (KOUROU_CURVE_KEY_FILE) here"
        )
    if curve is not None:
        return (
            "the handshake failed: the configured public key is not that of the server, or the "
            f"server has none; compare {curve.servers.place} with the server's .key file"
        )
    return (
        "the other side does not use ZeroMQ, or refused this client: if it requires CURVE keys, "
        "set curveKeyFile and curveServerKey (KOUROU_CURVE_KEY_FILE, KOUROU_CURVE_SERVER_KEY)"
    )


def refusal_of(happening: Happening) -> str:
    """Return the cause for the listening side's log; "" if the gate has already logged it."""
    if happening is Happening.OTHER_MECHANISM:
        return "refused a client without CURVE keys: this listener requires them"
    if happening is Happening.BAD_GREETING:
        return "a client's handshake failed; it may have an old public key of this server"
    return ""
