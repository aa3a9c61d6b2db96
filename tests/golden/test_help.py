"""Every help page of `kourou` is equal to its golden copy in tests/golden/help.

A change of a page is intended or a mistake; the diff of the copies shows it to the reviewer. After
an intended change: `pytest tests/golden/test_help.py --rewrite`.

Pages are rendered in this process, 80 columns wide and without colour.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.golden.conftest import GoldenCopies
from typer.main import get_command

from kourou.cli.commands import app
from kourou.cli.main import main

FOLDER = Path(__file__).parent / "help"
WIDTH = "80"


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command: (), ("admin",), ("admin", "topicList") …"""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from paths(below, (*path, name))


PATHS = list(paths(get_command(app)))


def file_name(path: tuple[str, ...]) -> str:
    return "-".join(("kourou", *path)) + ".txt"


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of known width without colour."""
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(path) or "kourou")
def test_a_help_page_equals_its_copy(
    path: tuple[str, ...], golden_copies: GoldenCopies, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):  # services print their help by argparse, which ends the process
        main([*path, "--help"])
    page = capsys.readouterr().out
    assert page
    golden_copies.check(FOLDER / file_name(path), page)


def test_every_copy_has_its_command(golden_copies: GoldenCopies) -> None:
    golden_copies.check_names(FOLDER, {file_name(path) for path in PATHS})
