"""Pages that are made from something are current, links lead somewhere, tables match the code."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kourou.cli.check_stages import ALLOWED_SKIPS, STAGES
from kourou.cli.commands import command_names


@pytest.fixture(scope="module")
def features(root: Path) -> list[dict[str, str]]:
    return tomllib.loads((root / "docs/features.toml").read_text(encoding="utf-8"))["feature"]


def test_generated_pages_are_current(root: Path) -> None:
    """FEATURES.md among them: a row says done exactly when a test with that number exists."""
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_items_of_the_seeds_are_listed(features: list[dict[str, str]]) -> None:
    assert [item["id"] for item in features] == [f"F{number:03}" for number in range(1, 385)]


def test_what_is_documented_is_on_its_page(root: Path, features: list[dict[str, str]]) -> None:
    """The page says the number where it says the thing, so that a reader can find it."""
    missing = [
        f"{item['page']} does not mention {item['id']} ({item['name']})"
        for item in features
        if "page" in item and item["id"] not in (root / item["page"]).read_text(encoding="utf-8")
    ]
    assert not missing, "\n".join(missing)


def test_links_between_pages_lead_somewhere(root: Path, texts: dict[str, str]) -> None:
    broken = [
        f"{path}: {link}"
        for path, text in texts.items()
        if path.endswith(".md")
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
        if "://" not in link and not (root / path).parent.joinpath(link).exists()
    ]
    assert not broken, "\n".join(broken)


def test_the_testing_page_lists_stages_and_skips(root: Path) -> None:
    page = (root / "docs/testing.md").read_text(encoding="utf-8")
    assert [stage.name for stage in STAGES if f"`{stage.name}`" not in page] == []
    assert [reason for reason in ALLOWED_SKIPS if f"`{reason}`" not in page] == []


def test_the_operating_page_names_every_command(root: Path) -> None:
    page = (root / "docs/operating.md").read_text(encoding="utf-8")
    assert [name for name in sorted(command_names()) if f"`kourou {name}" not in page] == []


def test_every_decision_has_the_same_shape(root: Path) -> None:
    for page in sorted((root / "docs/decisions").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        number = page.name[:4]
        assert number.isdigit(), page.name
        assert re.match(rf"# {number}\.? \w", text), page.name
        for part in (r"\*\*Choice\.\*\*", r"\*\*(Reason|Why)\.\*\*", r"\*\*What would change it"):
            assert re.search(part, text), f"{page.name} lacks {part}"
