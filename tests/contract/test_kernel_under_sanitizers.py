"""Hostile bytes never make the compiled kernel read or write where it must not.

It is compiled with AddressSanitizer and UndefinedBehaviorSanitizer, and damaged records are given
to all of its functions (kernel_under_fire). A finding ends the process with a report.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hatch_build
import pytest

from kourou.protocol import kernel

Seeds = Callable[[int], Iterator[int]]

HERE = Path(__file__).parent
NO_COMPILER = shutil.which("gcc") is None
SANITIZERS = "-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
FULL = 30_000
SOAK = 4_000_000
"""About an hour."""

pytestmark = pytest.mark.skipif(NO_COMPILER, reason="needs a C compiler")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension, compiled so that it watches itself."""
    folder = tmp_path_factory.mktemp("sanitized")
    for name in ("_kernel.pyx", "crc32.h"):
        shutil.copy(Path(kernel.__file__).parent / name, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", f"gcc {SANITIZERS}")
        hatch_build.compile_kernel(folder)
    return folder / hatch_build.EXTENSION


def library(name: str) -> str:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def fire(extension: Path, first: int, count: int) -> subprocess.CompletedProcess[str]:
    """Give it so many seeds, in a Python each of whose objects is an allocation of its own."""
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "KOUROU_KERNEL": "python",
    }
    program = [sys.executable, str(HERE / "kernel_under_fire.py"), str(extension)]
    return subprocess.run(
        [*program, str(first), str(count)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


@pytest.mark.fault
@pytest.mark.timeout(3_000)
def test_damaged_records_are_refused_or_read_as_the_other_kernel_does(
    sanitized: Path, simulation_seeds: Seeds
) -> None:
    seeds = list(simulation_seeds(FULL))
    done = fire(sanitized, seeds[0], len(seeds))
    assert done.returncode == 0, done.stderr[-8_000:]


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_an_hour_of_damaged_records(sanitized: Path) -> None:
    done = fire(sanitized, FULL, SOAK)
    assert done.returncode == 0, done.stderr[-8_000:]


@pytest.mark.slow
def test_a_read_behind_the_end_is_noticed(sanitized: Path, tmp_path: Path) -> None:
    """Without a check of one length; or the tests above would prove nothing."""
    source = (sanitized.parent / "_kernel.pyx").read_text()
    check = "    if size < fixed or size > end - at:\n        return False\n"
    assert source.count(check) == 1
    (tmp_path / "_kernel.pyx").write_text(source.replace(check, ""))
    shutil.copy(sanitized.parent / "crc32.h", tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", f"gcc {SANITIZERS}")
        hatch_build.compile_kernel(tmp_path)
    done = fire(tmp_path / hatch_build.EXTENSION, 0, 200)
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr
