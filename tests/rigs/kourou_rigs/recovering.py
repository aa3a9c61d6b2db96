"""Small stores on a simulated disk, filled, damaged and compared byte for byte.

State: soft.
"""

from __future__ import annotations

from pathlib import Path

from kourou.store.paths import StorePaths
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, small_settings

PATHS = StorePaths.under(Path("/store"))
SIZE = 2048
SETTINGS = small_settings(PATHS.root, segment_size_bytes=SIZE)
PROJECTIONS = (PATHS.consume_queue, PATHS.index)


def fill(
    disk: SimDisk, count: int = 24, *, close: bool = True, flush: bool = False
) -> list[Written]:
    """A store with `count` messages in three queues; closed, or left as after kill -9."""
    store = Store.open(SETTINGS, disk)
    written = StoreWriter(store).write(
        [Draft(queue_id=n % 3, body=bytes([n]) * (3 * n), keys=(f"k{n}",)) for n in range(count)]
    )
    if flush:
        store.flush()
    if close:
        store.close()
    else:
        disk.kill()
    return written


def contents(disk: SimDisk, *below: Path) -> dict[Path, bytes]:
    """The files in these directories."""
    return {
        path: disk.read(path)
        for path in disk.files()
        if any(path.is_relative_to(directory) for directory in below)
    }


def damage(disk: SimDisk, position: int, data: bytes) -> None:
    """Write over the log at a position, behind the store's back."""
    disk.overwrite(PATHS.segment(position - position % SIZE), data, position % SIZE)
