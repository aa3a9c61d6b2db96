"""Landlock alone, since another layer would hide its lack: no file, no TCP, nobody outside."""

import os
import signal
import socket
from pathlib import Path

import pytest

from kourou_filter_server.sandbox import kernel
from kourou_rigs.forked import in_child

pytestmark = pytest.mark.usefixtures("every_layer")


def version() -> int:
    try:
        return kernel.landlock_abi()
    except OSError:
        return 0


VERSION = version()


def restricted(act) -> str:
    def run() -> object:
        kernel.set_no_new_privs()
        kernel.apply_landlock()
        return act()

    return in_child(run)


@pytest.mark.feature("F243")
def test_no_file_can_be_read_made_moved_or_listed(tmp_path) -> None:
    known = tmp_path / "known"
    known.write_text("secret")
    for attempt in (
        lambda: known.read_text(),
        lambda: (tmp_path / "new").write_text("x"),
        lambda: list(tmp_path.iterdir()),
        lambda: known.unlink(),
        lambda: known.rename(tmp_path / "other"),
        lambda: os.mkfifo(tmp_path / "fifo"),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.truncate(known, 0),
    ):
        assert restricted(attempt) == "EACCES"
    assert known.read_text() == "secret"
    assert list(tmp_path.iterdir()) == [known]


@pytest.mark.skipif(VERSION < 4, reason="needs a kernel layer: TCP came with Landlock 4")
def test_no_tcp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert restricted(lambda: socket.create_connection(address)) == "EACCES"
    assert restricted(lambda: socket.create_server(("127.0.0.1", 0))) == "EACCES"


@pytest.mark.skipif(VERSION < 6, reason="needs a kernel layer: scopes came with Landlock 6")
def test_no_signal_and_no_abstract_socket_reaches_outside() -> None:
    assert restricted(lambda: os.kill(os.getppid(), 0)) == "EPERM"
    assert restricted(lambda: os.kill(os.getpid(), 0)) == "None"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0kourou-test-{os.getpid()}")
        server.listen()
        name = server.getsockname()
        assert restricted(lambda: socket.socket(socket.AF_UNIX).connect(name)) == "EPERM"


def test_it_needs_no_new_privs_unless_root() -> None:
    def without() -> None:
        if os.getuid() == 0:
            os.setuid(65_534)
        kernel.apply_landlock()

    assert in_child(without) == "EPERM"


@pytest.mark.parametrize(
    ("abi", "size", "files"),
    [(1, 8, 13), (2, 8, 14), (3, 8, 15), (4, 16, 15), (5, 16, 16), (6, 24, 16), (7, 24, 16)],
)
def test_each_version_forbids_all_it_knows(abi: int, size: int, files: int) -> None:
    rules = kernel.landlock_ruleset(abi)
    assert len(rules) == size
    assert int.from_bytes(rules[:8], "little") == (1 << files) - 1
    assert all(part == 3 for part in rules[8::8])


def test_nothing_stays_behind_in_the_asking_process() -> None:
    assert restricted(lambda: signal.SIGKILL.value) == "9"
    assert list(Path("/").iterdir())
