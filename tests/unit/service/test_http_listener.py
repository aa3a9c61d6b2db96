"""A port of HTTP over TLS: whom it serves, what it closes, and how it takes new files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from kourou.model import limits
from kourou.service.admin_http import GuardedServer, HttpRequest, HttpResponse
from kourou.service.http_listener import HttpListener
from kourou.service.lifecycle import new_event_loop
from kourou.transport.tls import ClientAuth, ServerTls, TlsFiles
from kourou_rigs.certificates import Authority

Run = Callable[[Coroutine[Any, Any, None]], None]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(params=[asyncio.new_event_loop, new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a coroutine on each kind of loop: their transports are other classes."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "own", "own")


@pytest.fixture
def files(authority: Authority) -> TlsFiles:
    return TlsFiles(*authority.pair("server"))


class Site:
    """A listener, and the requests that reached its server."""

    def __init__(self, files: TlsFiles | None) -> None:
        tls = None if files is None else ServerTls(files, enforcing=True)
        self.requests: list[HttpRequest] = []
        self.http = GuardedServer(self._answer)
        self.listener = HttpListener(self.http, "127.0.0.1", 0, tls)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        return HttpResponse(HTTPStatus.OK, "text/plain", b"here")

    async def dial(self, trust: ssl.SSLContext | None = None) -> Stream:
        return await asyncio.open_connection("127.0.0.1", self.listener.port, ssl=trust)

    async def fetch(self, trust: ssl.SSLContext | None = None) -> bytes:
        return await said(await self.dial(trust), REQUEST)


async def said(stream: Stream, sent: bytes = b"") -> bytes:
    """What comes back until the other side closes."""
    reader, writer = stream
    try:
        writer.write(sent)
        return await reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def listening(files: TlsFiles | None) -> AsyncIterator[Site]:
    site = Site(files)
    await site.listener.start()
    try:
        yield site
    finally:
        await site.listener.close()
        site.http.close()
        await site.listener.wait_closed()


def subject(stream: Stream) -> str:
    certificate = stream[1].get_extra_info("peercert")
    return str(dict(pair[0] for pair in certificate["subject"])["commonName"])


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_scheme_of_its_url_is_served(
    run: Run, files: TlsFiles, authority: Authority, scheme: str
) -> None:
    encrypted = scheme == "https"

    async def work() -> None:
        async with listening(files if encrypted else None) as site:
            assert site.listener.url == f"{scheme}://127.0.0.1:{site.listener.port}"
            answer = await site.fetch(authority.trusted() if encrypted else None)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b"here")

    run(work())


@pytest.mark.fault
def test_clear_text_is_answered_and_closed_and_no_page_sees_it(
    run: Run, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with listening(files) as site:
            answer = await site.fetch()
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert answer.endswith(b"this port serves HTTPS: use https:// in the address\n")
            assert site.requests == []

    run(work())
    assert "it does not use TLS, which this port requires" in caplog.text


@pytest.mark.fault
@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00"])
def test_half_a_handshake_ends_in_time(
    run: Run,
    files: TlsFiles,
    sent: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(limits, "TLS_HANDSHAKE_MS_MAX", 50)

    async def work() -> None:
        async with listening(files) as site:
            assert await said(await site.dial(), sent) == b""

    run(work())
    assert "handshake" in caplog.text


@pytest.mark.fault
def test_a_peer_that_leaves_at_once_is_no_matter(
    run: Run, files: TlsFiles, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with listening(files) as site:
            _, writer = await site.dial()
            writer.close()
            await writer.wait_closed()
            assert (await site.fetch(authority.trusted())).endswith(b"here")
            while site.listener._handshakes:  # noqa: ASYNC110 - they end in callbacks of the loop
                await asyncio.sleep(0)

    run(work())
    assert caplog.text == ""


@pytest.mark.fault
def test_too_many_handshakes_end_the_oldest(
    run: Run, files: TlsFiles, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTPS_HANDSHAKES_MAX", 2)

    async def work() -> None:
        async with listening(files) as site:
            silent = [await site.dial() for _ in range(2)]
            while len(site.listener._handshakes) < 2:  # noqa: ASYNC110 - accepted by a task
                await asyncio.sleep(0)
            assert (await site.fetch(authority.trusted())).endswith(b"here")
            assert await said(silent[0]) == b""
            assert len(site.listener._handshakes) == 1
            silent[1][1].close()
            await silent[1][1].wait_closed()

    run(work())


@pytest.mark.fault
@pytest.mark.parametrize(
    ("shown", "is_served"),
    [("own", True), ("foreign", False), ("expired", False), ("", False)],
)
def test_a_required_certificate_must_be_one_of_the_authority(
    run: Run,
    files: TlsFiles,
    authority: Authority,
    tmp_path: Path,
    shown: str,
    is_served: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pairs = {
        "own": authority.pair("client"),
        "foreign": Authority(tmp_path / "foreign", "foreign").pair("client"),
        "expired": authority.pair("old", expired=True),
    }
    required = replace(files, trust=authority.path, client_auth=ClientAuth.REQUIRE)

    async def work() -> None:
        async with listening(required) as site:
            try:
                answer = await site.fetch(authority.trusted(pairs.get(shown)))
            except (ConnectionError, ssl.SSLError):
                answer = b""
            assert answer.endswith(b"here") == is_served
            assert len(site.requests) == is_served

    run(work())
    assert ("the TLS handshake failed" in caplog.text) != is_served


@pytest.mark.fault
def test_a_client_notices_another_authority(
    run: Run, files: TlsFiles, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "other")

    async def work() -> None:
        async with listening(files) as site:
            with pytest.raises(ssl.SSLCertVerificationError):
                await site.dial(other.trusted())
            assert (await site.fetch(authority.trusted())).endswith(b"here")

    run(work())


def test_new_connections_use_changed_files_and_open_ones_stay(
    run: Run, files: TlsFiles, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with listening(files) as site:
            before = await site.dial(authority.trusted())
            renewed = authority.pair("renewed")
            renewed[0].replace(files.certificate)
            with caplog.at_level(logging.ERROR):
                same = await site.dial(authority.trusted())
            assert subject(same) == "server", "certificate and key are not a pair yet"
            assert "are not a pair" in caplog.text
            renewed[1].replace(files.key)
            after = await site.dial(authority.trusted())
            assert subject(after) == "renewed"
            for stream in (before, same, after):
                assert (await said(stream, REQUEST)).endswith(b"here")

    run(work())


def test_a_closed_listener_lets_open_connections_finish(
    run: Run, files: TlsFiles, authority: Authority
) -> None:
    async def work() -> None:
        async with listening(files) as site:
            silent, open_one = await site.dial(), await site.dial(authority.trusted())
            while len(site.listener._handshakes) > 1:  # noqa: ASYNC110 - a task of the listener
                await asyncio.sleep(0)
            await site.listener.close()
            assert await said(silent) == b""
            assert (await said(open_one, REQUEST)).endswith(b"here")
            with pytest.raises(ConnectionRefusedError):
                await site.dial()

    run(work())
