"""A peer that reads slowly, or not at all, costs what it may and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kourou.model import limits
from kourou.protocol.wire.remoting import RemotingCommand, encode_command
from kourou.runtime import Peer

Host = Any  # RemotingHost of tests/unit/transport/conftest.py
Make = Callable[..., Host]
Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def host(remoting_host: Host) -> Host:
    return remoting_host


def frame(opaque: int) -> bytes:
    return encode_command(RemotingCommand(10, opaque=opaque))


async def stuffed(host: Host, until: Until, total: int) -> tuple[Peer, asyncio.StreamReader]:
    """A peer that does not read, and to which so much was sent."""
    reader, writer = await host.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that reads
    writer.write(frame(1))
    await until(lambda: bool(host.frames))
    peer = host.frames[0].peer
    for number in range(total // 1_000_000):
        host.server.send(peer, (bytes([number]) * 1_000_000,))
    return peer, reader


@pytest.mark.fault
async def test_what_a_slow_reader_does_not_take_waits_and_arrives(host: Host, until: Until) -> None:
    peer, reader = await stuffed(host, until, 30_000_000)
    await until(lambda: host.server.statistics().queued_bytes > 0)
    host.server.send(peer, (b"the end",))
    reader._transport.resume_reading()  # type: ignore[attr-defined]  # the other side of pausing
    arrived = await reader.readexactly(30_000_007)
    assert arrived == b"".join(bytes([n]) * 1_000_000 for n in range(30)) + b"the end"
    assert host.server.statistics().queued_bytes == 0
    assert host.lost == []


@pytest.mark.fault
async def test_who_reads_nothing_for_too_long_is_cut_off(
    until: Until, sweeping: None, make_remoting_host: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made = make_remoting_host()
    peer, _ = await stuffed(made, until, 20_000_000)
    await until(lambda: made.server.statistics().queued_bytes > 0)
    made.clock.advance(limits.PEER_STUCK_MS_MAX - 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert made.lost == []
    made.clock.advance(1)
    await until(lambda: made.lost == [peer])
    assert "it has read nothing for 5000 ms" in caplog.text
    assert made.server.statistics().queued_bytes == 0


@pytest.mark.fault
async def test_a_queue_that_overflows_is_cut_off(
    host: Host, until: Until, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", 8_000_000)
    peer, _ = await stuffed(host, until, 40_000_000)
    await until(lambda: host.lost == [peer])
    assert "bytes wait" in caplog.text
    assert host.server.statistics().peers_cut == 1


@pytest.mark.fault
async def test_many_small_answers_count_for_what_they_cost(
    host: Host, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", 100_000)
    peer, _ = await stuffed(host, until, 20_000_000)
    await until(lambda: host.lost == [peer])
