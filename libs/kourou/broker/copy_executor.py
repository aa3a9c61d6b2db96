"""The effect executor of a follower: appends the leader's bytes to the log.

State: soft; the log belongs to the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou.engine.effects import CopyChunk, Effect
from kourou.engine.inputs import Copied, Input, NotCopied
from kourou.errors import Corrupt, DiskFull, Rejected
from kourou.store.store import Store


class CopyExecutor:
    """Runs on the service's loop. `copied` is called after each chunk, to project it."""

    def __init__(
        self, store: Store, *, post: Callable[[Input], None], copied: Callable[[], None]
    ) -> None:
        self._store = store
        self._post = post
        self._copied = copied

    def performers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the executor for each type of effect."""
        return {CopyChunk: self._copy}

    def _copy(self, effect: CopyChunk) -> None:
        """Append a chunk. Raises StoreFaulted, as an append does, which ends the process.

        A chunk that does not fit, or for which there is no space, is requested again.
        """
        store, position, data = self._store, effect.position, effect.data
        try:
            if effect.damage:
                end = store.append_damaged(position, data, effect.end, effect.damage)
            else:
                end = store.append_chunk(position, data)
        except (Corrupt, Rejected, DiskFull) as error:
            self._post(NotCopied(store.end, str(error)))
            return
        self._post(Copied(end))
        self._copied()
