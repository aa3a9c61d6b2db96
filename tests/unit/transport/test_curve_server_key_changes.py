"""A listener changes its key pair as it runs: open connections stay, new ones need the new key."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket as socketlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.model import limits
from kourou.protocol.messages.namesrv import GetKvConfig
from kourou.transport import curve_keys, curve_server
from kourou.transport.curve_keys import KeyPair, make_pair, read_pair, write_public
from kourou.transport.zmq_client import ZmqConnection

ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000
Connect = Callable[..., ZmqConnection]
Host = Any  # tests/unit/transport/conftest.py
Keys = Any
Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture(autouse=True)
def checking(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It looks for a changed pair all the time, and says so."""
    monkeypatch.setattr(curve_keys, "CHECK_S", 0.0)
    caplog.set_level(logging.INFO, "kourou.transport")


def make_next(folder: Path, number: int = 1) -> tuple[KeyPair, Path]:
    """Make the server's next pair; returns it and its secret file."""
    secret = make_pair(folder / f"next-{number}", "server")[1]
    return read_pair(secret), secret


def use(keys: Keys, secret: Path) -> None:
    """Give the server this pair, as an operator does."""
    secret.replace(keys.folder / "server" / "server.key_secret")


def publish(keys: Keys, *pairs: KeyPair) -> None:
    """Let the clients know these keys of the server, in this order."""
    aside = keys.folder / "server" / "server.next"
    texts: list[str] = []
    for pair in pairs:
        write_public(aside, pair.public)
        texts.append(aside.read_text())
    aside.write_text("".join(texts))
    aside.replace(keys.folder / "server" / "server.key")


def needs(pair: KeyPair) -> str:
    return f"need its new public key {pair.public}"


async def changed(
    keys: Keys, until: Until, caplog: pytest.LogCaptureFixture, number: int = 1
) -> KeyPair:
    """Change the server's pair, and wait until new connections need it; returns it."""
    pair, secret = make_next(keys.folder, number)
    use(keys, secret)
    await until(lambda: needs(pair) in caplog.text)
    return pair


async def test_open_connections_stay_and_new_ones_need_the_new_key(
    make_host: Callable[..., Host],
    connect: Connect,
    keys: Keys,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host(curve=keys.server)
    staying = connect(host.address, curve=keys.client)
    await staying.request(ASK, timeout_ms=PATIENT_MS)
    host.answering = False
    held = asyncio.ensure_future(staying.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: len(host.frames) == 2)
    host.answering = True

    following = await changed(keys, until, caplog)
    late = connect(host.address, curve=keys.client)  # it knows the former key only
    waiting = asyncio.ensure_future(late.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: "the configured public key is not that of the server" in caplog.text)
    await until(lambda: "it may have an old public key of this server" in caplog.text)

    host.answer(host.frames[1])
    assert (await held).code == 0
    await staying.request(ASK, timeout_ms=PATIENT_MS)
    assert (host.lost, staying.statistics().reopened) == ([], 0)
    assert len({inbound.peer.id for inbound in host.frames}) == 1

    publish(keys, following)
    assert (await waiting).code == 0, "it reads the changed file for its next attempt"


async def test_each_new_connection_meets_the_newest_pair(
    make_host: Callable[..., Host],
    connect: Connect,
    keys: Keys,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whichever of the listening sockets the kernel would choose by itself."""
    host = make_host(curve=keys.server)
    stayed = []
    for number in range(1, 4):
        publish(keys, await changed(keys, until, caplog, number))
        for _ in range(20):
            stayed.append(connect(host.address, curve=keys.client))
            await stayed[-1].request(ASK, timeout_ms=PATIENT_MS)
    for connection in stayed:
        await connection.request(ASK, timeout_ms=PATIENT_MS)
    assert "cannot talk to" not in caplog.text
    assert (host.server.statistics().peers, host.lost) == (60, [])


async def test_who_knows_both_keys_is_refused_at_no_time(
    make_host: Callable[..., Host],
    connect: Connect,
    keys: Keys,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host(curve=keys.server)
    former = keys.server.own.pair
    following, secret = make_next(keys.folder)
    for order in ((former, following), (following, former)):
        publish(keys, *order)
        await connect(host.address, curve=keys.client).request(ASK, timeout_ms=PATIENT_MS)
    use(keys, secret)
    await until(lambda: needs(following) in caplog.text)
    for order in ((former, following), (following, former)):
        publish(keys, *order)
        await connect(host.address, curve=keys.client).request(ASK, timeout_ms=PATIENT_MS)
    assert "cannot talk to" not in caplog.text
    assert host.server.statistics().peers == 4


@pytest.mark.fault
async def test_a_file_that_is_no_pair_changes_nothing(
    make_host: Callable[..., Host],
    connect: Connect,
    keys: Keys,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host(curve=keys.server)
    secret = keys.folder / "server" / "server.key_secret"
    secret.write_text("half of a ")
    await until(lambda: f"the keys of {secret} stay as they were" in caplog.text)
    await connect(host.address, curve=keys.client).request(ASK, timeout_ms=PATIENT_MS)
    assert "need its new public key" not in caplog.text


@pytest.mark.fault
async def test_a_system_that_cannot_do_it_keeps_the_earlier_pair(
    make_host: Callable[..., Host],
    connect: Connect,
    keys: Keys,
    until: Until,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cannot(listening: socketlib.socket, number: int) -> None:
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    host = make_host(curve=keys.server)
    following, secret = make_next(keys.folder)
    with monkeypatch.context() as patched:
        patched.setattr(curve_server, "prefer", cannot)
        use(keys, secret)
        await until(lambda: "earlier key pair: Protocol not available" in caplog.text)
    monkeypatch.setattr(limits, "CURVE_PAIRS_MAX", 2)
    await until(lambda: needs(following) in caplog.text)
    publish(keys, following)
    for _ in range(10):
        await connect(host.address, curve=keys.client).request(ASK, timeout_ms=PATIENT_MS)
    use(keys, make_next(keys.folder, 2)[1])
    await connect(host.address, curve=keys.client).request(ASK, timeout_ms=PATIENT_MS)
    assert caplog.text.count("need its new public key") == 1


async def test_its_port_stays_taken(
    make_host: Callable[..., Host], keys: Keys, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(curve=keys.server)
    await changed(keys, until, caplog)
    with pytest.raises(ConfigError, match=f"port {host.server.port} on 127.0.0.1 is taken"):
        make_host(bind=host.address)
    host.server.close()


async def test_closing_frees_the_port_of_all_pairs(
    make_host: Callable[..., Host],
    connect: Connect,
    keys: Keys,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = make_host(curve=keys.server)
    following = await changed(keys, until, caplog)
    publish(keys, following)
    host.server.close()

    def is_free() -> bool:  # the library closes its descriptors a moment later
        try:
            make_host(bind=host.address, curve=keys.server)
        except ConfigError:
            return False
        return True

    await until(is_free)
    await connect(host.address, curve=keys.client).request(ASK, timeout_ms=PATIENT_MS)
