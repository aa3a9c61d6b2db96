"""The help of the commands is whole and true, and loads nothing heavy."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from kourou.cli import main as command_line
from kourou.cli.check_stages import STAGES
from kourou.cli.commands import ORDER, command_names


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
