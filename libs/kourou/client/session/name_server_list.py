"""A list of name servers from an HTTP server; the last valid list is kept.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kourou.client.session.discovery import parse_addresses
from kourou.clock import Clock, SystemClock
from kourou.errors import Unavailable
from kourou.model.limits import NAME_SERVER_LIST_BYTES_MAX

if TYPE_CHECKING:
    from http.client import HTTPResponse

LIST_TIMEOUT_S = 3.0
"""The timeout of the connection, of the headers, and of each later read."""
LIST_WHOLE_MS = 10_000
"""The limit for the whole response, so that a slow body does not block a thread for long."""


class NameServerList:
    """The list at `url`. `fetch` returns its text and may block: it is called in a thread."""

    def __init__(
        self, url: str, log: logging.Logger, *, fetch: Callable[[str], str] | None = None
    ) -> None:
        self.url = url
        self.addresses: tuple[str, ...] = ()
        self._log = log
        self._fetch = fetch or fetch_list
        self._failing = False

    async def refresh(self) -> bool:
        """Read the list; returns False if that fails, and then `addresses` stays the same."""
        loop = asyncio.get_running_loop()
        try:
            text = await loop.run_in_executor(None, self._fetch, self.url)
            fresh = parse_addresses(text.strip())
        except Exception as error:  # noqa: BLE001 - whatever a list server does, the list is requested again
            self._failed(error)
            return False
        if self._failing:
            self._failing = False
            self._log.info("name server list %s is readable again", self.url)
        self.addresses = fresh
        return True

    def _failed(self, error: Exception) -> None:
        """Keep the previous list; log the failure once, until the list can be read again."""
        if self._failing:
            self._log.debug("name server list %s is still unreadable: %r", self.url, error)
            return
        self._failing = True
        self._log.warning(
            "name server list %s is unreadable; keeping %s: %r",
            self.url,
            ";".join(self.addresses) or "none",
            error,
        )


def fetch_list(url: str, clock: Clock | None = None) -> str:
    """Return the list at `url`. Raises Unavailable if it cannot be read completely.

    Blocks: run it in a thread.
    """
    # Imported here: most processes read no list, and these two take a while.
    import urllib.request
    from http.client import HTTPException

    try:
        with urllib.request.urlopen(url, timeout=LIST_TIMEOUT_S) as answer:
            body = _read(url, answer, clock or SystemClock())
            missing: int | None = answer.length  # of Content-Length; None without that header
            text = body.decode()
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"{url} did not return a list: {error!r}") from error
    if missing:
        raise Unavailable(f"{url} returned {len(body)} bytes; {missing} bytes are missing")
    return text


def _read(url: str, answer: HTTPResponse, clock: Clock) -> bytes:
    """Return the body, within its limits of size and time."""
    body = b""
    until_ms = clock.monotonic_ms() + LIST_WHOLE_MS
    while piece := answer.read1(NAME_SERVER_LIST_BYTES_MAX + 1 - len(body)):
        body += piece
        if len(body) > NAME_SERVER_LIST_BYTES_MAX:
            raise Unavailable(f"{url} returned more than {NAME_SERVER_LIST_BYTES_MAX} bytes")
        if clock.monotonic_ms() > until_ms:
            raise Unavailable(
                f"{url} returned {len(body)} bytes and did not finish within {LIST_WHOLE_MS} ms"
            )
    return body
