"""Resource limits of one worker: memory, CPU time, stack, files, processes, locks and cores.

An honest worker lives for weeks, so RLIMIT_CPU needs a special treatment. Its soft limit is an
*allowance* that the zygote renews while the parent sees the worker work correctly; seccomp prevents
the worker from changing a limit or catching SIGXCPU. So a worker that spins unnoticed by its
parent, or while the parent is stopped, is ended by the kernel. State: none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import time
from dataclasses import dataclass

from kourou_filter_server.sandbox import kernel

OPEN_FILES_MAX = 4
"""Three times /dev/null, and the socket to the parent."""

STACK_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Memory (address space) in bytes, CPU allowance in s, and niceness (0-19).

    `cores`: the process runs only on these; empty for any.
    """

    memory_bytes: int
    cpu_allowance_s: int
    niceness: int
    cores: frozenset[int] = frozenset()


def confine(limits: SandboxLimits) -> None:
    """Set the limits permanently (only the CPU allowance can be renewed). Raises OSError."""
    lower(resource.RLIMIT_AS, limits.memory_bytes)
    lower(resource.RLIMIT_STACK, STACK_BYTES_MAX)
    lower(resource.RLIMIT_NOFILE, OPEN_FILES_MAX)
    for kind in _NONE_OF:
        lower(kind, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (_at_most(limits.cpu_allowance_s, hard), hard))
    keep_to(limits.cores)
    yield_cpu(limits.niceness)


_NONE_OF = (
    resource.RLIMIT_NPROC,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_CORE,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_MSGQUEUE,
    resource.RLIMIT_NICE,
    resource.RLIMIT_RTPRIO,
)
"""The kernel exempts uid 0 from RLIMIT_NPROC: run the service as a separate user."""


def keep_to(cores: frozenset[int]) -> None:
    """Run only on those of these cores that exist (one may have been removed). Raises OSError.

    This is not a security measure: it protects other processes. A process that wakes up on a
    worker's core waits for the end of the worker's time slice, whatever the niceness, so one core
    has no workers.
    """
    there = os.sched_getaffinity(0) & cores
    if there:
        os.sched_setaffinity(0, there)


def yield_cpu(niceness: int) -> None:
    """Raise the niceness, and let other processes run as soon as they wake up. Raises OSError.

    Since Linux 6.12, a process with a shorter time slice preempts one with a longer slice
    immediately; the default slice is 2.8 ms at most. This costs no CPU time in the long run.
    Earlier kernels ignore the slice and use only the niceness.
    """
    nicest = min(os.nice(0) + niceness, _NICEST)
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is not None:
        asked = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nicest, 0, TURN_NS, 0, 0)
        try:
            kernel.syscall("sched_setattr", number, 0, asked, ctypes.c_uint(0))
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
        else:
            return
    os.nice(niceness)


TURN_NS = 5_000_000
"""Longer than the default slice of other processes, but not longer than necessary: workers on one
core wait for each other's slices.
"""

_NICEST = 19
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = struct.Struct("<IIQiIQQQ")
"""struct sched_attr of sched_setattr(2), first version."""

_UNKNOWN = (errno.ENOSYS, errno.EPERM)
"""A container may forbid the call. This is accepted, because the call is not a security measure."""


def renew_allowance(pid: int, allowance_s: int) -> None:
    """Allow the process `allowance_s` more CPU seconds than it has used already. Raises OSError."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
    used_s = time.clock_gettime(cpu_clock(pid))
    soft = _at_most(int(used_s) + 1 + allowance_s, hard)
    resource.prlimit(pid, resource.RLIMIT_CPU, (soft, hard))


def cpu_clock(pid: int) -> int:
    """The clock ID of a process's CPU time, for clock_gettime(2)."""
    return (~pid << 3) | 2


def lower(kind: int, value: int) -> None:
    """Set a soft and a hard limit, not above the current hard limit. Raises OSError."""
    _, hard = resource.getrlimit(kind)
    limit = _at_most(value, hard)
    resource.setrlimit(kind, (limit, limit))


def _at_most(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
