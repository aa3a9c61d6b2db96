"""Nothing that the checks started is left behind, and cleanup is signalled once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.cli import checks
from kourou.cli.check_stages import Stage
from kourou.cli.checks import CheckProcesses
from kourou.errors import Unavailable

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
BREAKS_OFF = TIDIES.replace("with open", "os.kill(os.getppid(), signal.SIGINT)\nwith open")


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


def test_a_command_is_run_to_its_end_in_the_folder(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out, CheckProcesses(tmp_path) as processes:
        assert processes.run(("sh", "-c", "pwd; echo odd >&2; exit 4"), out) == 4
    assert log.read_text().splitlines() == [str(tmp_path), "odd"]


def test_sources_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    asks = (sys.executable, "-c", "import sys; sys.exit(3 + sys.dont_write_bytecode)")
    with (tmp_path / "log").open("wb") as out, CheckProcesses(tmp_path) as processes:
        assert processes.run(asks, out) == 3


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


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises here, whatever a runner of tests made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_every_stage(
    tmp_path: Path, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second stage breaks the run off when it runs, and reads from the first that this does."""
    first = (sys.executable, "-c", TIDIES, str(fifo))
    second = (sys.executable, "-c", f"print(open({str(fifo)!r}).read())\n{BREAKS_OFF}", os.devnull)
    stages = (Stage("lint", "a", commands=(first,)), Stage("types", "b", commands=(second,)))
    monkeypatch.setattr(checks, "STAGES", stages)
    monkeypatch.setattr(checks, "find_checkout", lambda: tmp_path)
    with pytest.raises(KeyboardInterrupt):
        checks.run_checks(checks.Options())
    last = tmp_path / ".kourou-test" / "last"
    assert (last / "lint.log").read_text() == "signalled\n"
    assert (last / "types.log").read_text() == "leads\nsignalled\n"
