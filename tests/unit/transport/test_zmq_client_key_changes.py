"""A client changes its own key while it is connected: every request gets its reply, in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Any

import pytest

from kourou.errors import UnknownOutcome
from kourou.protocol.messages.namesrv import GetKvConfig
from kourou.transport import curve_keys, zmq_client
from kourou.transport.curve_keys import KeyPair, make_pair, read_pair, write_public
from kourou.transport.zmq_client import ZmqConnection

ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000
NEVER_S = 3_600.0
CHANGED = "has the changed key pair"
Connect = Callable[..., ZmqConnection]
Host = Any  # tests/unit/transport/conftest.py
Keys = Any
Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture(autouse=True)
def checking(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It looks for a changed pair all the time, and says so."""
    monkeypatch.setattr(curve_keys, "CHECK_S", 0.0)
    caplog.set_level(logging.INFO, "kourou.transport")


@pytest.fixture
async def host(make_host: Callable[..., Host], keys: Keys) -> Host:
    return make_host(curve=keys.server)


def change_pair(keys: Keys, *, admitted: bool = True) -> KeyPair:
    """Give the client its next pair; with `admitted` the server knows it already."""
    secret = make_pair(keys.folder / "next", "client")[1]
    pair = read_pair(secret)
    if admitted:
        admit(keys, pair)
    secret.replace(keys.folder / "client" / "client.key_secret")
    return pair


def admit(keys: Keys, pair: KeyPair) -> None:
    write_public(keys.folder / "client" / "next.key", pair.public)


def senders(host: Host) -> list[str]:
    """The keys of those that sent, one for each change."""
    return [key for key, _ in groupby(inbound.peer.key for inbound in host.frames)]


async def test_it_is_connected_by_its_new_key_and_loses_nothing(
    host: Host, connect: Connect, keys: Keys, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    former = keys.client.own.pair
    connection = connect(host.address, curve=keys.client)
    events: list[str] = []
    connection.on_connected = lambda: events.append("connected")
    connection.on_lost = lambda: events.append("lost")
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    host.answering = False
    poll = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: len(host.frames) == 2)
    host.answering = True

    following = change_pair(keys)
    await until(lambda: CHANGED in caplog.text)  # it does not wait for the long poll
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    assert senders(host) == [former.public, following.public]
    assert (host.lost, poll.done()) == ([], False)
    host.answer(host.frames[1])
    assert (await poll).code == 0
    await until(lambda: host.lost == [host.frames[0].peer])

    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0
    assert connection.statistics().reopened == 0
    assert events == ["connected", "connected"]
    assert caplog.text.count(CHANGED) == 1
    assert following.secret not in caplog.text


async def test_no_request_overtakes_those_in_flight(
    host: Host,
    connect: Connect,
    keys: Keys,
    until: Until,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zmq_client, "SWITCH_S", NEVER_S)
    former = keys.client.own.pair
    connection = connect(host.address, curve=keys.client)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    host.answering = False
    early = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: len(host.frames) == 2)

    host.answering = True

    following = change_pair(keys)
    later = [early]
    while not connection.statistics().waiting:  # then the second connection is ready
        one = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
        later.append(one)
        await until(lambda one=one: one.done() or connection.statistics().waiting > 0)
    later.append(asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS)))
    await until(lambda: connection.statistics().waiting == 2)
    assert senders(host) == [former.public]
    assert CHANGED not in caplog.text

    host.answer(host.frames[1])
    assert {reply.code for reply in await asyncio.gather(*later)} == {0}
    assert senders(host) == [former.public, following.public]
    assert [inbound.frame.correlation for inbound in host.frames] == list(
        range(1, len(host.frames) + 1)
    )


@pytest.mark.fault
async def test_a_key_that_the_server_does_not_know_changes_nothing(
    host: Host, connect: Connect, keys: Keys, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    former = keys.client.own.pair
    connection = connect(host.address, curve=keys.client)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    following = change_pair(keys, admitted=False)
    await until(lambda: "keeps its earlier key pair" in caplog.text)
    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0
    assert senders(host) == [former.public]
    assert following.secret not in caplog.text

    admit(keys, following)
    await until(lambda: CHANGED in caplog.text)
    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0
    assert senders(host) == [former.public, following.public]
    await until(lambda: host.lost == [host.frames[0].peer])
    assert connection.statistics().reopened == 0


@pytest.mark.fault
async def test_what_is_in_flight_on_a_former_connection_ends_with_it(
    host: Host, connect: Connect, keys: Keys, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    through: list[asyncio.StreamWriter] = []
    ended: list[int] = []

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                sink.write(data)
        except ConnectionError:
            pass
        finally:
            sink.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, on = await asyncio.open_connection(host.server.host, host.server.port)
        through.append(on)
        await asyncio.gather(pump(reader, on), pump(there, writer))
        ended.append(1)

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as relaying:
        port = relaying.sockets[0].getsockname()[1]
        connection = connect(f"127.0.0.1:{port}", curve=keys.client)
        await connection.request(ASK, timeout_ms=PATIENT_MS)
        host.answering = False
        poll = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
        await until(lambda: len(host.frames) == 2)
        change_pair(keys)
        await until(lambda: CHANGED in caplog.text)
        later = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
        await until(lambda: len(host.frames) == 3)
        through[0].transport.abort()
        with pytest.raises(UnknownOutcome):
            await poll
        host.answer(host.frames[2])
        assert (await later).code == 0
        assert connection.statistics().reopened == 0
        connection.close()
        await until(lambda: len(host.lost) == len(ended) == 2)


async def test_closing_ends_all_its_connections(
    host: Host, connect: Connect, keys: Keys, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect(host.address, curve=keys.client)
    host.answering = False
    poll = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: len(host.frames) == 1)
    change_pair(keys)
    await until(lambda: CHANGED in caplog.text)
    connection.oneway(ASK, timeout_ms=PATIENT_MS)
    await until(lambda: host.server.statistics().peers == 2)
    connection.close()
    with pytest.raises(UnknownOutcome):
        await poll
    await until(lambda: host.server.statistics().peers == 0)
