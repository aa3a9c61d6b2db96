"""`kourou health URL`: checks a service; used as the health check of containers."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from kourou.errors import ConfigError, Unavailable
from kourou.model.limits import HEALTH_ANSWER_BYTES_MAX

TIMEOUT_S = 3.0
HTTP_PORT = 80
USAGE = "health http://HOST:PORT/readyz"
HELP = f"""
Check a service's health page: /healthz means running, /readyz means serving.
Exit code 0 if the page answers so within {TIMEOUT_S:.0f} s, else 1 with the reason on stderr.
"""


def run_health(arguments: Sequence[str], called_as: str = "kourou") -> int:
    """Request the URL; returns 0 for status 200.

    Raises Unavailable with the reason for another status or no reply, ConfigError for wrong usage.
    """
    usage = f"{called_as} {USAGE}"
    if list(arguments) in (["-h"], ["--help"]):
        sys.stdout.write(f"{usage}\n{HELP}")
        return 0
    if len(arguments) != 1:
        raise ConfigError("one URL is required", hint=usage)
    url = _parsed(arguments[0], usage)
    status, reason = _ask(url, arguments[0])
    if status != 200:
        raise Unavailable(f"{arguments[0]} answers {status}: {reason}")
    return 0


def _parsed(text: str, usage: str) -> SplitResult:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(f"{text!r} is not a URL", hint=usage)
    try:
        url = urlsplit(text)
        url.port  # noqa: B018 - raises for an invalid port
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a URL: {error}", hint=usage) from None
    if url.scheme != "http" or not url.hostname:
        raise ConfigError(f"{text!r} is not an http URL", hint=usage)
    return url


def _ask(url: SplitResult, shown: str) -> tuple[int, str]:
    """Status code and first line of the body."""
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    head = f"GET {path} HTTP/1.0\r\nHost: {url.netloc}\r\nConnection: close\r\n\r\n"
    where = (url.hostname or "", url.port or HTTP_PORT)
    try:
        with socket.create_connection(where, timeout=TIMEOUT_S) as connection:
            connection.sendall(head.encode("ascii"))
            answer = _read(connection)
    except OSError as error:  # for example connection refused, timeout, unknown host
        raise Unavailable(f"{shown} does not answer: {error.strerror or error}") from error
    return _understood(answer, shown)


def _read(connection: socket.socket) -> bytes:
    """The reply, at most HEALTH_ANSWER_BYTES_MAX bytes or slightly more."""
    found = bytearray()
    while len(found) < HEALTH_ANSWER_BYTES_MAX:
        part = connection.recv(HEALTH_ANSWER_BYTES_MAX)
        if not part:
            break
        found += part
    return bytes(found)


def _understood(answer: bytes, shown: str) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if not words[0].startswith(b"HTTP/") or len(words) < 2 or not words[1].isdigit():
        raise Unavailable(f"{shown} does not speak HTTP")
    lines = body.decode("utf-8", "replace").strip().splitlines()
    printable = "".join(char for char in (lines or [""])[0] if char.isprintable())
    return int(words[1]), printable[:200]
