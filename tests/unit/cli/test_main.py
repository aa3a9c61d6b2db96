"""Wrong usage is one sentence and exit code 2; help is quick; services skip the machinery."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import kourou
from kourou.cli import main as command_line
from kourou.cli.services import SERVICES
from kourou.errors import ConfigError, StoreFaulted, Unavailable


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frobnicate"], "no such command 'frobnicate'; see `kourou --help`"),
        (
            ["bench", "sned"],
            "no such command 'sned'. Did you mean 'send'?; see `kourou bench --help`",
        ),
        (["send"], "missing argument 'topic'; see `kourou send --help`"),
        (["up", "--brokers", "none"], "see `kourou up --help`"),
        (
            ["tail", "orders", "--count", "few"],
            "kourou: '--count' is 'few'; it must be a whole number; see `kourou tail --help`",
        ),
        (
            ["tail", "orders", "--count", "0"],
            "kourou: '--count' is '0'; it must be at least 1; see `kourou tail --help`",
        ),
        (["demo", "--evnts", "5"], "no such option: --evnts"),
        (
            ["admin", "queryMsgById"],
            "missing option '-i' / '--msgid'; see `kourou admin querymsgbyid --help`",
        ),
        (["admin", "topicLst"], "see `kourou admin --help`"),
        (["help", "frobnicate"], "no such command 'frobnicate'; see `kourou --help`"),
        (["test", "lnt"], "unknown stage 'lnt' (stages: lint types imports"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kourou: ")
    assert sentence.lower() in said.err.lower()
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("port 80 is taken"), 2),
        (Unavailable("no broker answers"), 1),
        (StoreFaulted("fsync failed"), 75),
        (KeyboardInterrupt(), 130),
        (PermissionError(13, "Permission denied", "/proc/nix"), 2),
        (OSError(24, "Too many open files"), 1),
        (TimeoutError(), 1),
    ],
)
def test_errors_have_exit_codes(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(name: str, arguments: list[str], called_as: str) -> int:
        raise error

    monkeypatch.setattr(command_line, "run_service", fail)
    assert command_line.main(["broker"]) == code
    said = capsys.readouterr().err
    assert said.startswith("kourou: ")
    assert said.count("\n") == 1
    if isinstance(error, PermissionError):
        assert said == "kourou: cannot use /proc/nix: Permission denied\n"


def python(source: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, which finds the same packages."""
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env={"PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_loads_nothing_heavy() -> None:
    source = (
        "import sys; from kourou.cli.main import main; main(['--help'])\n"
        "heavy = {'numpy', 'zmq', 'sqlalchemy', 'aiohttp', 'opentelemetry', 'pandas'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = python(source)
    assert done.returncode == 0, done.stderr


def test_a_service_starts_without_the_command_lines_machinery() -> None:
    source = (
        "import sys, types\n"
        "app = types.ModuleType('kourou_broker.app'); app.run = lambda arguments, called_as: 0\n"
        "sys.modules['kourou_broker.app'] = app\n"
        "from kourou.cli.main import main; main(['broker'])\n"
        "sys.exit('typer' in sys.modules)"
    )
    done = python(source)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("asking", [["-h"], ["help"], ["--help"], []])
def test_help_may_be_asked_for_in_any_way(
    asking: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(asking) == 0
    assert capsys.readouterr().out.startswith("Usage: kourou ")


@pytest.mark.parametrize(
    "command", [*SERVICES, "spark-etl list", "health", "completion", "shutdown", "send"]
)
@pytest.mark.parametrize("asking", ["{} --help", "help {}"])
def test_every_help_begins_with_what_the_user_typed(
    command: str, asking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`./kourou` in a checkout; `kourou` alone would not be found there."""
    with suppress(SystemExit):  # argparse prints the help and ends
        command_line.main(asking.format(command).split(), called_as="./kourou")
    printed = capsys.readouterr().out
    assert f"./kourou {command} " in printed.splitlines()[0]
    assert not re.search(r"(?<!/)kourou [a-z]", printed)


@pytest.mark.parametrize("asking", ["version", "--version", "-V"])
def test_so_may_the_version(asking: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main([asking]) == 0
    assert capsys.readouterr().out == f"kourou {kourou.__version__}\n"


def test_the_launcher_tells_what_was_typed_and_children_do_not_hear_of_it(tmp_path: Path) -> None:
    source = (
        "import os, sys\n"
        "from kourou.cli import main\n"
        "main.main = lambda arguments, called_as, fetch: print(called_as, os.environ) or 0\n"
        "main.run()"
    )
    found = tmp_path / "kourou"
    found.touch(0o755)
    for typed, shown in (
        ("./kourou", "./kourou"),
        ("a b/kourou", "'a b/kourou'"),
        (str(found), "kourou"),
        ("", "kourou"),
    ):
        done = python(source, **{"PATH": str(tmp_path), command_line.CALLED_AS: typed})
        assert done.stdout.startswith(f"{shown} environ")
        assert command_line.CALLED_AS not in done.stdout


def test_a_command_that_lacks_packages_runs_the_launcher_again_and_only_once(
    tmp_path: Path,
) -> None:
    source = (
        "import sys\n"
        "from kourou.cli import main, services\n"
        "from kourou.errors import MissingPackages\n"
        "def broker(*_): raise MissingPackages('a broker needs more', 'postgres')\n"
        "main.run_service = broker\n"
        "main.run()"
    )
    launcher = tmp_path / "kourou"
    launcher.write_text('#!/bin/sh\necho "again: $KOUROU_GROUPS: $*"\n')
    launcher.chmod(0o755)

    run = partial(python, source, "broker", "-c", "two words")
    again = run(KOUROU_COMMAND=str(launcher), KOUROU_GROUPS="demo")
    assert (again.returncode, again.stdout) == (0, "again: demo postgres: broker -c two words\n")
    sentence = (
        "kourou: a broker needs more (pip install 'kourou[postgres]', or in a checkout: "
        "KOUROU_GROUPS=postgres ./kourou --version)\n"
    )
    for last in (run(KOUROU_COMMAND=str(launcher), KOUROU_GROUPS="postgres"), run()):
        assert (last.returncode, last.stdout, last.stderr) == (2, "", sentence)


@pytest.mark.parametrize("command", [["send", "t", "x"], ["tail", "t"], ["admin", "topicList"]])
def test_without_a_name_server_the_error_says_what_to_type(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert command_line.main(command, called_as="./kourou") == 2
    assert capsys.readouterr().err == (
        "kourou: no name server address is set (-n 127.0.0.1:9876, or export "
        "NAMESRV_ADDR=127.0.0.1:9876; is `./kourou up` running?)\n"
    )


def test_where_no_name_server_listens_a_shell_user_is_asked_whether_one_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        assert command_line.main(["tail", "t", "-n", address], called_as="./kourou") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"kourou: no name server responds at {address} (cannot reach ")
    assert error.endswith("; is `./kourou up` running?)\n")


def shell(arguments: str, streams: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line as a shell starts it, streams redirected."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -m kourou.cli {arguments} {streams}', sys.executable],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("arguments", ["version", "broker -p", "--help"])
def test_a_full_disk_behind_the_output_is_one_sentence(arguments: str) -> None:
    done = shell(arguments, ">/dev/full")
    assert done.returncode not in (0, 120)
    assert re.fullmatch(
        r"kourou( broker)?: cannot write output: No space left on device\n", done.stderr
    )


@pytest.mark.parametrize("arguments", ["version", "broker -p"])
def test_whoever_reads_only_the_beginning_hears_nothing(arguments: str) -> None:
    done = shell(arguments, "| true")
    assert done.stderr == ""


@pytest.mark.parametrize("streams", ["<&-", "<&- >&- 2>&-"])
def test_a_client_lives_without_standard_streams(streams: str) -> None:
    """The loop's library ends a process in which it is given one of their numbers."""
    done = shell("admin queryMsgById -i nonsense -n 127.0.0.1:1", streams)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
