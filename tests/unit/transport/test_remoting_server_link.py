"""One connection: frames out of a stream without copying, a queue that counts what it costs."""

from __future__ import annotations

import random
import socket as socketlib
from collections.abc import Iterator

import pytest

from kourou.errors import DecodeError
from kourou.protocol.wire.remoting import RemotingCommand, encode_command, read_lengths
from kourou.runtime.core import Peer
from kourou.transport.remoting_server import RawFrame, RemotingLink
from kourou.transport.tcp_link import QUEUED_OVERHEAD_BYTES

PEER = Peer(1, "tcp", ("127.0.0.1", 1))


@pytest.fixture
def ends() -> Iterator[tuple[RemotingLink, socketlib.socket]]:
    near, far = socketlib.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    yield RemotingLink(near, PEER, 1), far
    near.close()
    far.close()


def frame(number: int, body: bytes = b"") -> bytes:
    return encode_command(RemotingCommand(10, opaque=number, body=body))


def whole(found: RawFrame, sent: bytes) -> bool:
    _, header_type, size = read_lengths(sent, 0)
    return (found.header_type, bytes(found.header), bytes(found.body)) == (
        header_type,
        sent[8 : 8 + size],
        sent[8 + size :],
    )


def test_frames_of_one_read_are_views_of_the_same_bytes(
    ends: tuple[RemotingLink, socketlib.socket],
) -> None:
    link, far = ends
    sent = [frame(number, b"x" * number) for number in range(10)]
    far.send(b"".join(sent))
    frames: list[RawFrame] = []
    assert link.read(frames, 5) == sum(map(len, sent))
    assert all(whole(found, each) for found, each in zip(frames, sent, strict=True))
    assert len({id(found.body.obj) for found in frames}) == 1
    assert (link.unfinished_bytes, link.unfinished_since_ms) == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_wherever_the_stream_is_cut_the_frames_are_the_same(
    ends: tuple[RemotingLink, socketlib.socket], seed: int
) -> None:
    link, far = ends
    chance = random.Random(seed)
    sent = [frame(n, chance.randbytes(chance.choice([0, 3, 500, 90_000]))) for n in range(12)]
    stream = b"".join(sent)
    frames: list[RawFrame] = []
    while stream or len(frames) < len(sent):
        if stream:
            far.send(stream[: (size := chance.choice([1, 7, 8, 9, 1_000, 60_000]))])
            stream = stream[size:]
        try:
            while True:
                link.read(frames, 1)
        except BlockingIOError:
            continue
    assert all(whole(found, each) for found, each in zip(frames, sent, strict=True))


def test_an_unfinished_frame_takes_what_has_come_of_it_and_knows_since_when(
    ends: tuple[RemotingLink, socketlib.socket],
) -> None:
    link, far = ends
    sent = frame(1, bytes(1_000_000))
    frames: list[RawFrame] = []
    at = 0
    for size in (3, 5, 1_000, 100_000, 100_000):
        far.send(sent[at : at + size])
        at += size
        for _ in range(3):
            try:
                link.read(frames, 10 + at)
            except BlockingIOError:
                break
        assert link.unfinished_bytes <= max(4 * at, 65_536)
        assert link.unfinished_since_ms == 13, "when its first bytes came"
    assert frames == []
    link.forget()
    assert link.unfinished_bytes == 0


def test_bad_bytes_leave_the_frames_before_them(
    ends: tuple[RemotingLink, socketlib.socket],
) -> None:
    link, far = ends
    far.send(frame(1) + b"HEAD / HTTP/1.1\r\n")
    frames: list[RawFrame] = []
    with pytest.raises(DecodeError, match="the peer uses HTTP"):
        link.read(frames, 1)
    assert whole(frames[0], frame(1))
    far.close()


def test_what_waits_is_counted_with_what_it_costs(
    ends: tuple[RemotingLink, socketlib.socket],
) -> None:
    link, far = ends
    link.put((b"ab", b"", memoryview(b"cde")))
    assert link.queued_bytes == 5 + 2 * QUEUED_OVERHEAD_BYTES
    assert link.write(7) == 5
    assert (link.queued_bytes, link.blocked_since_ms, link.last_ms) == (0, 0, 7)
    assert far.recv(10) == b"abcde"


@pytest.mark.fault
def test_what_a_full_socket_leaves_goes_on_where_it_was_cut(
    ends: tuple[RemotingLink, socketlib.socket],
) -> None:
    link, far = ends
    chance = random.Random(3)
    pieces = [chance.randbytes(chance.randrange(1, 3_000)) for _ in range(3_000)]
    link.put(pieces)
    arrived = bytearray()
    now_ms = 100
    while len(arrived) < sum(map(len, pieces)):
        now_ms += 1
        written = link.write(now_ms)
        assert link.blocked_since_ms == (now_ms if link.queue else 0) or not written
        assert link.queued_bytes == sum(len(each) + QUEUED_OVERHEAD_BYTES for each in link.queue)
        arrived += far.recv(200_000)
    assert arrived == b"".join(pieces)


@pytest.mark.fault
def test_since_when_nothing_leaves_is_known(ends: tuple[RemotingLink, socketlib.socket]) -> None:
    link, _ = ends
    link.put([bytes(10_000_000)])
    assert link.write(50) > 0
    assert link.blocked_since_ms == 50
    assert link.write(60) == 0
    assert (link.blocked_since_ms, link.last_ms) == (50, 50)
    link.put([bytes(64 * 1024 * 1024)])
    assert link.overfull
