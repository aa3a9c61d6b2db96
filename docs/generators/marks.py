"""Collects which test claims to prove which feature, with pytest.

Marks can be on functions, classes, modules and single parameters, and can be computed, so only a
pytest collection finds all of them. Slow tests are included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """One feature number on one test (`path::Class::test`, without parameters)."""

    number: str
    test: str
    slow: bool = False


def find_marks(root: Path) -> list[Mark]:
    """All marks under tests/, sorted; raises RuntimeError with pytest's output on failure."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "marks.json"
        command = [sys.executable, "-m", "pytest", "tests", "--collect-only", "-q"]
        command += ["-p", "no:cacheprovider", "--list-marks", str(target)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode or not target.exists():
            raise RuntimeError(f"pytest cannot collect the tests:\n{done.stdout[-2000:]}")
        return sorted(Mark(*entry) for entry in json.loads(target.read_text(encoding="utf-8")))
