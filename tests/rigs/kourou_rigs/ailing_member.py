"""A real `ha-replica` process whose disk and wall clock a test controls through a file.

    python -m kourou_rigs.ailing_member --orders orders.json -c broker.conf -n 127.0.0.1:19876

    give_orders(path, Orders(sync_delay_ms=200))       every flush of the log takes 200 ms longer
    give_orders(path, Orders(full=True))               the disk has no free space
    give_orders(path, Orders(fail_sync=True))          the next flush of the log fails
    give_orders(path, Orders(clock_step_ms=-3_600_000))  its wall clock is an hour late
    give_orders(path, Orders())                        no faults

Monotonic time is not affected.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kourou.broker.raft.raft_service import RaftService
from kourou.clock import SystemClock
from kourou.service.entry import run_from_arguments
from kourou.service.lifecycle import leave
from kourou.store.real_disk import RealFile
from kourou_ha_replica.app import ReplicaSettings
from kourou_rigs.failing_disk import FailingDisk, Faults

MODULE = "kourou_rigs.ailing_member"
FULL = Faults(capacity_bytes=1)
WELL = Faults()


class Orders(msgspec.Struct, frozen=True):
    """The faults of a member; the default is none."""

    sync_delay_ms: int = 0
    full: bool = False
    fail_sync: bool = False
    clock_step_ms: int = 0


def give_orders(path: Path, orders: Orders) -> None:
    """Write the orders atomically, by a rename."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(orders))
    new.replace(path)


class OrderBook:
    """Reads the current orders; the file is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = (0, 0)
        self._orders = Orders()

    def read(self) -> Orders:
        """The current orders; without a file, none."""
        try:
            stat = self._path.stat()
            if (stat.st_ino, stat.st_mtime_ns) != self._seen:
                self._seen = (stat.st_ino, stat.st_mtime_ns)
                self._orders = msgspec.json.decode(self._path.read_bytes(), type=Orders)
        except FileNotFoundError:
            self._orders = Orders()
        return self._orders


class AilingDisk(FailingDisk):
    """A FailingDisk whose only faults are the current orders.

    A full disk has an effect when a service queries the free space, and when a file is created.
    """

    __slots__ = ("_book", "_never")

    def __init__(self, root: Path, book: OrderBook) -> None:
        super().__init__(root, WELL)
        self._book = book
        self._never = threading.Event()

    def open(
        self, path: Path, *, create_size: int | None = None, allocate: bool = False
    ) -> RealFile:
        """Open or create a file, if there is space for it."""
        self._look()
        return super().open(path, create_size=create_size, allocate=allocate)

    def usage(self, path: Path) -> tuple[int, int]:
        """(total, free) bytes; nothing is free while the disk is full."""
        self._look()
        return super().usage(path)

    def fails_now(self) -> bool:
        """True if this sync fails by the current orders; delays it if they say so."""
        orders = self._book.read()
        if orders.sync_delay_ms:
            self._never.wait(orders.sync_delay_ms / 1_000)  # runs in a thread of the store
        return super().fails_now() or orders.fail_sync

    def _look(self) -> None:
        self.faults = FULL if self._book.read().full else WELL


class SteppedClock(SystemClock):
    """The machine's clocks, with the wall time shifted by the current orders."""

    __slots__ = ("_book",)

    def __init__(self, book: OrderBook) -> None:
        self._book = book

    def now_ms(self) -> int:
        """Wall time as this process sees it."""
        return super().now_ms() + self._book.read().clock_step_ms


def run(argv: Sequence[str]) -> int:
    """Run the member; returns its exit code."""
    parser = argparse.ArgumentParser(prog=MODULE, allow_abbrev=False, add_help=False)
    parser.add_argument("--orders", type=Path, required=True)
    ordered, rest = parser.parse_known_args(list(argv))
    book = OrderBook(ordered.orders)

    def make(settings: ReplicaSettings) -> RaftService:
        return RaftService(settings, SteppedClock(book), AilingDisk(settings.store_root, book))

    return run_from_arguments("ha-replica", "A member that ails.", rest, ReplicaSettings, make)


if __name__ == "__main__":
    leave(run(sys.argv[1:]))
