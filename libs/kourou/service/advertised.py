"""The addresses that a service advertises, per transport and per named network."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kourou.errors import ConfigError
from kourou.model.limits import PORT_MAX

PROTOCOLS = ("zmq", "tcp")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,127}")


def advertised(dial: Mapping[str, str], text: str) -> dict[str, str]:
    """Return `transport:listener` -> address. Raises ConfigError for an invalid entry.

    `dial` has the address of each enabled transport. `text` has entries separated by `;`:
    name=host:port for Kourou clients and tcp:name=host:port for RocketMQ clients.
    """
    found = {f"{carrier}:internal": address for carrier, address in dial.items()}
    for entry in text.split(";"):
        if not entry.strip():
            continue
        name, equals, address = entry.strip().partition("=")
        carrier, colon, rest = name.partition(":")
        carrier, listener = (carrier, rest) if colon else ("zmq", name)
        if (
            not equals
            or carrier not in PROTOCOLS
            or not _NAME.fullmatch(listener)
            or not _is_address(address)
        ):
            raise ConfigError(
                f"advertisedListeners: {entry.strip()!r} is refused",
                hint="name=host:port or tcp:name=host:port",
            )
        if carrier in dial:
            found[f"{carrier}:{listener}"] = address
    return found


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(colon and host and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= PORT_MAX)
