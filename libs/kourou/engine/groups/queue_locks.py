"""Locks of queues that clients of a group consume in order (RocketMQ `RebalanceLockManager`).

State: the holders are a projection of QueueLocksChanged (`LockOwners`), so that a broker that
restarts does not give a queue to a second client while the first one's handler still runs. The
refresh times and the waiting clients are soft: after a restart every lock counts as refreshed just
now. The holders in effect are kept here. A change that cannot be recorded (because of a full disk)
is in effect all the same, and is recorded later.

Invariants:
- a queue has one holder in a group, until the holder releases the queue or is silent for
  QUEUE_LOCK_MS; a lost connection or an unregistration alone does not end a lock, because a handler
  may still be running in that client (decision 0055)
- the table is in the order of refreshing, so expiry costs only what expires
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from kourou.errors import Throttled
from kourou.events.control_events import QueueLocksChanged
from kourou.model.limits import (
    QUEUE_LOCK_MS,
    QUEUE_LOCK_WAITERS_MAX,
    QUEUE_LOCKS_EVENT_ENTRIES_MAX,
    QUEUE_LOCKS_MAX,
)

Place = tuple[str, int]
"""Topic and queue ID, on this broker."""

Owners = dict[str, dict[str, dict[int, str]]]
"""group -> topic -> queue ID -> client ID."""


# -- recorded locks -------------------------------------------------------------------------------


@dataclass(slots=True)
class LockOwners:
    """The holders, as recorded; empty tables are removed."""

    table: Owners = field(default_factory=dict)

    def copy(self) -> LockOwners:
        """Return an independent copy."""
        return LockOwners(
            {
                group: {topic: dict(queues) for topic, queues in topics.items()}
                for group, topics in self.table.items()
            }
        )


def evolve(owners: LockOwners, event: QueueLocksChanged) -> None:
    """Apply one event, in place."""
    topics = owners.table.setdefault(event.group, {})
    for topic, changed in event.owners.items():
        queues = topics.setdefault(topic, {})
        for queue_id, client_id in changed.items():
            if client_id is None:
                queues.pop(queue_id, None)
            else:
                queues[queue_id] = client_id
        if not queues:
            del topics[topic]
    if not topics:
        del owners.table[event.group]


# -- locks in effect ------------------------------------------------------------------------------


@dataclass(slots=True)
class QueueLock:
    """One queue's holder in one group, its last refresh, and the clients refused since."""

    client_id: str
    refreshed_ms: int
    waiting: dict[str, None] = field(default_factory=dict)


class QueueLocks:
    """The locks of one broker. Times are monotonic ms."""

    __slots__ = ("_locks", "_restored", "_unrecorded")

    def __init__(self, owners: LockOwners) -> None:
        self._restored: LockOwners | None = owners
        self._locks: dict[tuple[str, Place], QueueLock] = {}
        self._unrecorded: dict[str, dict[Place, str | None]] = {}

    def lock(self, now_ms: int, group: str, client_id: str, places: Iterable[Place]) -> list[Place]:
        """Acquire or refresh; return those that the client holds now, in the order requested.

        Raises Throttled if there are too many locks; then no more are acquired.
        """
        self._restore(now_ms)
        held: list[Place] = []
        for place in places:
            key = (group, place)
            lock = self._locks.get(key)
            if lock is not None and lock.client_id != client_id and not _lapsed(lock, now_ms):
                if len(lock.waiting) < QUEUE_LOCK_WAITERS_MAX:
                    lock.waiting[client_id] = None
                continue
            if lock is None:
                if len(self._locks) >= QUEUE_LOCKS_MAX:
                    raise Throttled(
                        f"this broker has {QUEUE_LOCKS_MAX} queue locks already, the maximum"
                    )
                lock = QueueLock(client_id, now_ms)
                self._note(group, place, client_id)
            else:
                del self._locks[key]
                if lock.client_id != client_id:
                    lock.client_id = client_id
                    self._note(group, place, client_id)
            lock.refreshed_ms = now_ms
            lock.waiting.pop(client_id, None)
            self._locks[key] = lock
            held.append(place)
        return held

    def unlock(
        self, now_ms: int, group: str, client_id: str, places: Iterable[Place]
    ) -> dict[str, None]:
        """Release the locks that the client holds. Returns the clients that waited for them."""
        self._restore(now_ms)
        waiting: dict[str, None] = {}
        for place in places:
            lock = self._locks.get((group, place))
            if lock is not None and lock.client_id == client_id:
                waiting |= self._end(group, place)
        return waiting

    def expire(self, now_ms: int) -> dict[str, dict[str, None]]:
        """End the expired locks; return the clients that waited for them, by group."""
        self._restore(now_ms)
        lapsed: list[tuple[str, Place]] = []
        for key, lock in self._locks.items():
            if not _lapsed(lock, now_ms):
                break
            lapsed.append(key)
        waiting: dict[str, dict[str, None]] = {}
        for group, place in lapsed:
            waiters = self._end(group, place)
            if waiters:
                waiting.setdefault(group, {}).update(waiters)
        return waiting

    def counts(self) -> dict[str, int]:
        """Return how many queues are locked, by group."""
        counts: dict[str, int] = {}
        for group, _ in self._locks:
            counts[group] = counts.get(group, 0) + 1
        return counts

    # -- recording --------------------------------------------------------------------------------

    def unrecorded(self) -> Iterator[QueueLocksChanged]:
        """Yield unrecorded changes; taking the next one confirms that the last one is recorded."""
        for group, changed in list(self._unrecorded.items()):
            while changed:
                places = list(islice(changed, QUEUE_LOCKS_EVENT_ENTRIES_MAX))
                owners: dict[str, dict[int, str | None]] = {}
                for topic, queue_id in places:
                    owners.setdefault(topic, {})[queue_id] = changed[topic, queue_id]
                yield QueueLocksChanged(group, owners)
                for place in places:
                    del changed[place]
            del self._unrecorded[group]

    def _note(self, group: str, place: Place, client_id: str | None) -> None:
        self._unrecorded.setdefault(group, {})[place] = client_id

    def _end(self, group: str, place: Place) -> dict[str, None]:
        self._note(group, place, None)
        return self._locks.pop((group, place)).waiting

    def _restore(self, now_ms: int) -> None:
        """Restore the recorded locks, once, at the first call that has the time."""
        if self._restored is None:
            return
        owners, self._restored = self._restored, None
        for group, topics in owners.table.items():
            for topic, queues in topics.items():
                for queue_id, client_id in queues.items():
                    self._locks[group, (topic, queue_id)] = QueueLock(client_id, now_ms)


def _lapsed(lock: QueueLock, now_ms: int) -> bool:
    return now_ms - lock.refreshed_ms > QUEUE_LOCK_MS
