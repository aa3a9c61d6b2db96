"""What a process and its children use is added up; they are found, held and kept to cores."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kourou.service import os_processes as families
from kourou.service.os_processes import (
    CpuReading,
    family,
    hold_descendants,
    keep_to,
    peak_bytes,
    resident_bytes,
)

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def test_memory_is_that_of_a_process_and_of_those_it_started() -> None:
    own = resident_bytes(os.getpid())
    assert 10_000_000 < own < 4_000_000_000
    script = "import sys; x = bytearray(b'x') * 50_000_000; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert resident_bytes(os.getpid()) > own + 40_000_000
        assert resident_bytes(os.getpid(), alone=True) < own + 40_000_000
        assert resident_bytes(child.pid) <= peak_bytes(child.pid) < 4_000_000_000
        child.communicate()


def stat(folder: Path, pid: int, parent: int, ticks: tuple[int, int, int, int]) -> None:
    (folder / str(pid)).mkdir()
    fields = ["S", str(parent), *["0"] * 9, *map(str, ticks), *["0"] * 20]
    text = f"{pid} (a name) with 1 2) {' '.join(fields)}\n"
    (folder / str(pid) / "stat").write_text(text, encoding="utf-8")


def test_time_is_that_of_the_whole_family_and_of_those_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat(tmp_path, 10, 1, (100, 10, 0, 0))
    stat(tmp_path, 11, 10, (5, 0, 1_000, 0))
    stat(tmp_path, 12, 11, (0, 0, 0, 7))
    stat(tmp_path, 20, 1, (50, 50, 50, 50))
    monkeypatch.setattr(families, "PROC", tmp_path)
    assert sorted(family(10)) == [10, 11, 12]
    assert CpuReading.of(10).total == 1_122
    assert CpuReading.of(12).total == 7
    assert CpuReading.of(99).total == 0, "it has ended"


def test_time_of_a_child_that_ended_stays_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "PROC", tmp_path)
    stat(tmp_path, 10, 1, (100, 0, 0, 0))
    stat(tmp_path, 11, 10, (40, 0, 0, 0))  # 10 waits for it
    stat(tmp_path, 12, 10, (5, 0, 0, 0))  # 12 ignores SIGCHLD, as Spark's daemon does
    stat(tmp_path, 13, 12, (70, 0, 0, 0))
    before = CpuReading.of(10)
    for pid in (10, 11, 12, 13):
        (tmp_path / str(pid) / "stat").unlink()
        (tmp_path / str(pid)).rmdir()
    stat(tmp_path, 10, 1, (101, 0, 42, 0))
    stat(tmp_path, 12, 10, (8, 0, 0, 0))
    assert before.spent_ns() == (1 + 2 + 3) * TICK_NS


def test_the_fields_are_those_of_this_kernel() -> None:
    before, own_ns = CpuReading.of(os.getpid()), time.process_time_ns()
    while time.process_time_ns() - own_ns < 100_000_000:
        sum(range(10_000))
    assert before.spent_ns() > 50_000_000


SLEEPING = "import signal; print('up', flush=True); signal.pause()"
PARENT = f"""
import subprocess, sys
with subprocess.Popen([sys.executable, '-c', {SLEEPING!r}]) as child:
    child.wait()
"""


def test_those_that_a_process_started_are_held_and_no_others() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (held,) = hold_descendants(parent.pid)
        parent.kill()
        parent.wait()
        assert held.pid not in (parent.pid, os.getpid())
        assert not held.wait_for_end(0)
        held.kill()
        assert held.wait_for_end(60)
        held.kill()  # which is too late, and no trouble
        held.close()


THREADS = """
import signal, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("up", flush=True)
signal.pause()
"""


def test_every_thread_is_kept() -> None:
    core = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        keep_to(child.pid, {core})
        tasks = Path(f"/proc/{child.pid}/task").iterdir()
        kept = [os.sched_getaffinity(int(task.name)) for task in tasks]
        child.kill()
    assert len(kept) == 2
    assert kept == [{core}, {core}]
