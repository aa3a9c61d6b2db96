"""A worker's loop: frames byte for byte, and what it does with such as never come."""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kourou_filter_server.sandbox import wire, worker
from kourou_filter_server.sandbox.limits import SandboxLimits
from kourou_rigs.forked import children_alone
from kourou_rigs.records import RecordRun

pytestmark = pytest.mark.usefixtures("prepared", "every_layer")

ALLOWED = SandboxLimits(memory_bytes=8 << 30, cpu_allowance_s=10, niceness=5)
SOURCE = b"def match(message, context): return message.tag == 'yes' or context.now_ms // 0"


class Peer:
    """The parent's end, by hand."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.channel = channel
        self.pid = pid
        self._ended = False

    def tell(self, frame: bytes) -> None:
        self.channel.sendall(struct.pack("<I", len(frame)) + frame)

    def hear(self, size: int) -> bytes:
        return self.channel.recv(size, socket.MSG_WAITALL)

    def begin(self, source: bytes = SOURCE) -> tuple[int, str]:
        self.tell(struct.pack("<IHH", 3, 1, 2) + b"G" + b"fi" + source)
        outcome, reason = struct.unpack("<I512s", self.hear(516))
        return outcome, reason.rstrip(b"\0").decode()

    def exit_code(self) -> int:
        """How it ends, when this end is closed."""
        self.channel.close()
        self._ended = True
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def started(*, zygote_pid: int | None = None, unsafe: bool = True) -> Iterator[Peer]:
    """A worker of this process; without most layers by default, since the test has other duties."""
    ours, theirs = socket.socketpair()
    parent = os.getpid() if zygote_pid is None else zygote_pid
    with children_alone():
        pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            os.dup2(os.open("/dev/null", os.O_RDWR), 0)
            worker.run(theirs.detach(), parent, ALLOWED, unsafe=unsafe)
        finally:
            os._exit(1)
    theirs.close()
    peer = Peer(ours, pid)
    try:
        yield peer
    finally:
        if not peer._ended:
            peer.exit_code()


def request(number: int, tags: list[str], topic: bytes = b"orders") -> bytes:
    run = RecordRun()
    for tag in tags:
        run.add("orders", 2, tag=tag)
    head = struct.pack("<IqH", number, 77, len(topic)) + topic
    return head + struct.pack("<I", len(tags)) + run.data


@pytest.mark.feature("F243")
@pytest.mark.parametrize("unsafe", [True, False])
def test_a_request_and_its_reply_byte_for_byte(unsafe: bool) -> None:
    with started(unsafe=unsafe) as peer:
        assert peer.begin() == (wire.READY, "")
        peer.tell(request(9, ["yes", "yes"]))
        number, count, micros, failure = struct.unpack("<IIII", peer.hear(16))
        assert (number, count, failure) == (9, 2, 0)
        assert 0 < micros < 1_000_000
        assert peer.hear(2) == b"\1\1"
        peer.tell(request(10, ["yes", "no"]))
        assert struct.unpack("<II4xI", peer.hear(16)) == (10, 2, 1)
        assert peer.hear(2) == b"\1\2"
        assert peer.hear(512).rstrip(b"\0").startswith(b"ZeroDivisionError")
        assert peer.exit_code() == 0


def test_a_batch_of_nothing_and_one_of_many_pieces() -> None:
    with started() as peer:
        peer.begin()
        peer.tell(request(1, []))
        assert struct.unpack("<II4xI", peer.hear(16)) == (1, 0, 0)
        frame = struct.pack("<I", len(request(2, ["yes"]))) + request(2, ["yes"])
        for at in range(0, len(frame), 3):
            peer.channel.sendall(frame[at : at + 3])
        assert struct.unpack("<II4xI", peer.hear(16)) == (2, 1, 0)
        assert peer.hear(1) == b"\1"


def test_a_request_larger_than_the_buffer() -> None:
    tags = ["yes"] * 4_000
    assert len(request(1, tags)) > worker.BUFFER_BYTES
    with started() as peer:
        peer.begin()
        for number in (1, 2):
            peer.tell(request(number, tags))
            assert struct.unpack("<II4xI", peer.hear(16)) == (number, 4_000, 0)
            assert peer.hear(4_000) == b"\1" * 4_000


def test_a_missing_layer_is_reported_before_any_source_is_read() -> None:
    with started(zygote_pid=1 << 22) as peer:
        outcome, reason = struct.unpack("<I512s", peer.hear(516))
        assert outcome == wire.LAYER_MISSING
        assert reason.startswith(b"parent-death signal: process")
        assert peer.exit_code() == 1


def behind(frame: bytes) -> Callable[[Peer], None]:
    return lambda peer: peer.channel.sendall(frame)


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(behind(struct.pack("<I", wire.REQUEST_BYTES_MAX + 1)), id="too long"),
        pytest.param(behind(struct.pack("<I", 2) + b"abc"), id="more behind it"),
        pytest.param(behind(struct.pack("<I", 9) + b"abc"), id="cut off"),
        pytest.param(behind(b"\1"), id="cut off in its length"),
    ],
)
def test_a_frame_that_never_comes_ends_the_worker(send: Callable[[Peer], None]) -> None:
    with started() as peer:
        peer.begin()
        send(peer)
        peer.channel.shutdown(socket.SHUT_WR)
        assert peer.channel.recv(1) == b""
        assert peer.exit_code() == 1


def test_nothing_can_be_imported_or_printed_any_more() -> None:
    reach = b"""
import enum
sys = enum.sys  # not on the list of modules, and yet to be had: this is why there is a sandbox
def match(message, context):
    assert sys.stdout is None and sys.stderr is None and sys.stdin is None
    assert "ctypes" not in sys.modules and "_ctypes" not in sys.modules
    assert sys.path == [] and sys.meta_path == []
    return True
"""
    with started() as peer:
        assert peer.begin(reach) == (wire.READY, "")
        peer.tell(request(1, ["yes"]))
        assert struct.unpack("<II4xI", peer.hear(16)) == (1, 1, 0)
