"""A connection cannot be held open for nothing."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from kourou.service import http_connections
from kourou.service.http_connections import guarded_server
from kourou.service.lifecycle import new_event_loop


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/hang":
        await asyncio.Event().wait()
    return web.Response(text="here")


class Listener:
    async def __aenter__(self) -> Listener:
        self.http = guarded_server(answer)
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self.http, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await self.http.shutdown(timeout=0.1)
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
        assert await listener.say("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n") == b""


@pytest.mark.fault
async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "ADMIN_CONNECTIONS_MAX", 2)
    async with Listener() as listener:
        held = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
        assert await listener.say("GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        while listener.http.connections:  # noqa: ASYNC110 - they end in callbacks of the loop
            await asyncio.sleep(0)
        text = await listener.say("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert text.endswith(b"here")


@pytest.mark.parametrize(
    "text", ["\x16\x03\x01\x02", "GET / HTTP/9\r\n\r\n", "GET /" + "x" * 9_000]
)
async def test_what_is_no_request(text: str) -> None:
    async with Listener() as listener:
        assert b"here" not in await listener.say(text + "\r\n\r\n")
