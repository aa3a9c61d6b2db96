"""The promises of the ZeroMQ server and client, with real sockets and real processes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket as socketlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import uvloop
import zmq

from kourou.clock import SystemClock
from kourou.engine.peer import Peer
from kourou.errors import ConfigError, KourouError, TimedOut, Unavailable, UnknownOutcome
from kourou.model import limits
from kourou.protocol.frames import (
    Frame,
    Kind,
    decode_request,
    encode_reply,
    encode_request,
)
from kourou.protocol.messages.namesrv import (
    GetKvConfig,
    GetKvConfigResponse,
    GetNamesrvConfig,
    QueryDataVersion,
)
from kourou.testing.clock import ManualClock
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_context import process_context
from kourou.transport.zmq_server import Inbound, ZmqServer

ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000
HASTY_MS = 60


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something is so; the test's own timeout ends it otherwise."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
        await asyncio.sleep(0)


class Host:
    """A server that records what it is told and answers as it is told."""

    def __init__(self, **options: object) -> None:
        self.batches: list[list[Inbound]] = []
        self.lost: list[Peer] = []
        self.answering = True
        self.server = ZmqServer(
            str(options.pop("bind", "127.0.0.1:0")),
            self._frames,
            self.lost.append,
            **options,  # type: ignore[arg-type]  # a test's shorthand
        )
        self.server.start()

    @property
    def frames(self) -> list[Inbound]:
        return [inbound for batch in self.batches for inbound in batch]

    @property
    def address(self) -> str:
        return self.server.address

    def _frames(self, batch: list[Inbound]) -> None:
        self.batches.append(batch)
        if self.answering:
            for inbound in batch:
                if inbound.frame.kind is Kind.REQUEST:
                    self.answer(inbound)

    def answer(self, inbound: Inbound) -> None:
        header = GetKvConfigResponse(value="v")
        head = encode_reply(inbound.frame.correlation, 0, "well", header)
        self.server.send(inbound.peer, [head, *inbound.frame.body])


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    made = Host()
    yield made
    made.server.close()


@pytest.fixture
def raw(host: Host) -> Iterator[zmq.Socket[bytes]]:
    """A bare DEALER for what our own client would never do."""
    socket = process_context().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.connect(f"tcp://{host.address}")
    yield socket
    socket.close()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., ZmqConnection]]:
    opened: list[ZmqConnection] = []

    def make(address: str, **options: object) -> ZmqConnection:
        connection = ZmqConnection(address, **options)  # type: ignore[arg-type]  # see Host
        opened.append(connection)
        return connection

    yield make
    for connection in opened:
        connection.close()


Connect = Callable[..., ZmqConnection]


def ask_frame(correlation: int = 1) -> bytes:
    return encode_request(ASK, correlation=correlation, deadline_ms=PATIENT_MS)


# -- the ordinary ----------------------------------------------------------------------------------


@pytest.mark.feature("F041")
async def test_a_request_is_answered(host: Host, connect: Connect) -> None:
    reply = await connect(host.address).request(ASK, body=(b"one", b"two"), timeout_ms=PATIENT_MS)
    assert (reply.code, reply.remark) == (0, "well")
    assert reply.header == GetKvConfigResponse(value="v")
    assert [bytes(part) for part in reply.body] == [b"one", b"two"]
    assert decode_request(host.frames[0].frame) == ASK
    assert 0 < host.frames[0].frame.deadline_ms <= PATIENT_MS


@pytest.mark.feature("F041")
async def test_many_requests_share_a_connection(host: Host, connect: Connect) -> None:
    connection = connect(host.address)
    bodies = [str(number).encode() for number in range(500)]
    replies = await asyncio.gather(
        *(connection.request(ASK, body=(body,), timeout_ms=PATIENT_MS) for body in bodies)
    )
    assert [bytes(reply.body[0]) for reply in replies] == bodies
    assert len({inbound.peer.id for inbound in host.frames}) == 1


@pytest.mark.parametrize("size", [0, 1, 8_192, 131_072, 4 * 1024 * 1024])
async def test_bodies_of_any_size_arrive_unchanged(host: Host, connect: Connect, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    reply = await connect(host.address).request(ASK, body=(body,), timeout_ms=PATIENT_MS)
    assert bytes(reply.body[0]) == body


def test_everything_works_on_uvloop() -> None:
    async def talk() -> int:
        host = Host()
        connection = ZmqConnection(host.address)
        replies = await asyncio.gather(
            *(connection.request(ASK, timeout_ms=PATIENT_MS) for _ in range(100))
        )
        connection.close()
        await until(lambda: bool(host.lost))
        host.server.close()
        return len(replies)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(talk()) == 100


async def test_oneway_is_not_answered_and_a_notice_is_heard(host: Host, connect: Connect) -> None:
    heard: list[Frame] = []
    connection = connect(host.address, on_notify=heard.append)
    connection.oneway(ASK, body=(b"x",))
    await until(lambda: bool(host.frames))
    assert host.frames[0].frame.kind is Kind.ONEWAY
    notice = encode_request(GetNamesrvConfig(), correlation=0, deadline_ms=0, kind=Kind.NOTIFY)
    assert host.server.send(host.frames[0].peer, [notice])
    await until(lambda: bool(heard))
    assert heard[0].kind is Kind.NOTIFY
    assert heard[0].code == GetNamesrvConfig.code
    assert connection.statistics().answered == 0


async def test_a_server_may_ask_its_client(host: Host, connect: Connect) -> None:
    host.answering = False
    connection = connect(host.address)

    def answer(frame: Frame) -> None:
        connection.send_parts([encode_reply(frame.correlation, 207, "no")])

    connection._on_notify = answer
    connection.oneway(ASK)
    await until(lambda: bool(host.frames))
    question = encode_request(GetNamesrvConfig(), correlation=77, deadline_ms=1000)
    host.server.send(host.frames[0].peer, [question])
    await until(lambda: len(host.frames) == 2)
    assert (host.frames[1].frame.kind, host.frames[1].frame.correlation) == (Kind.REPLY, 77)


async def test_the_peer_is_told_from_others_by_id_and_address(host: Host, connect: Connect) -> None:
    for _ in range(3):
        await connect(host.address).request(ASK, timeout_ms=PATIENT_MS)
    peers = [inbound.peer for inbound in host.frames]
    assert len({peer.id for peer in peers}) == 3
    assert len({peer.address for peer in peers}) == 3
    assert all(peer.address[0] == "127.0.0.1" and peer.address[1] > 0 for peer in peers)
    assert {(peer.carrier, peer.listener) for peer in peers} == {("zmq", "internal")}


# -- fairness and foreign bytes --------------------------------------------------------------------


async def test_a_burst_is_taken_in_bounded_turns(
    host: Host, raw: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRAMES_PER_TURN_MAX", 10)
    for number in range(95):
        raw.send(ask_frame(number))
    await until(lambda: len(host.frames) == 95)
    assert max(map(len, host.batches)) <= 10
    assert [inbound.frame.correlation for inbound in host.frames] == list(range(95))


async def test_a_few_large_frames_fill_a_turn_too(
    host: Host, raw: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRAME_BYTES_PER_TURN_MAX", 3_000)
    for number in range(20):
        raw.send_multipart([ask_frame(number), bytes(1_000)])
    await until(lambda: len(host.frames) == 20)
    assert max(map(len, host.batches)) <= 4


@pytest.mark.fault
async def test_garbage_is_counted_and_its_sender_cut_off(
    host: Host, raw: zmq.Socket[bytes], connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    good = connect(host.address)
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
async def test_too_many_parts_are_refused(host: Host, raw: zmq.Socket[bytes]) -> None:
    raw.send_multipart([ask_frame(1), *[b"part"] * limits.FRAME_PARTS_MAX])
    raw.send_multipart([ask_frame(2), *[b"part"] * (limits.FRAME_PARTS_MAX - 1)])
    await until(lambda: bool(host.frames))
    assert [inbound.frame.correlation for inbound in host.frames] == [2]
    assert host.server.statistics().frames_undecodable == 1


@pytest.mark.fault
async def test_an_oversized_frame_costs_its_sender_the_connection(
    host: Host, raw: zmq.Socket[bytes]
) -> None:
    raw.send(ask_frame())
    await until(lambda: bool(host.frames))
    raw.send_multipart([ask_frame(), bytes(limits.FRAME_SIZE_BYTES_MAX + 1)])
    await until(lambda: bool(host.lost))
    assert len(host.frames) == 1


async def test_a_peer_that_chose_its_own_identity_is_refused(host: Host) -> None:
    socket = process_context().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IDENTITY, b"admin")
    socket.connect(f"tcp://{host.address}")
    socket.send(ask_frame())
    await until(lambda: host.server.statistics().frames_refused == 1)
    socket.close()
    assert host.frames == []


# -- losing peers ----------------------------------------------------------------------------------

_CLIENT = """
import sys, zmq
socket = zmq.Context().socket(zmq.DEALER)
socket.connect("tcp://" + sys.argv[1])
for number in range(int(sys.argv[2])):
    socket.send(bytes.fromhex(sys.argv[3]))
sys.stdin.read()
"""


def start_client(address: str, frames: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _CLIENT, address, str(frames), ask_frame().hex()],
        stdin=subprocess.PIPE,
    )


@pytest.mark.feature("F035")
@pytest.mark.fault
async def test_a_killed_client_is_reported_once_after_its_last_frame(
    host: Host, connect: Connect, rounds: Callable[[int], int]
) -> None:
    host.answering = False
    staying = connect(host.address)
    for _ in range(rounds(20)):
        before = len(host.frames)
        process = start_client(host.address, 50)
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


async def test_frames_of_a_peer_that_left_are_not_lost(host: Host) -> None:
    """It connects, speaks and leaves before anybody looks: all it said is heard, then its loss."""
    socket = process_context().socket(zmq.DEALER)
    socket.connect(f"tcp://{host.address}")
    for number in range(200):
        socket.send(ask_frame(number))
    socket.close(linger=5_000)
    await until(lambda: bool(host.lost))
    assert len(host.frames) == 200
    assert host.lost == [host.frames[0].peer]
    assert host.server.statistics().peers == 0


async def test_losing_is_noticed_while_the_server_drains(host: Host, connect: Connect) -> None:
    connection = connect(host.address)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    host.server.pause()
    connection.close()
    await until(lambda: bool(host.lost))


# -- peers that do not read ------------------------------------------------------------------------


@pytest.fixture
def stuck(host: Host) -> Iterator[zmq.Socket[bytes]]:
    """A client that takes one message into its queue and reads none."""
    socket = process_context().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVHWM, 1)
    socket.connect(f"tcp://{host.address}")
    socket.send(ask_frame())
    yield socket
    socket.close()


async def fill(host: Host, peer: Peer, part: bytes) -> int:
    """Send until the server has to queue; the number sent so far."""
    sent = 0
    while host.server.statistics().queued_frames == 0:
        assert host.server.send(peer, [encode_reply(sent, 0), part])
        sent += 1
    return sent


async def test_a_slow_peer_gets_everything_in_order(host: Host, stuck: zmq.Socket[bytes]) -> None:
    host.answering = False
    await until(lambda: bool(host.frames))
    peer = host.frames[0].peer
    sent = await fill(host, peer, bytes(100_000))
    for number in range(sent, sent + 50):
        assert host.server.send(peer, [encode_reply(number, 0), b"tail"])
    assert host.server.statistics().queued_frames == 51
    got: list[bytes] = []
    while len(got) < sent + 50:
        try:
            got.append(stuck.recv_multipart(zmq.NOBLOCK)[0])
        except zmq.Again:
            await asyncio.sleep(0)
    assert got == [encode_reply(number, 0) for number in range(sent + 50)]
    await until(lambda: host.server.statistics().queued_frames == 0)
    assert host.lost == []


@pytest.mark.fault
async def test_a_peer_stuck_for_five_seconds_is_cut_off() -> None:
    clock = ManualClock()
    host = Host(clock=clock)
    host.answering = False
    socket = process_context().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVHWM, 1)
    socket.connect(f"tcp://{host.address}")
    socket.send(ask_frame())
    await until(lambda: bool(host.frames))
    peer = host.frames[0].peer
    await fill(host, peer, bytes(100_000))
    clock.advance(limits.PEER_STUCK_MS_MAX - 1)
    for _ in range(3):
        host.server._retry_blocked()
    assert host.lost == []
    clock.advance(1)
    await until(lambda: bool(host.lost))
    assert host.lost == [peer]
    assert host.server.statistics().queued_bytes == 0
    socket.close()
    host.server.close()


@pytest.mark.fault
async def test_a_peer_whose_queue_overflows_is_cut_off(
    host: Host, stuck: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", 250_000)
    host.answering = False
    await until(lambda: bool(host.frames))
    peer = host.frames[0].peer
    await fill(host, peer, bytes(100_000))
    assert host.server.send(peer, [encode_reply(1, 0), bytes(100_000)])
    assert not host.server.send(peer, [encode_reply(2, 0), bytes(100_000)])
    await until(lambda: bool(host.lost))
    assert host.lost == [peer]
    assert host.server.statistics().peers_cut == 1


# -- how a request ends ----------------------------------------------------------------------------


async def test_no_answer_in_time_is_timed_out_and_drops_the_socket(
    host: Host, connect: Connect
) -> None:
    connection = connect(host.address)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    host.answering = False
    patient = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    with pytest.raises(TimedOut):
        await connection.request(ASK, timeout_ms=HASTY_MS)
    with pytest.raises(UnknownOutcome):
        await patient
    assert connection.statistics().reopened == 1
    host.answering = True
    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0
    await until(lambda: bool(host.lost))


async def test_a_held_request_that_times_out_costs_nobody_else(
    host: Host, connect: Connect
) -> None:
    connection = connect(host.address)
    host.answering = False
    held = asyncio.ensure_future(connection.request(ASK, timeout_ms=HASTY_MS))
    await until(lambda: len(host.frames) == 1)
    other = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    later = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: len(host.frames) == 3)
    host.answer(host.frames[2])
    await later
    with pytest.raises(TimedOut):
        await held
    assert connection.statistics().reopened == 0
    host.answer(host.frames[0])
    host.answer(host.frames[1])
    assert (await other).code == 0
    assert connection.statistics().late_answers == 1


@pytest.fixture
def taken() -> Iterator[socketlib.socket]:
    """A port that nobody else can take and that refuses connections."""
    with socketlib.socket() as socket:
        socket.bind(("127.0.0.1", 0))
        yield socket


def address_of(socket: socketlib.socket) -> str:
    host, port = socket.getsockname()
    return f"{host}:{port}"


async def test_nobody_there_is_unavailable_and_not_unknown(
    connect: Connect, taken: socketlib.socket
) -> None:
    connection = connect(address_of(taken), connect_wait_ms=HASTY_MS)
    with pytest.raises(Unavailable, match="cannot reach"):
        await connection.request(ASK, timeout_ms=PATIENT_MS)
    assert connection.statistics().sent == 0
    assert connection.statistics().waiting == 0


async def test_a_request_waits_for_its_server_to_start(
    connect: Connect, taken: socketlib.socket
) -> None:
    address = address_of(taken)
    connection = connect(address)
    waiting = [
        asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS)) for _ in range(3)
    ]
    connection.oneway(ASK, timeout_ms=PATIENT_MS)
    await asyncio.sleep(0)
    assert connection.statistics().waiting == 4
    taken.close()
    host = Host(bind=address)
    assert [reply.code for reply in await asyncio.gather(*waiting)] == [0, 0, 0]
    await until(lambda: len(host.frames) == 4)
    assert all(inbound.frame.deadline_ms <= PATIENT_MS for inbound in host.frames)
    host.server.close()


_SERVER = """
import sys, zmq
socket = zmq.Context().socket(zmq.ROUTER)
print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
for number in range(int(sys.argv[1])):
    socket.recv_multipart()
print("got them", flush=True)
sys.stdin.read()
"""


def start_server(frames: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(frames)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


@pytest.mark.fault
async def test_a_killed_server_ends_what_is_in_flight_at_once(connect: Connect) -> None:
    process = start_server(3)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        connection = connect(f"127.0.0.1:{port}")
        asked = [
            asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS * 100))
            for _ in range(3)
        ]
        await asyncio.to_thread(process.stdout.readline)
        process.send_signal(signal.SIGKILL)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    finally:
        process.kill()
        process.communicate()
    assert [type(outcome) for outcome in outcomes] == [UnknownOutcome] * 3
    assert not connection.connected


async def test_an_answer_given_just_before_the_end_is_heard(host: Host, connect: Connect) -> None:
    connection = connect(host.address)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    host.answering = False
    asked = asyncio.ensure_future(
        connection.request(ASK, body=(bytes(1_000_000),), timeout_ms=PATIENT_MS)
    )
    await until(lambda: len(host.frames) == 2)
    host.answer(host.frames[1])
    host.server.close()
    assert (await asked).code == 0


async def test_closing_ends_everything(host: Host, connect: Connect) -> None:
    host.answering = False
    connection = connect(host.address)
    asked = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: bool(host.frames))
    connection.close()
    connection.close()
    with pytest.raises(UnknownOutcome):
        await asked
    with pytest.raises(Unavailable):
        await connection.request(ASK, timeout_ms=PATIENT_MS)


async def test_a_callback_may_close_the_connection(host: Host, connect: Connect) -> None:
    connection = connect(host.address)
    outcomes: list[object] = []

    def ended(outcome: Frame | KourouError) -> None:
        outcomes.append(outcome)
        connection.close()

    deadline_ms = SystemClock().monotonic_ms() + PATIENT_MS
    for _ in range(3):
        correlation = connection.next_correlation()
        connection.submit([ask_frame(correlation)], correlation, ended, deadline_ms)
    await until(lambda: len(outcomes) == 3)
    assert isinstance(outcomes[0], Frame)


async def test_too_many_waiting_requests_are_refused(
    connect: Connect, taken: socketlib.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SOCKET_HWM_MESSAGES", 2)
    connection = connect(address_of(taken))
    waiting = [
        asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS)) for _ in range(2)
    ]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many"):
        await connection.request(ASK, timeout_ms=PATIENT_MS)
    connection.close()
    assert all(
        isinstance(outcome, Unavailable)
        for outcome in await asyncio.gather(*waiting, return_exceptions=True)
    )


async def test_a_reply_that_is_no_reply_is_a_decode_error(host: Host, connect: Connect) -> None:
    host.answering = False
    connection = connect(host.address)
    asked = asyncio.ensure_future(
        connection.request(
            QueryDataVersion(broker_name="b", broker_addr="a", cluster_name="c", broker_id=0),
            timeout_ms=PATIENT_MS,
        )
    )
    await until(lambda: bool(host.frames))
    host.answer(host.frames[0])  # with the header of another answer
    with pytest.raises(KourouError, match="malformed"):
        await asked


# -- addresses and processes -----------------------------------------------------------------------


async def test_an_open_address_is_refused_unless_wanted(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="refusing to listen"):
        ZmqServer("0.0.0.0:0", lambda batch: None, lambda peer: None)
    with caplog.at_level(logging.WARNING, "kourou.transport"):
        server = ZmqServer(
            "0.0.0.0:0", lambda batch: None, lambda peer: None, insecure_network=True
        )
        server.start()
        server.close()
    assert "clear text" in caplog.text


async def test_a_taken_port_is_one_clear_sentence(host: Host) -> None:
    second = ZmqServer(host.address, lambda batch: None, lambda peer: None)
    with pytest.raises(ConfigError, match=f"port {host.server.port} on 127.0.0.1 is taken"):
        second.start()


def outcome_in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; 0 if it did not raise."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_a_child_process_never_uses_its_parents_sockets(host: Host, connect: Connect) -> None:
    connection = connect(host.address)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    parent = process_context()

    def use_in_child() -> None:
        with pytest.raises(Unavailable, match="before this process forked"):
            connection.oneway(ASK)
        assert process_context() is not parent

    assert outcome_in_child(use_in_child) == 0
    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0
