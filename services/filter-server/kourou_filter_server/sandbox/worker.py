"""The main function of a worker: sandbox, then one filter, then batches until the parent ends it.

The order of the sandbox layers is necessary. Entering a user namespace grants capabilities, so they
are dropped later, and it may reset the parent-death signal, so that is set again. Landlock needs a
descriptor, so the limit of descriptors comes later. Landlock and seccomp need no_new_privs. Seccomp
forbids the system calls of all other layers, so it is last.

Once the source has been read, a hostile filter may control everything in this process, including
this loop. So nothing here protects the parent: it trusts no byte, and enforces the deadlines.

State: soft.

Invariant: `enter_sandbox` returns with every layer in force, or raises; no sandbox is partial.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from io import FileIO
from typing import NoReturn

from kourou_filter_server.sandbox import kernel, limits, runtime, seccomp, wire
from kourou_filter_server.sandbox.kernel import CHANNEL_FD
from kourou_filter_server.sandbox.limits import SandboxLimits

BUFFER_BYTES = 256 * 1024
"""The buffer that is kept for requests; a larger request gets a temporary buffer of its own."""

_UNREACHABLE = ("ctypes", "_ctypes", "ctypes._endian", "kourou_filter_server.sandbox.kernel")
"""Modules that the sandbox set-up needs and filters must not have."""


class LayerMissing(Exception):
    """A layer could not be applied; the text names it and contains the kernel's error."""


def enter_sandbox(
    channel: int, parent_pid: int, allowed: SandboxLimits, *, unsafe: bool = False
) -> None:
    """Put this process into the sandbox permanently; `channel` becomes descriptor 3.

    With `unsafe`, only resource limits and the end with the parent apply, and the parent's
    deadlines. Raises LayerMissing if a layer fails after descriptor 3 is set up, OSError before.
    """
    kernel.keep_only(channel)
    _apply("signals", kernel.reset_signal_handlers)
    _apply("parent-death signal", lambda: kernel.die_with_parent(parent_pid))
    _apply("no_new_privs", kernel.set_no_new_privs)
    if not unsafe:
        _apply("namespaces", kernel.leave_namespaces)
        _apply("parent-death signal", lambda: kernel.die_with_parent(parent_pid))
        _apply("Landlock", kernel.apply_landlock)
    _apply("rlimits", lambda: limits.confine(allowed))
    if not unsafe:
        _apply("dumpable", kernel.hide_memory)
        _apply("capabilities", kernel.drop_capabilities)
        _apply("seccomp", seccomp.allow_only_the_list)


def _apply(name: str, make: Callable[[], None]) -> None:
    try:
        make()
    except OSError as error:
        raise LayerMissing(f"{name}: {kernel.error_text(error)}") from None
    except (kernel.Orphaned, ValueError) as error:
        raise LayerMissing(f"{name}: {error}") from None


class BrokenChannel(Exception):
    """The parent sent an invalid frame; the worker can only end."""


def run(channel: int, zygote_pid: int, allowed: SandboxLimits, *, unsafe: bool) -> NoReturn:
    """Run as a worker until the process ends. Must be called in a forked process only."""
    try:
        enter_sandbox(channel, zygote_pid, allowed, unsafe=unsafe)
    except LayerMissing as missing:
        _refuse(wire.LAYER_MISSING, str(missing))
    _forget_the_zygote()
    _serve(Channel(CHANNEL_FD))
    os._exit(0)


def _serve(channel: Channel) -> None:
    """Run one filter on batches; returns when the parent has closed its end."""
    first = channel.next_frame()
    if first is None:
        return
    version, group_bytes, name_bytes = wire.SOURCE_HEAD.unpack_from(first)
    at = wire.SOURCE_HEAD.size
    group = bytes(first[at : at + group_bytes]).decode()
    at += group_bytes
    name = bytes(first[at : at + name_bytes]).decode()
    source = bytes(first[at + name_bytes :])
    try:
        evaluate = runtime.LoadedFilter(source, group, name, version).evaluate
    except runtime.SetUpFailed as failed:
        outcome = wire.REFUSED_FOR_MEMORY if failed.kind == "memory" else wire.REFUSED
        _refuse(outcome, failed.reason)
    channel.send(wire.SETUP_REPLY.pack(wire.READY, b""))
    while (frame := channel.next_frame()) is not None:
        # The thread's clock: with RLIMIT_CPU, the process's clock only advances in ticks.
        began_ns = time.thread_time_ns()
        number, now_ms, topic_bytes = wire.REQUEST_HEAD.unpack_from(frame)
        at = wire.REQUEST_HEAD.size + topic_bytes
        topic = bytes(frame[wire.REQUEST_HEAD.size : at]).decode()
        (count,) = wire.REQUEST_COUNT.unpack_from(frame, at)
        records = frame[at + wire.REQUEST_COUNT.size :]
        results, failure, reason = evaluate(topic, now_ms, records, count)
        micros = (time.thread_time_ns() - began_ns) // 1_000
        reply = wire.REPLY_HEAD.pack(number, count, min(micros, 0xFFFF_FFFF), failure) + results
        channel.send(reply if reason is None else reply + wire.padded(reason))


class Channel:
    """The socket to the parent, used with read(2) and write(2), as seccomp allows no more."""

    __slots__ = ("_buffer", "_fd", "_file")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = FileIO(fd, "r", closefd=False)
        self._buffer = bytearray(BUFFER_BYTES)

    def next_frame(self) -> memoryview | None:
        """The next frame without its length, valid until the next call; None at the end.

        Most frames need one read, since the parent sends no second frame before the reply.
        """
        room = memoryview(self._buffer)
        have = self._read(room)
        while 0 < have < wire.LENGTH.size:
            have = self._more(room, have)
        if not have:
            return None
        (size,) = wire.LENGTH.unpack_from(room)
        if size > wire.REQUEST_BYTES_MAX:
            raise BrokenChannel(f"a frame of {size} bytes")
        end = wire.LENGTH.size + size
        if end > len(room):
            room, small = memoryview(bytearray(end)), room
            room[:have] = small[:have]
        while have < end:
            have = self._more(room, have)
        if have > end:
            raise BrokenChannel(f"{have - end} bytes behind a frame")
        return room[wire.LENGTH.size : end]

    def send(self, reply: bytes) -> None:
        """Send a reply completely. Raises OSError if the parent has closed its end."""
        sent = os.write(self._fd, reply)
        while sent < len(reply):
            sent += os.write(self._fd, reply[sent:])

    def _more(self, room: memoryview, have: int) -> int:
        read = self._read(room[have:])
        if not read:
            raise BrokenChannel("the parent closed its end within a frame")
        return have + read

    def _read(self, room: memoryview) -> int:
        # A blocking socket never returns None; the type allows it for other files.
        return self._file.readinto(room) or 0


def _refuse(outcome: int, reason: str) -> NoReturn:
    os.write(CHANNEL_FD, wire.SETUP_REPLY.pack(outcome, wire.padded(reason)))
    os._exit(1)


def _forget_the_zygote() -> None:
    """Remove what is left for imports and output: no file can be read or written now."""
    sys.stdin = sys.stdout = sys.stderr = None
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_importer_cache.clear()
    for name in _UNREACHABLE:
        sys.modules.pop(name, None)
