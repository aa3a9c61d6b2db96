"""The list of system calls that a worker may make; every other one fails with EPERM.

The list is what CPython needs to compute and to communicate over one socket that is already open.
It cannot open or close anything, start a thread or a process, send a signal or change a signal
handler, raise a limit, inspect another process, or make memory executable. State: none.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from dataclasses import dataclass

from kourou_filter_server.sandbox import kernel

ALLOW, REFUSE, KILL = 0x7FFF_0000, 0x0005_0001, 0x8000_0000
"""The results of a program: allow the call, fail with EPERM, and kill the process."""

_MODE_FILTER = 2
_X32 = 0x4000_0000
_WORD = 0xFFFF_FFFF
_PROT_EXEC, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x4, 0x20, 0x4_0000
_MADV_DONTNEED = 4
_FUTEX_COMMAND = 0x7F
_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET = 0, 1, 9
_CLOCKS_OF_THE_SYSTEM = 0xFFFF_FFF0


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one argument (0-5): its bits in `mask` must equal one of `values`."""

    argument: int
    mask: int
    values: tuple[int, ...]


_ONLY_THE_CHANNEL = (Condition(0, _WORD, (kernel.CHANNEL_FD,)),)
_NOT_EXECUTABLE = Condition(2, _PROT_EXEC, (0,))

CALLS: dict[str, tuple[Condition, ...]] = {
    "read": _ONLY_THE_CHANNEL,
    "write": _ONLY_THE_CHANNEL,
    "mmap": (_NOT_EXECUTABLE, Condition(3, _MAP_ANONYMOUS | _MAP_HUGETLB, (_MAP_ANONYMOUS,))),
    "mprotect": (_NOT_EXECUTABLE,),
    "munmap": (),
    "mremap": (),
    "brk": (),
    "madvise": (Condition(2, _WORD, (_MADV_DONTNEED,)),),
    "futex": (Condition(1, _FUTEX_COMMAND, (_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET)),),
    "clock_gettime": (Condition(0, _CLOCKS_OF_THE_SYSTEM, (0,)),),
    "gettimeofday": (),
    "time": (),
    "getrandom": (),
    "getpid": (),
    "gettid": (),
    "sched_yield": (),
    "restart_syscall": (),
    "exit": (),
    "exit_group": (),
}
"""The allowed calls and the conditions on their arguments; without a condition: any arguments."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The system call numbers of one machine; `audit` is its name in the kernel (AUDIT_ARCH_…)."""

    audit: int
    numbers: dict[str, int]
    has_x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture(
        0xC000_003E,
        {
            "read": 0,
            "write": 1,
            "mmap": 9,
            "mprotect": 10,
            "munmap": 11,
            "brk": 12,
            "sched_yield": 24,
            "mremap": 25,
            "madvise": 28,
            "getpid": 39,
            "exit": 60,
            "gettimeofday": 96,
            "gettid": 186,
            "time": 201,
            "futex": 202,
            "restart_syscall": 219,
            "clock_gettime": 228,
            "exit_group": 231,
            "getrandom": 318,
        },
        has_x32=True,
    ),
    "aarch64": Architecture(
        0xC000_00B7,
        {
            "read": 63,
            "write": 64,
            "exit": 93,
            "exit_group": 94,
            "futex": 98,
            "clock_gettime": 113,
            "sched_yield": 124,
            "restart_syscall": 128,
            "gettimeofday": 169,
            "getpid": 172,
            "gettid": 178,
            "brk": 214,
            "munmap": 215,
            "mremap": 216,
            "mmap": 222,
            "mprotect": 226,
            "madvise": 233,
            "getrandom": 278,
        },
    ),
}
"""`time` is not a system call on aarch64."""


def this_architecture() -> Architecture:
    """The architecture of this machine. Raises OSError if it is not supported."""
    machine = os.uname().machine
    found = ARCHITECTURES.get(machine)
    if found is None or sys.maxsize < 2**32 or sys.byteorder != "little":
        raise OSError(0, f"seccomp: no list of system calls for this machine ({machine})")
    return found


_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

Step = tuple[int, int, int, int]
"""One BPF instruction: code, jump if true, jump if false, constant."""


def program(machine: Architecture) -> list[Step]:
    """The filter. It loads 32-bit words; the kernel ignores the upper halves as well."""
    steps: list[Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine.has_x32:
        steps += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL)]
    for name, conditions in CALLS.items():
        if name in machine.numbers:
            steps += _rule(machine.numbers[name], conditions)
    return [*steps, (_RETURN, 0, 0, REFUSE)]


def _rule(number: int, conditions: tuple[Condition, ...]) -> list[Step]:
    """The instructions for one call; every path through them ends with a return."""
    checks: list[Step] = []
    for condition in reversed(conditions):  # last first, to know the jump distance
        to_refusal = len(checks) + 1
        last = len(condition.values) - 1
        checks = [
            (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * condition.argument),
            (_AND, 0, 0, condition.mask),
            *(
                (_EQUAL, last - at, to_refusal if at == last else 0, value)
                for at, value in enumerate(condition.values)
            ),
            *checks,
        ]
    returns: list[Step] = [(_RETURN, 0, 0, ALLOW)]
    if conditions:
        returns.append((_RETURN, 0, 0, REFUSE))
    return [(_EQUAL, 0, len(checks) + len(returns), number), *checks, *returns]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def allow_only_the_list() -> None:
    """Install the filter for this process, permanently; needs no_new_privs. Raises OSError."""
    apply_program(program(this_architecture()))


def apply_program(steps: list[Step]) -> None:
    """Apply this program to every further system call of this process. Raises OSError."""
    packed = b"".join(struct.pack("<HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    given = _Program(len(steps), ctypes.cast(buffer, ctypes.c_void_p))
    zero = ctypes.c_ulong(0)
    result = kernel.LIBC.prctl(
        kernel.PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(given), zero, zero
    )
    kernel.checked("seccomp", result)
