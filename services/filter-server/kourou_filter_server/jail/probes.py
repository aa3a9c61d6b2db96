"""Finds out which layers of the sandbox the kernel and the container allow.

State: none; the calling process does not change.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from kourou_filter_server.jail import (
    capabilities,
    kernel,
    landlock,
    limits,
    lineage,
    namespaces,
    seccomp,
)
from kourou_filter_server.jail.limits import SandboxLimits

_ANSWER_BYTES_MAX = 4_096
_TRIAL_MEMORY_BYTES = 512 * 1024 * 1024


class NoEffect(Exception):
    """The kernel accepted the call, but it had no effect."""


@dataclass(frozen=True, slots=True)
class Found:
    """One layer: its name, whether it is available, and a detail (version or reason)."""

    name: str
    there: bool
    detail: str


def look() -> list[Found]:
    """Try every layer, each in its own child process. Takes about ten milliseconds.

    Must be called from the zygote, which is single-threaded: the kernel refuses a user namespace to
    a process with several threads, also if a library starts one in every forked child.
    """
    return [_in_a_child(name, trial, usual) for name, trial, usual in _TRIALS]


_PROFILE = "a container's seccomp profile or an old kernel"
_USUAL_NAMESPACE = {
    errno.EPERM: "a container's seccomp profile, AppArmor, or kernel.unprivileged_userns_clone=0",
    errno.ENOSPC: "user.max_user_namespaces is used up or 0",
    errno.EINVAL: "the kernel was built without it, or something starts threads in this process",
    errno.EUSERS: "namespaces are nested too deep",
}
_USUAL_LANDLOCK = {
    errno.ENOSYS: "a kernel before 5.13 or built without it, or a seccomp profile",
    errno.EOPNOTSUPP: "it is not among the kernel's lsm= modules",
    errno.EPERM: "a container's seccomp profile",
}
_USUAL_SECCOMP = {
    errno.EINVAL: "the kernel was built without CONFIG_SECCOMP_FILTER",
    errno.EPERM: _PROFILE,
}
_USUAL = {errno.EPERM: _PROFILE, errno.ENOSYS: _PROFILE, errno.EACCES: _PROFILE}


def _in_a_child(name: str, trial: Callable[[], str], usual: dict[int, str]) -> Found:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(writing, trial, usual)
    os.close(writing)
    try:
        told = b""
        while part := os.read(reading, _ANSWER_BYTES_MAX):
            told += part
    finally:
        os.close(reading)
        _, status = os.waitpid(pid, 0)
    if not told:
        return Found(name, False, f"the trial ended with status {status}")
    return Found(name, told[:1] == b"+", told[1:].decode("utf-8", "replace"))


def _answer(writing: int, trial: Callable[[], str], usual: dict[int, str]) -> NoReturn:
    """Run the trial in the child, write the result and exit; never returns."""
    try:
        try:
            told = "+" + trial()
        except OSError as error:
            cause = usual.get(error.errno or 0)
            told = "-" + kernel.words(error) + (f" ({cause}?)" if cause else "")
        except NoEffect as error:
            told = f"-{error}"
        os.write(writing, told.encode())
    finally:
        os._exit(0)


def _try_namespace(kind: int) -> Callable[[], str]:
    def trial() -> str:
        namespaces.leave(namespaces.USER | kind)
        return ""

    return trial


def _try_landlock() -> str:
    lineage.gain_nothing()
    version = landlock.abi()
    landlock.forbid_everything()
    _expect(
        errno.EACCES, lambda: os.open("/", os.O_RDONLY), "a folder could be opened all the same"
    )
    return f"ABI {version}"


def _try_seccomp() -> str:
    reading, writing = os.pipe()
    lineage.gain_nothing()
    if os.fork() == 0:
        # The filter allows output only through descriptor 3.
        os.dup2(writing, seccomp.CHANNEL_FD)
        try:
            seccomp.allow_only_the_list()
            _expect(errno.EPERM, lambda: os.open("/", os.O_RDONLY), "a file could be opened")
            os.write(seccomp.CHANNEL_FD, b"+")
        except OSError as error:
            os.write(seccomp.CHANNEL_FD, str(error.errno).encode())
        finally:
            os._exit(0)
    os.close(writing)
    told = os.read(reading, _ANSWER_BYTES_MAX)
    os.wait()
    if told == b"+":
        return os.uname().machine
    if told.isdigit():
        if int(told) == 0:
            seccomp.this_architecture()  # raises, and names the machine
        raise OSError(int(told), f"seccomp: {os.strerror(int(told))}")
    raise NoEffect("seccomp: the filter blocks nothing")


def _try_no_new_privs() -> str:
    lineage.gain_nothing()
    if not lineage.gains_nothing():
        raise NoEffect("no_new_privs: it is not set")
    return ""


def _try_limits() -> str:
    limits.confine(SandboxLimits(_TRIAL_MEMORY_BYTES, cpu_allowance_s=5, niceness=0))
    if not 0 <= resource.getrlimit(resource.RLIMIT_AS)[1] <= _TRIAL_MEMORY_BYTES:
        raise NoEffect("rlimits: the limit of memory is not set")
    try:
        # An anonymous mapping, since the allocator may have free memory from before.
        mmap.mmap(-1, _TRIAL_MEMORY_BYTES).close()
    except OSError as error:
        if error.errno == errno.ENOMEM:
            return ""
        raise
    raise NoEffect("rlimits: more memory could be allocated than the limit allows")


def _try_death_signal() -> str:
    lineage.die_with_parent(os.getppid())
    if lineage.death_signal() != signal.SIGKILL:
        raise NoEffect("parent-death signal: it is not set")
    return ""


def _try_capabilities() -> str:
    namespaces.leave(namespaces.USER)
    capabilities.give_away()
    if capabilities.held():
        raise NoEffect("capabilities: some remain")
    return ""


def _try_pidfd() -> str:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        handle = os.pidfd_open(pid)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError as error:
        os.kill(pid, signal.SIGKILL)
        raise OSError(error.errno, f"pidfd: {error.strerror}") from None
    finally:
        _, status = os.waitpid(pid, 0)
    return "" if os.WIFSIGNALED(status) else "ended otherwise"


def _expect(number: int, attempt: Callable[[], object], otherwise: str) -> None:
    try:
        attempt()
    except OSError as error:
        if error.errno == number:
            return
        raise
    raise NoEffect(otherwise)


_TRIALS: tuple[tuple[str, Callable[[], str], dict[int, str]], ...] = (
    *((name, _try_namespace(kind), _USUAL_NAMESPACE) for kind, name in namespaces.NAMES.items()),
    ("Landlock", _try_landlock, _USUAL_LANDLOCK),
    ("seccomp", _try_seccomp, _USUAL_SECCOMP),
    ("no_new_privs", _try_no_new_privs, _USUAL),
    ("capabilities", _try_capabilities, _USUAL),
    ("rlimits", _try_limits, _USUAL),
    ("parent-death signal", _try_death_signal, _USUAL),
    ("pidfd", _try_pidfd, _USUAL),
)
"""Each layer's name, its trial (which returns a detail), and the usual causes of its errors."""
