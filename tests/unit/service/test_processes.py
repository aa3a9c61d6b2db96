"""Children become ready, stop on request, and never outlive their parent."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kourou.errors import ConfigError, TimedOut, Unavailable
from kourou.service.processes import (
    KEPT_PORTS,
    LOOPBACK,
    UNKEPT_PORTS,
    Child,
    Children,
    KeptPorts,
    free_port,
)
from kourou_rigs.interrupting import interrupted_after

READY = """
import json, os, signal, sys
path = sys.argv[sys.argv.index("--ready-file") + 1]
stopping = []
signal.signal(signal.SIGTERM, {on_term})
with open(path + ".new", "w") as out:
    json.dump({{"zmq": "tcp://127.0.0.1:1", "pid": os.getpid()}}, out)
os.rename(path + ".new", path)
while True:
    signal.pause()
"""
GENTLE = READY.format(on_term="lambda *_: sys.exit(7)")
DEAF = READY.format(on_term="signal.SIG_IGN")


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def test_a_child_is_ready_when_its_file_is_there(tmp_path: Path) -> None:
    child = Child("gentle", python(GENTLE), tmp_path)
    said = child.wait_for_ready()
    assert said == {"zmq": "tcp://127.0.0.1:1", "pid": child.pid}
    assert child.running
    assert child.stop() == 7
    assert not child.running


def test_a_deaf_child_is_killed_after_the_grace(tmp_path: Path) -> None:
    child = Child("deaf", python(DEAF), tmp_path)
    child.wait_for_ready()
    assert child.stop(grace_ms=1) == -signal.SIGKILL


@pytest.mark.parametrize("end", [Child.stop, Child.kill])
def test_the_ready_file_goes_with_the_process_that_it_names(
    tmp_path: Path, end: Callable[[Child], int]
) -> None:
    child = Child("gentle", python(GENTLE), tmp_path)
    child.wait_for_ready()
    assert (tmp_path / "gentle.ready").exists()
    end(child)
    assert not (tmp_path / "gentle.ready").exists()


def test_refused_settings_are_reported_in_the_childs_own_sentence(tmp_path: Path) -> None:
    source = "import sys; sys.exit(print('kourou broker: listenPort is no number') or 2)"
    child = Child("strict", python(source), tmp_path)
    with pytest.raises(ConfigError, match="strict does not start: listenPort is no number"):
        child.wait_for_ready()


def test_a_child_that_ends_early_shows_its_output(tmp_path: Path) -> None:
    child = Child("weak", python("raise SystemExit('out of luck')"), tmp_path)
    with pytest.raises(Unavailable, match=r"(?s)weak ended with 1.*out of luck"):
        child.wait_for_ready()


def test_a_child_that_never_gets_ready_is_killed(tmp_path: Path) -> None:
    class Jumping:
        at = 0

        def now_ms(self) -> int:
            return 0

        def monotonic_ms(self) -> int:
            self.at += 1_000
            return self.at

    child = Child("slow", python("import signal; signal.pause()"), tmp_path, clock=Jumping())
    with pytest.raises(TimedOut, match="slow was not ready"):
        child.wait_for_ready(timeout_ms=1_500)
    assert not child.running


def test_children_stop_youngest_first(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        children.start("first", python(GENTLE)).wait_for_ready()
        children.start("second", python(GENTLE)).wait_for_ready()
        assert list(children.stop_all().items()) == [("second", 7), ("first", 7)]


def test_one_that_is_started_again_keeps_its_place_in_the_order(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        first = children.start("first", python(GENTLE))
        children.start("second", python(GENTLE)).wait_for_ready()
        first.kill()
        again = children.start_again(first)
        assert not again.ready
        again.wait_for_ready()
        assert again.check_ready()
        assert again.pid != first.pid
        assert list(children.stop_all().items()) == [("second", 7), ("first", 7)]


def test_an_interrupted_stop_is_continued_by_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(child: Child, grace_ms: int) -> int:
        raise KeyboardInterrupt

    with Children(tmp_path) as children:
        made = [children.start(name, python(DEAF)) for name in ("first", "second")]
        with monkeypatch.context() as patch:
            patch.setattr(Child, "stop", interrupted)
            with pytest.raises(KeyboardInterrupt):
                children.stop_all()
        children.kill_all()
        assert [child.running for child in made] == [False, False]
        assert children.stop_all() == {}


def test_an_orphan_dies_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed outright, so that nothing but the kernel can end the child."""
    parent_source = f"""
import os, signal, sys
from pathlib import Path
from kourou.service.processes import Child
child = Child("gentle", [sys.executable, "-c", {GENTLE!r}], Path({str(tmp_path)!r}))
child.wait_for_ready()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(python(parent_source), stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = json.loads(done.stdout)
    wait_until_gone(pid)


def wait_until_gone(pid: int) -> None:
    """Returns when the process is gone or a zombie that its new parent has yet to bury."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(handle)
        assert poll.poll(10_000), "it still runs"
    finally:
        os.close(handle)


@pytest.mark.fault
def test_an_interruption_between_any_two_instructions_loses_no_exit_code(tmp_path: Path) -> None:
    """Signal handlers raise wherever the code is, also between taking a lock and its `try`."""
    step = 0
    with Children(tmp_path) as children:
        while True:
            child = children.start("short", ["sh", "-c", "exit 3"], says_ready=False)
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            step += 1
            if not interrupted_after(step, partial(child.wait_for_exit, 0)):
                break  # it has fewer instructions
            assert (child.kill(), child.running) == (3, False)
    assert step > 20


@pytest.mark.fault
def test_an_interruption_between_any_two_instructions_leaves_a_child_that_can_be_stopped(
    tmp_path: Path,
) -> None:
    step = 0
    with Children(tmp_path) as children:
        child = children.start("long", ["sleep", "1000"], says_ready=False)
        while interrupted_after(step := step + 1, partial(child.wait_for_exit, 0)):
            assert child.running
        assert child.stop() == -signal.SIGTERM
    assert step > 20


# -- A port that is kept stays free for the process that it is meant for, and for no other ---------


def listening(port: int, *, reuse: bool) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    try:
        made.bind((LOOPBACK, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def test_a_free_port_has_free_neighbours() -> None:
    port = free_port(-2)
    with socket.socket() as one, socket.socket() as other:
        one.bind((LOOPBACK, port))
        other.bind((LOOPBACK, port - 2))


@pytest.fixture
def ports() -> Iterator[KeptPorts]:
    made = KeptPorts()
    yield made
    made.release()


def test_no_port_is_one_that_the_system_gives_to_a_connection(ports: KeptPorts) -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port < first for port in (ports["a"], free_port()))


def test_no_kept_port_is_chosen_twice(monkeypatch: pytest.MonkeyPatch, ports: KeptPorts) -> None:
    monkeypatch.setattr("kourou.service.processes.KEPT_PORTS", range(12_000, 12_003))
    other = KeptPorts()
    try:
        assert len({ports["a"], ports["a"], ports["b"], other["a"]}) == 3
    finally:
        other.release()


def test_no_kept_port_is_one_that_a_broker_derives_from_a_free_one() -> None:
    derived = {port + shift for port in UNKEPT_PORTS for shift in (-2, 0, 1, 10_000, 10_001)}
    assert derived.isdisjoint(KEPT_PORTS)
    assert free_port() in UNKEPT_PORTS


def test_a_service_listens_on_it_again_and_again_and_strangers_do_not(ports: KeptPorts) -> None:
    port = ports["a"]
    for _ in range(2):
        with pytest.raises(OSError, match="in use"):
            listening(port, reuse=False)
        listening(port, reuse=True).close()
    ports.release()
    listening(port, reuse=False).close()
