"""ZeroMQ's protocol: messages out of a stream however it is cut, handshakes, probes, nonsense."""

from __future__ import annotations

import random
import socket as socketlib
from collections.abc import Callable, Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import DecodeError
from kourou.model import limits
from kourou.runtime import Peer
from kourou.transport.tcp_link import Buffer
from kourou.transport.zmtp import (
    DEALER,
    GREETING_BYTES,
    JOIN_BYTES,
    ROUTER,
    OtherMechanism,
    Parts,
    ZmtpLink,
    encode_message,
)

PEER = Peer(1, "zmq", ("127.0.0.1", 1))
GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x01NULL").ljust(GREETING_BYTES, b"\0")
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
PING, PONG = b"\x04\x0b\x04PING\0\0abcd", b"\x04\x09\x04PONGabcd"

Ends = tuple[ZmtpLink, socketlib.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A server's end of a connection, and the bare other end."""
    near, far = socketlib.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    yield ZmtpLink(near, PEER, 1, ROUTER), far
    near.close()
    far.close()


@pytest.fixture
def served(ends: Ends) -> Ends:
    """The same, after the handshake."""
    link, far = ends
    far.send(GREETING + READY)
    assert read(link) == []
    assert link.ready
    link.write(1)
    far.recv(1_000)
    return ends


def read(link: ZmtpLink) -> list[list[bytes]]:
    frames: list[Parts] = []
    try:
        while link.read(frames, 1):
            pass
    except BlockingIOError:
        pass
    return [[bytes(part) for part in parts] for parts in frames]


def whole(parts: list[bytes]) -> bytes:
    return b"".join(encode_message(list(parts)))


def test_a_message_is_encoded_as_the_protocol_says() -> None:
    assert whole([b"ab", b"", b"c" * 256]) == (
        b"\x01\x02ab" + b"\x01\x00" + b"\x02" + (256).to_bytes(8, "big") + b"c" * 256
    )


def test_small_parts_travel_in_one_buffer_and_large_ones_are_not_copied() -> None:
    large = bytes(JOIN_BYTES + 1)
    parts: list[Buffer] = [b"head", large, b"tail", b"end"]
    first, second, third = encode_message(parts)
    assert bytes(first).endswith(large[:0] + (JOIN_BYTES + 1).to_bytes(8, "big"))
    assert second is large
    assert bytes(third) == b"\x01\x04tail\x00\x03end"


@pytest.mark.parametrize("seed", range(5))
def test_wherever_the_stream_is_cut_the_messages_are_the_same(ends: Ends, seed: int) -> None:
    link, far = ends
    chance = random.Random(seed)
    sizes = [0, 1, 255, 256, 5_000, 90_000]
    sent = [
        [chance.randbytes(chance.choice(sizes)) for _ in range(chance.randrange(1, 5))]
        for _ in range(12)
    ]
    stream = GREETING + READY + b"".join(PING + whole(parts) for parts in sent)
    found: list[list[bytes]] = []
    while stream:
        size = chance.choice([1, 2, 8, 9, 63, 64, 1_000, 60_000])
        far.send(stream[:size])
        stream = stream[size:]
        found += read(link)
    assert found == sent
    assert (link.unfinished_bytes, link.unfinished_since_ms) == (0, 0)


def test_messages_of_one_read_are_views_of_the_same_bytes(served: Ends) -> None:
    link, far = served
    far.send(b"".join(whole([b"%d" % number, b"body"]) for number in range(10)))
    frames: list[Parts] = []
    link.read(frames, 1)
    assert [bytes(head) for head, _ in frames] == [b"%d" % number for number in range(10)]
    assert len({id(memoryview(part).obj) for parts in frames for part in parts}) == 1


def test_the_handshake_says_what_this_side_is(ends: Ends) -> None:
    link, far = ends
    link.write(1)
    assert far.recv(1_000) == GREETING
    far.send(GREETING)
    assert read(link) == []
    assert not link.ready
    link.write(1)
    assert far.recv(1_000) == (
        b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06ROUTER\x08Identity\0\0\0\0"
    )
    far.send(READY)
    read(link)
    assert link.ready


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"GET / HTTP/1.1", "the peer does not use ZeroMQ: its first bytes are b'GET / HT'"),
        (GREETING[:9] + b"\0" + GREETING[10:], "another signature"),
        (GREETING[:10] + b"\x01" + GREETING[11:], "a ZMTP before 3.0"),
        (GREETING + READY.replace(b"DEALER", b"PULL\0\0"), "its socket is a PULL"),
        (GREETING + b"\x04\x06\x05READY", r"its socket is a \?"),
        (GREETING + b"\x04\x0d\x05READY\x0bSocket", r"its socket is a \?"),
        (GREETING + b"\x00\x02hi", "a message before its handshake was done"),
        (GREETING + b"\x04\x0e\x05ERROR\x07go away", "it refused: go away"),
        (GREETING + b"\x40\x00", "the unknown flags 0x40"),
    ],
)
def test_what_is_no_handshake_is_refused_with_the_reason(
    ends: Ends, stream: bytes, why: str
) -> None:
    link, far = ends
    far.send(stream)
    with pytest.raises(DecodeError, match=why):
        read(link)


def test_another_mechanism_is_recognized(ends: Ends) -> None:
    link, far = ends
    far.send(GREETING.replace(b"NULL\0", b"CURVE"))
    with pytest.raises(OtherMechanism, match=r"requires CURVE.*curveKeyFile"):
        read(link)


@pytest.mark.fault
@pytest.mark.parametrize("head", [b"\x02" + b"\xff" * 8, b"\x03" + (1 << 40).to_bytes(8, "big")])
def test_a_claim_of_too_much_costs_nothing(served: Ends, head: bytes) -> None:
    link, far = served
    far.send(whole([b"before"]) + head)
    frames: list[Parts] = []
    with pytest.raises(DecodeError, match=f"at most {limits.FRAME_SIZE_BYTES_MAX} are allowed"):
        link.read(frames, 1)
    assert len(frames) == 1
    assert link.unfinished_bytes == 0


@pytest.mark.fault
def test_a_message_without_an_end_is_counted_and_bounded(served: Ends) -> None:
    link, far = served
    for _ in range(100):
        far.send(b"\x03" + (10_000).to_bytes(8, "big") + bytes(10_000))
        assert read(link) == []
    assert link.unfinished_bytes == (limits.FRAME_PARTS_MAX + 1) * 10_000
    far.send(b"\x00\x00")
    [parts] = read(link)
    assert len(parts) == limits.FRAME_PARTS_MAX + 1, "enough to refuse it"
    assert link.unfinished_bytes == 0


@pytest.mark.fault
def test_a_part_that_is_kept_does_not_keep_what_arrived_with_it(served: Ends) -> None:
    """Else nine small parts would keep nine reads, and count as nothing."""
    link, far = served
    far.send(whole([bytes(30_000)]) + b"\x01\x01a")
    assert len(read(link)) == 1
    half = 1 << 14
    far.send(b"\x03" + half.to_bytes(8, "big") + bytes(half) + b"\x01\x01b")
    assert read(link) == []
    kept = [len(part.obj) if isinstance(part, memoryview) else len(part) for part in link._parts]
    assert kept[::2] == [1, 1]
    assert kept[1] < 2 * half, "and a large part is not copied for a few bytes"
    far.send(b"\x00\x01c")
    assert [list(map(len, parts)) for parts in read(link)] == [[1, half, 1, 1]]


@pytest.mark.fault
def test_an_incomplete_message_is_as_old_as_its_first_part(served: Ends) -> None:
    link, far = served
    frames: list[Parts] = []
    for now_ms, data in ((5, b"\x01\x01a"), (6, b"\x01\x01b"), (7, b"\x01\x05")):
        far.send(data)
        link.read(frames, now_ms)
        assert link.incomplete_since_ms == 5
    far.send(b"12345\x00\x00" + b"\x01\x01c")
    link.read(frames, 8)  # what completes the part
    link.read(frames, 8)  # and what follows it
    assert link.incomplete_since_ms == 8, "of the message that began now"
    far.send(b"\x00\x00")
    link.read(frames, 9)
    assert link.incomplete_since_ms == 0
    assert len(frames) == 2


@pytest.mark.fault
@pytest.mark.parametrize("seed", range(50))
def test_damaged_streams_end_in_a_decode_error_or_in_messages(ends: Ends, seed: int) -> None:
    link, far = ends
    chance = random.Random(seed)
    stream = bytearray(GREETING + READY + whole([b"a" * 50, b"b" * 300]) * 20)
    for _ in range(chance.randrange(1, 8)):
        stream[chance.randrange(len(stream))] = chance.randrange(256)
    far.send(stream)
    far.shutdown(socketlib.SHUT_WR)
    try:
        read(link)
    except DecodeError:
        return
    assert link.unfinished_bytes <= limits.FRAME_SIZE_BYTES_MAX


# -- probes


def test_a_ping_is_answered_with_what_it_brought(served: Ends) -> None:
    link, far = served
    far.send(PING)
    assert read(link) == []
    link.write(1)
    assert far.recv(1_000) == PONG


@pytest.mark.fault
def test_who_pings_and_does_not_read_gets_few_answers(served: Ends) -> None:
    link, far = served
    for _ in range(20):
        far.send(PING * 1_000)
        assert read(link) == []
    assert 0 < link.queued_bytes < 10_000
    while link.queue:
        link.write(1)
        far.recv(100_000)
    far.send(PING)
    read(link)
    link.write(1)
    assert far.recv(1_000) == PONG


def test_who_was_silent_is_asked_and_who_answers_is_silent_no_more(served: Ends) -> None:
    link, far = served
    link.probe()
    assert not link.queue, "something came since the last time"
    link.probe()
    link.write(1)
    assert far.recv(1_000) == b"\x04\x07\x04PING\0\0"
    assert link.silent_probes == 2
    far.send(b"\x04\x05\x04PONG")
    read(link)
    assert link.silent_probes == 0


def test_a_library_that_knows_no_probes_is_not_asked(ends: Ends) -> None:
    link, far = ends
    far.send(GREETING.replace(b"\x03\x01", b"\x03\x00") + READY)
    read(link)
    link.write(1)
    far.recv(1_000)
    for _ in range(10):
        link.probe()
    assert (link.silent_probes, len(link.queue)) == (0, 0)


# -- the library itself


@pytest.mark.parametrize("kind", [zmq.DEALER, zmq.ROUTER, zmq.REQ])
def test_libzmq_takes_this_for_a_router(
    kind: int, make_socket: Callable[[int], zmq.Socket[bytes]]
) -> None:
    with socketlib.create_server(("127.0.0.1", 0)) as listener:
        socket = make_socket(kind)
        socket.set(zmq.HEARTBEAT_IVL, 50)
        if kind == zmq.ROUTER:
            socket.set(zmq.PROBE_ROUTER, 1)
        socket.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        near, _ = listener.accept()
    with near:
        if kind != zmq.ROUTER:
            socket.send(b"hello")
        link = ZmtpLink(near, PEER, 1, ROUTER)
        frames: list[Parts] = []
        while not frames:
            link.write(1)
            assert link.read(frames, 1), "it did not hang up"
        assert bytes(frames[0][-1]) == (b"" if kind == zmq.ROUTER else b"hello")
        if kind == zmq.DEALER:
            link.put_message([b"answer", bytes(100_000)])
            link.write(1)
            assert socket.recv_multipart() == [b"answer", bytes(100_000)]


def test_libzmq_takes_this_for_a_dealer(make_socket: Callable[[int], zmq.Socket[bytes]]) -> None:
    router = make_socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    with socketlib.create_connection(("127.0.0.1", port)) as near:
        link = ZmtpLink(near, PEER, 1, DEALER)
        while not link.ready:
            link.write(1)
            assert link.read([], 1), "it did not hang up"
        link.put_message([b"question", bytes(100_000)])
        link.write(1)
        name, *parts = router.recv_multipart()
        assert parts == [b"question", bytes(100_000)]
        router.send_multipart([name, b"answer"])
        frames: list[Parts] = []
        while not frames:
            assert link.read(frames, 1), "it did not hang up"
        assert [bytes(part) for part in frames[0]] == [b"answer"]


PIECES = st.sampled_from(
    [GREETING, GREETING[:20], READY, PING, PONG, b"\x05READY", b"\x04\x06\x05READY", b"\x05ERROR",
     b"\x01\x02ab", b"\x00\x01c", b"\x02" + bytes(7) + b"\x05hello", b"\x03" + b"\xff" * 8,
     b"\x04\x0c\x05READY\x01a\xff\xff\xff\xff", GREETING.replace(b"NULL", b"CURVE"[:4])]
)  # fmt: skip


@pytest.mark.fuzz
@given(st.lists(PIECES | st.binary(max_size=80), max_size=8).map(b"".join), st.booleans())
def test_any_stream_is_messages_or_a_decode_error(stream: bytes, greeted: bool) -> None:
    """The handshake with its properties, commands and parts; nothing is kept of what is refused."""
    near, far = socketlib.socketpair()
    with near, far:
        near.setblocking(False)
        link = ZmtpLink(near, PEER, 1, ROUTER)
        far.sendall((GREETING + READY if greeted else b"") + stream)
        try:
            messages = read(link)
        except DecodeError:
            return
        assert all(len(parts) <= limits.FRAME_PARTS_MAX + 1 for parts in messages)
        assert link.unfinished_bytes < 1 << 20
