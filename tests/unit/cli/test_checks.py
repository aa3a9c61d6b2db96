"""The checks count what pytest recorded, judge skips, and never call a broken run good."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kourou.cli import checks
from kourou.cli.check_stages import ALLOWED_SKIPS, STAGES, Stage, may_skip
from kourou.errors import ConfigError


def record(path: Path, **fields: Any) -> Path:
    empty = {"passed": [], "failed": [], "skipped": {}, "features": {}, "marks": [], "rounds": {}}
    empty["without_engine"] = 0
    path.write_text(json.dumps({**empty, **fields}))
    return path


def test_a_record_is_counted(tmp_path: Path) -> None:
    path = record(
        tmp_path / "unit.json",
        passed=["a", "b"],
        failed=["c"],
        features={"F001": ["a"]},
        rounds={"a": [1, 10]},
    )
    outcome = checks._read_record(path)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (2, 1, 0)
    assert outcome.features == {"F001": ["a"]}
    assert outcome.rounds == {"a": [1, 10]}


def test_a_run_without_a_record_failed(tmp_path: Path) -> None:
    assert checks._read_record(tmp_path / "none.json").failed == 1


def test_only_listed_skips_pass(tmp_path: Path) -> None:
    fine = record(tmp_path / "fine.json", skipped={"a": f"{next(iter(ALLOWED_SKIPS))}: mount"})
    odd = record(tmp_path / "odd.json", skipped={"a": "flaky today"})
    assert checks._read_record(fine).failed == 0
    assert checks._read_record(odd).failed == 1
    assert "flaky today" in checks._read_record(odd).remarks[0]


def test_a_reason_must_begin_as_listed() -> None:
    assert may_skip("needs root: a mount")
    assert not may_skip("really needs root")


def test_every_allowed_reason_is_given_by_some_test() -> None:
    """So that the list stays short; a test of tests/unit/cli gives none."""
    folder = Path(__file__).parent
    texts = [
        path.read_text(encoding="utf-8")
        for path in folder.parents[1].rglob("*.py")
        if path.parent != folder
    ]
    unused = [
        reason
        for reason in ALLOWED_SKIPS
        if not any(re.search(rf"skip[a-z]*\([^)]*[\"']{reason}", text) for text in texts)
    ]
    assert unused == []


def test_sums_join_the_proofs_of_all_stages() -> None:
    total = checks.StageOutcome(features={"F001": ["a"]})
    total.add(checks.StageOutcome(passed=2, skipped=1, features={"F001": ["b"], "F002": ["b"]}))
    assert total.features == {"F001": ["a", "b"], "F002": ["b"]}
    assert (total.passed, total.skipped) == (2, 1)


def test_stages_keep_their_order_whatever_was_typed() -> None:
    assert [stage.name for stage in checks._chosen(checks.Options(stages=["unit", "lint"]))] == [
        "lint",
        "unit",
    ]
    assert checks._chosen(checks.Options(slow=True)) == list(STAGES)
    assert checks._chosen(checks.Options()) == [stage for stage in STAGES if not stage.slow]
    (named,) = checks._chosen(checks.Options(stages=["kernel"]))
    assert named.slow
    with pytest.raises(ConfigError, match="unknown stage 'units'"):
        checks._chosen(checks.Options(stages=["units"]))


@pytest.mark.parametrize("wrong", [{"stages": ["units"]}, {"stages": ["unit"], "compose": True}])
def test_wrong_usage_is_refused_before_packages_are_fetched(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[str, ...]] = []
    monkeypatch.setattr(checks, "require_group", lambda *words: fetched.append(words))
    with pytest.raises(ConfigError):
        checks.run_checks(checks.Options(**wrong))
    assert fetched == []


def test_a_failing_command_shows_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Stage("lint", "a check", commands=(("sh", "-c", "echo line 7 is odd; exit 1"),))
    good = Stage("types", "another", commands=(("true",),))
    monkeypatch.setattr(checks, "STAGES", (bad, good))
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    assert checks.run_checks(checks.Options(stages=["lint", "types"])) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "    line 7 is odd" in lines
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_stage_has_folders_and_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("unit", "contract"):
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / f"test_{name}.py").write_text(
            "import os\ndef test_it(): assert os.environ['KOUROU_KERNEL'] == 'python'\n"
        )
    (tmp_path / "tests" / "conftest.py").write_text(Path("tests/conftest.py").read_text())
    kernel = Stage(
        "kernel",
        "both",
        tests="tests/unit tests/contract",
        environment=(("KOUROU_KERNEL", "python"),),
        slow=True,
    )
    monkeypatch.setattr(checks, "STAGES", (kernel,))
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    assert checks.run_checks(checks.Options(stages=["kernel"])) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"


def test_pytest_counts_reach_the_closing_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(Path("tests/conftest.py").read_text())
    (tmp_path / "tests" / "test_small.py").write_text(
        "import pytest\n"
        "def test_good(rounds): assert rounds(50) == 5\n"
        "def test_bad(): assert False\n"
        "def test_missing(): pytest.skip('needs root: here')\n"
    )
    stages = (Stage("unit", "small", tests="tests"), Stage("spark", "none", tests="nowhere"))
    monkeypatch.setattr(checks, "STAGES", stages)
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    assert checks.run_checks(checks.Options()) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
    assert "5 of       50  test_small.py::test_good" in out
    assert "none yet" in out


def test_a_run_without_compose_says_which_tests_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(Path("tests/conftest.py").read_text())
    (tmp_path / "tests" / "test_up.py").write_text(
        "import pytest\ndef test_file(): pass\n@pytest.mark.compose\ndef test_engine(): pass\n"
    )
    monkeypatch.setattr(checks, "STAGES", (Stage("containers", "small", tests="tests"),))
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    assert checks.run_checks(checks.Options(stages=["containers"])) == 0
    out = capsys.readouterr().out
    left_out = "not run: 1 tests on a Docker Engine; `kourou test containers --compose` runs them"
    assert left_out in out.splitlines()
    assert out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert checks.run_checks(checks.Options(stages=["containers"], compose=True)) == 0
    out = capsys.readouterr().out
    assert "not run" not in out
    assert out.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"


def test_compose_without_its_stage_is_wrong_usage() -> None:
    with pytest.raises(ConfigError, match="--compose includes tests of the stage 'containers'"):
        checks.run_checks(checks.Options(stages=["unit"], compose=True))


def test_a_keyword_that_no_test_has_is_wrong_usage_and_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(Path("tests/conftest.py").read_text())
    (tmp_path / "tests" / "test_small.py").write_text("def test_good(): pass\n")
    stages = (Stage("types", "a check", commands=(("true",),)), Stage("unit", "s", tests="tests"))
    monkeypatch.setattr(checks, "STAGES", stages)
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    with pytest.raises(ConfigError, match="no test of unit matches -k 'nosuchtest'"):
        checks.run_checks(checks.Options(keyword="nosuchtest"))
    assert "no match" in capsys.readouterr().out
    assert checks.run_checks(checks.Options(keyword="good")) == 0
    assert checks.run_checks(checks.Options(stages=["types"])) == 0


def test_a_stage_starts_when_its_places_are_free_and_its_end_is_reported() -> None:
    unit, spark, golden = (Stage(name, "", workers=2) for name in ("unit", "spark", "golden"))
    started: dict[str, Future[checks.StageOutcome]] = {}

    def start(stage: Stage) -> Future[checks.StageOutcome]:
        started[stage.name] = Future()
        if stage is spark:
            started["spark"].set_result(checks.StageOutcome(failed=1))
        if stage is golden:
            started["unit"].set_result(checks.StageOutcome())
            started["golden"].set_result(checks.StageOutcome())
        return started[stage.name]

    finished = checks._side_by_side((unit, spark, golden), 4, start)
    stage, outcome, _ = next(finished)
    assert (stage, outcome.failed, list(started)) == (spark, 1, ["unit", "spark"])
    assert [stage for stage, _, _ in finished] == [unit, golden]


def test_a_stage_that_wants_more_places_than_there_are_runs_alone() -> None:
    started: list[str] = []

    def start(stage: Stage) -> Future[checks.StageOutcome]:
        started.append(stage.name)
        done: Future[checks.StageOutcome] = Future()
        done.set_result(checks.StageOutcome())
        return done

    stages = [Stage("lint", ""), Stage("unit", "", workers=2), Stage("golden", "")]
    finished = checks._side_by_side(stages, 1, start)
    for stage in stages:
        assert next(finished)[0] is stage
        assert started[-1] == stage.name
    assert list(finished) == []


def test_a_stage_that_does_not_fit_holds_up_no_other() -> None:
    started: dict[str, Future[checks.StageOutcome]] = {}

    def start(stage: Stage) -> Future[checks.StageOutcome]:
        started[stage.name] = Future()
        if stage.name == "browser":
            started["browser"].set_result(checks.StageOutcome())
        return started[stage.name]

    stages = [Stage("unit", "", workers=2), Stage("spark", "", workers=2), Stage("browser", "")]
    finished = checks._side_by_side(stages, 3, start)
    assert next(finished)[0].name == "browser"
    assert list(started) == ["unit", "browser"]
    started["unit"].set_result(checks.StageOutcome())
    assert next(finished)[0].name == "unit"


def test_two_stages_really_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each end of a pipe waits for the other to be opened."""
    os.mkfifo(tmp_path / "fifo")
    reads = Stage("lint", "reads", commands=(("grep", "here", "fifo"),))
    writes = Stage("types", "writes", commands=(("sh", "-c", "echo here > fifo; exit 1"),))
    monkeypatch.setattr(checks, "STAGES", (reads, writes))
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    assert checks.run_checks(checks.Options()) == 1
    results = {line.split()[0]: line.split()[2] for line in capsys.readouterr().out.splitlines()}
    assert (results["lint"], results["types"]) == ("ok", "FAILED")


def test_a_slow_run_is_bound_to_the_code(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "libs").mkdir()
    source = tmp_path / "libs" / "a.py"
    source.write_text("1")
    before = checks._prepare_folder(tmp_path, checks.Options(slow=True))
    assert checks._prepare_folder(tmp_path, checks.Options(slow=True)) == before
    source.write_text("2")
    after = checks._prepare_folder(tmp_path, checks.Options(slow=True))
    assert after != before
    assert not before.exists()
