"""`kourou bench replication` and `catch-up`, as small as they get: figures, and matching counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SENDING = ("replication", "--only=sync", "--seconds=0.5", "--warm-seconds=0.1")
CATCHING_UP = ("catch-up", "--only=raft", "--gigabytes=0.005", "--size=8000")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (SENDING, {"sync rate", "sync p99_ms", "sync leader_us", "sync followers_us"}),
        (CATCHING_UP, {"raft, catching up", "raft, cp", "raft, catching up / cp"}),
    ],
)
def test_figures_are_printed_and_nothing_is_left(
    arguments: tuple[str, ...], expected: set[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kourou.cli", "bench", *arguments, "--rounds=1", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = {
        one["name"]: one for one in map(json.loads, done.stdout.splitlines())
    }
    assert expected <= set(figures)
    assert all(figures[name]["value"] > 0 for name in expected)
    assert all(one["settings"]["kind"] == arguments[0] for one in figures.values())
    assert list(tmp_path.iterdir()) == []
