"""Encrypted connections between parties that know each other's keys: ZeroMQ's CURVE.

A server has a pair and a list of clients; a client has a pair and knows the server's public key
before it dials. Either side can tell a stranger at the handshake, so no request of a stranger is
ever read. The same pair may serve a process as a server and as a client.

A handshake that fails looks to the library's user as silence. So the monitor's events are read
here, and a request ends with what is wrong and what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.transport.curve_keys import AllowedKeys, KeyPair, ServerKeys
from kourou.transport.wire import Happening


@dataclass(frozen=True, slots=True)
class ServerCurve:
    """What a listener needs: its pair, and whom it lets in."""

    pair: KeyPair
    allowed: AllowedKeys


@dataclass(frozen=True, slots=True)
class ClientCurve:
    """What a process needs that dials: its pair, and the keys of servers."""

    pair: KeyPair
    servers: ServerKeys


def trouble_of(happening: Happening, curve: ClientCurve | None) -> str:
    """What a failed handshake means to the one who dialled, and what to do.

    One that a server has cut off (BAD_GREETING) may be any of them: what the server said of it may
    have been lost with the connection.
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
    """The same for the one who was dialled, for its log; "" for what the gate has said."""
    if happening is Happening.OTHER_MECHANISM:
        return "refused a client without CURVE keys: this listener requires them"
    if happening is Happening.BAD_GREETING:
        return "a client's handshake failed; it may have an old public key of this server"
    return ""
