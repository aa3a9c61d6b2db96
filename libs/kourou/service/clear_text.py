"""A repeated log warning while a listener is open to the network in clear text.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging

from kourou.transport.addresses import bindable, is_loopback

_log = logging.getLogger("kourou.service")

PERIOD_S = 60.0


class ClearTextWarning:
    """Warns at once and every minute, unless the listener is on a loopback address."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def start(self, host: str, address: str) -> None:
        """Start; `host` is the bound host, `address` is the text for the log."""
        if not is_loopback(bindable(host)):
            self._warn(address)

    def stop(self) -> None:
        """Stop, because the listener is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _warn(self, address: str) -> None:
        _log.warning("the pages on %s are open to the network: any host can read them", address)
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._warn, address)
