"""Without an engine, tests that need one fail with one sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.containers.docker_engine import PROGRAMS, DockerEngine, NoEngine


def test_an_address_where_no_engine_answers_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/sock")
    with pytest.raises(NoEngine, match=f"answers at DOCKER_HOST=unix://{tmp_path}/sock: start it"):
        DockerEngine().start()


def test_programs_that_are_missing_are_named_and_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEngine, match=f"without {' and '.join(PROGRAMS)}.*ci/install --docker"):
        DockerEngine().start()
