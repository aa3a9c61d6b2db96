"""A server: fair to many, hard on few, and never silent about who is gone.

Both kinds of it, in clear text and encrypted, keep the same promises to bare sockets of libzmq.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import zmq

from kourou.errors import ConfigError
from kourou.model import limits
from kourou.protocol.messages.namesrv import GetKvConfig
from kourou.protocol.wire.frames import encode_reply, encode_request
from kourou.runtime import Peer
from kourou.transport import curve_server, tcp_link, tcp_server
from kourou.transport.rate_limited_log import INTERVAL_MS, KINDS_MAX, RateLimitedLog
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_socket import arm_dealer, process_context
from kourou_rigs.clock import ManualClock

Host = Any  # tests/unit/transport/conftest.py
Connect = Callable[..., ZmqConnection]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
Dealer = Callable[..., zmq.Socket[bytes]]

ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000


@pytest.fixture(params=["clear", "curve"])
def make_host(request: pytest.FixtureRequest, make_host: Callable[..., Host], keys: Any) -> Any:
    """Makes servers in clear text, or encrypted ones; call it inside the test's loop."""
    extra = {"curve": keys.server} if request.param == "curve" else {}

    def make(**options: object) -> Host:
        host = make_host(**options, **extra)
        host.curve = keys.client if extra else None
        return host

    return make


@pytest.fixture
async def host(make_host: Callable[..., Host]) -> Host:
    return make_host()


@pytest.fixture
def dealer() -> Iterator[Callable[..., zmq.Socket[bytes]]]:
    """Makes bare DEALERs, for what our own client would never do."""
    made: list[zmq.Socket[bytes]] = []

    def make(host: Host, **options: object) -> zmq.Socket[bytes]:
        socket = process_context().socket(zmq.DEALER)
        made.append(socket)
        socket.set(zmq.LINGER, 0)
        for name, value in options.items():
            socket.set(getattr(zmq, name), value)
        if host.curve is not None:
            arm_dealer(socket, host.curve.own.pair, *host.curve.servers.of(host.address))
        socket.connect(f"tcp://{host.address}")
        return socket

    yield make
    for socket in made:
        socket.close()


@pytest.fixture
def raw(host: Host, dealer: Dealer) -> zmq.Socket[bytes]:
    return dealer(host)


def ask_frame(correlation: int = 1) -> bytes:
    return encode_request(ASK, correlation=correlation, deadline_ms=PATIENT_MS)


# -- fairness and foreign bytes


async def test_a_burst_is_taken_in_bounded_turns(
    host: Host, raw: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(limits, "FRAMES_PER_TURN_MAX", 10)
    monkeypatch.setattr(tcp_link, "READ_BYTES", 500)
    for number in range(95):
        raw.send(ask_frame(number))
    await until(lambda: len(host.frames) == 95)
    assert max(map(len, host.batches)) < 20, "ten, and what one read adds"
    assert [inbound.frame.correlation for inbound in host.frames] == list(range(95))


async def test_a_few_large_frames_fill_a_turn_too(
    host: Host, raw: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(limits, "FRAME_BYTES_PER_TURN_MAX", 3_000)
    monkeypatch.setattr(tcp_link, "READ_BYTES", 1_000)
    for number in range(20):
        raw.send_multipart([ask_frame(number), bytes(1_000)])
    await until(lambda: len(host.frames) == 20)
    assert max(map(len, host.batches)) <= 4


@pytest.mark.fault
async def test_garbage_is_counted_and_its_sender_cut_off(
    host: Host,
    raw: zmq.Socket[bytes],
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    until: Until,
) -> None:
    good = connect(host.address, curve=host.curve)
    await good.request(ASK, timeout_ms=PATIENT_MS)
    with caplog.at_level(logging.WARNING, "kourou.transport"):
        raw.send(ask_frame())
        for _ in range(limits.PEER_FAULTS_MAX + 20):
            raw.send(b"GET / HTTP/1.1")
        await until(lambda: bool(host.lost))
    statistics = host.server.statistics()
    assert statistics.frames_undecodable == limits.PEER_FAULTS_MAX
    assert statistics.peers_cut == 1
    complaints = [record.getMessage() for record in caplog.records]
    assert sum("dropping a frame from zmq:127.0.0.1" in text for text in complaints) == 1
    assert (await good.request(ASK, timeout_ms=PATIENT_MS)).code == 0
    assert len(host.lost) == 1


@pytest.mark.fault
async def test_too_many_parts_are_refused(host: Host, raw: zmq.Socket[bytes], until: Until) -> None:
    for size in (limits.FRAME_PARTS_MAX, 3 * limits.FRAME_PARTS_MAX):
        raw.send_multipart([ask_frame(1), *[b"part"] * size])
    raw.send_multipart([ask_frame(2), *[b"part"] * (limits.FRAME_PARTS_MAX - 1)])
    await until(lambda: bool(host.frames))
    assert [inbound.frame.correlation for inbound in host.frames] == [2]
    assert host.server.statistics().frames_undecodable == 2


@pytest.mark.fault
async def test_an_oversized_frame_costs_its_sender_the_connection(
    host: Host, raw: zmq.Socket[bytes], until: Until
) -> None:
    raw.send(ask_frame())
    await until(lambda: bool(host.frames))
    raw.send_multipart([ask_frame(), bytes(limits.FRAME_SIZE_BYTES_MAX + 100)])
    await until(lambda: bool(host.lost))
    assert len(host.frames) == 1


async def test_whoever_chooses_an_identity_shuts_nobody_out(
    host: Host, dealer: Dealer, until: Until
) -> None:
    first = dealer(host, IDENTITY=b"admin")
    first.send(ask_frame(1))
    if host.curve is not None:  # ROUTER would hold the name against its owner
        await until(lambda: host.server.statistics().peers_refused == 1)
        assert host.frames == []
        return
    await until(lambda: len(host.frames) == 1)
    dealer(host, IDENTITY=b"admin").send(ask_frame(2))
    await until(lambda: len(host.frames) == 2)
    assert host.frames[0].peer != host.frames[1].peer


# -- losing peers

_CLIENT = """
import sys, zmq
socket = zmq.Context().socket(zmq.DEALER)
if sys.argv[4:]:
    keys = [key.encode() for key in sys.argv[4:]]
    socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = keys
socket.connect("tcp://" + sys.argv[1])
for number in range(int(sys.argv[2])):
    socket.send(bytes.fromhex(sys.argv[3]))
sys.stdin.read()
"""


def start_client(host: Host, frames: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _CLIENT, host.address, str(frames), ask_frame().hex()]
    if host.curve is not None:
        pair = host.curve.own.pair
        command += [*host.curve.servers.of(host.address), pair.public, pair.secret]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


@pytest.mark.feature("F035")
@pytest.mark.fault
async def test_a_killed_client_is_reported_once_after_its_last_frame(
    host: Host, connect: Connect, rounds: Callable[[int], int], until: Until
) -> None:
    host.answering = False
    staying = connect(host.address, curve=host.curve)
    for _ in range(rounds(20)):
        before = len(host.frames)
        process = start_client(host, 50)
        try:
            await until(lambda before=before: len(host.frames) == before + 50)
            assert host.lost == []
            process.send_signal(signal.SIGKILL)
            await until(lambda: bool(host.lost))
        finally:
            process.kill()
            process.communicate()
        assert host.lost == [host.frames[-1].peer]
        assert not host.server.send(host.lost.pop(), [encode_reply(1, 0)])
    host.answering = True
    await staying.request(ASK, timeout_ms=PATIENT_MS)
    assert host.lost == []


async def test_frames_of_a_peer_that_left_are_not_lost(
    host: Host, dealer: Dealer, until: Until
) -> None:
    """It connects, speaks and leaves before anybody looks: all it said is heard, then its loss."""
    socket = dealer(host)
    for number in range(200):
        socket.send(ask_frame(number))
    socket.close(linger=5_000)
    await until(lambda: bool(host.lost))
    assert len(host.frames) == 200
    assert host.lost == [host.frames[0].peer]
    assert host.server.statistics().peers == 0


async def test_losing_is_noticed_while_the_server_drains(
    host: Host, connect: Connect, until: Until
) -> None:
    connection = connect(host.address, curve=host.curve)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    host.server.pause()
    connection.close()
    await until(lambda: bool(host.lost))


# -- peers that say nothing, in clear text (libzmq looks after the others)

GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x01NULL").ljust(64, b"\0")
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


@pytest.mark.fault
@pytest.mark.parametrize(
    "said", [b"", GREETING[:10], GREETING], ids=["nothing", "part", "no READY"]
)
@pytest.mark.parametrize("make_host", ["clear"], indirect=True)
async def test_who_does_not_finish_the_handshake_is_cut_off(
    make_host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch, until: Until, said: bytes
) -> None:
    monkeypatch.setattr(tcp_server, "SWEEP_S", 0.0)
    clock = ManualClock()
    host = make_host(clock=clock)
    _, writer = await asyncio.open_connection(host.server.host, host.server.port)
    writer.write(said)
    await until(lambda: host.server.statistics().peers == 1)
    clock.advance(limits.HANDSHAKE_MS_MAX - 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert host.server.statistics().peers_cut == 0
    clock.advance(1)
    await until(lambda: host.server.statistics().peers == 0)
    writer.close()


@pytest.mark.fault
@pytest.mark.feature("F042")
@pytest.mark.parametrize("make_host", ["clear"], indirect=True)
async def test_who_answers_no_probe_is_cut_off(
    make_host: Callable[..., Host],
    monkeypatch: pytest.MonkeyPatch,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tcp_server, "SWEEP_S", 0.0)
    host = make_host()
    reader, writer = await asyncio.open_connection(host.server.host, host.server.port)
    writer.write(GREETING + READY)
    await until(lambda: bool(host.lost))
    assert "it has been silent for 6 s" in caplog.text
    assert b"\x04\x07\x04PING\0\0" in await reader.read()
    writer.close()


@pytest.mark.fault
@pytest.mark.parametrize("make_host", ["clear"], indirect=True)
async def test_who_never_ends_a_message_is_cut_off(
    make_host: Callable[..., Host],
    monkeypatch: pytest.MonkeyPatch,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It answers probes and sends a part now and then, so it is neither silent nor stuck."""
    monkeypatch.setattr(tcp_server, "SWEEP_S", 0.0)
    monkeypatch.setattr(limits, "PEER_SILENT_PROBES_MAX", 1 << 30)
    clock = ManualClock()
    host = make_host(clock=clock)
    _, writer = await asyncio.open_connection(host.server.host, host.server.port)
    writer.write(GREETING + READY)
    await until(lambda: host.server.statistics().bytes_in == len(GREETING + READY))
    for number in range(3):
        clock.advance(limits.DEADLINE_MS_MAX // 3)
        writer.write(b"\x01\x01a")
        size = len(GREETING + READY) + 3 * (number + 1)
        await until(lambda sent=size: host.server.statistics().bytes_in == sent)
    assert host.lost == []
    clock.advance(limits.DEADLINE_MS_MAX // 3)
    await until(lambda: host.server.statistics().peers == 0)
    assert f"its message is not whole after {limits.DEADLINE_MS_MAX} ms" in caplog.text
    writer.close()


# -- peers that do not read


@pytest.fixture
def stuck(host: Host, dealer: Dealer) -> zmq.Socket[bytes]:
    """A client that takes one message into its queue and reads none."""
    socket = dealer(host, RCVHWM=1)
    socket.send(ask_frame())
    return socket


async def fill(host: Host, peer: Peer, part: bytes) -> int:
    """Send until the server has to queue; the number sent so far.

    The two systems' buffers grow for a while, so that a short queue may still leave.
    """
    sent = 0
    enough = 1 if host.curve is not None else 20_000_000
    while host.server.statistics().queued_bytes < enough:
        assert host.server.send(peer, [encode_reply(sent, 0), part])
        sent += 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return sent


async def test_a_slow_peer_gets_everything_in_order(
    host: Host, stuck: zmq.Socket[bytes], until: Until
) -> None:
    host.answering = False
    await until(lambda: bool(host.frames))
    peer = host.frames[0].peer
    sent = await fill(host, peer, bytes(100_000))
    for number in range(sent, sent + 50):
        assert host.server.send(peer, [encode_reply(number, 0), b"tail"])
    got: list[bytes] = []
    while len(got) < sent + 50:
        try:
            got.append(stuck.recv_multipart(zmq.NOBLOCK)[0])
        except zmq.Again:
            await asyncio.sleep(0)
    assert got == [encode_reply(number, 0) for number in range(sent + 50)]
    await until(lambda: host.server.statistics().queued_bytes == 0)
    assert host.lost == []


@pytest.mark.fault
async def test_a_peer_stuck_for_five_seconds_is_cut_off(
    make_host: Callable[..., Host],
    dealer: Dealer,
    monkeypatch: pytest.MonkeyPatch,
    until: Until,
) -> None:
    monkeypatch.setattr(tcp_server, "SWEEP_S", 0.0)
    monkeypatch.setattr(limits, "PEER_SILENT_PROBES_MAX", 1 << 30)
    monkeypatch.setattr(curve_server, "RETRY_INTERVAL_S", 0.0)
    clock = ManualClock()
    host = make_host(clock=clock)
    host.answering = False
    dealer(host, RCVHWM=1).send(ask_frame())
    await until(lambda: bool(host.frames))
    peer = host.frames[0].peer
    await fill(host, peer, bytes(100_000))
    clock.advance(limits.PEER_STUCK_MS_MAX - 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert host.lost == []
    while not host.lost:  # its system may still have taken some of what waits
        clock.advance(limits.PEER_STUCK_MS_MAX)
        await asyncio.sleep(0)
    assert host.lost == [peer]
    assert host.server.statistics().queued_bytes == 0


@pytest.mark.fault
async def test_a_peer_whose_queue_overflows_is_cut_off(
    host: Host, stuck: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    host.answering = False
    await until(lambda: bool(host.frames))
    peer = host.frames[0].peer
    await fill(host, peer, bytes(100_000))
    waiting = host.server.statistics().queued_bytes
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", waiting + 150_000)
    assert host.server.send(peer, [encode_reply(1, 0), bytes(100_000)])
    assert not host.server.send(peer, [encode_reply(2, 0), bytes(100_000)])
    await until(lambda: bool(host.lost))
    assert host.lost == [peer]
    assert host.server.statistics().peers_cut == 1


# -- addresses


async def test_a_taken_port_is_one_clear_sentence(
    host: Host, make_host: Callable[..., Host]
) -> None:
    with pytest.raises(ConfigError, match=f"port {host.server.port} on 127.0.0.1 is taken"):
        make_host(bind=host.address)


# -- A flood of one kind of trouble is one line, and the next line owns up to the rest -------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> RateLimitedLog:
    return RateLimitedLog(logging.getLogger("test"), clock)


def test_one_line_an_interval_and_event(
    log: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        log.warning("frame-bad: bad %(number)d", {"number": 1})
    log.warning("frame-worse: 100 % worse")
    assert caplog.messages == ["frame-bad: bad 1", "frame-worse: 100 % worse"]
    clock.advance(INTERVAL_MS)
    log.warning("frame-bad: bad %(number)d", {"number": 2})
    assert caplog.messages[-1] == "frame-bad: bad 2 (and 4 more like this since)"
    assert caplog.records[-1].args == {"number": 2, "left_out": 4}
    clock.advance(INTERVAL_MS)
    log.warning("frame-bad: bad %(number)d", {"number": 3})
    assert caplog.messages[-1] == "frame-bad: bad 3"


def test_an_event_of_another_kind_is_logged_all_the_same(
    log: RateLimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        for peer in ("a", "b"):
            log.warning("frame-bad: bad from %(peer)s", {"peer": peer}, kind=peer)
    assert caplog.messages == ["frame-bad: bad from a", "frame-bad: bad from b"]
    clock.advance(INTERVAL_MS)
    log.warning("frame-bad: worse", kind="a")
    assert caplog.messages[-1] == "frame-bad: worse (and 1 more like this since)"


def test_memory_is_bounded(log: RateLimitedLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(KINDS_MAX + 5):
        log.warning("frame-bad: x", kind=str(number))
    assert len(log._last_ms) <= KINDS_MAX
    assert len(caplog.records) == KINDS_MAX + 5
