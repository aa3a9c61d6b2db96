"""A real `ha-replica` process whose disk and wall clock do what a file says, while it runs.

    python -m kourou_rigs.ailing_member --orders orders.json -c broker.conf -n 127.0.0.1:19876

    give_orders(path, Orders(sync_delay_ms=200))       every flush of the log takes so much longer
    give_orders(path, Orders(full=True))               no byte is free any more
    give_orders(path, Orders(fail_sync=True))          the next flush of the log fails
    give_orders(path, Orders(clock_step_ms=-3_600_000))  its wall clock is an hour late
    give_orders(path, Orders())                        all is well

Monotonic time is the machine's own: no order touches it.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kourou.clock import SystemClock
from kourou.service.entry import run_from_arguments
from kourou.service.lifecycle import leave
from kourou.service.rocketmq_keys import BROKER_KEYS
from kourou.serving.raft_service import RaftService
from kourou.store.real_disk import RealFile
from kourou_ha_replica.config import ReplicaSettings
from kourou_rigs.failing_disk import FailingDisk, Faults

MODULE = "kourou_rigs.ailing_member"
FULL = Faults(capacity_bytes=1)
WELL = Faults()


class Orders(msgspec.Struct, frozen=True):
    """What a member is to suffer from."""

    sync_delay_ms: int = 0
    full: bool = False
    fail_sync: bool = False
    clock_step_ms: int = 0


def give_orders(path: Path, orders: Orders) -> None:
    """In one rename: nobody reads half of them."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(orders))
    new.replace(path)


class OrderBook:
    """The orders as they are now; read again when the file is another one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = (0, 0)
        self._orders = Orders()

    def read(self) -> Orders:
        """None given is none."""
        try:
            stat = self._path.stat()
            if (stat.st_ino, stat.st_mtime_ns) != self._seen:
                self._seen = (stat.st_ino, stat.st_mtime_ns)
                self._orders = msgspec.json.decode(self._path.read_bytes(), type=Orders)
        except FileNotFoundError:
            self._orders = Orders()
        return self._orders


class AilingDisk(FailingDisk):
    """A FailingDisk with no fault but those that are ordered meanwhile.

    That it is full is noticed where a service looks how full it is, and where a file is made.
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
        """(total, free) bytes; nothing is free while it is full."""
        self._look()
        return super().usage(path)

    def fails_now(self) -> bool:
        """As ordered now; and a sync of the log may take its time."""
        orders = self._book.read()
        if orders.sync_delay_ms:
            self._never.wait(orders.sync_delay_ms / 1_000)  # in a thread of the store's own
        return super().fails_now() or orders.fail_sync

    def _look(self) -> None:
        self.faults = FULL if self._book.read().full else WELL


class SteppedClock(SystemClock):
    """The machine's clocks; wall time is off by what is ordered."""

    __slots__ = ("_book",)

    def __init__(self, book: OrderBook) -> None:
        self._book = book

    def now_ms(self) -> int:
        """Wall time, as this process sees it."""
        return super().now_ms() + self._book.read().clock_step_ms


def run(argv: Sequence[str]) -> int:
    """Run the member; its exit code."""
    parser = argparse.ArgumentParser(prog=MODULE, allow_abbrev=False, add_help=False)
    parser.add_argument("--orders", type=Path, required=True)
    ordered, rest = parser.parse_known_args(list(argv))
    book = OrderBook(ordered.orders)

    def make(settings: ReplicaSettings) -> RaftService:
        return RaftService(settings, SteppedClock(book), AilingDisk(settings.store_root, book))

    return run_from_arguments(
        "ha-replica", "A member that ails.", rest, ReplicaSettings, BROKER_KEYS, make
    )


if __name__ == "__main__":
    leave(run(sys.argv[1:]))
