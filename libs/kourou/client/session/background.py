"""Background tasks that are not awaited.

A loop that ends with an unexpected error would leave a client that looks alive but sends no
heartbeats and no pulls. Therefore every error that ends such a task, except cancellation, is logged
as an error.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger("kourou.client")


def background(work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
    """Run `work` on the running loop; `what` names it in the log if it fails."""
    # In an empty context: what is current at the start (a span, above all) ends soon.
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
