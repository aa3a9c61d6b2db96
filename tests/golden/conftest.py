"""Golden copies of generated texts: compared in a run, written again with --rewrite."""

from __future__ import annotations

from pathlib import Path

import pytest


class GoldenCopies:
    """The texts of one folder or file; `check` compares a text with its copy, or rewrites it."""

    def __init__(self, *, rewrite: bool) -> None:
        self._rewrite = rewrite

    def check(self, path: Path, text: str) -> None:
        """Fail with a diff if the text differs from its copy."""
        if self._rewrite:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not path.exists():
            pytest.fail(f"{path} does not exist; pytest --rewrite writes it")
        assert text == path.read_text(encoding="utf-8"), f"{path}: pytest --rewrite writes it again"

    def check_names(self, folder: Path, names: set[str]) -> None:
        """Fail if the folder has a copy of something that no longer exists."""
        for path in sorted(folder.iterdir()):
            if path.name not in names and self._rewrite:
                path.unlink()
        assert {path.name for path in folder.iterdir()} == names


@pytest.fixture
def golden_copies(request: pytest.FixtureRequest) -> GoldenCopies:
    """The golden copies; with --rewrite they are written instead of compared."""
    return GoldenCopies(rewrite=request.config.getoption("--rewrite"))
