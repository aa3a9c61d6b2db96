"""Landlock alone, since another layer would hide its lack: no file, no TCP, nobody outside."""

import os
import re
import select
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


# -- capabilities alone: all are gone, also those that a program could be given --------------------


def sets() -> dict[str, int]:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return {name: int(value, 16) for name, value in re.findall(r"Cap(\w+):\s*(\w+)", status)}


@pytest.mark.feature("F243")
def test_every_set_is_empty() -> None:
    def look() -> object:
        kernel.leave_namespaces()
        assert kernel.capability_count() > 30
        kernel.drop_capabilities()
        return kernel.capability_count(), set(sets().values())

    assert in_child(look) == "(0, {0})"


def test_what_they_allowed_is_forbidden() -> None:
    def rename() -> None:
        kernel.leave_namespaces()
        socket.sethostname("inside")  # in a namespace of its own it may, ...
        kernel.drop_capabilities()
        socket.sethostname("outside")

    assert in_child(rename) == "EPERM"


# -- descriptors alone: three times nothing, and one channel ---------------------------------------


FOLDER = Path("/proc/self/fd")
NULL = "/dev/null"


def open_now() -> dict[int, str]:
    """What is open, without the folder that is open for looking."""
    named = {}
    for path in FOLDER.iterdir():
        try:
            named[int(path.name)] = str(path.readlink()).partition(":")[0]
        except FileNotFoundError:
            continue
    return dict(sorted(named.items()))


def left_over(*, keep_stderr: bool = False) -> str:
    """What a child has open in the sandbox, sent through the one channel that it keeps."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            assert all(os.dup(writing) for _ in range(10))
            os.dup2(os.open(NULL, os.O_RDONLY), 0)
            os.dup2(writing, 2)
            os.closerange(kernel.DESCRIPTORS_MAX, kernel.DESCRIPTORS_MAX + 65_536)
            kernel.keep_only(writing, keep_stderr=keep_stderr)
            os.write(kernel.CHANNEL_FD, repr(open_now()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    told = os.read(reading, 4_096).decode()
    os.close(reading)
    os.waitpid(pid, 0)
    return told


@pytest.mark.feature("F243")
def test_only_the_channel_is_left() -> None:
    assert left_over() == repr({0: NULL, 1: NULL, 2: NULL, 3: "pipe"})


def test_the_zygote_keeps_a_way_to_say_why_it_broke() -> None:
    assert left_over(keep_stderr=True) == repr({0: NULL, 1: NULL, 2: "pipe", 3: "pipe"})


# -- lineage alone: who dies with whom, and that nothing is gained or seen -------------------------


PR_GET_DUMPABLE = 3


@pytest.mark.feature("F243")
def test_a_child_dies_with_its_parent() -> None:
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            here = os.getpid()
            if os.fork() == 0:
                kernel.die_with_parent(here)
                os.write(writing, b"%d\n" % os.getpid())
                os.close(writing)
                while True:
                    signal.pause()
            signal.pause()
        finally:
            os._exit(0)
    try:
        os.close(writing)
        child = os.pidfd_open(int(os.read(reading, 32)))
        os.kill(middle, signal.SIGKILL)
        ended = select.poll()
        ended.register(child, select.POLLIN)
        assert ended.poll(60_000), "the child lives on without its parent"
        os.close(child)
    finally:
        os.waitpid(middle, 0)
        os.close(reading)


def test_nobody_looks_into_it() -> None:
    def look() -> object:
        kernel.hide_memory()
        if os.getuid() == 0:
            os.setuid(54_321)  # root may look into anything
        dumpable = kernel.prctl("GET_DUMPABLE", PR_GET_DUMPABLE)
        assert dumpable == 0
        return Path("/proc/self/mem").open("rb")

    assert in_child(look) == "EACCES"


def test_signals_are_as_at_the_beginning() -> None:
    def look() -> object:
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        kernel.reset_signal_handlers()
        handlers = {signal.getsignal(number) for number in signal.valid_signals() - {9, 19}}
        return handlers == {signal.SIG_DFL}, signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert in_child(look) == "(True, set())"


# -- namespaces alone: there is nothing in them ----------------------------------------------------


def test_it_is_nobody_there() -> None:
    def look() -> tuple[int, int]:
        kernel.leave_namespaces(kernel.USER)
        return os.getuid(), os.getgid()

    assert in_child(look) == "(65534, 65534)"


def test_there_is_no_network_there() -> None:
    def look() -> object:
        kernel.leave_namespaces()
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            return probe.sendto(b"x", ("127.0.0.1", 9))

    assert in_child(look) == "ENETUNREACH"
