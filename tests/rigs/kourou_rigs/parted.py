"""A leader's store and that of a member whose log has diverged, on disks in memory.

State: soft.
"""

from __future__ import annotations

import random
from pathlib import Path

from kourou.store.paths import StorePaths
from kourou.store.replica.replica_files import save_epochs
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, follow, readable, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 2048
SETTINGS = small_settings(ROOT, segment_size_bytes=SIZE)
TARGETS = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))


def opened(disk: SimDisk) -> Store:
    """Open the store on a disk."""
    return Store.open(SETTINGS, disk)


def write(
    store: Store, count: int, seed: int, *, fixed: int = 0, targets: int = 3
) -> list[Written]:
    """Store messages as a leader does; bodies have `fixed` bytes or a random size below 300."""
    rng = random.Random(seed)
    writer = StoreWriter(store)
    written: list[Written] = []
    for number in range(count):
        topic, queue_id = TARGETS[rng.randrange(targets)]
        body = rng.randbytes(fixed or rng.randrange(300))
        written += writer.write([Draft(topic, queue_id, body, keys=(f"s{seed}n{number}",))])
    return written


def all_records(store: Store) -> list[bytes]:
    """Every record that readers receive, sorted."""
    return sorted(readable(store, "TopicA") + readable(store, "TopicB") + readable(store, "New"))


def state(store: Store) -> dict[str, object]:
    """The state of a store as readers see it."""
    return {
        "records": all_records(store),
        "queues": {
            (topic, queue_id): store.queue_range(topic, queue_id)
            for topic in store.topics()
            for queue_id in store.queue_ids(topic)
        },
        "range": store.log_range(),
    }


def pair(seed: int, common: int = 12, tail: int = 12, *, fixed: int = 0) -> tuple[Store, SimDisk]:
    """A leader, and the disk of a member with a diverging tail after `common` messages."""
    leader = opened(SimDisk(seed))
    disk = SimDisk(seed + 1)
    member = opened(disk)
    write(leader, common, seed, fixed=fixed)
    follow(leader, member)
    member.checkpoint()
    save_epochs(disk, PATHS, [(1, 0), (2, member.end)] if member.end else [(2, 0)])
    write(member, tail, seed + 1, fixed=fixed)
    write(leader, tail // 2, seed + 2, fixed=fixed)
    return leader, disk


def boundaries(store: Store) -> list[int]:
    """The positions at which records start, and the end."""
    at, found = 0, [0]
    while at < store.end:
        at = store.read_chunk(at, store.end, 1).end
        found.append(at)
    return found


def records_below(store: Store, position: int) -> list[bytes]:
    """The records that start below the position."""
    return [
        record for record in all_records(store) if int.from_bytes(record[28:36], "big") < position
    ]


def len_common(leader: Store, member: Store) -> int:
    """Where the two logs part."""
    at = 0
    while at < min(leader.end, member.end):
        ours, theirs = (one.read_chunk(at, one.end, 1) for one in (leader, member))
        if bytes(ours.data) != bytes(theirs.data):
            break
        at = ours.end
    return at
