"""That this store failed, for the process that comes next: `<root>/kourou/last-fault`.

State: soft; lost, nobody is told of the fault any more.

A process whose disk failed ends within moments, and as a rule something starts it again: who looks
from outside every quarter of a minute sees neither. The file says when, in ms, and why; a copy of
it tells the same. It is not synced: the machine goes on, and a disk that just failed is asked for
nothing more than it must be. If it does not take even that, there is no note.
"""

from __future__ import annotations

from contextlib import suppress

from kourou.store.disk import Disk
from kourou.store.paths import StorePaths

_TIME_BYTES_MAX = 20


def note_fault(disk: Disk, paths: StorePaths, reason: str) -> None:
    """Leave word for the next process. Never raises OSError."""
    with suppress(OSError):
        disk.unlink(paths.last_fault)
        file = disk.open(paths.last_fault, create_size=0)
        try:
            now_ms = file.modified_ms()  # it was made just now: the store has no other clock
            file.pwrite(f"{now_ms} {reason}\n".encode(), 0)
        finally:
            file.close()


def last_fault_ms(disk: Disk, paths: StorePaths) -> int | None:
    """When a process failed on this store last, wall clock; None if that is not known."""
    with suppress(OSError):
        file = disk.open(paths.last_fault)
        try:
            told = file.pread(_TIME_BYTES_MAX, 0).partition(b" ")[0]
        finally:
            file.close()
        return int(told) if told.isdigit() else None
    return None
