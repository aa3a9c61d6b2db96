"""results.json says at which commit a client was run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.interop import rows


def test_what_came_of_a_run_is_written_down_with_its_commit(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the scenarios came out as before: the page names the last run."""
    monkeypatch.setattr(rows, "RESULTS", tmp_path / "results.json")
    before = {"version": "1", "commit": "0000000", "passed": {"send": True}}
    rows.RESULTS.write_text(json.dumps({"java": {"kourou": before}}), encoding="utf-8")
    rows.write_down("java", "kourou", "1", {"send": True})
    command = ("git", "-C", str(root), "rev-parse", "--short", "HEAD")
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    written = json.loads(rows.RESULTS.read_text(encoding="utf-8"))
    assert written == {"java": {"kourou": {**before, "commit": head}}}
