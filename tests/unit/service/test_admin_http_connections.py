"""A connection cannot be held open for nothing."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import pytest

from kourou.service import admin_http as http_connections
from kourou.service.admin_http import GuardedServer, HttpRequest, HttpResponse, read_request
from kourou.service.lifecycle import new_event_loop


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
async def test_a_header_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "ADMIN_HEADER_S_MAX", 0.02)
    async with Listener() as listener:
        assert await listener.say("GET / HTTP/1.1\r\nX: y") == b""


@pytest.mark.fault
def test_a_header_that_never_ends_on_the_loop_of_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop's transports are other classes than asyncio's."""
    monkeypatch.setattr(http_connections, "ADMIN_HEADER_S_MAX", 0.02)

    async def say() -> bytes:
        async with Listener() as listener:
            return await listener.say("GET / HTTP/1.1\r\nX: y")

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(say()) == b""


@pytest.mark.fault
async def test_an_answer_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "ADMIN_ANSWER_S_MAX", 0.02)
    async with Listener() as listener:
        assert await listener.say("GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""


@pytest.mark.fault
async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "ADMIN_CONNECTIONS_MAX", 2)
    async with Listener() as listener:
        held = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
        assert await listener.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        while listener.http.connections:  # noqa: ASYNC110 - they end in callbacks of the loop
            await asyncio.sleep(0)
        text = await listener.say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert text.endswith(b"here")


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
