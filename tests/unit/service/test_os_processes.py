"""Services are found by the name of their process, and by nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.errors import ConfigError, Unavailable
from kourou.service import os_processes as process_names
from kourou.service.os_processes import (
    CORE_MAX,
    cores_named,
    find_running,
    keep_process_to,
    read_cores,
)
from kourou_rigs.forked import in_child

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

NAMED = """
import sys
from kourou.service.os_processes import take_name
take_name(sys.argv[1])
print("named", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def named() -> Iterator[subprocess.Popen[str]]:
    """A process of a service that only this test knows."""
    process = subprocess.Popen(
        [sys.executable, "-c", NAMED, "zoo"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "named\n"
    yield process
    process.kill()
    process.communicate()


def test_a_process_is_found_by_its_name_asked_and_waited_for(named) -> None:
    assert find_running("zo") == []
    (found,) = find_running("zoo")
    with found:
        assert found.pid == named.pid
        assert found.describe().startswith(f"in {Path.cwd()}: -c ")
        assert found.describe().endswith(" zoo")
        assert not found.wait_for_end(0)
        found.ask_to_end()
        assert found.wait_for_end(30)
        assert found.describe(Path("/proc/none")) == "has just ended"
        found.ask_to_end()  # it is no more: nothing happens
    assert find_running("zoo") == [], "it has ended, although its parent has not waited for it yet"
    assert named.wait() == -15


def test_others_are_not_ours(named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name: a file that is only called so, another user's process, one that has ended."""
    entry = tmp_path / str(named.pid)
    entry.mkdir()
    (entry / "comm").write_text("kourou-zoo\n")
    (entry / "cmdline").write_bytes(b"python\0")
    (tmp_path / "self").mkdir()
    (found,) = find_running("zoo", tmp_path)
    found.close()

    (entry / "cmdline").write_bytes(b"")
    assert find_running("zoo", tmp_path) == []
    (entry / "cmdline").write_bytes(b"vim\0kourou-zoo\0")
    (entry / "comm").write_text("vim\n")
    assert find_running("zoo", tmp_path) == []
    (entry / "comm").write_text("kourou-zoo\n")
    monkeypatch.setattr(process_names.os, "geteuid", lambda: os.getuid() + 1)
    assert find_running("zoo", tmp_path) == []


def test_a_system_without_such_processes_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="kill"):
        find_running("zoo", tmp_path / "proc")


# -- lists of processor cores, and how they are divided --------------------------------------------


@pytest.mark.parametrize(
    ("text", "cores"),
    [("3", {3}), ("1,4-7", {1, 4, 5, 6, 7}), (" 0 , 2 - 2 ", {0, 2}), (f"{CORE_MAX}", {CORE_MAX})],
)
def test_a_list_of_cores(text: str, cores: set[int]) -> None:
    assert read_cores("key", text) == cores


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "-1", "2-1", "1-2-3", "1 2", "x", "0x1", "1.5", f"0-{CORE_MAX + 1}"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a list of cores"):
        cores_named("processCores", text, {0, 1})


@pytest.mark.parametrize("text", ["7", "0,7", "0-1,7"])
def test_a_core_that_is_not_there_is_named_and_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names 7, and this process may use 0,1"):
        cores_named("processCores", text, {0, 1})


def test_a_process_keeps_to_its_cores() -> None:
    first = min(os.sched_getaffinity(0))

    def kept() -> object:
        keep_process_to(None)
        before = os.sched_getaffinity(0)
        keep_process_to(str(first))
        return before, os.sched_getaffinity(0)

    assert in_child(kept) == str((os.sched_getaffinity(0), {first}))
