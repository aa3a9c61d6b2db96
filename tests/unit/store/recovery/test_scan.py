from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from kourou.errors import Corrupt
from kourou.protocol.record.layout import BLANK_MAGIC, MAGIC_V2
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.quarantine import Quarantine, Region
from kourou.store.paths import StorePaths
from kourou.store.recovery.scan import LogScan, Rules, good_run, log_scan
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 1024
NONE = Quarantine([])


class Log:
    """A log of 20 records in some segments, whose bytes a test may change."""

    def __init__(self, count: int = 20) -> None:
        self.disk = SimDisk()
        store = Store.open(small_settings(ROOT, segment_size_bytes=SIZE), self.disk)
        rng = random.Random(1)
        drafts = [
            Draft(queue_id=n % 2, body=rng.randbytes(rng.randrange(90))) for n in range(count)
        ]
        self.written: list[Written] = StoreWriter(store).write(drafts)
        self.end = store.end
        store.flush()
        store.close()

    def change(self, position: int, data: bytes) -> None:
        path = PATHS.segment(position - position % SIZE)
        self.disk.overwrite(path, data, position % SIZE)

    def byte(self, position: int) -> int:
        return self.disk.read(PATHS.segment(position - position % SIZE))[position % SIZE]

    def log_scan(
        self,
        *,
        flushed: int = 0,
        crashed: bool = True,
        start: int = 0,
        quarantine: Quarantine = NONE,
        resume_below: int | None = None,
        accept: int | None = None,
        mapped: bool = True,
    ) -> LogScan:
        log = CommitLog.open(self.disk, PATHS, SIZE, mapped=mapped)
        before = {path: self.disk.read(path) for path in self.disk.files()}
        rules = Rules(flushed, crashed, resume_below=resume_below, accept_loss_at=accept)
        found = log_scan(log, quarantine, start, rules)
        assert before == {path: self.disk.read(path) for path in self.disk.files()}
        return found


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("crashed", [True, False])
@pytest.mark.feature("F066", "F074")
def test_a_sound_log_is_walked_to_its_end(log: Log, crashed: bool, mapped: bool) -> None:
    found = log.log_scan(crashed=crashed, mapped=mapped)
    assert found.end == log.end
    assert found.records == 20
    assert found.store_ms == 1_700_000_000_000
    assert not found.regions
    assert not found.lost_fillers
    assert found.lost_at is None
    assert log.end > 2 * SIZE, "the test wants several segments"


def test_it_may_begin_at_any_boundary(log: Log) -> None:
    for index, item in enumerate(log.written):
        found = log.log_scan(start=item.position)
        assert (found.end, found.records) == (log.end, 20 - index)


def test_a_damaged_record_costs_itself_only(log: Log) -> None:
    for item in log.written[:-1]:
        at = item.position + len(item.record) // 2
        old = log.byte(at)
        log.change(at, bytes([old ^ 4]))
        found = log.log_scan()
        log.change(at, bytes([old]))
        assert (found.end, found.records) == (log.end, 19)
        (region,) = found.regions
        assert region.start == item.position
        assert region.end >= item.end
        assert (region.end - item.end) in (0, SIZE - item.end % SIZE)


def test_damaged_neighbours_are_one_region(log: Log) -> None:
    first, second = log.written[3], log.written[4]
    for item in (first, second):
        log.change(item.position + 90, b"\xff\xff\xff")
    found = log.log_scan()
    assert found.records == 18
    assert [(region.start, region.end) for region in found.regions] == [
        (first.position, second.end)
    ]


@pytest.mark.parametrize("junk", [b"\0", b"\xff"])
def test_a_wiped_sector_in_the_middle(log: Log, junk: bytes) -> None:
    item = log.written[2]
    log.change(item.position, junk * 30)
    found = log.log_scan()
    assert found.records == 19
    assert found.regions == [Region(item.position, item.end, "no readable record")]


def test_promised_bytes_that_are_gone_are_a_loss(log: Log) -> None:
    last, before = log.written[-1], log.written[-2]
    log.change(last.position, bytes(len(last.record)))
    found = log.log_scan(flushed=log.end)
    assert found.lost_at == last.position
    accepted = log.log_scan(flushed=log.end, accept=last.position)
    assert accepted.lost_at is None
    assert accepted.end == log.end
    assert accepted.regions[0].start == last.position
    assert log.log_scan(flushed=log.end, accept=before.position).lost_at == last.position


def test_one_damaged_record_at_the_very_end_is_no_loss_while_its_header_stands(log: Log) -> None:
    last = log.written[-1]
    log.change(last.position + 100, b"\xff\xff")
    found = log.log_scan(flushed=log.end)
    assert found.lost_at is None
    assert found.end == log.end
    assert found.regions == [Region(last.position, log.end, "the last records fail their check")]


def test_a_lost_filler_is_put_back(log: Log) -> None:
    at = max(item.end for item in log.written if item.end < SIZE)
    log.change(at, bytes(8))
    found = log.log_scan(flushed=at)
    assert (found.end, found.records) == (log.end, 20)
    assert [(blank.position, blank.size) for blank in found.lost_fillers] == [(at, SIZE - at)]
    assert not found.regions


def test_where_promised_records_may_have_been_no_filler_is_invented(log: Log) -> None:
    at = max(item.end for item in log.written if item.end < SIZE)
    log.change(at, bytes(8))
    found = log.log_scan(flushed=log.end)
    assert not found.lost_fillers
    assert found.regions == [Region(at, SIZE, "no readable record")]


def test_behind_a_clean_stop_zeros_are_the_end(log: Log) -> None:
    item = log.written[10]
    log.change(item.position, bytes(len(item.record)))
    assert log.log_scan(flushed=item.position, crashed=False).end == item.position
    assert log.log_scan(flushed=item.position, crashed=True).end == log.end


def test_old_records_above_the_end_of_another_program_do_not_count(log: Log) -> None:
    item = log.written[10]
    log.change(item.position, b"\xff" * 8)
    found = log.log_scan(flushed=item.position, resume_below=item.position)
    assert found.end == item.position
    assert log.log_scan(flushed=item.position, resume_below=log.end).end == log.end


def forged_at(position: int, writer: StoreWriter) -> bytes:
    """A record of another topic that says it lies at `position`, checksum and all."""
    forged = bytearray(writer.stamp([Draft(topic="forged")])[0].record)
    forged[28:36] = position.to_bytes(8, "big")
    mark = len(forged) - 20
    crc = zlib.crc32(forged[:mark]) & 0x7FFFFFFF
    forged[mark + 9 : mark + 19] = (b"%010d" % crc)[::-1]
    return bytes(forged)


def write_forged(disk: SimDisk, *, filler: bool = False, behind: int = 1) -> list[Written]:
    """A log of a message, one with a forged record in its body, and `behind` more.

    `filler`: behind it the body says that the rest of the segment is free.
    """
    store = Store.open(small_settings(ROOT, segment_size_bytes=4096), disk)
    writer = StoreWriter(store)
    first = writer.write([Draft(body=b"first")])
    inside = first[0].end + 88 + 100
    forged = forged_at(inside, writer)
    end = inside + len(forged)
    tail = (4096 - end).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big") if filler else b""
    body = bytes(100) + forged + tail + bytes(500)
    written = StoreWriter(store).write([Draft(body=body), *[Draft(body=b"behind")] * behind])
    assert written[0].record[inside - written[0].position :][: len(forged)] == forged
    disk.kill()
    return [*first, *written]


def test_bytes_of_a_message_are_not_taken_for_records_while_the_header_stands() -> None:
    disk = SimDisk()
    _, outer, behind = write_forged(disk)
    disk.overwrite(PATHS.segment(0), b"\xff", outer.position + 90)
    found = log_scan(CommitLog.open(disk, PATHS, 4096), NONE, 0, Rules(0, crashed=True))
    assert found.regions == [Region(outer.position, behind.position, "the record fails its check")]


@pytest.mark.parametrize("filler", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("behind", [0, 1, 3])
def test_nor_where_the_header_is_gone(filler: bool, flushed: bool, behind: int) -> None:
    """The power was lost when the sectors of a body were written and that of its header was not."""
    disk = SimDisk()
    first, outer, *rest = write_forged(disk, filler=filler, behind=behind)
    disk.overwrite(PATHS.segment(0), bytes(60), outer.position)
    end = rest[-1].end if rest else outer.end
    rules = Rules(end if flushed else first.end, crashed=True)
    found = log_scan(CommitLog.open(disk, PATHS, 4096), NONE, 0, rules)
    if rest:
        assert found.regions == [Region(outer.position, outer.end, "no readable record")]
        assert (found.end, found.records) == (end, 1 + behind)
    elif flushed:
        assert found.lost_at == outer.position
    else:
        assert (found.end, found.regions, found.records) == (outer.position, [], 1)


def test_a_record_between_damaged_ones_is_believed_if_a_queue_names_it(log: Log) -> None:
    one, other = log.written[4], log.written[7]
    for item in (one, other):
        log.change(item.position, bytes(40))
    opened = CommitLog.open(log.disk, PATHS, SIZE)
    positions = {item.position for item in log.written}
    held = log_scan(opened, NONE, 0, Rules(0, crashed=True))
    assert [(region.start, region.end) for region in held.regions] == [(one.position, other.end)]
    found = log_scan(opened, NONE, 0, Rules(0, crashed=True, is_named=positions.__contains__))
    assert [(region.start, region.end) for region in found.regions] == [
        (one.position, one.end),
        (other.position, other.end),
    ]


def test_a_second_layout_is_refused_and_not_truncated(log: Log) -> None:
    item = log.written[4]
    log.change(item.position + 4, MAGIC_V2.to_bytes(4, "big"))
    with pytest.raises(Corrupt, match="RocketMQ 5"):
        log.log_scan()


def test_a_run_ends_before_the_first_bad_record(log: Log) -> None:
    opened = CommitLog.open(log.disk, PATHS, SIZE)
    view = opened.raw_view(0)
    assert view is not None
    inside = [item for item in log.written if item.position < SIZE]
    assert len(good_run(view, 0)) == len(inside)
    assert len(good_run(view, 1)) == 0, "positions must agree"
    log.change(inside[2].position + 95, b"\xff")
    assert len(good_run(opened.raw_view(0) or view, 0)) == 2
    assert len(good_run(opened.raw_view(0) or view, 0, verify=False)) == len(inside)


@pytest.mark.feature("F110")
def test_a_replicated_log_ends_at_the_first_gap_that_was_never_promised(log: Log) -> None:
    at = 7
    hole, behind = log.written[at], log.written[at + 1]
    log.change(hole.position, bytes(len(hole.record)))
    opened = CommitLog.open(log.disk, PATHS, SIZE)
    for flushed in (0, hole.position):
        plain = log_scan(opened, NONE, 0, Rules(flushed, crashed=True))
        assert (plain.end, len(plain.regions) + len(plain.lost_fillers)) == (log.end, 1)
        copied = log_scan(opened, NONE, 0, Rules(flushed, crashed=True, gapless=True))
        assert (copied.end, copied.regions, copied.lost_fillers) == (hole.position, [], [])
    promised = log_scan(opened, NONE, 0, Rules(behind.position, crashed=True, gapless=True))
    assert [(one.start, one.end) for one in promised.regions] == [(hole.position, behind.position)]
    assert promised.end == log.end


def test_a_hole_never_reaches_behind_what_was_promised_of_a_replicated_log(log: Log) -> None:
    first, second = log.written[7], log.written[8]
    for item in (first, second):
        log.change(item.position, bytes(len(item.record)))
    opened = CommitLog.open(log.disk, PATHS, SIZE)
    found = log_scan(opened, NONE, 0, Rules(second.position, crashed=True, gapless=True))
    assert [(one.start, one.end) for one in found.regions] == [(first.position, second.position)]
    assert found.end == second.position
