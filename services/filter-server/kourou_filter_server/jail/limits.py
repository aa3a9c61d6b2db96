"""Resource limits: memory, processor, stack, files, processes, locks and cores of one worker.

RLIMIT_CPU needs care, since an honest worker lives for weeks. Its soft limit is an *allowance*,
which the zygote renews while the parent finds the worker in order; seccomp keeps the worker itself
from changing a limit or catching SIGXCPU. So a worker that spins behind its parent's back, or while
the parent is stopped, ends by itself. State: none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import time
from dataclasses import dataclass

from kourou_filter_server.jail import kernel

OPEN_FILES_MAX = 4
"""Three times /dev/null and the socket to the parent."""

STACK_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JailLimits:
    """Memory (address space) in bytes, processor allowance in s, and how nice it is (0-19).

    `cores`: it computes on none but these; empty for any.
    """

    memory_bytes: int
    cpu_allowance_s: int
    niceness: int
    cores: frozenset[int] = frozenset()


def confine(limits: JailLimits) -> None:
    """Set them for this process, for good (only the allowance can be renewed). Raises OSError."""
    lower(resource.RLIMIT_AS, limits.memory_bytes)
    lower(resource.RLIMIT_STACK, STACK_BYTES_MAX)
    lower(resource.RLIMIT_NOFILE, OPEN_FILES_MAX)
    for kind in _NONE_OF:
        lower(kind, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (_at_most(limits.cpu_allowance_s, hard), hard))
    keep_to(limits.cores)
    give_way(limits.niceness)


_NONE_OF = (
    resource.RLIMIT_NPROC,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_CORE,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_MSGQUEUE,
    resource.RLIMIT_NICE,
    resource.RLIMIT_RTPRIO,
)
"""The kernel exempts uid 0 from RLIMIT_NPROC: run the service under a uid of its own."""


def keep_to(cores: frozenset[int]) -> None:
    """Compute on these cores only, as far as they are there (one may have gone). Raises OSError.

    That keeps nobody in; it is for those outside. Whoever is woken where a worker computes waits
    for the end of its turn, however nice it is, so there is a core on which none does.
    """
    there = os.sched_getaffinity(0) & cores
    if there:
        os.sched_setaffinity(0, there)


def give_way(niceness: int) -> None:
    """Be nicer by so much, and let everybody else run as soon as they wake up. Raises OSError.

    Since Linux 6.12 whoever asks for shorter turns goes before whoever asked for longer ones, at
    once; who does not ask has 2.8 ms at most. It costs none of the processor in the long run.
    Earlier kernels take no notice, and then niceness is all there is.
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
"""Longer than the turns of all who do not ask, and no longer than need be: workers on one core wait
for one another's, and on a crowded machine the longer for their own the longer these are."""

_NICEST = 19
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = struct.Struct("<IIQiIQQQ")
"""struct sched_attr of sched_setattr(2), in its first version."""

_UNKNOWN = (errno.ENOSYS, errno.EPERM)
"""Sandboxes around the service may not know the call; it is a courtesy and not a wall."""


def renew_allowance(pid: int, allowance_s: int) -> None:
    """Let the process use so many seconds more than it has used already. Raises OSError."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
    used_s = time.clock_gettime(cpu_clock(pid))
    soft = _at_most(int(used_s) + 1 + allowance_s, hard)
    resource.prlimit(pid, resource.RLIMIT_CPU, (soft, hard))


def cpu_clock(pid: int) -> int:
    """The id of a process's own clock of processor time, for clock_gettime(2)."""
    return (~pid << 3) | 2


def lower(kind: int, value: int) -> None:
    """Set a soft and a hard limit, never above the hard limit there is. Raises OSError."""
    _, hard = resource.getrlimit(kind)
    limit = _at_most(value, hard)
    resource.setrlimit(kind, (limit, limit))


def _at_most(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
