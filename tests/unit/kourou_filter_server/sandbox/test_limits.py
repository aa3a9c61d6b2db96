"""Limits alone: each by what it forbids, and none can be raised again."""

import ctypes
import dataclasses
import errno
import mmap
import os
import resource
import signal
import time
from pathlib import Path

import pytest

from kourou_filter_server.sandbox import kernel, limits, wire
from kourou_filter_server.sandbox.limits import SandboxLimits
from kourou_rigs.forked import in_child

GIB = 1 << 30
SMALL = SandboxLimits(memory_bytes=4 * GIB, cpu_allowance_s=1, niceness=5)


def confined(act, allowed: SandboxLimits = SMALL) -> str:
    def run() -> object:
        limits.confine(allowed)
        return act()

    return in_child(run)


@pytest.mark.feature("F243")
def test_memory_has_an_end() -> None:
    assert confined(lambda: len(mmap.mmap(-1, 4 * GIB))) == "ENOMEM"
    assert confined(lambda: bytearray(4 * GIB)).startswith("MemoryError")


def test_no_descriptor_beyond_the_fourth() -> None:
    assert limits.OPEN_FILES_MAX == 4
    assert confined(lambda: [os.dup(0) for _ in range(4)]) == "EMFILE"


def test_nothing_can_be_written_to_a_file(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    try:
        assert confined(lambda: os.write(fd, b"x")) == "EFBIG"
    finally:
        os.close(fd)


def test_no_process_can_be_made_unless_by_root() -> None:
    def fork() -> None:
        if os.getuid() == 0:
            os.setuid(54_321)
        limits.confine(SMALL)
        if os.fork() == 0:
            os._exit(0)

    assert in_child(fork) == "EAGAIN"


@pytest.mark.parametrize(
    "kind",
    ["CORE", "MEMLOCK", "MSGQUEUE", "NICE", "RTPRIO", "NPROC", "FSIZE"],
)
def test_nothing_else_can_be_had_at_all(kind: str) -> None:
    number = getattr(resource, f"RLIMIT_{kind}")
    assert confined(lambda: resource.getrlimit(number)) == "(0, 0)"


def test_the_stack_is_small_enough_to_end_within_its_memory() -> None:
    soft = confined(lambda: resource.getrlimit(resource.RLIMIT_STACK)[0])
    assert int(soft) == limits.STACK_BYTES_MAX


def test_a_worker_steps_back_for_others() -> None:
    before = os.nice(0)
    assert confined(lambda: os.nice(0)) == str(min(before + 5, 19))


def _turn_ns() -> int:
    """For how long this process asks to run in one go (sched_getattr); 0 before Linux 6.12."""
    attributes = ctypes.create_string_buffer(limits._ATTRIBUTES.size)
    number = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
    kernel.syscall("sched_getattr", number, 0, attributes, len(attributes), 0)
    return int(limits._ATTRIBUTES.unpack(attributes)[5])


def test_others_who_wake_up_go_before_a_worker() -> None:
    """Their turns are shorter than what it asks for, and that is what the kernel goes by."""
    ordinary, of_worker = int(in_child(_turn_ns)), int(confined(_turn_ns))
    assert of_worker == limits.TURN_NS > ordinary or of_worker == ordinary == 0


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_without_sched_setattr_a_worker_is_nice(number: int) -> None:
    def refused(*_: object) -> int:
        raise OSError(number, "sched_setattr")

    before = os.nice(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "syscall", refused)
        assert confined(lambda: os.nice(0)) == str(min(before + 5, 19))


def test_what_else_is_wrong_is_not_passed_over() -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "sched_setattr")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "syscall", refused)
        assert confined(lambda: None) == "EINVAL"


def test_a_worker_keeps_to_its_cores() -> None:
    one = max(os.sched_getaffinity(0))
    allowed = dataclasses.replace(SMALL, cores=frozenset({one, 8_191}))
    assert confined(lambda: os.sched_getaffinity(0), allowed) == f"{{{one}}}"


@pytest.mark.parametrize("cores", [frozenset(), frozenset({8_191})], ids=["all", "gone"])
def test_a_worker_without_a_core_of_its_own_takes_any(cores: frozenset[int]) -> None:
    there = os.sched_getaffinity(0)
    allowed = dataclasses.replace(SMALL, cores=cores)
    assert confined(lambda: os.sched_getaffinity(0) == there, allowed) == "True"


@pytest.mark.feature("F243")
def test_a_worker_that_nobody_watches_ends_by_itself() -> None:
    def spin() -> None:
        while True:
            pass

    assert confined(spin) == "killed by SIGXCPU"


def test_the_allowance_is_renewed_from_outside() -> None:
    def look(pid: int) -> tuple[int, int]:
        return resource.prlimit(pid, resource.RLIMIT_CPU)

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (1, resource.RLIM_INFINITY))
            os.write(writing, b"+")
            signal.pause()
        finally:
            os._exit(0)
    try:
        assert os.read(reading, 1) == b"+"
        assert look(pid) == (1, resource.RLIM_INFINITY)
        limits.renew_allowance(pid, 40)
        soft, hard = look(pid)
        used_s = time.clock_gettime(limits.cpu_clock(pid))
        assert soft == 41 + int(used_s)
        assert hard == resource.RLIM_INFINITY
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


def test_a_limit_is_never_raised() -> None:
    def look() -> object:
        resource.setrlimit(resource.RLIMIT_NOFILE, (10, 12))
        limits.lower(resource.RLIMIT_NOFILE, 20)
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    assert in_child(look) == "(12, 12)"


# -- layouts that both sides share -----------------------------------------------------------------


def test_a_reason_has_its_width_and_is_cut_between_characters() -> None:
    assert wire.padded("") == bytes(512)
    assert wire.padded("no\0way") == b"no way".ljust(512, b"\0")
    cut = wire.padded("x" + "é" * 400)
    assert len(cut) == 512
    assert cut.rstrip(b"\0").decode() == "x" + "é" * 255
    assert wire.padded("\ud800") == b"?".ljust(512, b"\0")
