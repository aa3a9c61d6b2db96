"""A follower's hands: a leader's bytes go to the end of the log.

State: soft; the log is the store's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou.engine.effects import CopyChunk, Effect
from kourou.engine.inputs import Copied, Input, NotCopied
from kourou.errors import Corrupt, DiskFull, Rejected
from kourou.store.store import Store


class CopyHands:
    """Works on the service's loop. `copied` is called behind each chunk: it is to be projected."""

    def __init__(
        self, store: Store, *, post: Callable[[Input], None], copied: Callable[[], None]
    ) -> None:
        self._store = store
        self._post = post
        self._copied = copied

    def performers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """What the loop calls for each type of effect."""
        return {CopyChunk: self._copy}

    def _copy(self, effect: CopyChunk) -> None:
        """Raises StoreFaulted, as an append does: that ends the process.

        What does not fit, and what there is no room for, is asked for once more.
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
