"""A queue has one holder in a group."""

import pytest

from kourou.engine.groups import queue_locks
from kourou.engine.groups.queue_locks import LockOwners, QueueLocks, evolve
from kourou.errors import Throttled
from kourou.events.control_events import QueueLocksChanged

Q0, Q1, Q2 = (("T", number) for number in range(3))
LIFE_MS = 60_000


@pytest.fixture
def locks() -> QueueLocks:
    return QueueLocks(LockOwners())


def record(locks: QueueLocks) -> LockOwners:
    """What a restart would find."""
    owners = LockOwners()
    for event in locks.unrecorded():
        evolve(owners, event)
    return owners


def test_a_lock_lives_sixty_seconds_from_its_last_refresh(locks) -> None:
    locks.lock(0, "g", "a", [Q0, Q1])
    assert locks.lock(LIFE_MS, "g", "b", [Q0]) == []
    assert locks.lock(LIFE_MS, "g", "a", [Q0]) == [Q0]
    assert locks.lock(LIFE_MS + 1, "g", "b", [Q0, Q1]) == [Q1], "Q0 was refreshed"


def test_lapsing(locks) -> None:
    locks.lock(0, "g", "a", [Q0, Q1])
    locks.lock(0, "g", "b", [Q0])
    locks.lock(5, "g", "a", [Q0])
    assert locks.expire(LIFE_MS) == {}
    assert locks.expire(LIFE_MS + 1) == {}
    assert locks.counts() == {"g": 1}
    assert locks.expire(LIFE_MS + 6) == {"g": {"b": None}}
    assert locks.counts() == {}


def test_those_who_wait_are_limited(locks, monkeypatch) -> None:
    monkeypatch.setattr(queue_locks, "QUEUE_LOCK_WAITERS_MAX", 2)
    locks.lock(0, "g", "a", [Q0])
    for client_id in "bcd":
        locks.lock(0, "g", client_id, [Q0])
    assert locks.unlock(0, "g", "a", [Q0]) == {"b": None, "c": None}


def test_the_table_is_limited(locks, monkeypatch) -> None:
    monkeypatch.setattr(queue_locks, "QUEUE_LOCKS_MAX", 2)
    with pytest.raises(Throttled):
        locks.lock(0, "g", "a", [Q0, Q1, Q2])
    assert locks.lock(0, "g", "a", [Q0, Q1]) == [Q0, Q1], "what there is can be refreshed"


def test_what_could_not_be_recorded_stays_to_be_recorded(locks, monkeypatch) -> None:
    monkeypatch.setattr(queue_locks, "QUEUE_LOCKS_EVENT_ENTRIES_MAX", 2)
    locks.lock(0, "g", "a", [Q0, Q1, Q2])
    events = locks.unrecorded()
    next(events)
    next(events)  # the first is recorded, the second could not be
    events.close()
    assert list(locks.unrecorded()) == [QueueLocksChanged("g", {"T": {2: "a"}})]


def test_locks_outlive_a_restart(locks) -> None:
    locks.lock(0, "g", "a", [Q0, Q1])
    locks.unlock(0, "g", "a", [Q1])
    again = QueueLocks(record(locks))
    assert again.lock(1_000_000, "g", "b", [Q0, Q1]) == [Q1]
    assert again.lock(1_000_000 + LIFE_MS, "g", "b", [Q0]) == []
    assert again.lock(1_000_001 + LIFE_MS, "g", "b", [Q0]) == [Q0]


def test_recorded_owners_keep_no_empty_tables() -> None:
    owners = LockOwners()
    evolve(owners, QueueLocksChanged("g", {"T": {0: "a"}, "U": {1: "b"}}))
    copy = owners.copy()
    evolve(owners, QueueLocksChanged("g", {"T": {0: None, 5: None}}))
    assert owners.table == {"g": {"U": {1: "b"}}}
    evolve(owners, QueueLocksChanged("g", {"U": {1: None}}))
    assert owners.table == {}
    assert copy.table == {"g": {"T": {0: "a"}, "U": {1: "b"}}}
