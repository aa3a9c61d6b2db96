"""Wrong usage is one sentence and exit code 2; help is quick; services skip the machinery."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kourou.cli import main as command_line
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
        (["demo", "--evnts", "5"], "no such option: --evnts"),
        (["test", "lnt"], "there is no stage 'lnt' (stages: lint types imports"),
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
    ],
)
def test_errors_have_exit_codes(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(name: str, arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(command_line, "run_service", fail)
    assert command_line.main(["broker"]) == code
    assert capsys.readouterr().err.startswith("kourou: ")


def test_a_service_gets_its_arguments_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def note(name: str, arguments: list[str]) -> int:
        seen.append((name, arguments))
        return 7

    monkeypatch.setattr(command_line, "run_service", note)
    assert command_line.main(["broker", "-c", "x.conf", "--help"]) == 7
    assert seen == [("broker", ["-c", "x.conf", "--help"])]


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    source = (
        "import sys; from kourou.cli.main import main; main(['--help'])\n"
        "heavy = {'numpy', 'zmq', 'sqlalchemy', 'aiohttp', 'opentelemetry', 'pandas'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_service_starts_without_the_command_lines_machinery() -> None:
    source = (
        "import sys, types\n"
        "app = types.ModuleType('kourou_broker.app'); app.run = lambda arguments: 0\n"
        "sys.modules['kourou_broker.app'] = app\n"
        "from kourou.cli.main import main; main(['broker'])\n"
        "sys.exit('typer' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
