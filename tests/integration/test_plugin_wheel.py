"""The plugin's example works for who has nothing but the wheel and pytest.

A wheel is built with the compiled record kernel, installed with all it asks for into an empty
environment, and the README's example is run there as it stands.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTALL_S = 300
UNREACHABLE = re.compile(
    r"Failed to establish a new connection|Connection to \S+ timed out|Read timed out"
    r"|name resolution|Network is unreachable|Name or service not known|ProxyError"
)
LINES_MAX = 12
NO_COMPILER = shutil.which("cc") is None


def run(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_S,
    )


@pytest.fixture(scope="module")
def example() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## A broker in a test\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return block


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of an environment that has our wheel, what that asks for, and pytest."""
    folder = tmp_path_factory.mktemp("elsewhere")
    built = run(
        *(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder),
        cwd=ROOT,
        **os.environ | {"KOUROU_KERNEL": "compiled"},
    )
    assert built.returncode == 0, built.stderr
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    (wheel,) = folder.glob("kourou-*-cp311-abi3-*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    inside = folder / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", inside, "--no-input", "install", "--quiet")
    pip += ("--no-compile",)  # what is used is compiled then, and that is a tenth of it
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    fetched = run(*pip, *needed, "pytest", cwd=folder, **outside)
    if fetched.returncode and UNREACHABLE.search(fetched.stderr):
        pytest.skip(f"needs a package index: {fetched.stderr.strip().splitlines()[-1]}")
    assert fetched.returncode == 0, fetched.stderr
    # By now the wheel must find all it asks for.
    installed = run(*pip, "--no-index", wheel, cwd=folder, **outside)
    assert installed.returncode == 0, installed.stderr
    yield inside
    shutil.rmtree(folder)  # 200 MB, which pytest would keep


def test_the_example_is_short(example: str) -> None:
    assert len(example.splitlines()) <= LINES_MAX


@pytest.mark.feature("F019")
@pytest.mark.timeout(INSTALL_S + 60)
@pytest.mark.skipif(NO_COMPILER, reason="needs a C compiler")
def test_the_readmes_example_runs_from_a_wheel_in_an_empty_environment(
    example: str, python: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_checkout.py").write_text(example)
    (tmp_path / "test_where.py").write_text(
        "import importlib.util, json, kourou\n"
        "from kourou.protocol import kernel\n"
        "def test_where():\n"
        "    found = {'kourou': kourou.__file__, 'kernel': kernel.NAME,\n"
        "             'asyncio plugin': importlib.util.find_spec('pytest_asyncio') is not None}\n"
        "    with open('where.json', 'w') as file:\n"
        "        json.dump(found, file)\n"
    )
    done = run(python, "-m", "pytest", "-W", "error", "-v", cwd=tmp_path, PATH="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_a_paid_order_is_announced PASSED" in done.stdout
    assert re.search(r"^plugins: kourou-[\d.]+$", done.stdout, re.MULTILINE), "no other plugin"
    where = json.loads((tmp_path / "where.json").read_text())
    assert Path(where["kourou"]).is_relative_to(python.parents[1])
    assert where["asyncio plugin"] is False
    assert where["kernel"] == "compiled"
