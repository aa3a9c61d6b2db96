"""TLS on the port of RocketMQ's frames: what it accepts, what it serves, what it closes."""

from __future__ import annotations

import asyncio
import random
import socket as socketlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.model import limits
from kourou.protocol.wire.remoting import RemotingCommand, encode_command
from kourou.transport.remoting_server import RemotingServer
from kourou.transport.tls import TLS_HANDSHAKE, ClientAuth, ServerTls, TlsFiles
from kourou_rigs.certificates import Authority

Host = Any  # RemotingHost of tests/unit/transport/conftest.py
Make = Callable[..., Host]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def frame(opaque: int, body: bytes = b"") -> bytes:
    return encode_command(RemotingCommand(10, opaque=opaque, body=body))


# -- certificates


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "own", "own")


@pytest.fixture
def files(authority: Authority) -> TlsFiles:
    return TlsFiles(*authority.pair("server"))


@pytest.fixture
async def host(make_remoting_host: Make, files: TlsFiles) -> Host:
    return make_remoting_host(tls=ServerTls(files, enforcing=False))


@pytest.fixture
async def enforcing(make_remoting_host: Make, files: TlsFiles) -> Host:
    return make_remoting_host(tls=ServerTls(files, enforcing=True))


def presented(stream: Stream) -> str:
    """The name in the server's certificate."""
    certificate = stream[1].get_extra_info("peercert")
    return str(dict(pair[0] for pair in certificate["subject"])["commonName"])


# -- one port for both


async def test_frames_pass_over_tls_and_in_clear_text_on_one_port(
    host: Host, authority: Authority
) -> None:
    host.echo = True
    plain = await host.connect()
    secret = await host.connect(authority.trusted())
    for reader, writer in (plain, secret):
        sent = frame(7, b"x" * 1_000)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
    assert [one.peer.protocol for one in host.frames] == ["tcp", "tcp"]
    assert host.frames[1].peer.address == secret[1].get_extra_info("sockname")
    assert (host.server.statistics().peers, host.server.statistics().peers_tls) == (2, 1)


@pytest.mark.fault
async def test_enforced_tls_closes_clear_text_before_any_request_is_seen(
    enforcing: Host, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await enforcing.connect()
    writer.write(b"".join(map(frame, range(20))))
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    assert enforcing.batches == []
    assert "it does not use TLS, which this listener requires" in caplog.text
    assert len(enforcing.lost) == 1
    enforcing.echo = True
    reader, writer = await enforcing.connect(authority.trusted())
    writer.write(frame(1))
    assert await reader.readexactly(len(frame(1))) == frame(1)


@pytest.mark.fault
async def test_without_tls_a_handshake_is_closed_with_the_setting_in_the_log(
    remoting_host: Host, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await remoting_host.connect(authority.trusted())
    assert "the peer uses TLS, which is disabled here (tls.server.mode)" in caplog.text


async def test_an_encrypted_listener_may_be_open_to_the_network(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="open to the network"):
        RemotingServer("0.0.0.0:0", print, print, tls=ServerTls(files, enforcing=False))
    server = RemotingServer("0.0.0.0:0", print, print, tls=ServerTls(files, enforcing=True))
    server.start()
    server.close()
    assert "clear text" not in caplog.text


# -- records are not frames


@pytest.mark.parametrize("seed", range(3))
async def test_large_frames_pass_in_records_of_any_size(
    host: Host, authority: Authority, seed: int
) -> None:
    chance = random.Random(seed)
    host.echo = True
    reader, writer = await host.connect(authority.trusted())
    sent = b"".join(frame(n, chance.randbytes(size)) for n, size in enumerate((1 << 20, 0, 70_001)))
    at = 0
    while at < len(sent):
        size = chance.choice((1, 7, 8, 1_000, 16_384, 16_385, 300_000))
        writer.write(sent[at : at + size])
        await asyncio.sleep(0)
        at += size
    assert await reader.readexactly(len(sent)) == sent
    assert host.opaques == [0, 1, 2]
    assert host.server.statistics().unfinished_bytes == 0


async def test_all_frames_of_a_record_are_one_batch(
    host: Host, authority: Authority, until: Until
) -> None:
    """Nothing that was decrypted stays behind: the socket would not report it again."""
    _, writer = await host.connect(authority.trusted())
    writer.write(b"".join(map(frame, range(100))))
    await until(lambda: len(host.frames) == 100)
    assert len(host.batches) == 1
    writer.write(b"".join(frame(n, b"x" * 300) for n in range(200)))  # several records
    await until(lambda: len(host.frames) == 300)
    assert len(host.batches) <= 3


async def test_a_handshake_and_requests_in_one_packet(host: Host, authority: Authority) -> None:
    """The last message of a handshake and the first request may arrive together, byte by byte."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = authority.trusted().wrap_bio(incoming, outgoing, server_hostname="localhost")
    host.echo = True
    reader, writer = await host.connect()
    while True:
        try:
            session.do_handshake()
            break
        except ssl.SSLWantReadError:
            for byte in outgoing.read():
                writer.write(bytes((byte,)))
                await asyncio.sleep(0)
            incoming.write(await reader.read(65_536))
    session.write(frame(1) + frame(2))
    writer.write(outgoing.read())
    wanted, arrived = len(frame(1) + frame(2)), b""
    while len(arrived) < wanted:
        incoming.write(await reader.read(65_536))
        try:
            arrived += session.read(65_536)
        except ssl.SSLWantReadError:
            continue
    assert arrived == frame(1) + frame(2)
    assert host.opaques == [1, 2]


async def test_many_small_answers_share_records(host: Host, authority: Authority) -> None:
    host.echo = True
    reader, writer = await host.connect(authority.trusted())
    writer.write(frame(0))
    await reader.readexactly(len(frame(0)))
    before = host.server.statistics().bytes_out
    sent = b"".join(map(frame, range(100)))
    writer.write(sent)
    assert await reader.readexactly(len(sent)) == sent
    assert host.server.statistics().bytes_out - before < len(sent) + 3 * 64


# -- slow and silent clients


@pytest.mark.fault
async def test_what_a_slow_reader_does_not_take_waits_and_arrives(
    host: Host, until: Until, authority: Authority
) -> None:
    reader, writer = await host.connect(authority.trusted())
    writer.write(frame(1))
    await until(lambda: bool(host.frames))
    writer.transport.pause_reading()
    chance = random.Random(5)
    pieces = [chance.randbytes(chance.randrange(1, 200_000)) for _ in range(300)]
    for piece in pieces:
        host.server.send(host.frames[0].peer, (b"", piece))
    await until(lambda: host.server.statistics().queued_bytes > 0)
    (link,) = host.server._links.values()
    encrypted = sum(map(len, list(link.queue)[: link._sealed]))
    assert 0 < encrypted <= 65_536 + 1_024
    writer.transport.resume_reading()
    sent = b"".join(pieces)
    assert await reader.readexactly(len(sent)) == sent
    assert (host.server.statistics().queued_bytes, host.lost) == (0, [])


@pytest.mark.fault
@pytest.mark.parametrize("started", [b"", TLS_HANDSHAKE + b"\x03\x01"])
async def test_half_a_handshake_is_closed_in_time(
    enforcing: Host,
    until: Until,
    sweeping: None,
    started: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    enforcing.server._sweep()
    _, writer = await enforcing.connect()
    writer.write(started)
    await until(lambda: enforcing.server.statistics().peers_tls == bool(started))
    await until(lambda: enforcing.server.statistics().peers == 1)
    enforcing.clock.advance(limits.TLS_HANDSHAKE_MS_MAX - 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert enforcing.lost == []
    enforcing.clock.advance(1)
    await until(lambda: len(enforcing.lost) == 1)
    assert f"no TLS handshake within {limits.TLS_HANDSHAKE_MS_MAX} ms" in caplog.text


@pytest.mark.fault
async def test_a_handshake_that_trickles_is_closed_as_one_that_stops(
    enforcing: Host, authority: Authority, until: Until, sweeping: None
) -> None:
    """Its time counts from the connection on: a byte now and then does not prolong it."""
    outgoing = ssl.MemoryBIO()
    session = authority.trusted().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    hello = outgoing.read()
    enforcing.server._sweep()
    _, writer = await enforcing.connect()
    await until(lambda: enforcing.server.statistics().peers == 1)
    for number in range(4):
        writer.write(hello[number : number + 1])
        await until(lambda: enforcing.server.statistics().peers_tls == 1)
        assert enforcing.lost == []
        enforcing.clock.advance(limits.TLS_HANDSHAKE_MS_MAX // 4)
    await until(lambda: len(enforcing.lost) == 1)


async def test_a_handshake_in_time_stays_and_a_silent_plain_client_may_wait(
    host: Host, authority: Authority, sweeping: None
) -> None:
    host.server._sweep()
    await host.connect(authority.trusted())
    await host.connect()
    host.clock.advance(limits.TLS_HANDSHAKE_MS_MAX)
    for _ in range(20):
        await asyncio.sleep(0)
    assert host.lost == []


# -- handshakes that fail


@pytest.mark.fault
async def test_garbage_instead_of_a_handshake_closes_that_connection_alone(
    host: Host, authority: Authority, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    host.echo = True
    reader, writer = await host.connect(authority.trusted())
    for number in range(5):
        _, bad = await host.connect()
        bad.write(TLS_HANDSHAKE + b" is how a record begins, not this")
        await until(lambda number=number: len(host.lost) == number + 1)  # type: ignore[misc]  # a default binds it
    assert caplog.text.count("the TLS handshake failed") == 1, "the others are counted"
    assert host.server.statistics().tls_handshakes_failed == 5
    writer.write(frame(1))
    assert await reader.readexactly(len(frame(1))) == frame(1)


@pytest.mark.fault
async def test_bytes_that_were_changed_on_the_way_close_the_connection(
    host: Host, authority: Authority, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await host.connect(authority.trusted())
    raw: Any = writer.transport
    raw._ssl_protocol._transport.write(b"\x17\x03\x03\x00\x20" + bytes(32))
    await until(lambda: len(host.lost) == 1)
    assert "the TLS stream is broken: " in caplog.text
    assert host.batches == []


@pytest.mark.fault
async def test_an_old_version_gets_an_alert(host: Host, authority: Authority) -> None:
    old = authority.trusted()
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        await host.connect(old)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_current_versions_are_served_without_tickets(
    host: Host, authority: Authority, version: ssl.TLSVersion
) -> None:
    host.echo = True
    context = authority.trusted()
    context.minimum_version = context.maximum_version = version
    reader, writer = await host.connect(context)
    writer.write(frame(1))
    await reader.readexactly(len(frame(1)))
    used = writer.get_extra_info("ssl_object")
    assert used.version() == version.name.replace("_", ".")
    assert used.compression() is None
    assert used.session is None or not used.session.has_ticket


async def test_the_end_of_either_side_is_a_close_notify(
    host: Host, authority: Authority, until: Until
) -> None:
    with socketlib.create_connection(("127.0.0.1", host.server.port)) as raw:
        context = authority.trusted()
        loop = asyncio.get_running_loop()
        secret = await loop.run_in_executor(
            None, lambda: context.wrap_socket(raw, server_hostname="localhost")
        )
        secret.suppress_ragged_eofs = False
        await until(lambda: host.server.statistics().peers_tls == 1)
        host.server.close()
        assert await loop.run_in_executor(None, secret.recv, 1) == b"", "an end, not a cut"
        secret.close()


@pytest.mark.fault
async def test_a_client_that_ends_its_stream_is_lost_after_its_last_frames(
    host: Host, authority: Authority, until: Until
) -> None:
    _, writer = await host.connect(authority.trusted())
    writer.write(frame(1))
    writer.close()
    await until(lambda: len(host.lost) == 1)
    assert host.order == ["frames", "lost"]


# -- client certificates


@pytest.mark.parametrize(
    ("wanted", "shown", "served"),
    [
        (ClientAuth.REQUIRE, "own", True),
        (ClientAuth.REQUIRE, "", False),
        (ClientAuth.REQUIRE, "foreign", False),
        (ClientAuth.OPTIONAL, "own", True),
        (ClientAuth.OPTIONAL, "", True),
        (ClientAuth.OPTIONAL, "foreign", False),
        (ClientAuth.NONE, "", True),
    ],
)
async def test_client_certificates_are_verified_as_far_as_the_settings_say(
    make_remoting_host: Make,
    files: TlsFiles,
    authority: Authority,
    tmp_path: Path,
    wanted: ClientAuth,
    shown: str,
    served: bool,
) -> None:
    trust = None if wanted is ClientAuth.NONE else authority.path
    host = make_remoting_host(
        tls=ServerTls(replace(files, trust=trust, client_auth=wanted), enforcing=True)
    )
    host.echo = True
    authorities = {"own": authority, "foreign": Authority(tmp_path / "foreign", "foreign")}
    pair = authorities[shown].pair("client") if shown else None
    answer = b""
    try:  # with TLS 1.3 a client hears of the refusal when it reads
        reader, writer = await host.connect(authority.trusted(pair))
        writer.write(frame(1))
        answer = await reader.read(1_000)
    except (ssl.SSLError, ConnectionError):
        answer = b""
    assert (answer == frame(1)) is served
    assert bool(host.batches) is served


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_subject_of_a_certificate_comes_with_every_frame(
    make_remoting_host: Make, files: TlsFiles, authority: Authority, version: ssl.TLSVersion
) -> None:
    tls = replace(files, trust=authority.path, client_auth=ClientAuth.OPTIONAL)
    host = make_remoting_host(tls=ServerTls(tls, enforcing=False))
    host.echo = True
    subject = r"CN=till\, 1+UID=7,O=Example"
    own = authority.trusted(authority.pair("client", subject=subject))
    own.minimum_version = own.maximum_version = version
    streams = [await host.connect(own), await host.connect(authority.trusted())]
    streams.append(await host.connect())
    for number, (reader, writer) in enumerate(streams * 2):
        writer.write(frame(number))
        await reader.readexactly(len(frame(number)))
    assert [one.peer.subject for one in host.frames] == [subject, "", ""] * 2
    assert host.frames[0].peer == host.frames[3].peer


# -- files


async def test_a_changed_pair_serves_new_connections_and_the_open_ones_stay(
    host: Host, files: TlsFiles, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kourou.transport")
    host.echo = True
    before = await host.connect(authority.trusted())
    for target, source in zip((files.certificate, files.key), authority.pair("next"), strict=True):
        source.replace(target)
    host.server._sweep()
    after = await host.connect(authority.trusted())
    assert (presented(before), presented(after)) == ("server", "next")
    for reader, writer in (before, after):
        writer.write(frame(1))
        assert await reader.readexactly(len(frame(1))) == frame(1)
    assert "new TLS connections use the changed files" in caplog.text


@pytest.mark.fault
@pytest.mark.parametrize("change", ["mismatch", "garbage", "missing"])
async def test_files_that_cannot_be_used_change_nothing_and_are_logged_once(
    host: Host,
    files: TlsFiles,
    authority: Authority,
    change: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = authority.pair("next")
    if change == "mismatch":
        other[0].replace(files.certificate)
    elif change == "garbage":
        files.key.write_text("no key")
    else:
        files.key.unlink()
    for _ in range(3):
        host.server._sweep()
    assert caplog.text.count("TLS continues with the earlier certificate and key") == 1
    assert presented(await host.connect(authority.trusted())) == "server"
    if change == "mismatch":
        assert "are not a pair" in caplog.text
        other[1].replace(files.key)  # the second half of the change
        host.server._sweep()
        assert presented(await host.connect(authority.trusted())) == "next"


async def test_authorities_of_clients_are_read_again(
    make_remoting_host: Make, files: TlsFiles, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "other")
    trust = tmp_path / "trust.pem"
    trust.write_bytes(authority.path.read_bytes())
    auth = replace(files, trust=trust, client_auth=ClientAuth.REQUIRE)
    host = make_remoting_host(tls=ServerTls(auth, enforcing=True))
    host.echo = True
    trust.write_bytes(other.path.read_bytes() + authority.path.read_bytes())
    host.server._sweep()
    reader, writer = await host.connect(authority.trusted(other.pair("client")))
    writer.write(frame(1))
    assert await reader.readexactly(len(frame(1))) == frame(1)


def test_an_encrypted_key_takes_its_password_from_a_file(
    authority: Authority, tmp_path: Path
) -> None:
    files = TlsFiles(*authority.pair("server", b"hunter2"))
    with pytest.raises(ConfigError, match=r"is encrypted.*keyPasswordFile"):
        ServerTls(files, enforcing=True)
    password = tmp_path / "password"
    password.write_text("wrong")
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        ServerTls(replace(files, key_password=password), enforcing=True)
    assert "wrong" not in str(caught.value).replace("wrong tag", "")
    password.write_text("hunter2\n")
    assert ServerTls(replace(files, key_password=password), enforcing=True).context


@pytest.mark.fault
def test_files_that_cannot_be_used_are_named(
    authority: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    nothing = tmp_path / "nothing"
    with pytest.raises(ConfigError, match=r"nothing cannot be read: No such file"):
        ServerTls(replace(files, certificate=nothing), enforcing=True)
    with pytest.raises(ConfigError, match=r"server.pem and .*other.key are not a pair"):
        ServerTls(replace(files, key=authority.pair("other")[1]), enforcing=True)
    nothing.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"nothing holds no certificate"):
        ServerTls(replace(files, trust=nothing), enforcing=True)
    nothing.write_bytes(bytes(limits.TLS_FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match=r"nothing has more than"):
        ServerTls(replace(files, trust=nothing), enforcing=True)
