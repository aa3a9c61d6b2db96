"""Who has the keys talks; everybody else is told in time what is wrong and what to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kourou.errors import Unavailable
from kourou.model import limits
from kourou.protocol.messages.namesrv import GetKvConfig
from kourou.transport.curve_keys import (
    AllowedKeys,
    ClientCurve,
    ServerCurve,
    ServerKeys,
    trouble_of,
    write_public,
)
from kourou.transport.wire import FAILED, Happening
from kourou.transport.zmq_client import ZmqConnection

ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000
ATTEMPTS_MAX = 100
Connect = Callable[..., ZmqConnection]
Keys = Any  # tests/unit/transport/conftest.py
Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def refused(connection: ZmqConnection, *why: str) -> str:
    """What a request says once the connection knows why it cannot stand.

    On a busy machine the time of the first request may be over before that is known.
    """
    for _ in range(ATTEMPTS_MAX):
        with pytest.raises(Unavailable) as caught:
            await connection.request(ASK, timeout_ms=300)
        said = str(caught.value)
        if any(one in said for one in why):
            return said
    pytest.fail(f"none of {why} was ever said, but: {said}")


async def test_they_talk_and_large_frames_pass(
    make_host: Any, connect: Connect, keys: Keys
) -> None:
    host = make_host(curve=keys.server)
    connection = connect(host.address, curve=keys.client)
    body = bytes(limits.FRAME_SIZE_BYTES_MAX - 64)
    reply = await connection.request(ASK, body=(body,), timeout_ms=PATIENT_MS)
    assert b"".join(reply.body) == body
    assert host.frames[0].peer.address[0] == "127.0.0.1"
    assert host.frames[0].peer.address[1] > 0


async def test_nothing_can_be_read_on_the_way(make_host: Any, connect: Connect, keys: Keys) -> None:
    seen = bytearray()
    host = make_host(curve=keys.server)
    port = int(host.address.rpartition(":")[2])

    over = asyncio.Event()

    async def tap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, on = await asyncio.open_connection("127.0.0.1", port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                seen.extend(data)
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, on), pump(there, writer))
        await asyncio.gather(on.wait_closed(), writer.wait_closed())
        over.set()

    tapped = await asyncio.start_server(tap, "127.0.0.1", 0)
    async with tapped:
        address = f"127.0.0.1:{tapped.sockets[0].getsockname()[1]}"
        connection = connect(address, curve=keys.client)
        await connection.request(ASK, body=(b"a secret of ours",), timeout_ms=PATIENT_MS)
        connection.close()
        await over.wait()
    assert len(seen) > 500, "the tap sees what passes"
    assert b"a secret of ours" not in seen


async def test_a_key_that_is_not_let_in_is_named(
    make_host: Any, connect: Connect, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(curve=keys.server)
    why = f"the server refused this client: add the public key {keys.stranger.own.pair.public}"
    said = await refused(connect(host.address, curve=keys.stranger), why)
    assert "curveClients" in said
    assert keys.stranger.own.pair.secret not in said
    assert f"its public key {keys.stranger.own.pair.public} is not in curveClients" in caplog.text
    assert host.frames == []


async def test_a_key_that_is_added_is_let_in_by_the_next_attempt(
    make_host: Any, connect: Connect, keys: Keys
) -> None:
    host = make_host(curve=keys.server)
    connection = connect(host.address, curve=keys.stranger)
    await refused(connection, "the server refused this client")
    write_public(keys.folder / "client" / "new.key", keys.stranger.own.pair.public)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    assert len(host.frames) == 1


async def test_without_keys_the_error_names_which_to_set(
    make_host: Any, connect: Connect, keys: Keys, caplog: pytest.LogCaptureFixture, until: Until
) -> None:
    host = make_host(curve=keys.server)
    said = await refused(connect(host.address), "requires CURVE keys")
    assert "set curveKeyFile and curveServerKey (KOUROU_CURVE_KEY_FILE" in said
    await until(lambda: "a client without CURVE keys" in caplog.text)
    assert host.frames == []


async def test_with_keys_it_does_not_speak_in_clear_text(
    make_host: Any, connect: Connect, keys: Keys, caplog: pytest.LogCaptureFixture, until: Until
) -> None:
    host = make_host()
    await refused(
        connect(host.address, curve=keys.client),
        "the server is not encrypted, and this client requires CURVE",
        "or the server has none",
    )
    await until(lambda: "this listener has no keys" in caplog.text)


async def test_a_server_with_another_key_is_not_spoken_to(
    make_host: Any, connect: Connect, keys: Keys
) -> None:
    host = make_host(curve=ServerCurve(keys.client.own, AllowedKeys(None)))
    why = "the configured public key is not that of the server"
    said = await refused(connect(host.address, curve=keys.client), why)
    assert str(keys.folder / "server" / "server.key") in said


async def test_a_server_whose_key_nobody_knows_is_not_dialled_until_it_is_known(
    make_host: Any, connect: Connect, keys: Keys
) -> None:
    host = make_host(curve=keys.server)
    write_public(keys.folder / "known" / "another.key", keys.client.own.pair.public)
    curve = ClientCurve(keys.client.own, ServerKeys(keys.folder / "known"))
    connection = connect(host.address, curve=curve)
    await refused(connection, f"no public key is known for {host.address}")
    write_public(keys.folder / "known" / "127.0.0.1.key", keys.server.own.pair.public)
    await connection.request(ASK, timeout_ms=PATIENT_MS)


async def test_closing_while_no_key_is_known_ends_what_waits(connect: Connect, keys: Keys) -> None:
    write_public(keys.folder / "known" / "another.key", keys.client.own.pair.public)
    curve = ClientCurve(keys.client.own, ServerKeys(keys.folder / "known"))
    connection = connect("127.0.0.1:1", curve=curve)
    asked = asyncio.ensure_future(connection.request(ASK, timeout_ms=60_000))
    await asyncio.sleep(0)
    connection.close()
    with pytest.raises(Unavailable, match="was closed"):
        await asked


async def test_a_name_is_known_by_its_name_wherever_it_is(
    make_host: Any, connect: Connect, keys: Keys
) -> None:
    """Members look up hosts themselves, and dial an address that no key names."""
    host = make_host(curve=keys.server)
    write_public(keys.folder / "known" / "n1.key", keys.server.own.pair.public)
    curve = ClientCurve(keys.client.own, ServerKeys(keys.folder / "known"))
    connection = connect(host.address, curve=curve, named="n1:20952")
    await connection.request(ASK, timeout_ms=PATIENT_MS)


async def test_whoever_has_keys_may_listen_to_the_network_and_says_nothing_of_clear_text(
    make_host: Any, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        make_host(bind="0.0.0.0:0", curve=keys.server)
        assert "clear text" not in caplog.text
        make_host(bind="0.0.0.0:0", insecure_network=True)
        assert "clear text" in caplog.text


async def test_listeners_of_one_process_let_in_whom_each_says(
    make_host: Any, connect: Connect, keys: Keys
) -> None:
    """As a broker's: applications at one, followers at the other."""
    clients = make_host(curve=keys.server)
    members = make_host(curve=ServerCurve(keys.server.own, AllowedKeys(keys.folder / "stranger")))
    await connect(clients.address, curve=keys.client).request(ASK, timeout_ms=PATIENT_MS)
    await connect(members.address, curve=keys.stranger).request(ASK, timeout_ms=PATIENT_MS)
    await refused(connect(members.address, curve=keys.client), "the server refused this client")
    clients.server.close()
    await connect(members.address, curve=keys.stranger).request(ASK, timeout_ms=PATIENT_MS)


@pytest.mark.parametrize("happening", FAILED)
@pytest.mark.parametrize("with_keys", [False, True])
def test_whatever_fails_is_said_with_what_to_do(
    keys: Keys, happening: Happening, with_keys: bool
) -> None:
    """A server that hangs up may be faster than its words, so each text stands for itself."""
    told = trouble_of(happening, keys.client if with_keys else None)
    assert "curve" in told.lower() or str(keys.folder) in told
    assert keys.client.own.pair.secret not in told
