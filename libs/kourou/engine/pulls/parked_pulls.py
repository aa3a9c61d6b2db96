"""Parked pulls (long polls), and what completes them.

State: soft. A client whose parked pull is lost retries when its own timeout fires.

Invariants:
- a parked pull is in the table exactly once, and in its peer's set
- the table never has more than limits.HOLDS_MAX entries
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kourou.model.limits import HOLDS_MAX
from kourou.runtime.core import Peer

Pull = TypeVar("Pull")
Target = tuple[str, int]


@dataclass(slots=True, eq=False)
class Hold(Generic[Pull]):
    """A parked pull: it waits until `target` advances beyond `offset`, or `deadline_ms`."""

    peer: Peer
    target: Target
    offset: int
    deadline_ms: int
    pull: Pull
    live: bool = field(default=True)


class Holds(Generic[Pull]):
    """Parked pulls by queue; all operations are O(pulls touched), expiry O(log pulls)."""

    __slots__ = ("_by_deadline", "_by_peer", "_by_target", "_count", "_sequence")

    def __init__(self) -> None:
        self._by_target: dict[Target, list[Hold[Pull]]] = {}
        self._by_peer: dict[int, set[Hold[Pull]]] = {}
        self._by_deadline: list[tuple[int, int, Hold[Pull]]] = []
        self._sequence = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether no further pull can be parked."""
        return self._count >= HOLDS_MAX

    def wait_for(self, targets: Sequence[Target]) -> bool:
        """Return whether a pull waits for one of these queues to advance."""
        waiting = self._by_target
        return bool(waiting) and any(target in waiting for target in targets)

    def add(self, hold: Hold[Pull]) -> None:
        """Park a pull; the caller has checked `full`."""
        assert not self.full
        self._sequence += 1
        self._count += 1
        self._by_target.setdefault(hold.target, []).append(hold)
        self._by_peer.setdefault(hold.peer.id, set()).add(hold)
        heapq.heappush(self._by_deadline, (hold.deadline_ms, self._sequence, hold))

    def take_grown(self, queues: Iterable[tuple[str, int, int]]) -> list[Hold[Pull]]:
        """Remove and return the pulls whose queue's maximum offset now exceeds their own."""
        taken: list[Hold[Pull]] = []
        for topic, queue_id, max_offset in queues:
            waiting = self._by_target.get((topic, queue_id))
            if not waiting:
                continue
            ready = [hold for hold in waiting if hold.offset < max_offset]
            for hold in ready:
                self._remove(hold)
            taken += ready
        return taken

    def take_topic(self, topic: str) -> list[Hold[Pull]]:
        """Remove and return all pulls of a topic (deleted, or its permission changed)."""
        targets = [target for target in self._by_target if target[0] == topic]
        taken = [hold for target in targets for hold in self._by_target[target]]
        for hold in taken:
            self._remove(hold)
        return taken

    def take_expired(self, now_ms: int) -> list[Hold[Pull]]:
        """Remove and return the pulls whose deadline has passed."""
        taken: list[Hold[Pull]] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            hold = heapq.heappop(self._by_deadline)[2]
            if hold.live:
                self._remove(hold)
                taken.append(hold)
        return taken

    def drop_peer(self, peer: Peer) -> None:
        """Remove the pulls of a closed connection."""
        for hold in list(self._by_peer.get(peer.id, ())):
            self._remove(hold)

    def _remove(self, hold: Hold[Pull]) -> None:
        assert hold.live
        hold.live = False
        self._count -= 1
        waiting = self._by_target[hold.target]
        waiting.remove(hold)
        if not waiting:
            del self._by_target[hold.target]
        mine = self._by_peer[hold.peer.id]
        mine.discard(hold)
        if not mine:
            del self._by_peer[hold.peer.id]
        if len(self._by_deadline) > 64 and len(self._by_deadline) > 4 * self._count:
            # Dead entries would otherwise stay until their deadline, 20 s each.
            self._by_deadline = [entry for entry in self._by_deadline if entry[2].live]
            heapq.heapify(self._by_deadline)
