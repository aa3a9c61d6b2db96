"""A note for the next process that this store failed: `<root>/kourou/last-fault`.

State: soft; if it is lost, the fault is no longer reported.

A process whose disk failed ends within moments and is usually restarted automatically, so external
monitoring that polls every 15 seconds may notice neither. The file has the time in ms and the
reason; a copy of the file has the same. It is not synced: the machine keeps running, and a disk
that just failed is used as little as possible. If the note cannot be written, there is none.
"""

from __future__ import annotations

from contextlib import suppress

from kourou.store.disk import Disk
from kourou.store.paths import StorePaths

_TIME_BYTES_MAX = 20


def note_fault(disk: Disk, paths: StorePaths, reason: str) -> None:
    """Write the note for the next process. Never raises OSError."""
    with suppress(OSError):
        disk.unlink(paths.last_fault)
        file = disk.open(paths.last_fault, create_size=0)
        try:
            now_ms = file.modified_ms()  # just created; the store has no other clock
            file.pwrite(f"{now_ms} {reason}\n".encode(), 0)
        finally:
            file.close()


def last_fault_ms(disk: Disk, paths: StorePaths) -> int | None:
    """When a process last failed on this store, wall clock; None if that is not known."""
    with suppress(OSError):
        file = disk.open(paths.last_fault)
        try:
            told = file.pread(_TIME_BYTES_MAX, 0).partition(b" ")[0]
        finally:
            file.close()
        return int(told) if told.isdigit() else None
    return None
