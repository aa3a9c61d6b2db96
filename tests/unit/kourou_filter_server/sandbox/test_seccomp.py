"""The list of system calls: the program by a machine that runs it, and what goes on under it."""

import os
import threading
import time

import pytest

from kourou_filter_server.sandbox import kernel, limits, seccomp
from kourou_filter_server.sandbox.seccomp import ALLOW, ARCHITECTURES, KILL, REFUSE
from kourou_rigs.forked import in_child

pytestmark = pytest.mark.usefixtures("every_layer")

MACHINES = list(ARCHITECTURES)


# -- the program, for every machine ---------------------------------------------------------------


def answer(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would answer, by its rules for such programs."""
    told = ARCHITECTURES[machine].audit if audit is None else audit
    words = [number, told, 0, 0]
    for argument in (*arguments, *[0] * (6 - len(arguments))):
        words += [argument & 0xFFFF_FFFF, argument >> 32]
    steps, at, held = seccomp.program(ARCHITECTURES[machine]), 0, 0
    while True:
        code, if_true, if_false, constant = steps[at]
        at += 1
        if code == 0x20:
            held = words[constant // 4]
        elif code == 0x54:
            held &= constant
        elif code == 0x15:
            at += if_true if held == constant else if_false
        elif code == 0x35:
            at += if_true if held >= constant else if_false
        else:
            assert code == 0x06
            return constant


def call(machine: str, name: str, *arguments: int) -> int:
    return answer(machine, ARCHITECTURES[machine].numbers[name], *arguments)


@pytest.mark.feature("F243")
@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_that_is_not_listed_is_refused(machine: str) -> None:
    listed = set(ARCHITECTURES[machine].numbers.values())
    passed = {number for number in range(1_024) if answer(machine, number) != REFUSE}
    assert passed <= listed
    free = {name for name, conditions in seccomp.CALLS.items() if not conditions}
    assert passed >= {ARCHITECTURES[machine].numbers.get(name) for name in free} - {None}


@pytest.mark.parametrize("machine", MACHINES)
def test_only_the_channel_is_read_and_written(machine: str) -> None:
    for name in ("read", "write"):
        assert call(machine, name, 3) == ALLOW
        assert {call(machine, name, fd) for fd in (0, 1, 2, 4, 5, 0xFFFF_FFFF)} == {REFUSE}


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_is_anonymous_and_never_executable(machine: str) -> None:
    read_write, execute, anonymous, private, huge = 3, 4, 0x20, 2, 0x4_0000
    assert call(machine, "mmap", 0, 4_096, read_write, private | anonymous) == ALLOW
    assert call(machine, "mmap", 0, 4_096, read_write, private, 3) == REFUSE
    assert call(machine, "mmap", 0, 4_096, read_write, anonymous | huge) == REFUSE
    assert call(machine, "mmap", 0, 4_096, read_write | execute, private | anonymous) == REFUSE
    assert call(machine, "mprotect", 0, 4_096, read_write) == ALLOW
    assert call(machine, "mprotect", 0, 4_096, execute) == REFUSE
    assert call(machine, "madvise", 0, 4_096, 4) == ALLOW
    assert call(machine, "madvise", 0, 4_096, 12) == REFUSE


@pytest.mark.parametrize("machine", MACHINES)
def test_of_futexes_only_waiting_and_waking(machine: str) -> None:
    private, realtime = 128, 256
    passed = [number for number in range(16) if call(machine, "futex", 0, number) == ALLOW]
    assert passed == [0, 1, 9]
    assert call(machine, "futex", 0, 9 | private | realtime) == ALLOW
    assert call(machine, "futex", 0, 3 | private) == REFUSE


@pytest.mark.parametrize("machine", MACHINES)
def test_clocks_of_other_processes_are_not_read(machine: str) -> None:
    assert call(machine, "clock_gettime", 1) == ALLOW
    assert call(machine, "clock_gettime", limits.cpu_clock(1) & 0xFFFF_FFFF) == REFUSE


@pytest.mark.parametrize("machine", MACHINES)
def test_another_machines_numbers_kill(machine: str) -> None:
    others = {ARCHITECTURES[name].audit for name in MACHINES if name != machine} | {0x4000_0003}
    assert {answer(machine, 1, 3, audit=audit) for audit in others} == {KILL}


def test_the_other_numbers_of_x86_kill() -> None:
    assert answer("x86_64", 0x4000_0000 | 1, 3) == KILL
    assert answer("x86_64", 0xFFFF_FFFF) == KILL


def test_every_call_of_the_list_has_its_number() -> None:
    for machine, known in ARCHITECTURES.items():
        without = {"time"} if machine == "aarch64" else set()
        assert known.numbers.keys() == seccomp.CALLS.keys() - without


def test_a_machine_without_numbers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "ARCHITECTURES", {})
    with pytest.raises(OSError, match="no list of system calls for this machine"):
        seccomp.this_architecture()


# -- in force; what it refuses to a filter: tests/integration/filter_jail/test_refused_calls.py ----


def filtered(act) -> str:
    def run() -> object:
        kernel.set_no_new_privs()
        seccomp.allow_only_the_list()
        return act()

    return in_child(run, tell_fd=kernel.CHANNEL_FD)


def test_no_thread_begins() -> None:
    assert filtered(lambda: threading.Thread(target=print).start()).startswith("RuntimeError")


def test_what_computing_needs_goes_on() -> None:
    def compute() -> object:
        blocks = [bytearray(1 << 20) for _ in range(8)]
        blocks.clear()
        lock = threading.Lock()
        with lock:
            assert not lock.acquire(timeout=0.001)
        assert len(os.urandom(8)) == 8
        assert time.time() > 0
        assert time.thread_time_ns() > 0
        assert time.monotonic() > 0
        assert os.getpid()
        return sum(range(1_000))

    assert filtered(compute) == "499500"


def test_without_no_new_privs_it_is_refused_unless_to_root() -> None:
    def without() -> None:
        if os.getuid() == 0:
            os.setuid(54_321)
        seccomp.allow_only_the_list()

    assert in_child(without) == "EACCES"


def test_a_program_that_the_kernel_does_not_take_is_an_error() -> None:
    def put_nonsense() -> str:
        kernel.set_no_new_privs()
        try:
            seccomp.apply_program([(0x20, 0, 0, 0)])  # it has no end
        except OSError as error:
            return kernel.error_text(error)
        return "taken"

    assert in_child(put_nonsense) == "seccomp: Invalid argument"
