from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.store.paths import StorePaths
from kourou.store.recovery.restart import restart_log
from kourou.store.replica.replica_files import StoredVote, VoteFile, load_epochs, save_epochs
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.store import Draft, StoreWriter, delete_before, follow, readable, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 2048
SETTINGS = small_settings(ROOT, segment_size_bytes=SIZE, replicated=True)


def leader_without_a_beginning() -> Store:
    leader = Store.open(SETTINGS, SimDisk())
    StoreWriter(leader).write([Draft("Old", 0, bytes(100))])
    StoreWriter(leader).write([Draft(queue_id=n % 3, body=bytes(300)) for n in range(40)])
    delete_before(leader, 2 * SIZE)
    assert leader.log_range()[0] == 2 * SIZE
    return leader


def test_a_new_members_log_begins_where_its_leaders_does() -> None:
    leader, disk = leader_without_a_beginning(), SimDisk(1)
    assert restart_log(SETTINGS, disk, 2 * SIZE + 77, {"Old": {0: 1}}) == 2 * SIZE
    member = Store.open(SETTINGS, disk)
    assert member.log_range() == (2 * SIZE, 2 * SIZE)
    assert not member.report.external_writes
    follow(leader, member)
    for store in (member, Store.open(SETTINGS, disk.kill())):
        assert readable(store) == readable(leader)
        for target in (("TopicA", 0), ("TopicA", 1), ("TopicA", 2), ("Old", 0)):
            assert store.queue_range(*target) == leader.queue_range(*target), target
        assert store.log_range() == leader.log_range()
    store.close()


def test_an_empty_log_that_begins_later_still_does_after_a_clean_stop() -> None:
    disk = SimDisk()
    restart_log(SETTINGS, disk, 3 * SIZE)
    Store.open(SETTINGS, disk).close()
    assert Store.open(SETTINGS, disk.kill()).log_range() == (3 * SIZE, 3 * SIZE)


def test_what_an_older_log_left_is_gone_but_for_the_vote() -> None:
    leader, disk = leader_without_a_beginning(), SimDisk(1)
    member = Store.open(SETTINGS, disk)
    StoreWriter(member).write([Draft("Stale", n, bytes(90)) for n in range(30)])
    save_epochs(disk, PATHS, [(1, 0)])
    VoteFile(disk, PATHS).save(4, "a")
    with pytest.raises(ConfigError, match="another broker uses"):
        restart_log(SETTINGS, disk, 2 * SIZE)
    member.close()
    restart_log(SETTINGS, disk, 2 * SIZE)
    member = Store.open(SETTINGS, disk)
    assert member.topics() == []
    assert load_epochs(disk, PATHS) is None
    assert VoteFile(disk, PATHS).load() == StoredVote(4, "a")
    follow(leader, member)
    assert readable(member) == readable(leader)


def test_a_crash_at_any_step_leaves_a_store_that_opens() -> None:
    for step in range(1, 30, 2):
        disk = SimDisk(step)
        member = Store.open(SETTINGS, disk)
        StoreWriter(member).write([Draft("Stale", n, bytes(90)) for n in range(40)])
        member.close()
        disk.kill()
        disk.cut_power(step)
        try:
            restart_log(SETTINGS, disk, 20 * SIZE)
        except PowerLost:
            disk = disk.crash()
        store = Store.open(SETTINGS, disk.kill())
        start, end = store.log_range()
        assert (start, end) == (20 * SIZE, 20 * SIZE) or end <= 40 * 250, (step, start, end)
        store.close()
        restart_log(SETTINGS, disk.kill(), 20 * SIZE)
        assert Store.open(SETTINGS, disk).log_range() == (20 * SIZE, 20 * SIZE)
