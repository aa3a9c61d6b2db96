"""Files of keys: what is made, what is refused, which key is whose, and that no secret is told."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq.auth
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ConfigError, Unavailable
from kourou.model import limits
from kourou.protocol.messages.namesrv import GetKvConfig
from kourou.transport.curve_keys import (
    AllowedKeys,
    ClientCurve,
    KeyPair,
    PairFile,
    ServerCurve,
    ServerKeys,
    make_pair,
    read_pair,
    read_public,
    trouble_of,
    write_public,
)
from kourou.transport.wire import FAILED, WireEvent
from kourou.transport.zmq_client import ZmqConnection


def pair_of(folder: Path, name: str, *addresses: str) -> KeyPair:
    return read_pair(make_pair(folder, name, addresses)[1])


def touched(path: Path) -> None:
    """Its time is another one, whatever the file system's clock can tell apart."""
    facts = path.stat()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1_000_000))


def test_a_pair_is_made_for_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    public, secret = make_pair(tmp_path / "keys", "a")
    assert (secret.stat().st_mode & 0o777, secret.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert sorted(one.name for one in (tmp_path / "keys").iterdir()) == ["a.key", "a.key_secret"]
    before = secret.read_bytes(), public.read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        make_pair(tmp_path / "keys", "a")
    assert (secret.read_bytes(), public.read_bytes()) == before
    assert sorted(one.name for one in (tmp_path / "keys").iterdir()) == ["a.key", "a.key_secret"]


def test_they_are_certificates_as_pyzmq_has_them(tmp_path: Path) -> None:
    public, secret = make_pair(tmp_path, "a", ["broker", "*:20911"])
    pair = read_pair(secret)
    assert zmq.auth.load_certificate(public) == (pair.public.encode(), None)
    zmq.auth.create_certificates(tmp_path, "theirs")
    theirs = read_pair(tmp_path / "theirs.key_secret")
    [found] = read_public(tmp_path / "theirs.key")
    assert (found.key, found.addresses) == (theirs.public, ())
    assert read_public(public)[0].addresses == ("broker", "*:20911")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, "a")
    assert pair.secret not in repr(pair)
    secret = tmp_path / "a.key_secret"
    other = pair_of(tmp_path, "b").secret
    secret.write_text(secret.read_text().replace(pair.secret, other))
    with pytest.raises(ConfigError, match="its two keys are not a pair") as caught:
        read_pair(secret)
    assert other not in str(caught.value)
    secret.write_text(secret.read_text().replace(other, other[:-1]))
    with pytest.raises(ConfigError) as caught:
        read_pair(secret)
    assert other[:-1] not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file"),
        ("", "holds no CURVE key"),
        ('curve\n    public-key = "short"\n', "damaged"),
        ("x" * (1 << 21), "holds no keys"),
    ],
)
def test_what_is_no_key_is_refused_by_the_files_name(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "a.key"
    if text is not None:
        path.write_text(text)
    for read in (read_pair, read_public):
        with pytest.raises(ConfigError) as caught:
            read(path)
        assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_each_half_is_wanted_where_it_belongs(tmp_path: Path) -> None:
    public, secret = make_pair(tmp_path, "a")
    with pytest.raises(ConfigError, match="holds no secret keys"):
        read_pair(public)
    with pytest.raises(ConfigError, match="holds a secret key"):
        read_public(secret)


def test_the_most_certain_address_wins(tmp_path: Path) -> None:
    keys = {
        name: pair_of(tmp_path, name, *addresses).public
        for name, addresses in {
            "exact": ("10.0.0.1:20911", "[::1]:20911"),
            "host": ("10.0.0.1",),
            "port": ("*:20911",),
            "all": ("*",),
            "broker": (),
        }.items()
    }
    servers = ServerKeys(tmp_path)
    assert servers.of("10.0.0.1:20911") == servers.of("[::1]:20911") == (keys["exact"],)
    assert servers.of("tcp://10.0.0.1:1") == (keys["host"],)
    assert servers.of("10.0.0.2:20911") == (keys["port"],)
    assert servers.of("broker:20912") == (keys["broker"],), "a file's name is a host"
    assert servers.of("elsewhere:1") == (keys["all"],)
    (tmp_path / "all.key").unlink()
    with pytest.raises(ConfigError, match=r"no public key is known for elsewhere:1.*elsewhere.key"):
        servers.of("elsewhere:1")


def test_one_file_is_for_all_servers(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, "cluster")
    assert ServerKeys(tmp_path / "cluster.key").of("anywhere:1") == (pair.public,)


def test_what_changes_in_the_folder_counts_at_once(tmp_path: Path) -> None:
    first, other = pair_of(tmp_path, "one"), pair_of(tmp_path / "aside", "two")
    allowed = AllowedKeys.of_setting(str(tmp_path))
    assert allowed.allows(first.public)
    assert not allowed.allows(other.public)
    write_public(tmp_path / "two.key", other.public)
    assert allowed.allows(other.public)
    (tmp_path / "one.key").unlink()
    assert not allowed.allows(first.public)


def test_a_folder_that_becomes_unreadable_lets_in_whom_it_did(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, other = pair_of(tmp_path, "one"), pair_of(tmp_path / "aside", "two")
    allowed = AllowedKeys(tmp_path)
    (tmp_path / "two.key").write_text("half of a ")
    assert allowed.allows(first.public)
    assert not allowed.allows(other.public)
    assert caplog.text.count("stay as they were") == 1


def test_a_pair_is_that_of_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, following = pair_of(tmp_path, "one"), pair_of(tmp_path / "next", "one")
    secret = tmp_path / "one.key_secret"
    own = PairFile(secret)
    assert own.pair == first
    secret.write_text("half of a ")
    assert [own.pair, own.pair] == [first, first]
    assert caplog.text.count(f"the keys of {secret} stay as they were") == 1
    secret.unlink()
    assert own.pair == first
    (tmp_path / "next" / "one.key_secret").replace(secret)
    assert own.pair == following
    assert following.secret not in repr(own) + caplog.text
    with pytest.raises(ConfigError, match="cannot be read"):
        PairFile(tmp_path / "missing")


def test_a_server_has_two_keys_while_it_changes_them(tmp_path: Path) -> None:
    former, following = pair_of(tmp_path, "b", "b:1"), pair_of(tmp_path / "next", "b", "b:1")
    pair_of(tmp_path, "all", "*")
    servers = ServerKeys(tmp_path)
    public = tmp_path / "b.key"
    public.write_text(public.read_text() + (tmp_path / "next" / "b.key").read_text())
    assert servers.of("b:1") == (former.public, following.public)
    (tmp_path / "next" / "b.key").replace(public)
    assert servers.of("b:1") == (following.public,)


def test_any_must_be_said_and_nobody_is_an_error(tmp_path: Path) -> None:
    assert AllowedKeys.of_setting("any").allows("whoever")
    with pytest.raises(ConfigError, match="no client could connect"):
        AllowedKeys.of_setting(str(tmp_path))
    with pytest.raises(ConfigError, match="holds no public key"):
        ServerKeys(tmp_path).check()
    with pytest.raises(ConfigError, match="cannot be read"):
        AllowedKeys.of_setting(str(tmp_path / "missing"))


def test_one_file_may_hold_several_clients(tmp_path: Path) -> None:
    pairs = [pair_of(tmp_path, name) for name in ("a", "b", "c")]
    one = tmp_path / "clients"
    one.write_text("".join((tmp_path / f"{name}.key").read_text() for name in ("a", "b")))
    allowed = AllowedKeys(one)
    assert [allowed.allows(pair.public) for pair in pairs] == [True, True, False]
    with one.open("a") as opened:
        opened.write((tmp_path / "c.key").read_text())
    touched(one)
    assert allowed.allows(pairs[2].public)


def test_what_several_files_are_one_after_the_other_each_means_its_own(tmp_path: Path) -> None:
    a, b = pair_of(tmp_path, "a", "10.0.0.1:1"), pair_of(tmp_path, "b", "10.0.0.2")
    one = tmp_path / "servers"
    one.write_text("".join((tmp_path / f"{name}.key").read_text() for name in ("a", "b")))
    servers = ServerKeys(one)
    assert servers.of("10.0.0.1:1") == (a.public,)
    assert servers.of("10.0.0.2:7") == (b.public,)
    both = tmp_path / "both"
    both.write_text("".join((tmp_path / f"{n}.key_secret").read_text() for n in ("a", "b")))
    with pytest.raises(ConfigError, match="holds 2 secret keys"):
        read_pair(both)


@pytest.mark.parametrize("address", ["a b", "*:x", "*:*", "host:", ""])
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="does not name a server"):
        make_pair(tmp_path, "a", [address])
    assert list(tmp_path.iterdir()) == []


KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
LINES = st.sampled_from(
    ["metadata", "curve", f'    public-key = "{KEY}"', f'    secret-key = "{KEY}"', "",
     '    public-key = ""', '    secret-key = "short"', "    addresses = a:1 *:2 [::1]:3",
     "    addresses = ../x", '    public-key = "' + "\ufffd" * 40 + '"', "\tpublic-key=x", "# text"]
)  # fmt: skip


@pytest.mark.fuzz
@given(st.lists(LINES, max_size=12).map("\n".join).map(str.encode) | st.binary(max_size=80))
def test_any_file_holds_keys_or_is_refused_without_showing_one(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.key_secret"
    file.write_bytes(data)
    told = []
    for load in (read_pair, read_public, partial(read_public, ring=True)):
        try:
            load(file)
        except ConfigError as error:
            told.append(str(error))
    assert KEY not in "".join(told)


# -- who has the keys talks; everybody else is told in time what is wrong and what to do -----------


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


async def test_a_key_that_is_not_let_in_is_named_and_once_added_let_in_by_the_next_attempt(
    make_host: Any, connect: Connect, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(curve=keys.server)
    connection = connect(host.address, curve=keys.stranger)
    why = f"the server refused this client: add the public key {keys.stranger.own.pair.public}"
    said = await refused(connection, why)
    assert "curveClients" in said
    assert keys.stranger.own.pair.secret not in said
    assert f"its public key {keys.stranger.own.pair.public} is not in curveClients" in caplog.text
    assert host.frames == []
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
    with pytest.raises(ConfigError, match="refusing to listen"):
        make_host(bind="0.0.0.0:0")
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


@pytest.mark.parametrize("event", FAILED)
@pytest.mark.parametrize("with_keys", [False, True])
def test_whatever_fails_is_said_with_what_to_do(
    keys: Keys, event: WireEvent, with_keys: bool
) -> None:
    """A server that hangs up may be faster than its words, so each text stands for itself."""
    told = trouble_of(event, keys.client if with_keys else None)
    assert "curve" in told.lower() or str(keys.folder) in told
    assert keys.client.own.pair.secret not in told
