"""The pages, and what they answer to whom."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

import pytest

from kourou.errors import BadRequest, ConfigError, Unavailable
from kourou.service import admin_http as clear_text
from kourou.service import admin_http as http_connections
from kourou.service.admin_http import (
    AdminHttp,
    AdminPages,
    ClearTextWarning,
    GuardedServer,
    HttpRequest,
    HttpResponse,
    read_request,
)
from kourou.service.lifecycle import new_event_loop
from kourou.transport.tls import ClientAuth, ServerTls, TlsFiles
from kourou_rigs.certificates import Authority


class Trouble:
    """What the pages say."""

    sick = ""
    unready = ""


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
async def admin(trouble: Trouble) -> AsyncIterator[AdminHttp]:
    pages = AdminPages(
        healthy=lambda: trouble.sick,
        ready=lambda: trouble.unready,
        metrics=lambda: b"# figures\n",
        config=lambda: "key=ü\n",
        statistics=lambda: {"count": 3, "other": {"a": [1, 2]}},
    )
    made = AdminHttp("127.0.0.1", 0, pages)
    await made.start()
    yield made
    await made.stop()


async def fetch(
    admin: AdminHttp, request: str, host: str = "localhost"
) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
    writer.write(f"{request} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body


@pytest.mark.parametrize(
    "host", ["localhost:9", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "10.0.0.1"]
)
async def test_addresses_and_localhost_are_answered(admin: AdminHttp, host: str) -> None:
    assert (await fetch(admin, "GET /config", host))[0] == 200


@pytest.mark.parametrize(
    "host", ["attacker.example", "localhost.attacker.example", "", "[::1", "x:80"]
)
async def test_a_name_of_a_web_site_that_points_here_is_refused(
    admin: AdminHttp, host: str
) -> None:
    status, _, body = await fetch(admin, "GET /config", host)
    assert (status, body) == (421, b"Misdirected Request\n")


async def test_the_pages(admin: AdminHttp) -> None:
    assert (await fetch(admin, "GET /healthz"))[::2] == (200, b"ok\n")
    assert (await fetch(admin, "GET /readyz"))[::2] == (200, b"ok\n")
    assert (await fetch(admin, "GET /metrics"))[::2] == (200, b"# figures\n")
    assert (await fetch(admin, "GET /config"))[2].decode() == "key=ü\n"
    _, headers, body = await fetch(admin, "GET /statistics")
    assert json.loads(body) == {"count": 3, "other": {"a": [1, 2]}}
    assert headers["content-type"].startswith("application/json")
    assert headers["connection"] == "close"
    assert headers["cache-control"] == "no-store"


async def test_a_sick_service_says_so(admin: AdminHttp, trouble: Trouble) -> None:
    trouble.sick = "the disk failed"
    trouble.unready = "recovering"
    assert (await fetch(admin, "GET /healthz"))[::2] == (503, b"the disk failed\n")
    assert (await fetch(admin, "GET /readyz"))[::2] == (503, b"recovering\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /none", 404),
        ("GET /../etc/passwd", 404),
        ("POST /config", 405),
        ("DELETE /metrics", 405),
    ],
)
async def test_everything_else_is_refused(admin: AdminHttp, request_line: str, status: int) -> None:
    assert (await fetch(admin, request_line))[0] == status


async def test_the_root_page_lists_the_pages(admin: AdminHttp) -> None:
    status, _, body = await fetch(admin, "GET /")
    pages = [word.strip(",") for word in body.decode().split() if word.startswith("/")]
    assert (status, len(pages)) == (200, 5)
    assert (await fetch(admin, "GET /none"))[2].endswith(body)
    for page in pages:
        assert (await fetch(admin, f"GET {page}"))[0] == 200


async def test_a_taken_port_is_one_clear_sentence(admin: AdminHttp) -> None:
    second = AdminHttp("127.0.0.1", admin.port, admin._pages)
    with pytest.raises(ConfigError, match=f"admin port {admin.port} on 127.0.0.1"):
        await second.start()
    await second.stop()


async def test_questions_of_a_service() -> None:
    async def asked(path: str, query: object) -> object:
        match path:
            case "/tables":
                return {"asked": query}
            case "/wrong":
                raise BadRequest("no such column")
            case "/down":
                raise Unavailable("the database is away")
        return None

    nothing = lambda: ""  # noqa: E731 - said five times below
    pages = AdminPages(nothing, nothing, lambda: b"", nothing, dict, asked)
    admin = AdminHttp("127.0.0.1", 0, pages)
    await admin.start()
    try:
        status, headers, body = await fetch(admin, "GET /tables?a=1&b=%20x")
        assert (status, json.loads(body)) == (200, {"asked": {"a": "1", "b": " x"}})
        assert headers["content-type"].startswith("application/json")
        status, _, body = await fetch(admin, "GET /wrong")
        assert (status, json.loads(body)) == (400, {"error": "no such column"})
        assert (await fetch(admin, "GET /down"))[0] == 503
        assert (await fetch(admin, "GET /nowhere"))[0] == 404
        assert (await fetch(admin, "GET /healthz"))[0] == 200
        assert (await fetch(admin, "POST /tables"))[0] == 405
    finally:
        await admin.stop()


# -- A listener open to the network says so again and again ----------------------------------------


async def test_it_is_said_at_once_and_every_minute(monkeypatch, caplog) -> None:
    assert clear_text.WARNING_PERIOD_S == 60.0
    loop, waits = asyncio.get_running_loop(), []
    later = loop.call_later

    def soon(seconds, call, *arguments):
        waits.append(seconds)
        return later(0, call, *arguments)

    monkeypatch.setattr(loop, "call_later", soon, raising=False)
    warning = ClearTextWarning()
    with caplog.at_level(logging.WARNING, "kourou.service"):
        warning.start("0.0.0.0", "0.0.0.0:18081")
        assert caplog.text.count("0.0.0.0:18081") == 1
        while len(waits) < 4:  # noqa: ASYNC110 - what is waited for has no event to wait on
            await asyncio.sleep(0)
        warning.stop()
        said = caplog.text.count("0.0.0.0:18081")
        assert said == len(waits)
        assert set(waits) == {60.0}
        for _ in range(5):
            await asyncio.sleep(0)
        assert caplog.text.count("0.0.0.0:18081") == said, "closed"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_what_only_this_machine_reaches_is_no_matter(host, caplog) -> None:
    warning = ClearTextWarning()
    warning.start(host, "here")
    warning.stop()
    assert caplog.text == ""


@pytest.mark.parametrize("auth", [ClientAuth.NONE, ClientAuth.OPTIONAL, ClientAuth.REQUIRE])
async def test_pages_for_those_with_a_certificate_are_not_open(auth, tmp_path, caplog) -> None:
    authority = Authority(tmp_path, "own")
    trust = None if auth is ClientAuth.NONE else authority.path
    files = TlsFiles(*authority.pair("server"), trust=trust, client_auth=auth)
    pages = AdminPages(str, str, bytes, str, dict)
    admin = AdminHttp("0.0.0.0", 0, pages, ServerTls(files, enforcing=True))
    await admin.start()
    await admin.stop()
    assert admin.url == f"https://0.0.0.0:{admin.port}"
    assert ("open to the network" in caplog.text) == (auth is not ClientAuth.REQUIRE)


# -- A connection cannot be held open for nothing --------------------------------------------------


async def answer(request: HttpRequest) -> HttpResponse:
    if request.path == "/hang":
        await asyncio.Event().wait()
    if request.path == "/bug":
        raise ValueError("a bug")
    return HttpResponse(HTTPStatus.OK, "text/plain", b"here")


class Listener:
    async def __aenter__(self) -> Listener:
        self.http = GuardedServer(answer)
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self.http, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        self.http.close()
        await self.server.wait_closed()

    async def say(self, text: str) -> bytes:
        """What comes back until the other side closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(text.encode())
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@pytest.mark.fault
@pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "uvloop"]
)
def test_a_header_that_never_ends(
    monkeypatch: pytest.MonkeyPatch, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Also on the loop of services: uvloop's transports are other classes than asyncio's."""
    monkeypatch.setattr(http_connections, "ADMIN_HEADER_S_MAX", 0.02)

    async def say() -> bytes:
        async with Listener() as listener:
            return await listener.say("GET / HTTP/1.1\r\nX: y")

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(say()) == b""


@pytest.mark.fault
async def test_an_answer_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "ADMIN_ANSWER_S_MAX", 0.02)
    async with Listener() as listener:
        assert await listener.say("GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""


@pytest.mark.fault
async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "ADMIN_CONNECTIONS_MAX", 2)
    ask = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with Listener() as listener:
        held = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
        held[1][1].write(ask.format("/hang").encode())
        assert (await listener.say(ask.format("/"))).endswith(b"here"), "a silent one makes room"
        assert await held[0][0].read() == b"", "the oldest"
        held.append(await asyncio.open_connection("127.0.0.1", listener.port))
        held[2][1].write(ask.format("/hang").encode())
        while any(one.is_silent for one in listener.http.connections):  # noqa: ASYNC110 - as below
            await asyncio.sleep(0)
        assert await listener.say(ask.format("/")) == b"", "all have sent a request"
        for _, writer in held:
            writer.close()
        while listener.http.connections:  # noqa: ASYNC110 - they end in callbacks of the loop
            await asyncio.sleep(0)
        assert (await listener.say(ask.format("/"))).endswith(b"here")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("\x16\x03\x01\x02", 400),
        ("GET / HTTP/9", 400),
        ("GET /", 400),
        ("GET nowhere HTTP/1.1", 400),
        ("GET http://[::1/ HTTP/1.1", 400),
        ("G\x00T / HTTP/1.1", 400),
        ("GET /" + "x" * 20_000, 431),
        ("GET / HTTP/1.1\r\nCookie: " + "x" * 20_000, 431),
        ("GET /bug HTTP/1.1", 500),
    ],
)
async def test_what_is_no_request(text: str, status: int) -> None:
    async with Listener() as listener:
        said = await listener.say(text + "\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 %d " % status)
        assert b"here" not in said


async def test_a_request_in_pieces_from_a_client_that_sends_no_more() -> None:
    async with Listener() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        for piece in (b"GET / HT", b"TP/1.0\r", b"\n\r", b"\n"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.write_eof()
        assert (await reader.read()).endswith(b"\r\n\r\nhere")
        writer.close()


async def test_head_has_the_header_alone() -> None:
    async with Listener() as listener:
        said = await listener.say("HEAD / HTTP/1.1\r\n\r\n")
        assert b"Content-Length: 4\r\n" in said
        assert said.endswith(b"\r\n\r\n")


async def test_only_the_first_request_is_answered() -> None:
    async with Listener() as listener:
        said = await listener.say("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        assert said.count(b"here") == 1


def test_what_is_asked() -> None:
    assert read_request(b"GET /a%20b?x=1&x=%C3%BC&y= HTTP/1.1\r\nHost: h") == HttpRequest(
        "GET", "/a b", {"x": "\u00fc", "y": ""}
    )
    through_a_proxy = read_request(b"GET http://h:1/metrics HTTP/1.1")
    assert through_a_proxy == HttpRequest("GET", "/metrics", {})
