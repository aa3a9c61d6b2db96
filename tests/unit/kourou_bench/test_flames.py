"""Flame graphs: of which processes, and under which names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.errors import MissingPackages, Unavailable
from kourou_bench import flames
from kourou_bench.flames import Flames, module_of


@pytest.fixture
def ours() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose command names a module of ours."""
    says = "print('up', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", says, "-m", "kourou_bench.driver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    yield process
    process.kill()
    process.communicate()


def drawn_by(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let this program stand for py-spy; its argument is the file to draw."""

    def drawing(_: int, path: Path, __: float) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    monkeypatch.setattr(flames, "require_group", lambda *_: None)
    monkeypatch.setattr(flames, "_py_spy", drawing)


def test_only_processes_of_ours_have_a_module(ours: subprocess.Popen[bytes]) -> None:
    assert module_of(ours.pid) == "kourou_bench.driver"
    assert module_of(1) == ""
    assert module_of(2**22 + 1) == ""


def test_files_are_named_by_row_and_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: subprocess.Popen[bytes]
) -> None:
    drawn_by(monkeypatch, "import sys; open(sys.argv[1], 'w').write('<svg/>')")
    worked: list[int] = []
    made = Flames(tmp_path / "new", "tx-1").draw([1, ours.pid], lambda: worked.append(1), 1.0)
    assert made == [tmp_path / "new" / "tx-1-driver.svg"]
    assert made[0].read_text() == "<svg/>"
    assert worked == [1]


def test_a_failure_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: subprocess.Popen[bytes]
) -> None:
    drawn_by(monkeypatch, "print('Permission denied'); raise SystemExit(1)")
    with pytest.raises(Unavailable, match=r"no tx-1-driver\.svg: Permission denied"):
        Flames(tmp_path, "tx-1").draw([ours.pid], lambda: None, 1.0)


def test_without_py_spy_the_group_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.service.process_setup.missing_packages", lambda group: ("py-spy",))
    with pytest.raises(MissingPackages, match="flame graphs needs packages: py-spy"):
        Flames(tmp_path, "tx-1").draw([os.getpid()], lambda: None, 1.0)
