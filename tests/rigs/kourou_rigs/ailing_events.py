"""An event store whose database fails, hangs, or is gone, as a test wants it.

State: soft.
"""

from __future__ import annotations

import threading
from typing import Any

from kourou.errors import MetadataUnavailable

HANGS_S = 30


class AilingEvents:
    """Passes every call on, unless it `hangs` until it is released, or raises `error`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.error: Exception | None = None
        self.hangs = False
        self.entered, self.released = threading.Event(), threading.Event()
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if self.hangs:
                self.entered.set()
                self.released.wait(HANGS_S)
            if self.error is not None:
                raise self.error
            return method(*arguments, **named)

        return call

    @property
    def gone(self) -> bool:
        """Is the database gone?"""
        return self.error is not None

    @gone.setter
    def gone(self, gone: bool) -> None:
        self.error = MetadataUnavailable("the database is gone") if gone else None

    def abandon(self) -> None:
        """End the calls that hang, as EventStore does."""
        if self.hangs:
            self.error = MetadataUnavailable("stopping without it")
        self.released.set()

    def close(self) -> None:
        """Note it; the test closes the store itself."""
        self.closed = True
        self.released.set()
