"""A worker's life: walls, then one filter, then batches until its parent has had enough.

From the moment the source has been read, everything in this process may be in the filter's hands,
this loop included. So nothing here protects the parent: it believes no byte, and keeps the time.

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
from kourou_filter_server.jail.limits import JailLimits

BUFFER_BYTES = 256 * 1024
"""Kept for requests; a larger one has a buffer of its own for as long as it is judged."""

_UNREACHABLE = ("ctypes", "_ctypes", "ctypes._endian", "kourou_filter_server.jail.kernel")
"""What was needed for the walls, and is no business of filters."""


class BrokenChannel(Exception):
    """The parent sent what it never sends; there is nothing to be done but to end."""


def run(channel: int, zygote_pid: int, allowed: JailLimits, *, unsafe: bool) -> NoReturn:
    """Be a worker until the end of this process; only ever called in a forked one."""
    try:
        walls.build(channel, zygote_pid, allowed, unsafe=unsafe)
    except walls.WallMissing as missing:
        _refuse(wire.WALL_MISSING, str(missing))
    _forget_the_zygote()
    _serve(Channel(CHANNEL_FD))
    os._exit(0)


def _serve(channel: Channel) -> None:
    """One filter over batches; returns when the parent has closed its end."""
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
        # The thread's clock: where RLIMIT_CPU is set, the process's own moves from tick to tick.
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
    """The socket to the parent, with read(2) and write(2), which is all that seccomp leaves."""

    __slots__ = ("_buffer", "_fd", "_file")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = FileIO(fd, "r", closefd=False)
        self._buffer = bytearray(BUFFER_BYTES)

    def next_frame(self) -> memoryview | None:
        """The next frame without its length, valid until the next call; None at the end.

        Most frames come with one read, since the parent sends no second one before the reply.
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
        """Write it whole. Raises OSError when the parent has closed its end."""
        sent = os.write(self._fd, reply)
        while sent < len(reply):
            sent += os.write(self._fd, reply[sent:])

    def _more(self, room: memoryview, have: int) -> int:
        read = self._read(room[have:])
        if not read:
            raise BrokenChannel("the parent closed its end within a frame")
        return have + read

    def _read(self, room: memoryview) -> int:
        # A socket that blocks gives no None; the type says so for files that do not.
        return self._file.readinto(room) or 0


def _refuse(outcome: int, reason: str) -> NoReturn:
    os.write(CHANNEL_FD, wire.SETUP_REPLY.pack(outcome, wire.padded(reason)))
    os._exit(1)


def _forget_the_zygote() -> None:
    """Leave nothing to import and nobody to print to; whatever files hold cannot be read now."""
    sys.stdin = sys.stdout = sys.stderr = None
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_importer_cache.clear()
    for name in _UNREACHABLE:
        sys.modules.pop(name, None)
