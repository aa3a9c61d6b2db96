"""docs/reference/: each page is current and whole, and fits a screen."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from tests.architecture.conftest import Source
from tests.interop.rows import locked

from kourou import errors
from kourou.errors import Code, KourouError
from kourou.events.control_events import KnownEvent
from kourou.model import limits
from kourou.service.lifecycle import STEPS, ExitCode

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))  # where docs/generate.py finds them, too
from generators import dashboards, features, mqadmin, readme, reference  # noqa: E402 - after the path to it
from generators import errors as errors_page  # noqa: E402 - after the path to it
from generators.marks import Mark  # noqa: E402 - after the path to it

LINE_LENGTH_MAX = 500
"""Of a row: longer ones scroll sideways where they are rendered."""

ANSWERERS = ("libs/kourou/engine", "libs/kourou/service", "libs/kourou/broker", "services")
"""Where an answer's number is chosen by its name."""

RAISERS = ("libs/kourou", "services")
"""Where errors are raised that become answers."""

CLIENTS = ("libs/kourou/cli", "libs/kourou/testing", "libs/kourou/client")
LOOK_AT_ANSWERS = ("kourou/broker/telemetry/spans.py", "kourou_console/http/responses.py")


def read(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


PAGES = {**reference.PAGES, **dashboards.PAGES, **readme.PAGES, **mqadmin.PAGES}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_it_is_current(root: Path, name: str) -> None:
    with locked():
        made, page = PAGES[name](root), (root / name).read_text(encoding="utf-8")
    assert page == made, "run .venv/bin/python docs/generate.py"


def test_a_test_that_two_stages_ran_is_one_proof(root: Path) -> None:
    marks = [Mark("F001", "tests/a.py::test_it"), Mark("F001", "tests/b.py::test_too")]
    page = features.page(root, marks)
    assert page.count("a.py::test_it") == page.count("b.py::test_too") == 1
    assert features.page(root, sorted([*marks, *marks])) == page


JAVA = {"b.py::test_java": "needs Java: no java here"}


def test_every_proof_must_pass_or_be_skipped() -> None:
    marks = [
        Mark("F001", "a.py::test_it"),
        Mark("F001", "b.py::test_java"),
        Mark("F001", "c.py::test_all_night", slow=True),
    ]
    passed = {"F001": ["a.py::test_it"]}
    assert features.unproved(marks, passed, slow=False, skipped=JAVA) == []
    assert features.unproved(marks, passed, slow=False) == ["F001: b.py::test_java did not pass"]
    assert features.unproved(marks, passed, slow=True, skipped=JAVA) == [
        "F001: c.py::test_all_night did not pass"
    ]


def test_a_skipped_test_proves_nothing() -> None:
    marks = [Mark("F002", "b.py::test_java"), Mark("F002", "c.py::test_all_night", slow=True)]
    told = ["not proved on this machine: F002 because needs Java: no java here"]
    assert features.unproved(marks, {}, slow=False, skipped=JAVA) == told
    all_night = {"F002": ["c.py::test_all_night"]}
    assert features.unproved(marks, all_night, slow=True, skipped=JAVA) == told
    assert features.unproved(marks, {"F002": ["b.py::test_java"]}, slow=False) == []


def test_slow_tests_alone_leave_a_row_open() -> None:
    row = features.Feature("F003", "A", "name", "need", "S1")
    slow = Mark("F003", "c.py::test_all_night", slow=True)
    assert features.state_of(row, [slow]).word == "open"
    fast = Mark("F003", "a.py::test_it")
    assert features.state_of(row, [slow, fast]) == features.State("done", "`a.py::test_it`")
    paged = features.Feature("F003", "A", "name", "need", "S1", page="docs/glossary.md")
    assert features.state_of(paged, [slow]).word == "documented"


def test_the_readmes_figures_are_those_of_the_benchmarks_page(root: Path) -> None:
    page = (root / readme.RESULTS_PAGE).read_text(encoding="utf-8")
    made = readme.performance(page)
    assert len(readme.ROWS) == made.count(" | faster |") + made.count(" | slower |")
    doubled = re.sub(r"(`send-64`(?: \|[^|]*){2} \| )[\d.]+", r"\g<1>7.25", page)
    assert "| sends per second, 64 in flight | 7.25 | faster |" in readme.performance(doubled)
    lost = re.sub(r"(`tx-64`(?: \|[^|]*){2} \| )[\d.]+", r"\g<1>0.25", page)
    assert "`tx-64` 0.25" in readme.performance(lost).split("behind in ")[1]
    slow = re.sub(r"(`send-1`(?: \|[^|]*){2} \| )[\d.]+", r"\g<1>1.30", page)
    assert "| time of one send, median | 1.30 | slower |" in readme.performance(slow)
    with pytest.raises(ValueError, match="lacks a line"):
        readme.performance(page.replace("\nMeasured ", "\nOnce "))


def test_the_readme_counts_the_rows_in_which_other_peers_are_faster() -> None:
    page = """<!-- results: others -->
Measured 2026-01-01 to 2026-01-02 on 2 cores; to repeat all rows: `it`

| work | peer | Kourou | peer's | ratio |
| --- | --- | --- | --- | --- |
| `send-64` | Kafka 4 | 1 msg/s | 2 msg/s | 0.50 |
| `send-64` | NATS 2 | 2 msg/s (not steady) | 1 msg/s | 2.00 |
| `send-1` | Kafka 4 | 2 ms | 1 ms | 2.00 |
| `send-1` | NATS 2 | 1 ms | 2 ms | 0.50 |
<!-- /results -->
"""
    assert readme.other_peers(page) == (
        "Kafka 4 was faster than Kourou in 2 of 2, NATS 2 in 0 of 2 rows; their latency was lower"
        " in 1 of 2 ([other peers](benchmarks/README.md#other-peers), 2026-01-01 to 2026-01-02)."
    )


def test_no_page_is_left_over(root: Path) -> None:
    there = {path.relative_to(root).as_posix() for path in (DOCS / "reference").iterdir()}
    assert there == set(reference.PAGES)


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_its_lines_fit_a_screen(root: Path, name: str) -> None:
    head, _, body = (root / name).read_text(encoding="utf-8").partition("*Generated from")
    for line in [*head.splitlines(), *body.splitlines()[1:]]:
        assert len(line) <= (LINE_LENGTH_MAX if line.startswith(("|", "- ")) else 120), line


# -- nothing is left out --------------------------------------------------------------------------


def find(pattern: str, page: str) -> re.Match[str] | None:
    """^ and $ are the ends of a line."""
    return re.search(pattern, page, re.MULTILINE)


def section(page: str, heading: str) -> str:
    found = find(rf"^(#+) {re.escape(heading)}$((?:.|\n)*?)(?=^#|\Z)", page)
    assert found, f"there is no section {heading}"
    return found[2]


def test_every_event_has_its_fields_and_somebody_who_decides_it() -> None:
    page = read("events")
    for kind in get_args(KnownEvent):
        told = section(page, kind.__name__)
        assert "Decided by\n" in told, kind.__name__
        for field in msgspec.structs.fields(kind):
            assert f"| `{field.name}` |" in told


def test_every_limit_is_listed() -> None:
    page = read("limits")
    for name, value in vars(limits).items():
        if name.isupper():
            assert find(rf"^\| `{name}` \| {value:,} \|", page), name


def test_every_step_of_a_life_is_drawn() -> None:
    told = section(read("states"), "Lifecycle of a service")
    for before, steps in STEPS.items():
        for after, when in steps.items():
            assert f"| {before.value} | {after.value} | {when} |" in told
            drawn = "[*]" if after == "end" else after.value
            assert find(rf"^    {before.value} --> {re.escape(drawn)}: ", told)
    assert all(f"| {code.value} | `{code.name}` |" in told for code in ExitCode)


@pytest.mark.parametrize("picture", re.findall(r"```mermaid\n(.*?)```", read("states"), re.DOTALL))
def test_pictures_are_such_as_the_drawing_program_reads(picture: str) -> None:
    """It refuses a second colon, and a semicolon, in the text beside an arrow."""
    first, *steps = picture.splitlines()
    assert first == "stateDiagram-v2"
    state = r"(?:\[\*\]|[a-z]+)"
    assert [
        one for one in steps if not re.fullmatch(rf"    {state} --> {state}(: [^:;]+)?", one)
    ] == []


# -- what a comment says of a number is so --------------------------------------------------------


def given(production: list[Source]) -> set[Code]:
    """Numbers that our servers choose by name, or by raising an error that has them."""
    found: set[Code] = {Code.SUCCESS}
    servers = [one for one in production if not one.path.startswith(CLIENTS)]
    for source in servers:
        if source.path.startswith(ANSWERERS) and not source.path.endswith(LOOK_AT_ANSWERS):
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Code":
                    found.add(Code[node.attr])
        if source.path.startswith(RAISERS):
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    kind = getattr(errors, node.func.id, None)
                    if isinstance(kind, type) and issubclass(kind, KourouError):
                        found.add(kind.code)
    return found


def test_numbers_that_only_rocketmq_gives_are_marked(root: Path, production: list[Source]) -> None:
    said = errors_page.comments(root)
    assert set(said) == {code.name for code in Code}
    marked = {code for code in Code if said[code.name].startswith("[RMQ]")}
    assert marked == set(Code) - given(production)
