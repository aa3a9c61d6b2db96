"""A peer that reads slowly, or not at all, costs what it may and no more.

In clear text and over TLS, which has a queue of its own in front of the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.model import limits
from kourou.protocol.wire.remoting import RemotingCommand, encode_command
from kourou.runtime import Peer
from kourou.transport.tls import ServerTls, TlsFiles
from kourou_rigs.certificates import Authority

Host = Any  # RemotingHost of tests/unit/transport/conftest.py
Until = Callable[[Callable[[], bool]], Awaitable[None]]
Stuffed = tuple[Peer, asyncio.StreamReader, list[Any]]


@pytest.fixture(params=["clear", "tls"])
async def host(
    request: pytest.FixtureRequest,
    sweeping: None,
    make_remoting_host: Callable[..., Host],
    tmp_path: Path,
) -> Host:
    """In clear text or encrypted; `host.trust` is what its clients trust."""
    if request.param == "clear":
        made = make_remoting_host()
        made.trust = None
        return made
    authority = Authority(tmp_path, "own")
    made = make_remoting_host(tls=ServerTls(TlsFiles(*authority.pair("server")), enforcing=True))
    made.trust = authority.trusted()
    return made


async def stuffed(host: Host, until: Until, total: int) -> Stuffed:
    """A peer that does not read, and to which so much was sent; and its transports."""
    reader, writer = await host.connect(host.trust)
    transports: list[Any] = [writer.transport]
    if host.trust is not None:
        transports.append(transports[0]._ssl_protocol._transport)
    writer.write(encode_command(RemotingCommand(10, opaque=1)))
    await until(lambda: bool(host.frames))
    for transport in transports:
        transport.pause_reading()
    peer = host.frames[0].peer
    for number in range(total // 1_000_000):
        host.server.send(peer, (bytes([number]) * 1_000_000,))
    return peer, reader, transports


@pytest.mark.fault
async def test_what_a_slow_reader_does_not_take_waits_and_arrives(host: Host, until: Until) -> None:
    peer, reader, transports = await stuffed(host, until, 30_000_000)
    await until(lambda: host.server.statistics().queued_bytes > 0)
    host.server.send(peer, (b"the end",))
    for transport in transports:
        transport.resume_reading()
    arrived = await reader.readexactly(30_000_007)
    assert arrived == b"".join(bytes([n]) * 1_000_000 for n in range(30)) + b"the end"
    assert host.server.statistics().queued_bytes == 0
    assert host.lost == []


@pytest.mark.fault
async def test_who_reads_nothing_for_too_long_is_cut_off(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    peer, *_ = await stuffed(host, until, 30_000_000)
    await until(lambda: host.server.statistics().queued_bytes > 0)
    host.clock.advance(limits.PEER_STUCK_MS_MAX - 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert host.lost == []
    host.clock.advance(1)
    await until(lambda: host.lost == [peer])
    assert "it has read nothing for 5000 ms" in caplog.text
    assert host.server.statistics().queued_bytes == 0


@pytest.mark.fault
async def test_a_queue_that_overflows_is_cut_off(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", 8_000_000)
    peer, *_ = await stuffed(host, until, 60_000_000)
    await until(lambda: host.lost == [peer])
    assert "bytes wait" in caplog.text
    assert host.server.statistics().peers_cut == 1


@pytest.mark.fault
async def test_many_small_answers_count_for_what_they_cost(host: Host, until: Until) -> None:
    """Each takes a buffer, of which the memory is more than its byte."""
    peer, *_ = await stuffed(host, until, 30_000_000)
    before = host.server.statistics().queued_bytes
    for _ in range(1_000):
        assert host.server.send(peer, (b"x",))
    assert host.server.statistics().queued_bytes - before > 100_000
