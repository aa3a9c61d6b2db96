"""Tasks that nobody awaits.

A loop that ends by an unexpected error would leave a client that looks alive and does nothing: no
heartbeats, no pulls. So whatever ends such a task, but for cancelling it, is an error in the log.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger("kourou.client")


def background(work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
    """Run `work` on the running loop; `what` names it in the log should it fail."""
    # With a context of its own: what was current when it was started (a span, above all) ends soon.
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
    task.set_name(what)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _log.error("background task failed unexpectedly: %s", task.get_name(), exc_info=error)
