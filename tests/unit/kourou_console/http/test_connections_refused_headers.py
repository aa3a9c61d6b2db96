"""A header that the parser refuses is named, with the character and with what to do."""

from __future__ import annotations

import socket

import pytest

from kourou_console.http.connections import header_error
from kourou_rigs.console import ConsoleHere


@pytest.mark.parametrize(
    ("value", "character", "advice"),
    [
        (b"a\x01b", "U+0001", "base64"),
        (b"a\x02", "U+0002", "base64"),
        (b"a\x00b", "U+0000", "an envelope in JSON"),
        (b"it's\x1b[0m", "U+001B", "an envelope in JSON"),
        (b"a\x7f", "U+007F", "an envelope in JSON"),
    ],
)
def test_a_property_with_a_control_character_is_named(
    console: ConsoleHere, value: bytes, character: str, advice: str
) -> None:
    host, _, port = console.address.removeprefix("http://").rpartition(":")
    lines = (b"POST /v1/topics/t/messages HTTP/1.1", b"Kourou-Property-note: " + value, b"", b"")
    with socket.create_connection((host, int(port))) as there:
        there.sendall(b"\r\n".join(lines))
        message = there.makefile("rb").read()
    assert message.startswith(b"HTTP/1.0 400 ")
    assert b"the header Kourou-Property-note contains the control character " in message
    assert character.encode() in message
    assert advice.encode() in message


def test_another_header_has_no_envelope() -> None:
    text, hint = header_error("Invalid header value char:\n\n  b'Accept: \\x05'\n      ^")
    assert "the header Accept contains the control character U+0005" in text
    assert hint == "leave it out"


@pytest.mark.parametrize(
    "message",
    ["Invalid method encountered:", "Bad line:\n\n  b'\\x16\\x03\\x01'\n  ^", "b'a: b'", "b'"],
)
def test_all_else_stays_as_the_parser_said_it(message: str) -> None:
    assert header_error(message) == (message.partition("\n")[0], "")
