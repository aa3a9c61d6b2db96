"""Parse network addresses, check which address a server may bind, and number peers."""

from __future__ import annotations

import errno
import ipaddress
import socket as socketlib
from collections.abc import Mapping
from itertools import count

from kourou.errors import ConfigError

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

CLEAR_TEXT_WARNING_S = 60.0
"""Interval between warnings that a server listens on the network in clear text."""


def listening_address(bind_address: str, *, insecure_network: bool) -> tuple[str, int]:
    """Return the literal IP address and the port to bind.

    Raises ConfigError if the address is not a loopback address and `insecure_network` is false.
    """
    host, port = split_address(bind_address)
    host = bindable(host)
    if not is_loopback(host) and not insecure_network:
        raise ConfigError(
            f"refusing to listen on {host}: it is open to the network and not encrypted",
            hint="bind 127.0.0.1, or set insecureNetwork=true",
        )
    return host, port


def cannot_bind(host: str, port: int, error: OSError) -> ConfigError:
    """Return a ConfigError that explains why an address could not be bound."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} on {host} is taken",
            hint="another process listens there; stop it, or choose another listenPort: the other "
            "ports derive from it, unless they are set",
        )
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}")


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` into host and port. Raises ConfigError if the address is invalid."""
    bare = address.removeprefix("tcp://")
    host, colon, digits = bare.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not digits.isascii() or not digits.isdigit():
        raise ConfigError(f"{address!r} is not an address", hint="write host:port")
    port = int(digits)
    if port > 65_535:
        raise ConfigError(f"{address!r}: port {port} is above 65535")
    return host, port


def named_addresses(key: str, text: str) -> Mapping[str, str]:
    """Read `name=host:port;name=host:port`. Raises ConfigError, which names the setting `key`."""
    found: dict[str, str] = {}
    for entry in text.split(";"):
        name, equals, address = entry.strip().partition("=")
        if not equals or not name.isidentifier() or name in found:
            raise ConfigError(f"{key}: {entry!r} is refused", hint="name=host:port")
        split_address(address)
        found[name] = address
    return found


def join_address(host: str, port: int | str) -> str:
    """Return `host:port`, with brackets around an IPv6 address. The inverse of `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bindable(host: str) -> str:
    """Return a literal IP address for `host`, because ZeroMQ binds to literal addresses only.

    Prefers IPv4 if a name resolves to both. Raises ConfigError if the name cannot be resolved.
    """
    if host == "*":
        return "0.0.0.0"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = socketlib.getaddrinfo(host, None, type=socketlib.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host!r}: {error.strerror or error}") from error
    families = {family: str(where[0]) for family, _, _, _, where in reversed(found)}
    return families.get(socketlib.AF_INET) or families[socketlib.AF_INET6]


def is_loopback(host: str) -> bool:
    """Is `host`, a literal IP address, a loopback address?"""
    return ipaddress.ip_address(host).is_loopback


_ids = count(1)


def next_peer_id() -> int:
    """Return an id for a new peer; an id is never reused within a process."""
    return next(_ids)
