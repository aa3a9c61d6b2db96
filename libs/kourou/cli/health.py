"""`kourou health URL`: checks a service; used as the health check of containers."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from kourou.errors import ConfigError, Unavailable
from kourou.model.limits import HEALTH_ANSWER_BYTES_MAX

TIMEOUT_S = 3.0
PORTS = {"http": 80, "https": 443}
OPTIONS = ("--ca", "--cert", "--key")
USAGE = "health http://HOST:PORT/readyz"
HELP = f"""
Check a service's health page: /healthz means running, /readyz means serving.
Exit code 0 if the page answers so within {TIMEOUT_S:.0f} s, else 1 with the reason on stderr.

For an https:// page:
  --ca FILE     authorities that sign its certificate (PEM); else those of the system
  --cert FILE   a certificate to present, if the service requires one (PEM)
  --key FILE    the private key of that certificate
"""


def run_health(arguments: Sequence[str], called_as: str = "kourou") -> int:
    """Request the URL; returns 0 for status 200.

    Raises Unavailable with the reason for another status or no reply, ConfigError for wrong usage.
    """
    usage = f"{called_as} {USAGE}"
    if list(arguments) in (["-h"], ["--help"]):
        sys.stdout.write(f"{usage}\n{HELP}")
        return 0
    shown, files = _read_arguments(arguments, usage)
    url = _parsed(shown, usage)
    if files and url.scheme != "https":
        raise ConfigError(f"{next(iter(files))} is for https:// pages", hint=usage)
    status, reason = _ask(url, shown, files)
    if status != 200:
        raise Unavailable(f"{shown} answers {status}: {reason}")
    return 0


def _read_arguments(arguments: Sequence[str], usage: str) -> tuple[str, dict[str, Path]]:
    """Return the URL and the files by option. argparse would take longer than the request."""
    urls: list[str] = []
    files: dict[str, Path] = {}
    words = iter(arguments)
    for word in words:
        if word not in OPTIONS:
            urls.append(word)
            continue
        file = next(words, "")
        if not file:
            raise ConfigError(f"{word} requires a file", hint=usage)
        files[word] = Path(file)
    if len(urls) != 1:
        raise ConfigError("one URL is required", hint=usage)
    return urls[0], files


def _parsed(text: str, usage: str) -> SplitResult:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(f"{text!r} is not a URL", hint=usage)
    try:
        url = urlsplit(text)
        url.port  # noqa: B018 - raises for an invalid port
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a URL: {error}", hint=usage) from None
    if url.scheme not in PORTS or not url.hostname:
        raise ConfigError(f"{text!r} is not an http or https URL", hint=usage)
    return url


def _ask(url: SplitResult, shown: str, files: Mapping[str, Path]) -> tuple[int, str]:
    """Status code and first line of the body."""
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    head = f"GET {path} HTTP/1.0\r\nHost: {url.netloc}\r\nConnection: close\r\n\r\n"
    host = url.hostname or ""
    where = (host, url.port or PORTS[url.scheme])
    encrypt = _encryption(host, files) if url.scheme == "https" else None
    try:
        with (
            socket.create_connection(where, timeout=TIMEOUT_S) as plain,
            plain if encrypt is None else encrypt(plain) as connection,
        ):
            connection.sendall(head.encode("ascii"))
            answer = _read(connection)
    except OSError as error:  # for example connection refused, timeout, unknown host
        raise Unavailable(f"{shown} does not answer: {error.strerror or error}") from error
    if not answer and url.scheme == "https":
        raise Unavailable(
            f"{shown} closed the connection without an answer",
            hint="if it requires a certificate, name one: --cert FILE --key FILE",
        )
    return _understood(answer, shown)


def _encryption(host: str, files: Mapping[str, Path]) -> Callable[[socket.socket], socket.socket]:
    """What begins TLS on a connection, or raises OSError. Raises ConfigError for the files."""
    import ssl  # only https needs these

    from kourou.transport.tls import ClientTlsFiles, why

    context = ClientTlsFiles(*map(files.get, OPTIONS)).context()

    def encrypt(plain: socket.socket) -> socket.socket:
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            raise OSError(f"the TLS handshake failed: {why(error)}") from error

    return encrypt


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
