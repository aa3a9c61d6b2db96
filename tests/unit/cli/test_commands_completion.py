"""Tab completes commands, in three shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.cli.commands import COMPLETION_VARIABLE
from kourou.cli.main import main


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
