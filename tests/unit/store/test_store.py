from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from kourou.errors import ConfigError, Corrupt, StoreFaulted
from kourou.model.limits import INDEX_SLOT_BYTES
from kourou.store.disk import DiskLock, write_atomically
from kourou.store.index.key_index import FLUSH_SHARE
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.store.recovery.recovery_point import (
    Checkpoint,
    RecoveryPoint,
    load_checkpoint,
    load_recovery_point,
)
from kourou.store.store import Store
from kourou.testing.disk import BLOCK, SimDisk
from kourou_rigs.store import Draft, StoreWriter, small_settings

ROOT = Path("/data/store")
PATHS = StorePaths.under(ROOT)
SETTINGS = small_settings(ROOT)
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(Path("/data"))
    return disk


def open_again(disk: SimDisk) -> Store:
    return Store.open(SETTINGS, disk)


# -- opening and closing ------------------------------------------------------------------------


@pytest.mark.feature("F060", "F081", "F082")
def test_a_new_store_has_rocketmqs_files_and_ours(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    assert disk.list_dir(ROOT) == [
        "abort",
        "checkpoint",
        "commitlog",
        "config",
        "consumequeue",
        "index",
        "kourou",
        "lock",
    ]
    assert disk.read(PATHS.lock) == b"lock"
    assert disk.read(PATHS.abort) == b""
    assert disk.list_dir(PATHS.kourou) == ["boot", "format.json", "recovery"]
    assert store.space.allocated_end == SETTINGS.segment_size_bytes
    store.close()
    assert not disk.exists(PATHS.abort)
    assert disk.list_dir(PATHS.commit_log) == []


@pytest.mark.feature("F080")
def test_a_checkpoint_tells_rocketmq_the_store_time(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    StoreWriter(store, now_ms=NOW_MS).write([Draft(), Draft()])
    store.checkpoint()
    assert load_checkpoint(disk, PATHS.checkpoint) == Checkpoint(NOW_MS, NOW_MS, 0)
    assert store.store_ms == NOW_MS


@pytest.mark.parametrize("power", [False, True])
def test_a_usual_checkpoint_leaves_the_index_until_much_is_not_flushed(
    disk: SimDisk, power: bool
) -> None:
    settings = small_settings(ROOT, index_entries=10_000)
    store = Store.open(settings, disk)
    writer = StoreWriter(store, now_ms=NOW_MS)

    def checkpoint() -> RecoveryPoint:
        writer.now_ms += 1_000
        writer.write([Draft(keys=(f"at-{writer.now_ms}",))])
        store.save_checkpoint(store.plan_checkpoint(whole=False))
        point = load_recovery_point(disk, PATHS.recovery_point)
        assert point is not None
        assert point.projected == store.end
        return point

    assert checkpoint().indexed == store.end, "the first one after a start flushes it"
    flushed, saved = store.end, load_checkpoint(disk, PATHS.checkpoint)
    count = 0
    while checkpoint().indexed == flushed:
        count += 1
        times = load_checkpoint(disk, PATHS.checkpoint)
        assert times.log_ms == writer.now_ms
        assert times.queues_ms == saved.queues_ms, "from there on RocketMQ indexes again"
    assert count > 10
    assert store.end - flushed >= FLUSH_SHARE * settings.index_slots * INDEX_SLOT_BYTES
    checkpoint()
    store = Store.open(settings, disk.crash() if power else disk.kill())
    for ms in range(NOW_MS + 1_000, writer.now_ms + 1, 1_000):
        assert store.find_by_key("TopicA", f"at-{ms}", max_count=9, begin_ms=0, end_ms=1 << 60)


def test_rocketmq_indexes_again_what_an_index_that_is_held_lacks(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store, now_ms=NOW_MS)
    writer.write([Draft(keys=("before",))])
    store.checkpoint()
    store.hold_index(True)
    writer.now_ms += 1_000
    writer.write([Draft(keys=("meanwhile",))])
    store.checkpoint()
    assert load_checkpoint(disk, PATHS.checkpoint) == Checkpoint(NOW_MS + 1_000, NOW_MS, 0)
    store.hold_index(False)
    store.catch_up_index()
    store.checkpoint()
    saved = load_checkpoint(disk, PATHS.checkpoint)
    assert saved == Checkpoint(NOW_MS + 1_000, NOW_MS + 1_000, 0)


def test_a_full_index_file_is_flushed_at_the_next_checkpoint(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store, now_ms=NOW_MS)
    writer.write([Draft()])
    store.checkpoint()
    writer.write([Draft(keys=tuple(f"key-{n}" for n in range(SETTINGS.index_entries)))])
    store.save_checkpoint(store.plan_checkpoint(whole=False))
    assert load_checkpoint(disk, PATHS.checkpoint) == Checkpoint(NOW_MS, NOW_MS, NOW_MS)
    point = load_recovery_point(disk, PATHS.recovery_point)
    assert point is not None
    assert point.indexed == store.end


@pytest.mark.feature("F082")
def test_a_second_broker_is_refused_in_one_sentence(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    before = {path: disk.read(path) for path in disk.files()}
    with pytest.raises(ConfigError, match=r"^another broker uses the store /data/store"):
        Store.open(SETTINGS, disk)
    assert {path: disk.read(path) for path in disk.files()} == before
    store.close()
    open_again(disk).close()


def test_a_store_of_a_newer_version_is_not_touched(disk: SimDisk) -> None:
    Store.open(SETTINGS, disk).close()
    write_atomically(disk, PATHS.format_version, b'{"format": 99}')
    before = {path: disk.read(path) for path in disk.files()}
    with pytest.raises(ConfigError, match="format 99"):
        Store.open(SETTINGS, disk)
    assert {path: disk.read(path) for path in disk.files()} == before


def test_another_segment_size_is_refused_and_the_lock_given_back(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    StoreWriter(store).write([Draft()])
    store.close()
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog is 4096"):
        Store.open(small_settings(ROOT, segment_size_bytes=4096), disk)
    with pytest.raises(ConfigError, match="mappedFileSizeConsumeQueue"):
        Store.open(small_settings(ROOT, queue_file_units=21), disk)
    open_again(disk).close()


def test_a_file_in_the_place_of_a_directory_is_refused(disk: SimDisk, tmp_path: Path) -> None:
    disk.open(ROOT, create_size=0)
    with pytest.raises(ConfigError, match="/data/store is a file where a directory is needed"):
        Store.open(SETTINGS, disk)
    real = tmp_path / "file"
    real.write_bytes(b"")
    for root in (real, real / "below", real / "below" / "that"):
        with pytest.raises(ConfigError, match=f"^{real} is a file where a directory is needed"):
            Store.open(small_settings(root), RealDisk())
    assert real.read_bytes() == b""


@pytest.mark.parametrize(
    "code", [errno.ENOENT, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES]
)
@pytest.mark.parametrize("where", ["store", "commitlog"])
def test_a_place_where_no_directory_can_be_made_is_an_operators_matter(
    code: int, where: str
) -> None:
    """As /proc, a read-only file system, a path that is too long."""

    class NoPlace(SimDisk):
        def make_dirs(self, path: Path) -> None:
            if path.name == where:
                raise OSError(code, "no place", str(path))
            super().make_dirs(path)

    with pytest.raises(ConfigError, match="/data/store"):
        Store.open(SETTINGS, NoPlace())


@pytest.mark.parametrize("where", ["commitlog", "consumequeue", "store"])
def test_a_directory_that_may_not_be_read_is_refused(disk: SimDisk, where: str) -> None:
    class Closed(SimDisk):
        def list_dir(self, path: Path) -> list[str]:
            if path.name == where:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return super().list_dir(path)

        def lock(self, path: Path) -> DiskLock:  # type: ignore[override]  # as the real one
            if where == "store":
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return super().lock(path)

    with pytest.raises(ConfigError, match="may not be read and written by this user"):
        Store.open(SETTINGS, Closed())


def test_a_damaged_quarantine_file_is_named(disk: SimDisk) -> None:
    Store.open(SETTINGS, disk).close()
    write_atomically(disk, PATHS.quarantine, b"nonsense")
    with pytest.raises(Corrupt, match=r"quarantine\.json"):
        Store.open(SETTINGS, disk)


def test_a_failing_disk_is_named_when_opening() -> None:
    disk = SimDisk()
    disk.fail_sync(3)
    with pytest.raises(StoreFaulted, match="Input/output error"):
        Store.open(SETTINGS, disk)
    open_again(disk).close()


# -- writing ------------------------------------------------------------------------------------


@pytest.mark.feature("F063", "F072")
def test_what_is_appended_is_seen_when_it_is_dispatched(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    writer.write([Draft("A"), Draft("B", 1), Draft("A")], dispatch=False)
    assert store.queue_range("A", 0) is None
    assert store.dispatch_behind_bytes == store.end
    advanced = store.dispatch()
    assert max((one.topic, one.queue_id, one.max_offset) for one in advanced) == ("B", 1, 1)
    assert store.queue_range("A", 0) == (0, 2)
    assert store.dispatch() == []
    assert store.dispatched == store.end


@pytest.mark.feature("F094", "F095")
def test_one_flush_serves_all_that_was_appended_before_it(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    for _ in range(10):
        writer.write([Draft()])
    syncs = disk.syncs
    assert store.flush() == store.end
    assert disk.syncs == syncs + 1
    assert store.dirty_bytes == 0


@pytest.mark.fault
def test_a_failed_flush_stops_everything_but_reading(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    writer.write([Draft(body=b"safe")])
    store.flush()
    writer.write([Draft(body=b"unsafe")])
    disk.fail_sync(1)
    with pytest.raises(StoreFaulted):
        store.flush()
    assert store.fault is not None
    before = {path: disk.read(path) for path in disk.files()}
    for call in (
        store.flush,
        store.checkpoint,
        store.allocate_next,
        lambda: writer.write([Draft()]),
    ):
        with pytest.raises(StoreFaulted):
            call()
    assert store.dispatch() == []
    read = store.read_queue(
        "TopicA", 0, 0, max_messages=9, max_bytes=1 << 20, codes=None, below=1 << 60
    )
    assert len(read.records) == 1
    store.close()
    assert {path: disk.read(path) for path in disk.files()} == before
    assert disk.exists(PATHS.abort), "the next start must recover"


def test_flush_and_checkpoint_may_run_in_other_threads(tmp_path: Path) -> None:
    store = Store.open(small_settings(tmp_path / "store", segment_size_bytes=4096), RealDisk())
    writer = StoreWriter(store)
    stop = threading.Event()
    problems: list[BaseException] = []
    flushed = [0]

    def flusher() -> None:
        try:
            while not stop.is_set():
                position = store.flush()
                assert position >= flushed[0]
                flushed[0] = position
                store.allocate_next()
        except BaseException as error:  # noqa: BLE001 - told to the test
            problems.append(error)

    def checkpointer() -> None:
        try:
            for _ in range(20):
                store.save_checkpoint(plan)
        except BaseException as error:  # noqa: BLE001 - told to the test
            problems.append(error)

    plan = store.plan_checkpoint()
    threads = [threading.Thread(target=flusher), threading.Thread(target=checkpointer)]
    for thread in threads:
        thread.start()
    for step in range(60):
        writer.write(
            [Draft(queue_id=n % 3, body=bytes(50), keys=(f"{step}-{n}",)) for n in range(8)]
        )
    threads[1].join()
    stop.set()
    threads[0].join()
    assert problems == []
    store.close()
    again = Store.open(small_settings(tmp_path / "store", segment_size_bytes=4096), RealDisk())
    assert again.report.way == "after a clean stop"
    assert again.end == store.end
    assert sum((again.queue_range("TopicA", q) or (0, 0))[1] for q in range(3)) == 480
    again.close()


# -- a full disk --------------------------------------------------------------------------------


@pytest.mark.fault
def test_on_a_full_disk_reads_go_on_and_writing_resumes_when_space_is_freed() -> None:
    size = SETTINGS.segment_size_bytes
    disk = SimDisk(capacity_bytes=65_000)
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    count = 0
    while not store.space.full:
        written = writer.stamp([Draft(body=bytes(500), keys=(f"k{count}",))])
        if written[-1].end > store.space.allocated_end:
            store.allocate_next(written[-1].end)
            continue
        writer.append(written)
        store.dispatch()
        count += 1
        store.allocate_next()
    assert store.fault is None
    assert store.flush() == store.end
    assert count > 10
    read = store.read_queue(
        "TopicA", 0, 0, max_messages=999, max_bytes=1 << 20, codes=None, below=store.end
    )
    assert len(read.records) == read.next_offset
    disk.capacity_bytes += 10 * size
    assert not store.allocate_next().full
    store.dispatch()
    assert store.dispatch_behind_bytes == 0
    assert store.queue_range("TopicA", 0) == (0, count)
    StoreWriter(store).write([Draft(body=bytes(500)) for _ in range(40)])
    assert store.queue_range("TopicA", 0) == (0, count + 40)
    store.close()


@pytest.mark.fault
def test_queues_that_find_no_space_catch_up_later() -> None:
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    store.allocate_next(2 * SETTINGS.segment_size_bytes)
    total, free = disk.usage(ROOT)
    disk.capacity_bytes = total - free
    writer = StoreWriter(store)
    writer.write([Draft(queue_id=n, keys=("k",)) for n in range(4)])
    assert store.dispatch_behind_bytes > 0
    assert store.fault is None
    assert store.flush() == store.end
    disk.capacity_bytes = 1 << 40
    store.dispatch()
    assert store.dispatch_behind_bytes == 0
    assert [store.queue_range("TopicA", n) for n in range(4)] == [(0, 1)] * 4
    store.plan_checkpoint()
    hits = store.find_by_key("TopicA", "k", max_count=9, begin_ms=0, end_ms=1 << 60)
    assert len(hits) == 4


@pytest.mark.fault
@pytest.mark.feature("F079", "F263")
def test_an_index_file_that_found_no_space_hides_none_of_the_older_ones() -> None:
    """The disk is full when the second index file exists and has no entry yet."""
    disk, count, later_ms = SimDisk(), 10, NOW_MS + HOUR_MS
    settings = small_settings(ROOT, index_slots=2_000, index_entries=count + 1)
    store = Store.open(settings, disk)

    def hits(key: str) -> int:
        return len(store.find_by_key("TopicA", key, max_count=9, begin_ms=NOW_MS, end_ms=later_ms))

    writer = StoreWriter(store, now_ms=NOW_MS)
    writer.write([Draft(keys=(f"k{number}",)) for number in range(count)])
    total, free = disk.usage(ROOT)
    disk.capacity_bytes = total - free + BLOCK  # enough for the new file's header
    writer.now_ms = later_ms
    writer.write([Draft(keys=("late",))])
    assert len(disk.list_dir(PATHS.index)) == 2
    assert [hits(f"k{number}") for number in range(count)] == [1] * count
    assert hits("late") == 0
    disk.capacity_bytes = 1 << 40
    store.plan_checkpoint()
    assert [hits(f"k{number}") for number in range(count)] == [1] * count
    assert hits("late") == 1


# -- shrinking ----------------------------------------------------------------------------------


def test_a_removed_topic_stays_removed(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    StoreWriter(store).write([Draft("A"), Draft("A", 1), Draft("B")])
    assert store.remove_topic("A") == 2
    assert store.remove_topic("none") == 0
    again = open_again(disk.kill().crash())
    assert again.queue_range("A", 0) is None
    assert again.queue_range("B", 0) == (0, 1)
