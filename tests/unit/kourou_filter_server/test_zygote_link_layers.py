"""Which layers there are, seen from outside, and the sentence of a server that lacks some."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.errors import ConfigError, Unavailable
from kourou_filter_server import zygote_link
from kourou_filter_server.zygote_link import Layer

pytestmark = pytest.mark.usefixtures("every_layer")


@pytest.mark.feature("F243")
def test_this_machine_has_them_all() -> None:
    found = zygote_link.probe()
    assert len(found) == 11
    assert zygote_link.missing(found) == ()
    assert {"user namespaces", "Landlock", "seccomp"} <= {layer.name for layer in found}


def test_the_missing_ones_are_named_with_their_reasons() -> None:
    found = (
        Layer("user namespaces", False, "unshare: Operation not permitted"),
        Layer("Landlock", True, "ABI 4"),
        Layer("seccomp", False, "no"),
    )
    lacking = zygote_link.missing(found)
    assert [layer.name for layer in lacking] == ["user namespaces", "seccomp"]
    refused = zygote_link.refusal(lacking)
    assert isinstance(refused, ConfigError)
    assert refused.message == (
        "the sandbox of filters lacks: "
        "user namespaces (unshare: Operation not permitted); seccomp (no)"
    )
    assert "--unsafe-no-sandbox" in refused.hint
    assert "deploy/seccomp/filter-server.json" in refused.hint


def test_asking_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, kourou_filter_server.zygote_link;"
            "print([name for name in ('zmq', 'numpy', 'sqlalchemy') if name in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_command_gives_away_nothing_of_this_process() -> None:
    argv = zygote_link.command("probe")
    assert argv[:5] == [sys.executable, "-I", "-S", "-B", "-X"]
    assert Path(argv[-2], "kourou_filter_server", "sandbox", "zygote.py").is_file()
    assert argv[-1] == "probe"


def test_a_trial_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    monkeypatch.setattr(zygote_link, "command", lambda *_: broken)
    with pytest.raises(Unavailable, match="could not be tested: no such luck"):
        zygote_link.probe()
    monkeypatch.setattr(zygote_link, "command", lambda *_: ["/nowhere/python"])
    with pytest.raises(Unavailable, match=r"could not be tested: .*No such file"):
        zygote_link.probe()


def test_the_trial_has_an_empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "x")
    show = [
        sys.executable,
        "-I",
        "-c",
        "import json, os; print(json.dumps([[k, True, ''] for k in os.environ]))",
    ]
    monkeypatch.setattr(zygote_link, "command", lambda *_: show)
    assert "SECRET_OF_THE_PARENT" in os.environ
    assert {layer.name for layer in zygote_link.probe()} <= {"LC_CTYPE"}
