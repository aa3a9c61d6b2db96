"""The checks count what pytest recorded, judge skips, and never call a broken run good."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from kourou.cli import checks
from kourou.cli.checks import ALLOWED_SKIPS, CheckProcesses, Stage, find_stacks
from kourou.errors import ConfigError, Unavailable


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, in which the checks run."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(Path("tests/conftest.py").read_text())
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    return tmp_path


def test_pytest_counts_reach_the_closing_line(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A skip for a reason that no list permits is a failure."""
    (checkout / "tests" / "test_small.py").write_text(
        "import pytest\n"
        "def test_good(rounds): assert rounds(50) == 5\n"
        "def test_bad(): assert False\n"
        "def test_missing(): pytest.skip('needs root: here')\n"
        "def test_odd(): pytest.skip('flaky today')\n"
    )
    stages = (Stage("unit", "small", tests="tests"), Stage("spark", "none", tests="nowhere"))
    monkeypatch.setattr(checks, "STAGES", stages)
    assert checks.run_checks(checks.Options()) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "1 passed, 2 failed, 2 skipped"
    assert "a skip that is not allowed: tests/test_small.py::test_odd: flaky today" in out
    assert "5 of       50  test_small.py::test_good" in out
    assert "none yet" in out


def test_a_run_without_a_record_failed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "tests" / "test_small.py").write_text("import os\nos._exit(0)\n")
    monkeypatch.setattr(checks, "STAGES", (Stage("unit", "small", tests="tests"),))
    assert checks.run_checks(checks.Options(stages=["unit"])) == 1
    out = capsys.readouterr().out
    assert "the run left no record" in out
    assert out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_keyword_that_no_test_has_is_wrong_usage_and_no_success(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "tests" / "test_small.py").write_text("def test_good(): pass\n")
    stages = (Stage("types", "a check", commands=(("true",),)), Stage("unit", "s", tests="tests"))
    monkeypatch.setattr(checks, "STAGES", stages)
    with pytest.raises(ConfigError, match="no test of unit matches -k 'nosuchtest'"):
        checks.run_checks(checks.Options(keyword="nosuchtest"))
    assert "no match" in capsys.readouterr().out
    assert checks.run_checks(checks.Options(keyword="good")) == 0
    assert checks.run_checks(checks.Options(stages=["types"])) == 0


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


# -- A process of the checks is signalled once, and killed if it does not end ----------------------


TIDIES = """
import os, signal, sys
def signalled(*_):
    print("signalled", flush=True)
    sys.exit(3)
signal.signal(signal.SIGINT, signalled)
signal.alarm(60)
with open(sys.argv[1], "w") as fifo:
    fifo.write("leads" if os.getpgrp() == os.getpid() else "one of ours")
while True:
    signal.pause()
"""
"""Says whether the terminal's Ctrl-C passes it by; ends by itself if nobody ends it."""

STUBBORN = TIDIES.replace("signalled)", "signal.SIG_IGN)")


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def run_in_thread(
    processes: CheckProcesses, log: Path, *command: str
) -> tuple[list[int], threading.Thread]:
    codes: list[int] = []

    def run() -> None:
        with log.open("wb") as out:
            codes.append(processes.run(command, out))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return codes, thread


@pytest.mark.parametrize(
    ("program", "timeout_s", "code", "said"),
    [(TIDIES, 60, 3, "signalled\n"), (STUBBORN, 0, -signal.SIGKILL, "")],
    ids=["tidies", "stubborn"],
)
def test_a_process_is_signalled_once_and_killed_if_it_does_not_end(
    tmp_path: Path, fifo: Path, monkeypatch: pytest.MonkeyPatch, program, timeout_s, code, said
) -> None:
    monkeypatch.setattr(checks, "END_S_MAX", timeout_s)
    processes = CheckProcesses(tmp_path)
    log = tmp_path / "log"
    codes, thread = run_in_thread(processes, log, sys.executable, "-c", program, str(fifo))
    assert fifo.read_text() == "leads"
    processes.end()
    thread.join()
    assert codes == [code]
    assert log.read_text() == said
    with (tmp_path / "late").open("wb") as out, pytest.raises(Unavailable):
        processes.run(("true",), out)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (
            (sys.executable, "-X", "faulthandler", "-c", "import signal; signal.pause()"),
            -signal.SIGABRT,
            "Current thread",
        ),
        (("sh", "-c", "trap '' ABRT; echo begins; exec sleep 60"), -signal.SIGKILL, "begins"),
    ],
    ids=["shows its stacks", "stubborn"],
)
def test_a_process_that_prints_nothing_more_is_ended_with_its_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command, code, said
) -> None:
    monkeypatch.setattr(checks, "END_S_MAX", 1)
    log = tmp_path / "log"
    with log.open("wb") as out:
        assert CheckProcesses(tmp_path).run(command, out, silent_s_max=2.0) == code
    text = log.read_text()
    assert "printed nothing for 2 s" in text
    assert said in text


def test_a_hang_is_summed_up_by_its_own_frames(tmp_path: Path) -> None:
    program, stacks = tmp_path / "hangs.py", tmp_path / "unit.stacks"
    program.write_text(
        "import faulthandler, sys, threading\n"
        "def waits():\n"
        "    faulthandler.dump_traceback_later(0.1, exit=True, file=sys.stderr)\n"
        "    threading.Event().wait()\n"
        "waits()\n"
    )
    with stacks.open("wb") as out:
        subprocess.run([sys.executable, str(program)], stderr=out, check=False)
    assert find_stacks(stacks, tmp_path) == [
        "Timeout (0:00:00.100000)!",
        "in hangs.py:4 waits < hangs.py:5 <module>",
    ]
    assert not find_stacks(tmp_path / "no.stacks", tmp_path)
