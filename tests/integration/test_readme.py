"""The README is short, and what it shows works as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.cli import checks
from kourou.cli.checks import Stage
from kourou.cli.commands import command_names
from kourou.service.local_cluster import ClusterSettings, LocalCluster

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS_MAX = 900
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIRST_SCREEN = 40
PERFORMANCE_ROWS = 6
WHAT_IT_DOES_ROWS = 12


def words(page: str) -> int:
    """Everything that is read: all but blocks of code, comments and the targets of links."""
    text = BLOCK.sub("", page)
    text = re.sub(r"<!--.*?-->", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len(re.findall(r"[^\s|]*\w[^\s|]*", text))


def section(heading: str) -> str:
    return README.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def blocks(page: str, kind: str) -> list[str]:
    return [text for name, text in BLOCK.findall(page) if name == kind]


def run(script: Path, code: str) -> subprocess.CompletedProcess[str]:
    script.write_text(code)
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_short() -> None:
    assert words(README) <= WORDS_MAX
    assert words("a [b c](d e) | f |\n```sh\nx y\n```\n<!-- z -->\n") == 4


def test_its_first_screen_has_the_two_commands_and_what_they_print() -> None:
    screen = "\n".join(README.splitlines()[:FIRST_SCREEN]) + "\n"
    commands = [text.strip() for text in blocks(screen, "")]
    assert commands == ["./kourou demo", "./kourou test"]
    assert len(blocks(screen, "text")) == len(commands)


def test_its_commands_are_those_that_other_tests_run() -> None:
    """An hour of work is not done twice: the demo has its test, and this run is that of `test`."""
    for command in re.findall(r"\./kourou (\w+)", README):
        assert command in command_names()
    demo = (ROOT / "tests/integration/test_demo.py").read_text(encoding="utf-8")
    assert '"kourou.cli", "demo"' in demo
    shown = blocks(README, "text")[0]
    assert "== 336,776 flights of 2013, published and consumed by a group of two" in shown
    view = (ROOT / "examples/demo/kourou_demo/view.py").read_text(encoding="utf-8")
    figures = re.findall(r"^   (\w[\w, ]+?) +[\d,]+$", shown, re.MULTILINE)
    assert len(figures) >= 4
    assert [name for name in figures if f'("{name}", numbers.' not in view] == []


def test_the_tests_end_with_the_line_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = blocks(README, "text")[1].strip()
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    monkeypatch.setattr(checks, "STAGES", (Stage("lint", "", commands=(("true",),)),))
    assert checks.run_checks(checks.Options(stages=["lint"])) == 0
    printed = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(shown.replace("…", r"\d+"), printed), printed


def test_its_program_prints_what_it_shows(tmp_path: Path) -> None:
    text = section("Fifteen lines of Python")
    [program], [output] = blocks(text, "python"), blocks(text, "text")
    assert len([line for line in program.splitlines() if line]) <= 15
    with LocalCluster(tmp_path / "cluster", ClusterSettings()) as cluster:
        done = run(tmp_path / "example.py", program.replace("127.0.0.1:9876", cluster.address))
    assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_its_pytest_passes(tmp_path: Path) -> None:
    [program] = blocks(section("A broker in a test"), "python")
    (tmp_path / "test_checkout.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_checkout.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("heading", "rows"),
    [("What it does", WHAT_IT_DOES_ROWS), ("Performance", PERFORMANCE_ROWS), ("Comparison", 5)],
)
def test_its_tables_are_short(heading: str, rows: int) -> None:
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    assert len(lines) - len(["heads", "rule"]) == rows


def test_its_performance_has_gains_with_date_machine_and_command() -> None:
    text = section("Performance")
    assert " faster |" in text
    assert re.search(r"Measured \d{4}-\d\d-\d\d .*cores.*`\./kourou bench ", text, re.DOTALL)


def test_its_performance_has_every_loss_of_the_results_page() -> None:
    page = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    block = page.partition("<!-- results: peers -->")[2].partition("<!-- /results -->")[0]
    losses = []
    for line in (line for line in block.splitlines() if line.startswith("| `")):
        figure, _, ratio = (cell.strip() for cell in line.split("|")[2:5])
        if (float(ratio) < 1) == figure.endswith("msg/s") and float(ratio) != 1:
            losses.append(ratio)
    text = section("Performance")
    assert [ratio for ratio in losses if f"| {ratio} | slower |" not in text] == []
    assert len(losses) == text.count(" slower |")


def test_the_files_to_read_first_exist_and_have_a_law() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    text = page.partition("## Five files to read first\n")[2].partition("\n## ")[0]
    files = re.findall(r"\]\(([^)]+\.py)\)", text)
    assert len(files) == 5
    for name in files:
        assert (ROOT / name).read_text(encoding="utf-8").startswith('"""')
