"""The console's scripts as sources: their pure functions, and the rules that all of them keep."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

LINES_MAX = 400
IMPORT = re.compile(r'(?:\bfrom |\bimport\()"([^"\n]+)"')
NAMES = re.compile(r"^import (\w+)?(?:\{([^}]*)\})? from", re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
UNSAFE = re.compile(
    r"innerHTML|outerHTML|dangerouslySetInnerHTML|\beval\(|new Function|document\.write"
)


@pytest.fixture(scope="module")
def scripts(static) -> dict[Path, str]:
    return {path: path.read_text() for path in sorted((static / "js").rglob("*.js"))}


def test_pure_functions(static) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node: apt-get install nodejs")
    tests = Path(__file__).with_name("pure.test.mjs")
    done = subprocess.run(
        [node, "--test", "--test-reporter=tap", str(tests)],
        env={"STATIC": static.as_uri(), "PATH": "/usr/bin:/bin", "TZ": "Europe/Vienna"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


def test_each_says_what_it_is_and_stays_small(scripts) -> None:
    for path, text in scripts.items():
        assert text.startswith("// "), path
        assert text.count("\n") <= LINES_MAX, path


def test_every_import_is_a_file_of_ours(scripts, static) -> None:
    """No bare names, which a page without a build could not load, and no address elsewhere."""
    for path, text in scripts.items():
        for name in IMPORT.findall(text):
            assert name.startswith("."), (path, name)
            assert (path.parent / name).resolve().is_file(), (path, name)
            assert static in (path.parent / name).resolve().parents


def test_nothing_is_made_from_text_as_markup(scripts) -> None:
    """Names and bodies of messages come from strangers."""
    found = [(path.name, text) for path, text in scripts.items() if UNSAFE.search(text)]
    assert not found


def test_nothing_is_exported_for_nobody(scripts, static) -> None:
    tests = Path(__file__).with_name("pure.test.mjs").read_text()
    everything = "\n".join(scripts.values()) + tests
    for path, text in scripts.items():
        for name in EXPORT.findall(text):
            assert len(re.findall(rf"\b{name}\b", everything)) > 1, (path.name, name)
        if path.parent.name == "pages":
            assert path.name in scripts[static / "js" / "main.js"], f"no route leads to {path}"


def test_nothing_is_imported_in_vain(scripts) -> None:
    for path, text in scripts.items():
        for alone, several in NAMES.findall(text):
            for name in filter(None, (one.strip() for one in f"{alone},{several}".split(","))):
                assert len(re.findall(rf"\b{name}\b", text)) > 1, (path.name, name)


def test_every_file_is_used(scripts, static) -> None:
    used = {
        (path.parent / name).resolve()
        for path, text in scripts.items()
        for name in IMPORT.findall(text)
    }
    assert set(scripts) - used == {static / "js" / "main.js"}


def test_rows_with_buttons_are_known_by_their_thing(scripts) -> None:
    """By their place they would be taken for others' when a list is asked again."""
    for path, text in scripts.items():
        assert text.count("rowKey=") >= text.count("fixed: true"), path


def test_colours_come_from_tokens(static) -> None:
    """One place says what a colour means; the shade behind a dialog is the exception."""
    for path in sorted((static / "css").glob("*.css")):
        if path.name == "tokens.css":
            continue
        colours = re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\([^)]*\)", path.read_text())
        assert colours in ([], ["rgb(10 16 22 / 50%)"]), path.name
