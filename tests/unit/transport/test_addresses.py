"""Addresses as people write them, and where a server may listen."""

from __future__ import annotations

import errno

import pytest

from kourou.errors import ConfigError
from kourou.transport.addresses import (
    bindable,
    cannot_bind,
    is_loopback,
    join_address,
    named_addresses,
    split_address,
)


def test_named_addresses() -> None:
    assert named_addresses("zmqListeners", "internal=*:1; host=h:2") == {
        "internal": "*:1",
        "host": "h:2",
    }
    for text in ("", "h:1", "a b=h:1", "a=h:1;a=h:2"):
        with pytest.raises(ConfigError, match=r"zmqListeners: .* is refused"):
            named_addresses("zmqListeners", text)
    with pytest.raises(ConfigError, match="not an address"):
        named_addresses("zmqListeners", "a=h")


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:-1", "h:65536", "h:²"])
def test_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not an address|above 65535"):
        split_address(text)


@pytest.mark.parametrize(
    ("host", "found", "loopback"),
    [
        ("localhost", "127.0.0.1", True),
        ("127.3.2.1", "127.3.2.1", True),
        ("::1", "::1", True),
        ("*", "0.0.0.0", False),
        ("192.0.2.1", "192.0.2.1", False),
    ],
)
def test_what_can_be_bound(host: str, found: str, loopback: bool) -> None:
    assert bindable(host) == found
    assert is_loopback(found) is loopback


def test_a_name_without_address() -> None:
    with pytest.raises(ConfigError, match="cannot listen on 'no such host'"):
        bindable("no such host")


def test_a_taken_port_differs_from_other_errors() -> None:
    assert "port 1 on h is taken" in str(cannot_bind("h", 1, OSError(errno.EADDRINUSE, "busy")))
    assert "listenPort" in str(cannot_bind("h", 1, OSError(errno.EADDRINUSE, "busy")))
    assert "h:1: denied" in str(cannot_bind("h", 1, OSError(errno.EACCES, "denied")))


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("tcp://broker-1:0", ("broker-1", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_has_two_parts(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts
    assert join_address(*parts) == address.removeprefix("tcp://")
