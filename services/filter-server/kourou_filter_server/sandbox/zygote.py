"""The zygote: a small separate process that forks the workers and reports their ends.

It is started with an empty environment and without the filter server's memory, so a worker inherits
no key, no address and no descriptor. It loads the modules that filters may import while files can
still be read; so starting a worker is a fork and not a start of Python. It is single-threaded, and
waits in one poll. Before it serves, it tries every layer of the sandbox, each in its own child, to
find out which ones the kernel and the container allow.

State: soft; the running workers. It ends, together with its workers, when the filter server ends.
"""

from __future__ import annotations

import errno
import gc
import json
import mmap
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from kourou_filter_server.sandbox import kernel, limits, runtime, seccomp, wire, worker
from kourou_filter_server.sandbox.kernel import DESCRIPTORS_MAX, keep_only
from kourou_filter_server.sandbox.limits import SandboxLimits

# -- probes of the sandbox layers -----------------------------------------------------------------

_ANSWER_BYTES_MAX = 4_096
_TRIAL_MEMORY_BYTES = 512 * 1024 * 1024


class NoEffect(Exception):
    """The kernel accepted the call, but it had no effect."""


@dataclass(frozen=True, slots=True)
class LayerProbe:
    """One layer: its name, whether it is available, and a detail (version or reason)."""

    name: str
    there: bool
    detail: str


def probe_layers() -> list[LayerProbe]:
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


def _in_a_child(name: str, trial: Callable[[], str], usual: dict[int, str]) -> LayerProbe:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(writing, trial, usual)
    os.close(writing)
    try:
        answer = b""
        while part := os.read(reading, _ANSWER_BYTES_MAX):
            answer += part
    finally:
        os.close(reading)
        _, status = os.waitpid(pid, 0)
    if not answer:
        return LayerProbe(name, False, f"the trial ended with status {status}")
    return LayerProbe(name, answer[:1] == b"+", answer[1:].decode("utf-8", "replace"))


def _answer(writing: int, trial: Callable[[], str], usual: dict[int, str]) -> NoReturn:
    """Run the trial in the child, write the result and exit; never returns."""
    try:
        try:
            answer = "+" + trial()
        except OSError as error:
            cause = usual.get(error.errno or 0)
            answer = "-" + kernel.error_text(error) + (f" ({cause}?)" if cause else "")
        except NoEffect as error:
            answer = f"-{error}"
        os.write(writing, answer.encode())
    finally:
        os._exit(0)


def _try_namespace(kind: int) -> Callable[[], str]:
    def trial() -> str:
        kernel.leave_namespaces(kernel.USER | kind)
        return ""

    return trial


def _try_landlock() -> str:
    kernel.set_no_new_privs()
    version = kernel.landlock_abi()
    kernel.apply_landlock()
    _expect(
        errno.EACCES, lambda: os.open("/", os.O_RDONLY), "a folder could be opened all the same"
    )
    return f"ABI {version}"


def _try_seccomp() -> str:
    reading, writing = os.pipe()
    kernel.set_no_new_privs()
    if os.fork() == 0:
        # The filter allows output only through descriptor 3.
        os.dup2(writing, kernel.CHANNEL_FD)
        try:
            seccomp.allow_only_the_list()
            _expect(errno.EPERM, lambda: os.open("/", os.O_RDONLY), "a file could be opened")
            os.write(kernel.CHANNEL_FD, b"+")
        except OSError as error:
            os.write(kernel.CHANNEL_FD, str(error.errno).encode())
        finally:
            os._exit(0)
    os.close(writing)
    answer = os.read(reading, _ANSWER_BYTES_MAX)
    os.wait()
    if answer == b"+":
        return os.uname().machine
    if answer.isdigit():
        if int(answer) == 0:
            seccomp.this_architecture()  # raises, and names the machine
        raise OSError(int(answer), f"seccomp: {os.strerror(int(answer))}")
    raise NoEffect("seccomp: the filter blocks nothing")


def _try_no_new_privs() -> str:
    kernel.set_no_new_privs()
    if not kernel.has_no_new_privs():
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
    kernel.die_with_parent(os.getppid())
    if kernel.death_signal() != signal.SIGKILL:
        raise NoEffect("parent-death signal: it is not set")
    return ""


def _try_capabilities() -> str:
    kernel.leave_namespaces(kernel.USER)
    kernel.drop_capabilities()
    if kernel.capability_count():
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
    *((name, _try_namespace(kind), _USUAL_NAMESPACE) for kind, name in kernel.NAMESPACES.items()),
    ("Landlock", _try_landlock, _USUAL_LANDLOCK),
    ("seccomp", _try_seccomp, _USUAL_SECCOMP),
    ("no_new_privs", _try_no_new_privs, _USUAL),
    ("capabilities", _try_capabilities, _USUAL),
    ("rlimits", _try_limits, _USUAL),
    ("parent-death signal", _try_death_signal, _USUAL),
    ("pidfd", _try_pidfd, _USUAL),
)
"""Each layer's name, its trial (which returns a detail), and the usual causes of its errors."""


# -- the zygote -----------------------------------------------------------------------------------


class ZygoteLoop:
    """The loop over one control socket. State: soft."""

    def __init__(
        self, control: socket.socket, *, unsafe: bool, cores: frozenset[int] = frozenset()
    ) -> None:
        self._control = control
        self._unsafe = unsafe
        self._cores = cores
        self._pid = os.getpid()
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._workers: dict[int, tuple[int, int]] = {}  # pidfd -> (number, pid)

    def serve(self) -> None:
        """Fork and reap until the filter server closes its end; then kill the remaining workers."""
        try:
            while True:
                for fd, _ in self._poll.poll():
                    if fd != self._control.fileno():
                        self._reap(fd)
                    elif not self._take():
                        return
        finally:
            for pidfd in list(self._workers):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                self._reap(pidfd, tell=False)

    def _take(self) -> bool:
        """Process one frame of the filter server; False at the end."""
        frame, descriptors, _, _ = socket.recv_fds(self._control, wire.CONTROL_BYTES_MAX, 1)
        if not frame:
            return False
        if frame[:1] == b"S":
            self._start(frame, descriptors)
        else:
            self._renew(frame)
        return True

    def _start(self, frame: bytes, descriptors: Sequence[int]) -> None:
        _, number, memory_bytes, cpu_allowance_s, niceness = wire.START.unpack(frame)
        if not descriptors:  # the kernel drops descriptors over the limit
            self._refuse(number, "no file descriptor is available")
            return
        (channel,) = descriptors
        allowed = SandboxLimits(memory_bytes, cpu_allowance_s, niceness, self._cores)
        try:
            pid = os.fork()
        except OSError as error:
            os.close(channel)
            self._refuse(number, f"fork: {error.strerror}")
            return
        if pid == 0:
            self._become_worker(channel, allowed)
        os.close(channel)  # frees a descriptor for the pidfd
        pidfd = os.pidfd_open(pid)
        self._workers[pidfd] = (number, pid)
        self._poll.register(pidfd, select.POLLIN)
        socket.send_fds(self._control, [wire.STARTED.pack(b"W", number, pid)], [pidfd])

    def _refuse(self, number: int, reason: str) -> None:
        self._control.send(wire.NOT_STARTED.pack(b"F", number) + reason.encode())

    def _become_worker(self, channel: int, allowed: SandboxLimits) -> None:
        """Run the worker in the child process; never returns to the zygote's loop."""
        try:
            self._control.detach()  # its finalizer would close descriptor 3, which is reused
            worker.run(channel, self._pid, allowed, unsafe=self._unsafe)
        except BrokenPipeError:
            os._exit(0)  # the filter server has closed its end
        finally:
            os._exit(1)

    def _renew(self, frame: bytes) -> None:
        _, number, allowance_s = wire.RENEW.unpack(frame)
        for known, pid in self._workers.values():
            if known == number:
                # It may have ended, but its pid is not reused before it is reaped.
                limits.renew_allowance(pid, allowance_s)

    def _reap(self, pidfd: int, *, tell: bool = True) -> None:
        number, pid = self._workers.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        if tell:
            code = os.waitstatus_to_exitcode(status)
            self._control.send(wire.ENDED.pack(b"E", number, code))


def harden(parent_pid: int) -> None:
    """Drop all rights that a forking process does not need. Raises OSError or Orphaned."""
    kernel.die_with_parent(parent_pid)
    kernel.set_no_new_privs()
    kernel.hide_memory()
    limits.lower(resource.RLIMIT_NOFILE, DESCRIPTORS_MAX)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK):
        limits.lower(kind, 0)


def main(arguments: Sequence[str]) -> None:
    """`FD PARENT_PID`: run as zygote on that control socket. `probe`: print the layers as JSON."""
    if list(arguments) == ["probe"]:
        sys.stdout.write(json.dumps(_layers()))
        return
    channel, parent_pid = (int(argument) for argument in arguments)
    kernel.reset_signal_handlers()
    keep_only(channel, keep_stderr=True)
    harden(parent_pid)
    with socket.socket(fileno=3) as control:
        try:
            hello = json.loads(control.recv(wire.CONTROL_BYTES_MAX))
            runtime.prepare(hello["modules"], hello["codec_paths"])
            for said in (sys.path, sys.argv, sys.orig_argv):
                said.clear()  # filters must not see installation paths
            answer = json.dumps({"layers": _layers()})
            control.send(wire.READY_KIND + answer.encode())
            # Workers share the current objects; a garbage collection would copy them into each
            # worker.
            gc.collect()
            gc.freeze()
            cores = frozenset(hello["cores"])
            ZygoteLoop(control, unsafe=hello["unsafe"], cores=cores).serve()
        except (BrokenPipeError, ConnectionResetError):
            return  # the filter server has ended


def _layers() -> list[tuple[str, bool, str]]:
    return [(found.name, found.there, found.detail) for found in probe_layers()]
