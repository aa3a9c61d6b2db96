"""Orders that are given while a member runs."""

from __future__ import annotations

import errno
from contextlib import closing
from pathlib import Path

import pytest

from kourou.clock import SystemClock
from kourou_rigs.ailing_member import AilingDisk, OrderBook, Orders, SteppedClock, give_orders

HOUR_MS = 3_600_000


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return tmp_path / "orders.json"


def test_without_orders_all_is_well(tmp_path: Path, orders: Path):
    disk = AilingDisk(tmp_path, OrderBook(orders))
    (tmp_path / "commitlog").mkdir()
    with closing(disk.open(tmp_path / "commitlog" / "0", create_size=4_096, allocate=True)) as file:
        file.pwrite(b"x", 0)
        file.fdatasync()
        file.fdatasync()
    assert disk.usage(tmp_path)[1] > 0


def test_a_full_disk_is_full_until_it_is_not(tmp_path: Path, orders: Path):
    disk = AilingDisk(tmp_path, OrderBook(orders))
    give_orders(orders, Orders(full=True))
    assert disk.usage(tmp_path) == (1, 0)
    with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
        disk.open(tmp_path / "more", create_size=4_096, allocate=True)
    give_orders(orders, Orders())
    assert disk.usage(tmp_path)[1] > 1
    disk.open(tmp_path / "more", create_size=4_096, allocate=True).close()


def test_a_flush_of_the_log_fails_when_it_is_ordered(tmp_path: Path, orders: Path):
    disk = AilingDisk(tmp_path, OrderBook(orders))
    (tmp_path / "commitlog").mkdir()
    with (
        closing(disk.open(tmp_path / "commitlog" / "0", create_size=4_096, allocate=True)) as log,
        closing(disk.open(tmp_path / "other", create_size=4_096, allocate=True)) as other,
    ):
        log.fdatasync()
        give_orders(orders, Orders(fail_sync=True))
        other.fdatasync()
        with pytest.raises(OSError, match=f"Errno {errno.EIO}"):
            log.fdatasync()


def test_wall_time_steps_and_monotonic_time_does_not(orders: Path):
    clock = SteppedClock(OrderBook(orders))
    before = clock.now_ms(), clock.monotonic_ms()
    give_orders(orders, Orders(clock_step_ms=-HOUR_MS))
    assert before[0] - clock.now_ms() > HOUR_MS // 2
    assert clock.monotonic_ms() >= before[1]
    give_orders(orders, Orders())
    assert clock.now_ms() >= before[0]
    assert SystemClock().now_ms() - clock.now_ms() < HOUR_MS // 2
