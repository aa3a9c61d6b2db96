"""The libraries in the console's pages are the published ones, with their licences."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def vendor(static: Path) -> ModuleType:
    script = Path(__file__).parents[2] / "deploy" / "console" / "vendor.py"
    spec = importlib.util.spec_from_file_location("console_vendor", script)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_is_as_it_was_written(vendor: ModuleType, static) -> None:
    assert vendor.differences(static / "vendor") == []


def test_the_list_is_that_of_the_script(vendor: ModuleType, static) -> None:
    sums = json.loads((static / "vendor" / vendor.SUMS).read_text())
    assert [(one["file"], one["package"], one["source"]) for one in sums] == [
        (file.written, f"{file.package}@{file.version}", file.source) for file in vendor.FILES
    ]


def test_what_was_not_changed_is_the_published_file(vendor: ModuleType, static) -> None:
    sums = {one["file"]: one for one in json.loads((static / "vendor" / vendor.SUMS).read_text())}
    for file in vendor.FILES:
        same = sums[file.written]["sha256"] == sums[file.written]["source_sha256"]
        assert same == (not file.changes and not file.after), file.written


def test_each_package_has_its_licence(vendor: ModuleType, static) -> None:
    packages = {file.package for file in vendor.FILES}
    licences = {path.stem for path in (static / "vendor").glob("*.LICENSE")}
    assert licences == packages


def test_a_change_by_hand_is_found(vendor: ModuleType, static, tmp_path) -> None:
    for path in (static / "vendor").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "htm.js").open("a") as file:
        file.write("\n// better\n")
    (tmp_path / "stranger.js").write_text("")
    (tmp_path / "uplot.css").unlink()
    assert vendor.differences(tmp_path) == [
        "uplot.css is missing",
        "stranger.js is in no list",
        "htm.js has been changed by hand",
    ]
