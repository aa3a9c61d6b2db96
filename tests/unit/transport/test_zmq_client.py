"""A client: every request ends in exactly one way, and says how sure it is."""

from __future__ import annotations

import asyncio
import signal
import socket as socketlib
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kourou.clock import SystemClock
from kourou.errors import KourouError, TimedOut, Unavailable, UnknownOutcome
from kourou.model import limits
from kourou.protocol.messages.namesrv import GetKvConfig, QueryDataVersion
from kourou.protocol.messages.sends import SendMessage, SendRefusal
from kourou.protocol.wire.frames import Frame, encode_reply, encode_request
from kourou.transport.pending_requests import Pending, PendingRequests
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_socket import process_context
from kourou_rigs.clock import ManualClock
from kourou_rigs.forked import in_child

Host = Any  # tests/unit/transport/conftest.py
Connect = Callable[..., ZmqConnection]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000
HASTY_MS = 60


@pytest.fixture(params=["clear", "curve"])
async def host(
    request: pytest.FixtureRequest, make_host: Callable[..., Host], connect: Connect, keys: Any
) -> Host:
    """In clear text or encrypted; `host.connect` dials it."""
    encrypted = request.param == "curve"
    host = make_host(curve=keys.server) if encrypted else make_host()
    host.connect = partial(connect, host.address, curve=keys.client if encrypted else None)
    return host


def ask_frame(correlation: int = 1) -> bytes:
    return encode_request(ASK, correlation=correlation, deadline_ms=PATIENT_MS)


async def test_no_answer_in_time_is_timed_out_and_drops_the_socket(
    host: Host, until: Until
) -> None:
    connection = host.connect()
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


async def test_a_held_request_that_times_out_costs_nobody_else(host: Host, until: Until) -> None:
    clock = ManualClock()
    connection = host.connect(clock=clock)
    host.answering = False
    held = asyncio.ensure_future(connection.request(ASK, timeout_ms=HASTY_MS))
    await until(lambda: len(host.frames) == 1)
    other = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    later = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: len(host.frames) == 3)
    host.answer(host.frames[2])
    await later
    clock.advance(HASTY_MS)
    with pytest.raises(TimedOut):
        await held
    assert connection.statistics().reopened == 0
    host.answer(host.frames[0])
    host.answer(host.frames[1])
    assert (await other).code == 0
    assert connection.statistics().late_answers == 1


async def test_a_refused_send_is_an_answer_though_it_names_no_message(
    host: Host, until: Until
) -> None:
    connection = host.connect()
    host.answering = False
    send = SendMessage(producer_group="p", topic="t", queue_id=0, born_timestamp=1)
    asked = asyncio.ensure_future(connection.request(send, timeout_ms=PATIENT_MS))
    await until(lambda: len(host.frames) == 1)
    [inbound] = host.frames
    head = encode_reply(inbound.frame.correlation, 13, "too large", SendRefusal())
    host.server.send(inbound.peer, [head])
    reply = await asked
    assert (reply.code, reply.remark, reply.header) == (13, "too large", None)


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
    connect: Connect, taken: socketlib.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", 1_500)
    connection = connect(address_of(taken), connect_wait_ms=HASTY_MS)
    for _ in range(2):  # what has waited makes room
        with pytest.raises(Unavailable, match="cannot reach"):
            await connection.request(ASK, body=(bytes(1_000),), timeout_ms=PATIENT_MS)
    assert connection.statistics().sent == 0
    assert connection.statistics().waiting == 0


async def test_a_request_waits_for_its_server_to_start(
    connect: Connect,
    make_host: Callable[..., Host],
    taken: socketlib.socket,
    until: Until,
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
    host = make_host(bind=address)
    assert [reply.code for reply in await asyncio.gather(*waiting)] == [0, 0, 0]
    await until(lambda: len(host.frames) == 4)
    assert all(inbound.frame.deadline_ms <= PATIENT_MS for inbound in host.frames)


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


async def test_an_answer_given_just_before_the_end_is_heard(host: Host, until: Until) -> None:
    connection = host.connect()
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    host.answering = False
    asked = asyncio.ensure_future(
        connection.request(ASK, body=(bytes(1_000_000),), timeout_ms=PATIENT_MS)
    )
    await until(lambda: len(host.frames) == 2)
    host.answer(host.frames[1])
    host.server.close()
    assert (await asked).code == 0


async def test_closing_ends_everything(host: Host, until: Until) -> None:
    host.answering = False
    connection = host.connect()
    asked = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: bool(host.frames))
    connection.close()
    connection.close()
    with pytest.raises(UnknownOutcome):
        await asked
    with pytest.raises(Unavailable):
        await connection.request(ASK, timeout_ms=PATIENT_MS)


async def test_a_callback_may_close_the_connection(host: Host, until: Until) -> None:
    connection = host.connect()
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


@pytest.mark.parametrize(
    ("limit", "value"), [("SOCKET_HWM_MESSAGES", 2), ("PEER_QUEUE_BYTES_MAX", 2_500)]
)
async def test_too_many_waiting_requests_are_refused(
    connect: Connect,
    taken: socketlib.socket,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
) -> None:
    monkeypatch.setattr(limits, limit, value)
    connection = connect(address_of(taken))
    ask = partial(connection.request, ASK, body=(bytes(1_000),), timeout_ms=PATIENT_MS)
    waiting = [asyncio.ensure_future(ask()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many"):
        await ask()
    connection.close()
    assert all(
        isinstance(outcome, Unavailable)
        for outcome in await asyncio.gather(*waiting, return_exceptions=True)
    )


def test_what_never_left_cannot_be_answered() -> None:
    pending = PendingRequests()
    pending.add_waiting(1, Pending(None, 100, 100, [b"x"]))
    assert pending.answered(1) is None
    assert pending.waiting == 1


async def test_a_reply_that_is_no_reply_is_a_decode_error(host: Host, until: Until) -> None:
    host.answering = False
    connection = host.connect()
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


async def test_a_child_process_never_uses_its_parents_sockets(host: Host) -> None:
    connection = host.connect()
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    parent = process_context()

    def use_in_child() -> bool:
        with pytest.raises(Unavailable, match="before this process forked"):
            connection.oneway(ASK)
        return process_context() is parent

    assert in_child(use_in_child) == "False"
    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0


async def test_each_loss_is_reported_once(host: Host, until: Until) -> None:
    connection = host.connect()
    told: list[str] = []
    connection.on_connected = lambda: told.append("connected")
    connection.on_lost = lambda: told.append("lost")
    await until(lambda: told == ["connected"])
    host.answering = False
    with pytest.raises(TimedOut):
        await connection.request(ASK, timeout_ms=HASTY_MS)
    await until(lambda: told == ["connected", "lost", "connected"])
    connection.close()
    assert told[3:] == [], "who closes it knows"
