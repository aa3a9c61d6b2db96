from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store.log.commit_log import CommitLog
from kourou.store.paths import StorePaths
from kourou.store.recovery.replay import claim_at
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, small_settings

PATHS = StorePaths.under(Path("/store"))
SIZE = 1024


@pytest.fixture
def shelf() -> tuple[CommitLog, list[Written], SimDisk]:
    disk = SimDisk()
    store = Store.open(small_settings(PATHS.root, segment_size_bytes=SIZE), disk)
    written = StoreWriter(store).write([Draft(queue_id=n, body=bytes(70)) for n in range(20)])
    end = store.end
    store.close()
    log = CommitLog.open(disk, PATHS, SIZE)
    log.adopt_end(end, end)
    return log, written, disk


def test_a_damaged_record_still_claims_its_place(
    shelf: tuple[CommitLog, list[Written], SimDisk],
) -> None:
    log, written, disk = shelf
    item = written[7]
    claim = claim_at(log, item.position, item.end)
    assert claim == ("TopicA", 7, 0, len(item.record), False)
    assert claim_at(log, item.position, item.end - 1) is None
    assert claim_at(log, item.position + 1, item.end) is None
    # Damage in the body leaves the header to be believed; a damaged size is found from the end.
    disk.overwrite(PATHS.segment(0), b"\xff", written[2].position + 90)
    claim = claim_at(log, written[2].position, log.end)
    assert claim == ("TopicA", 2, 0, len(written[2].record), True)
    disk.overwrite(PATHS.segment(0), b"\xff", written[3].position)
    claim = claim_at(log, written[3].position, written[3].end)
    assert claim == ("TopicA", 3, 0, len(written[3].record), False)
    assert claim_at(log, written[3].position, written[4].end) is None
    disk.overwrite(PATHS.segment(0), bytes(90), written[1].position)
    assert claim_at(log, written[1].position, log.end) is None
