"""A real zygote and real jailed workers, seen from the filter server."""

import asyncio
import os
import re
import resource
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from kourou.errors import ConfigError, FilterFailed, Unavailable
from kourou_filter_server import zygote_link
from kourou_filter_server.worker_link import WorkerIdentity, WorkerLimits
from kourou_filter_server.zygote_link import Layer, Zygote
from kourou_rigs.records import RecordRun

pytestmark = pytest.mark.usefixtures("every_layer")

shared = pytest.mark.asyncio(loop_scope="module")

WHO = WorkerIdentity("G", "late", 4)
EMPTY = ("", "LC_CTYPE=C.UTF-8\0")
"""An environment: with what the C library adds by itself."""

PASS = b"def match(message, context): return message.tag == 'yes'"


def records(*tags: str) -> list[bytes]:
    run = RecordRun()
    for tag in tags:
        run.add("orders", 2, tag=tag)
    return [run.data]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def zygote() -> AsyncIterator[Zygote]:
    """One for all tests that leave it alive."""
    made = Zygote()
    await made.start()
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def mortal() -> AsyncIterator[Zygote]:
    """One to be killed."""
    made = Zygote()
    await made.start()
    yield made
    await made.close()


def read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def status(pid: int) -> dict[str, str]:
    text = read(f"/proc/{pid}/status")
    return dict(re.findall(r"^(\w+):\s+(.*)$", text, re.MULTILINE))


def namespaces(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}/ns")
    return [str((folder / kind).readlink()) for kind in ("user", "net", "ipc", "uts")]


def place(pid: int) -> Path:
    return Path(f"/proc/{pid}/cwd").readlink()


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()


def count(folder: str) -> int:
    return len(list(Path(folder).iterdir()))


def below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def until(true: Callable[[], bool]) -> None:
    """The loop turns until it is."""
    while not true():  # noqa: ASYNC110 - nobody tells, and pytest's own timeout ends it
        await asyncio.sleep(0)


def gone(pidfd: int) -> bool:
    """Waits until that process has ended."""
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    return bool(ended.poll(60_000))


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The empty folder in which Python looks for bytecode of any module, as in a fresh clone.

    The zygote has neither environment nor site packages, so a script in place of Python sets it.
    """
    cache, python = tmp_path / "bytecode", tmp_path / "python"
    cache.mkdir()
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' -X pycache_prefix='{cache}' \"$@\"\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return cache


@shared
async def test_without_any_bytecode_filters_run_and_none_is_written(cold: Path) -> None:
    """A zygote that writes bytecode is killed by SIGXFSZ: its limit of file sizes is 0."""
    made = Zygote()
    await made.start()
    try:
        worker = await made.start_worker(WHO, b"import datetime, json\n" + PASS)
        reply = await worker.evaluate(b"orders", 0, records("yes", "no"), 2)
    finally:
        await made.close()
    assert (reply.results, reply.kind) == (b"\1\0", "")
    assert below(cold) == []


@pytest.mark.feature("F243")
@shared
async def test_a_worker_judges_inside_all_layers(zygote: Zygote) -> None:
    assert zygote.running
    worker = await zygote.start_worker(WHO, PASS)
    told = await worker.evaluate(b"orders", 77, records("yes", "no", "yes"), 3)
    assert (told.results, told.kind) == (b"\1\0\1", "")
    seen = status(worker.pid)
    assert (seen["Seccomp"], seen["NoNewPrivs"], seen["Threads"]) == ("2", "1", "1")
    assert int(seen["CapEff"], 16) == int(seen["CapBnd"], 16) == 0
    assert int(seen["PPid"]) == zygote.pid
    assert read(f"/proc/{worker.pid}/environ") in EMPTY
    assert count(f"/proc/{worker.pid}/fd") == 4
    assert not set(namespaces(worker.pid)) & set(namespaces(os.getpid()))
    await worker.close()
    assert not worker.alive
    assert str(worker.pid) not in children(zygote.pid)


@shared
async def test_the_zygote_has_given_up_what_it_can(zygote: Zygote) -> None:
    assert status(zygote.pid)["NoNewPrivs"] == "1"
    assert read(f"/proc/{zygote.pid}/environ") in EMPTY
    assert place(zygote.pid) == Path("/")
    assert count(f"/proc/{zygote.pid}/fd") == 4 + len(zygote._workers)
    limits = read(f"/proc/{zygote.pid}/limits")
    assert re.search(r"Max core file size\s+0\s+0", limits)
    assert re.search(r"Max file size\s+0\s+0", limits)


@shared
async def test_what_a_worker_may_use_reaches_it(zygote: Zygote) -> None:
    wanted = WorkerLimits(memory_bytes=128 << 20, cpu_allowance_s=7, niceness=9)
    worker = await zygote.start_worker(WHO, PASS, wanted)
    limits = read(f"/proc/{worker.pid}/limits")
    assert re.search(rf"Max address space\s+{128 << 20}\s+{128 << 20}", limits)
    assert re.search(r"Max cpu time\s+7\s", limits)
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == min(
        19, os.getpriority(os.PRIO_PROCESS, 0) + 9
    )


async def test_workers_keep_to_their_cores_and_the_zygote_does_not() -> None:
    there = os.sched_getaffinity(0)
    theirs = frozenset({max(there)})
    zygote = Zygote(cores=theirs)
    await zygote.start()
    worker = await zygote.start_worker(WHO, PASS)
    assert os.sched_getaffinity(worker.pid) == theirs
    assert os.sched_getaffinity(zygote.pid) == there
    await zygote.close()


@shared
async def test_an_allowance_is_renewed(zygote: Zygote) -> None:
    worker = await zygote.start_worker(WHO, PASS, WorkerLimits(cpu_allowance_s=3))
    worker._worked_s = 2.0  # seen to work for longer than half of its allowance
    await worker.evaluate(b"orders", 77, records("yes"))
    other = await zygote.start_worker(WHO, PASS)  # answered after the renewal, in order
    limits = read(f"/proc/{worker.pid}/limits")
    assert re.search(r"Max cpu time\s+4\s", limits)
    await other.close()


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        (b"match = 1 / 0", "setup", "ZeroDivisionError"),
        (b"def match(:", "setup", "SyntaxError"),
        (b"x = 'a' * 10**9\ndef match(m, c): return True", "memory", "memory"),
        (b"while True: pass", "timeout", "no reply within 50 ms"),
    ],
)
@shared
async def test_a_filter_that_cannot_be_set_up_says_why(
    zygote: Zygote, source: bytes, kind: str, said: str
) -> None:
    with pytest.raises(FilterFailed, match=said) as failed:
        await zygote.start_worker(
            WHO, source, WorkerLimits(start_ms=50 if kind == "timeout" else 60_000)
        )
    assert (failed.value.kind, failed.value.filter_version) == (kind, 4)


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGSEGV, r"SIGSEGV \(it crashed\)"), (40, "signal 40")],
    ids=["a name and a cause", "a signal without a name"],
)
@shared
async def test_a_worker_that_crashes_says_how_and_others_go_on(
    zygote: Zygote, number: int, said: str
) -> None:
    neighbour = await zygote.start_worker(WHO, PASS)
    crash = await zygote.start_worker(WHO, PASS)
    os.kill(crash.pid, number)
    with pytest.raises(FilterFailed, match=f"was killed by {said}") as failed:
        await crash.evaluate(b"orders", 77, records("yes"))
    assert failed.value.kind == "died"
    assert (await neighbour.evaluate(b"orders", 77, records("yes"))).results == b"\1"


@shared
async def test_its_own_allowance_ends_a_worker_that_spins_unseen(zygote: Zygote) -> None:
    worker = await zygote.start_worker(WHO, PASS)
    os.kill(worker.pid, signal.SIGXCPU)  # what the kernel sends then
    assert "more processor time than allowed" in await worker.wait_ended()
    with pytest.raises(FilterFailed) as failed:
        await worker.evaluate(b"orders", 77, records("yes"))
    assert failed.value.kind == "timeout"


@pytest.mark.feature("F243")
@shared
async def test_workers_die_with_the_zygote_and_a_new_one_can_be_started(mortal: Zygote) -> None:
    zygote = mortal
    worker = await zygote.start_worker(WHO, PASS)
    pidfd = os.pidfd_open(worker.pid)
    waiting = asyncio.ensure_future(zygote.wait_ended())
    await asyncio.sleep(0)
    os.kill(zygote.pid, signal.SIGKILL)
    assert gone(pidfd)
    with pytest.raises(Unavailable) as failed:
        await worker.evaluate(b"orders", 77, records("yes"))
    assert not isinstance(failed.value, FilterFailed)
    os.close(pidfd)
    assert (await waiting).startswith("the zygote was killed by SIGKILL")
    assert not zygote.running
    with pytest.raises(Unavailable, match="is not running"):
        await zygote.start_worker(WHO, PASS)
    await zygote.start()
    assert (await zygote.start_worker(WHO, PASS)).alive


@shared
async def test_a_worker_that_is_being_started_fails_with_the_zygote(mortal: Zygote) -> None:
    os.kill(mortal.pid, signal.SIGSTOP)
    started = asyncio.ensure_future(mortal.start_worker(WHO, PASS))
    await asyncio.sleep(0)
    os.kill(mortal.pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="killed by SIGKILL"):
        await started


@shared
async def test_a_start_that_is_cancelled_leaves_no_worker(zygote: Zygote) -> None:
    os.kill(zygote.pid, signal.SIGSTOP)
    before_fork = asyncio.ensure_future(zygote.start_worker(WHO, PASS))
    await asyncio.sleep(0)
    before_fork.cancel()
    with pytest.raises(asyncio.CancelledError):
        await before_fork
    os.kill(zygote.pid, signal.SIGCONT)
    endless = b"while True: pass"
    during_set_up = asyncio.ensure_future(zygote.start_worker(WHO, endless))
    known = max(zygote._workers, default=0)
    await until(lambda: max(zygote._workers, default=0) > known)
    newest = zygote._workers[max(zygote._workers)]
    await until(lambda: newest._flight is not None)
    during_set_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await during_set_up
    assert not newest.alive
    await newest.wait_ended()
    assert not zygote._wanted
    assert (await zygote.start_worker(WHO, PASS)).alive
    await until(lambda: len(children(zygote.pid)) == len(zygote._workers))  # it reaps them soon


ORPHAN = """
import asyncio, sys
from kourou_filter_server.worker_link import WorkerIdentity
from kourou_filter_server.zygote_link import Zygote

async def main():
    zygote = Zygote()
    await zygote.start()
    worker = await zygote.start_worker(
        WorkerIdentity("G", "f", 1), b"def match(message, context): return True"
    )
    print(zygote.pid, worker.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.feature("F243")
def test_nothing_outlives_the_filter_server() -> None:
    server = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        pidfds = [os.pidfd_open(int(pid)) for pid in server.stdout.readline().split()]
        assert len(pidfds) == 2
        # A zygote that cannot see the end of its socket, and a worker that does not look.
        for pidfd in pidfds:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
    finally:
        server.kill()
        server.communicate()
    for pidfd in pidfds:
        assert gone(pidfd)
        os.close(pidfd)


@shared
async def test_without_a_descriptor_one_worker_is_refused_and_no_other_ends(mortal: Zygote) -> None:
    first = await mortal.start_worker(WHO, PASS)
    used = count(f"/proc/{mortal.pid}/fd")
    _, most = resource.prlimit(mortal.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(mortal.pid, resource.RLIMIT_NOFILE, (used, most))
    with pytest.raises(Unavailable, match="no file descriptor is available"):
        await mortal.start_worker(WHO, PASS)
    resource.prlimit(mortal.pid, resource.RLIMIT_NOFILE, (most, most))
    second = await mortal.start_worker(WHO, PASS)
    assert (await first.evaluate(b"orders", 0, records("yes"), 1)).results == b"\1"
    assert (await second.evaluate(b"orders", 0, records("yes"), 1)).results == b"\1"


@shared
async def test_closing_ends_all_of_it_and_leaves_no_descriptor() -> None:
    before = count("/proc/self/fd")
    zygote = Zygote()
    await zygote.start()
    worker = await zygote.start_worker(WHO, PASS)
    await zygote.close()
    assert not worker.alive
    assert await zygote.wait_ended() == "the zygote ended with exit code 0"
    await zygote.close()
    assert count("/proc/self/fd") == before


@shared
async def test_a_missing_layer_keeps_it_from_starting_unless_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = (
        Layer("user namespaces", False, "unshare: Operation not permitted"),
        Layer("Landlock", True, "ABI 4"),
        Layer("seccomp", False, "no"),
    )
    monkeypatch.setattr(zygote_link, "layers_of", lambda _: found)
    zygote = Zygote()
    with pytest.raises(ConfigError) as refused:
        await zygote.start()
    assert refused.value.message == (
        "the sandbox of filters lacks: "
        "user namespaces (unshare: Operation not permitted); seccomp (no)"
    )
    assert "--unsafe-no-sandbox" in refused.value.hint
    assert "deploy/seccomp/filter-server.json" in refused.value.hint
    assert not zygote.running
    unsafe = Zygote(unsafe=True)
    await unsafe.start()
    try:
        worker = await unsafe.start_worker(WHO, PASS)
        assert (await worker.evaluate(b"orders", 77, records("yes"))).results == b"\1"
        assert status(worker.pid)["Seccomp"] == "0"
    finally:
        await unsafe.close()


@shared
async def test_a_zygote_that_breaks_says_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote_link, "MODULES", ("no_such_module",))
    zygote = Zygote()
    with pytest.raises(Unavailable, match="exit code 1: ModuleNotFoundError: No module named"):
        await zygote.start()
    assert not zygote.running
    assert "ModuleNotFoundError" in await zygote.wait_ended()


@shared
async def test_a_zygote_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote_link, "command", lambda *_: ["/nowhere/python"])
    with pytest.raises(Unavailable, match="cannot be started: No such file"):
        await Zygote().start()


# -- layers ----------------------------------------------------------------------------------------


@pytest.mark.feature("F243")
def test_this_machine_has_them_all() -> None:
    found = zygote_link.probe()
    assert len(found) == 11
    assert zygote_link.missing(found) == ()
    assert {"user namespaces", "Landlock", "seccomp"} <= {layer.name for layer in found}


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
