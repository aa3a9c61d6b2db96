"""Without a compiler the wheel is pure, unless the compiled record kernel is demanded.

That a compiler is used where one is installed: test_plugin_wheel.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = "kourou/protocol/_kernel.abi3.so"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in a folder of their own: a build writes next to them."""
    folder = tmp_path_factory.mktemp("kernel") / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.so", "tests", "benchmarks", "pictures")
    shutil.copytree(ROOT, folder, ignore=ignored)
    return folder


def build(checkout: Path, into: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    return subprocess.run(
        command,
        cwd=checkout,
        env={**os.environ, "KOUROU_KERNEL": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_compiler_the_wheel_is_pure_and_says_so_once(
    checkout: Path, tmp_path: Path
) -> None:
    done = build(checkout, tmp_path, CC="no-such-compiler")
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("the record kernel is not compiled") == 1
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as files:
        assert EXTENSION not in files.namelist()


def test_a_kernel_that_must_be_compiled_and_cannot_be_fails_the_build(
    checkout: Path, tmp_path: Path
) -> None:
    done = build(checkout, tmp_path, CC="no-such-compiler", KOUROU_KERNEL="compiled")
    assert done.returncode != 0
    assert "no-such-compiler" in done.stderr
    assert not list(tmp_path.glob("*.whl"))
