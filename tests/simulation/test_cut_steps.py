"""A tail of the log is cut, and the power goes off at the first sync of it, at the second, and on:
the tail is there whole or gone for good, and the member can go on following either way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from kourou.store.replica.replica_files import load_epochs
from kourou.store.store import Store
from kourou.testing.disk import PowerLost
from kourou_rigs.parted import (
    PATHS,
    all_records,
    boundaries,
    len_common,
    opened,
    pair,
    records_below,
    state,
)
from kourou_rigs.store import follow


def limit_of(leader: Store, position: int) -> int:
    return next(p for p in boundaries(leader) if p > position)


@pytest.mark.fault
@pytest.mark.feature("F110")
@pytest.mark.parametrize("fixed", [0, 100])
def test_a_crash_at_any_step_of_a_cut_never_brings_the_tail_back(
    fixed: int, rounds: Callable[[int], int]
) -> None:
    """Power loss at every sync of cut, opening and the copying behind; torn and lost writes."""
    events: Counter[str] = Counter()
    for seed in range(rounds(20)):
        for step in range(1, 45):
            events += _cut_with_a_crash(step, 100 * seed, fixed)
    assert {"before the intent", "behind the intent", "not cut off"} <= set(events), events


def _cut_with_a_crash(step: int, seed: int, fixed: int) -> Counter[str]:
    events: Counter[str] = Counter()
    leader, disk = pair(seed, fixed=fixed)
    member = opened(disk.kill())
    position = len_common(leader, member)
    # Both may have filled the same end of a segment: then the member's epoch began before it.
    kept = [(epoch, start) for epoch, start in load_epochs(disk, PATHS) if start < position]
    stale = {item for item in all_records(member) if item not in all_records(leader)}
    assert stale
    disk.cut_power(step)
    intended = reached = False
    try:
        member.cut(position, position)
        intended = True
        disk._locked.clear()
        member = opened(disk)
        limit = limit_of(leader, position)
        follow(leader, member, limit=limit)
        member.flush()
        reached = True
        events["not cut off"] += 1
    except PowerLost:
        events["behind the intent" if intended else "before the intent"] += 1
    disk = disk.crash()
    member = opened(disk)
    found = set(all_records(member))
    if intended:
        assert member.end <= limit_of(leader, position), (step, seed)
        assert not found & stale, (step, seed)
        assert load_epochs(disk, PATHS) == kept, (step, seed)
    if reached:
        assert member.end == limit_of(leader, position), (step, seed)
    assert records_below(leader, position) == [
        record for record in all_records(member) if record in set(records_below(leader, position))
    ]
    # Whatever was left: it can be cut (again), and it then follows.
    if found & stale:
        member.cut(position, position)
        member = opened(disk.kill())
    follow(leader, member)
    assert all_records(member) == all_records(leader)
    assert member.end == leader.end
    member.close()
    last = opened(disk.kill())
    assert state(last)["queues"] == state(leader)["queues"], (step, seed)
    return events
