"""Pages that are made from something are current, links lead somewhere, tables match the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from kourou.cli.checks import ALLOWED_SKIPS, STAGES
from kourou.cli.commands import command_names


@pytest.fixture(scope="module")
def layers(root: Path) -> list[str]:
    """The contract of import-linter, the highest layer first."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (found,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return list(found)


def names_in(layers: list[str]) -> set[str]:
    return {name.strip() for layer in layers for name in layer.split("|")}


@pytest.fixture(scope="module")
def features(root: Path) -> list[dict[str, str]]:
    return tomllib.loads((root / "docs/features.toml").read_text(encoding="utf-8"))["feature"]


def test_the_needs_are_those_of_the_inventory(root: Path, features: list[dict[str, str]]) -> None:
    """The golden list keeps the inventory's own words, so that no need is weakened unnoticed."""
    listed = (root / "tests/golden/features.txt").read_text(encoding="utf-8").splitlines()
    rows = ["\t".join((item["id"], item["name"], item["need"])) for item in features]
    assert rows == listed


def test_what_is_documented_is_on_its_page(root: Path, features: list[dict[str, str]]) -> None:
    """Its row links to a section (test_links.py follows it), or the page mentions the number."""
    missing = [
        f"{item['page']} does not mention {item['id']} ({item['name']})"
        for item in features
        if "page" in item
        and "#" not in item["page"]
        and item["id"] not in (root / item["page"]).read_text(encoding="utf-8")
    ]
    assert not missing, "\n".join(missing)


def test_the_testing_page_lists_stages_and_skips(root: Path) -> None:
    page = (root / "docs/testing.md").read_text(encoding="utf-8")
    assert [stage.name for stage in STAGES if f"`{stage.name}`" not in page] == []
    assert [reason for reason in ALLOWED_SKIPS if f"`{reason}`" not in page] == []


ARCHITECTURE_WORDS_MAX = 2_500


def test_the_architecture_page_is_read_in_a_quarter_of_an_hour(root: Path) -> None:
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.split()) <= ARCHITECTURE_WORDS_MAX


def test_the_architecture_page_names_folders_and_files_that_exist(root: Path) -> None:
    """`test_x.py` alone is next to the file before it, and `curve_…` begins the name of modules."""
    table = (root / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## Where")[1]
    missing, folder = [], root
    for name in re.findall(r"`([\w./-]+)(?: --rewrite)?`", table.partition("./kourou test")[0]):
        found = [top / name for top in (root, root / "libs/kourou", root / "services", folder)]
        existing = [path for path in found if path.exists()]
        if not existing and ("/" in name or name.endswith(".py")):
            missing.append(name)
        folder = existing[0].parent if existing else folder
    assert missing == []


def test_the_architecture_page_has_the_layers_that_are_checked(
    root: Path, layers: list[str]
) -> None:
    """The block is the contract of import-linter; the table has a row for each name in it."""
    page = (root / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## Layers")[1]
    assert page.split("```")[1].strip().splitlines() == layers
    told = {
        name
        for row in re.findall(r"^\| (`.+?) \|", page.split("## Where")[0], re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert told == {name.removeprefix("kourou.") for name in names_in(layers)}


def test_every_package_and_module_has_a_layer(root: Path, layers: list[str]) -> None:
    library = {
        f"kourou.{path.stem}"
        for path in (root / "libs/kourou").iterdir()
        if (path.is_dir() or path.suffix == ".py") and not path.name.startswith("_")
    }
    services = {path.parent.name for path in (root / "services").glob("*/*/__init__.py")}
    programs = {
        path.parent.name
        for top in ("benchmarks", "examples/demo", "tests/rigs")
        for path in (root / top).glob("*/__init__.py")
    }
    assert names_in(layers) == library | services | programs


def test_the_operating_page_names_every_command(root: Path) -> None:
    page = (root / "docs/operating.md").read_text(encoding="utf-8")
    assert [name for name in sorted(command_names()) if f"`kourou {name}" not in page] == []


def test_the_containers_page_has_every_variable_and_volume_of_the_compose_file(root: Path) -> None:
    page = (root / "docs/containers.md").read_text(encoding="utf-8")
    compose = (root / "docker-compose.yml").read_text(encoding="utf-8")
    defaults_there = re.findall(r"\$\{(KOUROU_\w+):-(?:\./)?([^}]*)\}", compose)
    wanted = {(name, default or "(empty)") for name, default in defaults_there}
    told = set()
    for names, defaults in re.findall(r"^\| (`KOUROU_.+?) \| (.+?) \|", page, re.MULTILINE):
        values = [value.strip("` ") for value in defaults.split(",")]
        told |= set(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    assert told == wanted
    volumes = re.findall(r"^  ([a-z0-9-]+-data): ", compose, re.MULTILINE)
    assert [name for name in volumes if f"`{name}`" not in page] == []


def test_every_decision_has_the_same_shape_and_is_in_the_list(root: Path) -> None:
    listed = (root / "docs/decisions/README.md").read_text(encoding="utf-8")
    for page in sorted((root / "docs/decisions").glob("[0-9]*.md")):
        assert f"]({page.name}): " in listed, f"{page.name} is not in the list"
        text = page.read_text(encoding="utf-8")
        number = page.name[:4]
        assert number.isdigit(), page.name
        assert re.match(rf"# {number}\.? \w", text), page.name
        for part in (r"\*\*Choice\.\*\*", r"\*\*(Reason|Why)\.\*\*", r"\*\*What would change it"):
            assert re.search(part, text), f"{page.name} lacks {part}"
