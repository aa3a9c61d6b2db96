"""The zygote: a small separate process that forks the workers and reports their ends.

It is started with an empty environment and without the filter server's memory, so a worker inherits
no key, no address and no descriptor. It loads the modules that filters may import while files can
still be read; so starting a worker is a fork and not a start of Python. It is single-threaded, and
waits in one poll.

State: soft; the running workers. It ends, together with its workers, when the filter server ends.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Sequence

from kourou_filter_server.jail import limits, lineage, probes, runtime, wire, worker
from kourou_filter_server.jail.descriptors import DESCRIPTORS_MAX, keep_only
from kourou_filter_server.jail.limits import SandboxLimits


class Zygote:
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
    lineage.die_with_parent(parent_pid)
    lineage.gain_nothing()
    lineage.hide_memory()
    limits.lower(resource.RLIMIT_NOFILE, DESCRIPTORS_MAX)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK):
        limits.lower(kind, 0)


def main(arguments: Sequence[str]) -> None:
    """`FD PARENT_PID`: run as zygote on that control socket. `probe`: print the layers as JSON."""
    if list(arguments) == ["probe"]:
        sys.stdout.write(json.dumps(_layers()))
        return
    channel, parent_pid = (int(argument) for argument in arguments)
    lineage.forget_signal_handlers()
    keep_only(channel, keep_stderr=True)
    harden(parent_pid)
    with socket.socket(fileno=3) as control:
        try:
            hello = json.loads(control.recv(wire.CONTROL_BYTES_MAX))
            runtime.prepare(hello["modules"], hello["codec_paths"])
            for said in (sys.path, sys.argv, sys.orig_argv):
                said.clear()  # filters must not see installation paths
            told = json.dumps({"layers": _layers()})
            control.send(wire.READY_KIND + told.encode())
            # Workers share the current objects; a garbage collection would copy them into each
            # worker.
            gc.collect()
            gc.freeze()
            cores = frozenset(hello["cores"])
            Zygote(control, unsafe=hello["unsafe"], cores=cores).serve()
        except (BrokenPipeError, ConnectionResetError):
            return  # the filter server has ended


def _layers() -> list[tuple[str, bool, str]]:
    return [(found.name, found.there, found.detail) for found in probes.look()]
