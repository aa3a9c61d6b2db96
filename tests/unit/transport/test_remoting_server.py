"""A TCP listener: fair to many, hard on few, and never silent about who is gone."""

from __future__ import annotations

import asyncio
import errno
import random
import socket as socketlib
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.model import limits
from kourou.protocol.wire.remoting import RemotingCommand, encode_command
from kourou.transport import tcp_server
from kourou.transport.remoting_server import InboundFrame, RemotingServer

Until = Callable[[Callable[[], bool]], Awaitable[None]]
IDLE_MS = 120_000


Host = Any  # RemotingHost of tests/unit/transport/conftest.py


@pytest.fixture
def host(remoting_host: Host) -> Host:
    return remoting_host


Make = Callable[..., Host]


def frame(opaque: int, body: bytes = b"") -> bytes:
    return encode_command(RemotingCommand(10, opaque=opaque, ext_fields={"k": "v"}, body=body))


# -- receiving and sending


@pytest.mark.feature("F037")
async def test_a_frame_comes_whole_and_goes_back_whole(host: Host) -> None:
    host.echo = True
    reader, writer = await host.connect()
    sent = frame(7, bytes(1_000))
    writer.write(sent)
    assert await reader.readexactly(len(sent)) == sent
    (inbound,) = host.frames
    address = writer.get_extra_info("sockname")
    assert (inbound.peer.protocol, inbound.peer.address) == ("tcp", address)
    assert inbound.peer.listener == "internal"


@pytest.mark.feature("F041")
async def test_frames_cut_anywhere_are_the_same_frames(host: Host, until: Until) -> None:
    """Byte by byte, in odd pieces, or all at once: the stream has no seams of its own."""
    chance = random.Random(5)
    sent = b"".join(frame(number, chance.randbytes(number * 37)) for number in range(20))
    for size in (1, 7, 1_000, len(sent)):
        host.batches.clear()
        _, writer = await host.connect()
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)
        await until(lambda: len(host.frames) == 20)
        assert b"".join(map(host.whole, host.frames)) == sent


async def test_all_that_one_read_held_is_one_batch_and_is_not_copied(
    host: Host, until: Until
) -> None:
    _, writer = await host.connect()
    writer.write(b"".join(frame(number, b"body") for number in range(50)))
    await until(lambda: len(host.frames) == 50)
    assert len(host.batches) == 1
    assert len({id(inbound.frame.body.obj) for inbound in host.frames}) == 1


async def test_a_large_burst_is_taken_in_bounded_batches(
    host: Host, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRAMES_PER_TURN_MAX", 10)
    monkeypatch.setattr("kourou.transport.tcp_link.READ_BYTES", 500)
    _, writer = await host.connect()
    writer.write(b"".join(map(frame, range(95))))
    await until(lambda: len(host.frames) == 95)
    assert max(map(len, host.batches)) < 20
    assert host.opaques == list(range(95))


async def test_the_largest_frame_passes_and_a_larger_one_does_not(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    host.echo = True
    body = random.Random(1).randbytes(limits.FRAME_SIZE_BYTES_MAX - len(frame(1)))
    reader, writer = await host.connect()
    sent = frame(1, body) + frame(2)
    writer.write(sent)
    assert await reader.readexactly(len(sent)) == sent
    writer.write(frame(3, body + b"x")[:8])
    await until(lambda: len(host.lost) == 1)
    assert "at most 16777216 are allowed" in caplog.text


# -- foreign bytes


@pytest.mark.fault
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x00\x00\x00\x03\x00\x00\x00\x00", "4 is the least"),
        (b"\x00\x00\x00\x08\x02\x00\x00\x00", "header type is 2"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x05", "claims 5 bytes"),
        (b"\xff\xff\xff\xff\x00\x00\x00\x00", "at most"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "the peer uses TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "the peer uses HTTP"),
        (b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f", "the peer uses ZeroMQ"),
    ],
)
async def test_what_is_no_frame_closes_the_connection_and_says_why(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    host.echo = True
    good_reader, good = await host.connect()
    reader, writer = await host.connect()
    whole = frame(1)
    writer.write(whole + sent)
    assert await reader.readexactly(len(whole)) == whole, "what came before it is answered"
    assert await reader.read() == b""
    await until(lambda: len(host.lost) == 1)
    assert reason in caplog.text
    good.write(whole)
    assert await good_reader.readexactly(len(whole)) == whole
    statistics = host.server.statistics()
    assert (statistics.frames_undecodable, statistics.peers_cut, statistics.peers) == (1, 1, 1)


@pytest.mark.fault
async def test_damaged_frames_never_hurt_anybody_else(
    host: Host, until: Until, rounds: Callable[[int], int]
) -> None:
    """Valid frames with a few bytes changed: read, or refused with their connection, or waited for;
    whoever speaks well beside them is answered all the time."""
    host.echo = True
    good_reader, good = await host.connect()
    chance = random.Random(9876)
    valid = [frame(n, chance.randbytes(chance.randrange(200))) for n in range(8)]
    for number in range(rounds(400)):
        sent = bytearray(b"".join(valid))
        for _ in range(chance.randrange(1, 6)):
            sent[chance.randrange(len(sent))] = chance.randrange(256)
        _, writer = await host.connect()
        writer.write(bytes(sent[: chance.randrange(len(sent))]))
        writer.close()
        if number % 20 == 0:
            whole = frame(number)
            good.write(whole)
            assert await good_reader.readexactly(len(whole)) == whole
    await until(lambda: host.server.statistics().peers == 1)


@pytest.mark.fault
async def test_a_claim_costs_no_memory(host: Host, until: Until) -> None:
    """Sixteen megabytes are claimed; what is kept follows what has come."""
    _, writer = await host.connect()
    writer.write(frame(1, bytes(limits.FRAME_SIZE_BYTES_MAX - 1_000))[:100])
    await until(lambda: host.server.statistics().unfinished_bytes > 0)
    assert host.server.statistics().unfinished_bytes <= 65_536


@pytest.mark.fault
async def test_small_frames_that_never_end_count_and_the_oldest_goes(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is large; a client that sends a large frame now is not their victim."""
    monkeypatch.setattr(limits, "UNFINISHED_BYTES_MAX", 1_000_000)
    started = frame(1, bytes(100_000))
    for number in range(9):
        _, writer = await host.connect()
        writer.write(started[:-1])
        await until(lambda sent=number: host.server.statistics().peers == sent + 1)
        await until(
            lambda sent=number: host.server.statistics().unfinished_bytes >= (sent + 1) * 100_000
        )
        host.clock.advance(1_000)
    assert host.lost == []
    _, writer = await host.connect()
    writer.write(frame(2, bytes(500_000))[:-1])
    await until(lambda: len(host.lost) >= 4)
    assert "not whole yet take" in caplog.text
    writer.write(b"\0")
    await until(lambda: bool(host.frames))
    assert host.opaques == [2]
    first = [address for _, address in (one.peer.address for one in host.frames)]
    assert first[0] not in [peer.address[1] for peer in host.lost]
    assert host.server.statistics().unfinished_bytes <= 1_000_000
    for one in host.writers:
        one.close()
    await until(lambda: host.server.statistics().peers == 0)
    assert host.server.statistics().unfinished_bytes == 0


# -- losing peers


@pytest.mark.feature("F043")
async def test_who_goes_is_reported_once_and_behind_its_last_frames(
    host: Host, until: Until
) -> None:
    _, writer = await host.connect()
    writer.write(frame(1) + frame(2)[:-1])
    writer.close()
    await until(lambda: bool(host.lost))
    assert host.order == ["frames", "lost"]
    assert host.lost == [host.frames[0].peer]
    assert host.server.statistics().peers == 0


async def test_who_closes_one_half_is_answered_and_gone(host: Host, until: Until) -> None:
    host.echo = True
    reader, writer = await host.connect()
    whole = frame(1)
    writer.write(whole)
    writer.write_eof()
    assert await reader.read() == whole
    await until(lambda: bool(host.lost))


@pytest.mark.fault
async def test_a_reset_is_a_loss_like_any_other(host: Host, until: Until) -> None:
    _, writer = await host.connect()
    writer.write(frame(1))
    await until(lambda: bool(host.frames))
    plain = writer.get_extra_info("socket")
    plain.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await until(lambda: bool(host.lost))
    assert host.server.send(host.lost[0], (frame(2),)) is False
    assert host.server.statistics().frames_unroutable == 1


@pytest.mark.feature("F042", "F043")
async def test_a_connection_on_which_nothing_moves_is_closed(
    until: Until, sweeping: None, make_remoting_host: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The transport has no heartbeat of its own: whoever says nothing for 120 s is gone, whether it
    ever spoke or not, and no byte comes before that the upper layer did not send; an answer that
    leaves counts as movement, as in RocketMQ."""
    host = make_remoting_host()
    silent_reader, _ = await host.connect()
    spoke_reader, spoke = await host.connect()
    spoke.write(frame(1))
    await until(lambda: bool(host.frames))
    await until(lambda: host.server.statistics().peers == 2)
    for _ in range(IDLE_MS // 1_000 - 1):
        host.clock.advance(1_000)
        for _ in range(3):
            await asyncio.sleep(0)
    host.clock.advance(999)
    assert host.server.send(host.frames[0].peer, (frame(1),))
    assert await spoke_reader.readexactly(len(frame(1))) == frame(1), "the first that comes"
    assert host.lost == []
    host.clock.advance(1)
    await until(lambda: len(host.lost) == 1)
    assert await silent_reader.read() == b""
    host.clock.advance(IDLE_MS - 1)
    await until(lambda: len(host.lost) == 2)
    assert await spoke_reader.read() == b""
    assert host.server.statistics().peers_idle == 2
    assert "nothing moved for 120000 ms" in caplog.text


@pytest.mark.fault
async def test_who_dribbles_is_closed_when_its_frame_is_too_old(
    until: Until, sweeping: None, make_remoting_host: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """One byte a minute keeps a connection from being idle, and not for ever."""
    host = make_remoting_host(idle_ms=IDLE_MS)
    _, writer = await host.connect()
    whole = frame(1, bytes(100))
    for at in range(3):
        host.clock.advance(IDLE_MS // 3)
        writer.write(whole[at : at + 1])
        before = at
        await until(lambda sent=before: host.server.statistics().bytes_in == sent + 1)
    assert host.lost == []
    host.clock.advance(IDLE_MS // 3)
    await until(lambda: bool(host.lost))
    assert "its frame is not whole after 120000 ms" in caplog.text


async def test_frames_that_follow_each_other_are_no_endless_frame(
    until: Until, sweeping: None, make_remoting_host: Make
) -> None:
    """A busy connection always has half a frame in its buffer; each has its own time."""
    host = make_remoting_host(idle_ms=1_000)
    _, writer = await host.connect()
    whole = frame(1, bytes(100))
    writer.write(whole[:50])
    for number in range(5):
        await until(lambda seen=number: host.server.statistics().bytes_in == 50 + seen * len(whole))
        host.clock.advance(900)
        writer.write(whole[50:] + whole[:50])
    await until(lambda: len(host.frames) == 5)
    assert host.lost == []


# -- life


async def test_open_to_the_network_it_must_be_wanted_and_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    with pytest.raises(ConfigError, match="open to the network"):
        RemotingServer("0.0.0.0:0", print, print)
    monkeypatch.setattr(tcp_server, "CLEAR_TEXT_WARNING_S", 0.0)
    server = RemotingServer("0.0.0.0:0", print, print, insecure_network=True)
    server.start()
    await until(lambda: caplog.text.count("in clear text") >= 3)
    server.close()


async def test_version_six_of_the_internet_protocol(until: Until) -> None:
    batches: list[list[InboundFrame]] = []
    server = RemotingServer("[::1]:0", batches.append, print)
    server.start()
    assert server.address == f"[::1]:{server.port}"
    _, writer = await asyncio.open_connection("::1", server.port)
    writer.write(frame(1))
    await until(lambda: bool(batches))
    assert batches[0][0].peer.address[0] == "::1"
    writer.close()
    server.close()


async def test_a_paused_listener_still_answers_and_reads_nothing_new(
    host: Host, until: Until
) -> None:
    reader, writer = await host.connect()
    writer.write(frame(1))
    await until(lambda: bool(host.frames))
    host.server.pause()
    writer.write(frame(2))
    host.server.send(host.frames[0].peer, (frame(1),))
    assert await reader.readexactly(len(frame(1))) == frame(1)
    assert len(host.frames) == 1
    host.server.close()
    host.server.close()


@pytest.mark.fault
async def test_too_many_peers_are_turned_away(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEERS_MAX", 2)
    for number in range(2):
        _, writer = await host.connect()
        writer.write(frame(number))
    await until(lambda: len(host.frames) == 2)
    reader, _ = await host.connect()
    assert await reader.read() == b""
    assert host.server.statistics().peers_refused == 1
    assert "refusing a new peer: 2 are connected" in caplog.text
    assert host.lost == []


@pytest.mark.fault
async def test_who_has_sent_nothing_makes_room_the_oldest_first(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever connects in masses would keep all others out."""
    monkeypatch.setattr(limits, "PEERS_MAX", 3)
    host.echo = True
    speaking, writer = await host.connect()
    writer.write(frame(1))
    assert await speaking.readexactly(len(frame(1))) == frame(1)
    older, half = await host.connect()
    half.write(frame(2)[:10])
    newer, last = await host.connect()
    await until(lambda: host.server.statistics().unfinished_bytes > 0)
    await until(lambda: host.server.statistics().peers == 3)
    late, writing = await host.connect()
    assert await older.read() == b"", "half a frame is none"
    writing.write(frame(3))
    assert await late.readexactly(len(frame(3))) == frame(3)
    assert len(host.lost) == 1
    assert "it has sent nothing, and another one needs its place" in caplog.text
    last.write(frame(4))
    assert await newer.readexactly(len(frame(4))) == frame(4)
    counted = host.server.statistics()
    assert (counted.peers, counted.peers_cut, counted.peers_refused) == (3, 1, 0)
    assert counted.unfinished_bytes == 0
    full, _ = await host.connect()
    assert await full.read() == b"", "all others have sent something"
    writer.write(frame(5))
    assert await speaking.readexactly(len(frame(5))) == frame(5)


@pytest.mark.fault
async def test_a_place_that_is_given_away_is_free_once(
    host: Host, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What leaves by itself must not be closed again for a newcomer."""
    monkeypatch.setattr(limits, "PEERS_MAX", 1)
    for _ in range(3):
        _, writer = await host.connect()
        await until(lambda: host.server.statistics().peers == 1)
        writer.close()
        await until(lambda: host.server.statistics().peers == 0)
    assert len(host.lost) == 3
    for _ in range(3):
        await host.connect()
    await until(lambda: len(host.lost) == 5)
    assert host.server.statistics().peers == 1


@pytest.mark.fault
async def test_without_descriptors_it_rests_and_tries_again(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_server, "ACCEPT_RETRY_S", 0.0)

    class Full:
        """A listening socket to which the system gives nobody, for a while."""

        def __init__(self, socket: socketlib.socket) -> None:
            self.socket = socket
            self.times = 3

        def accept(self) -> tuple[socketlib.socket, tuple[str, int]]:
            if self.times:
                self.times -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self.socket.accept()

        def fileno(self) -> int:
            return self.socket.fileno()

        def close(self) -> None:
            self.socket.close()

    assert host.server._socket is not None
    host.server._socket = Full(host.server._socket)  # type: ignore[assignment]  # acts as one
    host.echo = True
    reader, writer = await host.connect()
    writer.write(frame(1))
    assert await reader.readexactly(len(frame(1))) == frame(1)
    assert "connections cannot be accepted: Too many open files" in caplog.text
