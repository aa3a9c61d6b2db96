"""A process of the checks is signalled once, and killed if it does not end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from kourou.cli import checks
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
