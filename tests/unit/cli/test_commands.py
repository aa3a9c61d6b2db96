"""The help of the commands is whole and true, and loads nothing heavy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.cli import main as command_line
from kourou.cli.checks import STAGES
from kourou.cli.commands import COMPLETION_VARIABLE, ORDER, command_names
from kourou.cli.main import main


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = command_line.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("of", [[], ["admin"], ["bench"]])
def test_no_summary_is_cut_on_a_usual_terminal(
    of: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = said([*of, "--help"], capsys)
    summaries = out.partition("Commands:")[2].splitlines()[1:]
    assert len(summaries) >= 3
    assert [line for line in summaries if not line.endswith(".") or line.endswith("...")] == []


def test_the_help_begins_with_what_a_newcomer_types(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(["--help"], capsys)
    names = [line.split()[0] for line in out.partition("Commands:")[2].splitlines()[1:]]
    assert names == list(ORDER)
    assert set(names) == command_names()


def test_the_help_of_the_checks_names_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(["test", "--help"], capsys)
    assert set(re.findall(r"\w+", out)) >= {stage.name for stage in STAGES}


@pytest.mark.parametrize(
    ("words", "brokers", "replicas"),
    [
        (["--suite"], 2, 1),
        (["--suite", "--brokers", "3", "--replicas", "2"], 3, 2),
        (["--suite", "--raft", "3"], 2, 0),
    ],
)
def test_the_suite_is_what_compose_starts(
    monkeypatch: pytest.MonkeyPatch, words: list[str], brokers: int, replicas: int
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(
        "kourou.cli.up.run_until_stopped", lambda _, **what: given.update(what) or 0
    )
    assert command_line.main(["up", *words]) == 0
    assert (given["brokers"], given["replicas"], given["spark"]) == (brokers, replicas, True)
    assert given["console"]


def test_help_and_services_load_no_optional_packages() -> None:
    """`./kourou` installs them only when a command wants them."""
    source = (
        "import contextlib, io, sys\n"
        "from kourou.cli import main\n"
        "from kourou.cli.commands import command_names\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    for name in sorted(command_names()):\n"
        "        with contextlib.suppress(SystemExit):\n"
        "            assert main.main([name, '--help']) == 0, name\n"
        "import kourou.cli.up, kourou_demo.live_flights, kourou_demo.tour\n"
        "import kourou_namesrv.app, kourou_broker.app, kourou_ha_replica.app, kourou_console.app\n"
        "import kourou_filter_server.app, kourou_spark_etl.machine, kourou_spark_etl.job_file\n"
        "print(sorted({'pyspark', 'pandas', 'pyarrow', 'pytest', 'nats', 'redis', 'psycopg'}\n"
        "             & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n", done.stderr


# -- tab completes commands, in three shells -------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "asked", "answered"),
    [
        ("bash", {"COMP_WORDS": "kourou shut", "COMP_CWORD": "1"}, "shutdown"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "kourou shut"}, "shutdown"),
        ("fish", {"_TYPER_COMPLETE_ARGS": "kourou shut", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
         "shutdown"),
        ("bash", {"COMP_WORDS": "kourou up --fl", "COMP_CWORD": "2"}, "--flights"),
    ],
)  # fmt: skip
def test_a_shell_receives_completions(
    shell: str,
    asked: dict[str, str],
    answered: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in {COMPLETION_VARIABLE: f"complete_{shell}", **asked}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main([], "./kourou")
    out = capsys.readouterr().out
    assert answered in out
    assert "version" not in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_sets_the_variable_that_is_read(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert f"{COMPLETION_VARIABLE}=complete_{shell}" in out
    assert out.startswith(f"# To have it always: kourou completion {shell} > ")


def test_bash_itself_completes(capsys: pytest.CaptureFixture[str]) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asks = "COMP_WORDS=(kourou doc); COMP_CWORD=1; _kourou_completion kourou; echo ${COMPREPLY[@]}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found = subprocess.run(
        [bash, "-c", f"{script}\n{asks}"],
        capture_output=True, text=True, check=True, env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert found.stdout.split() == ["doctor"]
