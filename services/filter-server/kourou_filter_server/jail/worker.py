"""The main function of a worker: sandbox, then one filter, then batches until the parent ends it.

Once the source has been read, a hostile filter may control everything in this process, including
this loop. So nothing here protects the parent: it trusts no byte, and enforces the deadlines.

State: soft.
"""

from __future__ import annotations

import os
import sys
import time
from io import FileIO
from typing import NoReturn

from kourou_filter_server.jail import runtime, walls, wire
from kourou_filter_server.jail.descriptors import CHANNEL_FD
from kourou_filter_server.jail.limits import SandboxLimits

BUFFER_BYTES = 256 * 1024
"""The buffer that is kept for requests; a larger request gets a temporary buffer of its own."""

_UNREACHABLE = ("ctypes", "_ctypes", "ctypes._endian", "kourou_filter_server.jail.kernel")
"""Modules that the sandbox set-up needs and filters must not have."""


class BrokenChannel(Exception):
    """The parent sent an invalid frame; the worker can only end."""


def run(channel: int, zygote_pid: int, allowed: SandboxLimits, *, unsafe: bool) -> NoReturn:
    """Run as a worker until the process ends. Must be called in a forked process only."""
    try:
        walls.build(channel, zygote_pid, allowed, unsafe=unsafe)
    except walls.WallMissing as missing:
        _refuse(wire.WALL_MISSING, str(missing))
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
        judge = runtime.Filter(source, group, name, version).judge
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
        verdicts, failure, reason = judge(topic, now_ms, records, count)
        micros = (time.thread_time_ns() - began_ns) // 1_000
        reply = wire.REPLY_HEAD.pack(number, count, min(micros, 0xFFFF_FFFF), failure) + verdicts
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
