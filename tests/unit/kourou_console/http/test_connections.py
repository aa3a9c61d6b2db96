"""Connections: whoever is slow is cut off, whoever asks nothing makes room, others go on."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from kourou.errors import Unavailable
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou_console.http import connections, request_input
from kourou_console.http.call import Content
from kourou_console.http.connections import header_error
from kourou_console.operation import NoParameters, Operation
from kourou_rigs.console import ConsoleHere

MESSAGES = "/v1/topics/orders/messages"
BATCHES = "/v1/topics/orders/batches"


def post(path: str, length: int, *lines: str) -> bytes:
    """The header of a request with a body of this length."""
    words = [f"POST {path} HTTP/1.1", "Host: localhost", *lines, f"Content-Length: {length}"]
    return "\r\n".join([*words, "", ""]).encode()


def bomb() -> bytes:
    """A request whose body is a thousand times as large when it is decompressed."""
    body = gzip.compress(b"\0" * (64 << 20), 9)
    lines = ("Content-Encoding: gzip", "Content-Type: application/json")
    return post(BATCHES, len(body), *lines) + body


@contextlib.contextmanager
def dialled(console: ConsoleHere, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, closed in the end."""
    with contextlib.ExitStack() as held:
        yield [held.enter_context(console.dial()) for _ in range(count)]


def rest_of(link: socket.socket) -> bytes:
    """What the other side says until it closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while more := link.recv(65_536):
            found += more
    return found


def is_closed(link: socket.socket) -> bool:
    """Waits until the other side has closed it; what it said before is thrown away."""
    rest_of(link)
    return True


def test_a_header_must_come_in_time(console, monkeypatch):
    before = console.service._http.cut_off_count
    with dialled(console, 50) as slow, monkeypatch.context() as hurried:
        hurried.setattr(connections, "GATEWAY_HEADER_S_MAX", 0.1)
        for link in slow:
            with contextlib.suppress(ConnectionError):  # it was cut off before it said anything
                link.sendall(b"GET /v1/me HTTP/1.1\r\nX-Slow: ")
        assert all(is_closed(link) for link in slow)
    assert console.service._http.cut_off_count == before + 50
    assert console.get("/v1/me").status == 200


def test_who_asks_nothing_makes_room(console, monkeypatch):
    monkeypatch.setattr(connections, "GATEWAY_CONNECTIONS_MAX", 50)
    with dialled(console, 50) as idle:
        assert console.get("/v1/me").status == 200, "a newcomer has a place"
        assert is_closed(idle[0]), "the oldest has not"
        idle[1].sendall(b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[1].recv(20).startswith(b"HTTP/1.1 200")


def test_where_all_are_busy_nobody_is_sent_away(console, monkeypatch):
    monkeypatch.setattr(connections, "GATEWAY_CONNECTIONS_MAX", 2)
    length = post(MESSAGES, 2)
    with dialled(console, 2) as busy:
        for link in busy:
            link.sendall(length)
        while console.service._request_metrics.under_way < 2:
            console.run(asyncio.sleep(0))
        with console.dial() as late:
            assert is_closed(late)
        for link in busy:
            link.sendall(b"ok")
            assert link.recv(20).startswith(b"HTTP/1.1 200")


def test_a_slow_reader_is_cut_off(console, monkeypatch):
    async def large(gateway: object, parameters: NoParameters) -> Content:
        return Content(b"x" * (32 << 20))

    with console.serving(Operation("GET", "/v1/large", "large", "L.", "L", large, Content)):
        before = console.service._http.cut_off_count
        with console.dial() as link, monkeypatch.context() as hurried:
            hurried.setattr(connections, "GATEWAY_STALL_S_MAX", 0.1)
            link.sendall(b"GET /v1/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while console.service._http.cut_off_count == before:
                console.run(asyncio.sleep(0))
        assert len(console.get("/v1/large").body) == 32 << 20


class Waiting:
    """A handler that waits for ever, and says how it ended."""

    def __init__(self) -> None:
        self.began = 0
        self.cancelled = 0

    async def __call__(self, gateway: object, parameters: NoParameters) -> None:
        self.began += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def waits(handler: Waiting) -> Operation:
    return Operation(
        "GET", "/v1/waits", "waits", "W.", "W", handler, None, status=204, leaves_with_caller=True
    )


def test_what_waits_ends_with_its_caller(console):
    handler = Waiting()
    with console.serving(waits(handler)):
        with console.dial() as link:
            link.sendall(b"GET /v1/waits HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not handler.began:
                console.run(asyncio.sleep(0))
        while not handler.cancelled:
            console.run(asyncio.sleep(0))
    assert console.service._request_metrics.streams == 0


def test_what_waits_is_told_when_the_service_ends(cluster):
    handler = Waiting()
    with ConsoleHere(cluster) as console:
        with console.serving(waits(handler)), console.dial() as link:
            link.sendall(b"GET /v1/waits HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not handler.began:
                console.run(asyncio.sleep(0))
            console.run(console.service.drain())
            assert link.recv(20).startswith(b"HTTP/1.1 503")
        with contextlib.suppress(ConnectionError), console.dial() as link:
            assert is_closed(link)


def streams(failure: BaseException | None) -> Operation:
    """A stream that begins, and then fails or waits for ever."""

    async def begun(gateway: object, parameters: NoParameters, request: web.BaseRequest) -> None:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        if failure is not None:
            raise failure
        await asyncio.get_running_loop().create_future()

    return Operation("GET", "/v1/streams", "streams", "S.", "S", begun, None, stream=True)


@pytest.mark.parametrize("failure", [None, KeyError("bug"), Unavailable("later"), OSError()])
def test_an_answer_that_has_begun_is_cut_off_and_has_no_other_in_it(cluster, failure):
    with (
        ConsoleHere(cluster) as console,
        console.serving(streams(failure)),
        console.dial() as link,
    ):
        link.sendall(b"GET /v1/streams HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = link.recv(65_536)
        if failure is None:
            console.run(console.service.drain())
        while more := link.recv(65_536):
            found += more
    assert found.count(b"HTTP/1.1") == 1
    assert found.endswith(b"\r\n5\r\nbegun\r\n"), "and no last chunk"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
        b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"POST /v1/me HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_words(console, request_bytes, caplog):
    with console.dial() as link:
        link.sendall(request_bytes)
        found = rest_of(link)
    assert found.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")), found[:200]
    assert b"application/problem+json" in found
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


HOST = b"Host: localhost\r\n"
SMUGGLED = b"GET /v1/me HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 4\r\nContent-Length: %d\r\n" % len(SMUGGLED),
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity, chunked\r\nContent-Length: %d\r\n" % len(SMUGGLED),
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Content-Length : 4\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length: 0x4\r\n",
        b"X: y\nContent-Length: 4\r\n",
    ],
)
def test_a_length_that_a_proxy_may_read_otherwise_smuggles_no_request(console, head):
    """The request is refused, and no byte behind it is taken for another one."""
    with console.dial() as link:
        link.sendall(b"POST /v1/me HTTP/1.1\r\n" + HOST + head + b"\r\n" + SMUGGLED)
        found = rest_of(link)
    assert found.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")), found[:200]
    assert found.count(b"HTTP/1.") == 1


def test_bombs_do_not_go_off_and_a_turn_of_the_loop_decompresses_one_step(console, monkeypatch):
    """The lag of the loop is bounded by what one turn may decompress."""
    attack = bomb()
    large = b'{"messages":[' + b'{"body":"x"},' * 20_000 + b'{"body":"x"}]}'
    heavy = post(BATCHES, len(large), "Content-Type: application/json") + large
    with turns_of(console, monkeypatch) as turns, dialled(console, 20) as links:
        for number, link in enumerate(links):
            link.sendall(attack if number % 4 else heavy)
        statuses = sorted(link.recv(12)[9:12] for link in links)
    assert statuses == [b"400"] * 5 + [b"413"] * 15, "too many messages; too large"
    step = request_input._STEP_BYTES
    assert 15 * step < sum(turns) <= 15 * (BODY_SIZE_BYTES_MAX + step)
    assert max(turns) <= step


@pytest.mark.slow
def test_a_thousand_slow_clients_and_bombs_at_once(console, monkeypatch):
    attack = bomb()
    with (
        turns_of(console, monkeypatch) as turns,
        dialled(console, 1_000) as slow,
        dialled(console, 15) as bombs,
    ):
        for link in slow:
            link.sendall(b"GET /v1/me HTTP/1.1\r\nX-Slow: ")
        for link in bombs:
            link.sendall(attack)
        for link in bombs:
            assert link.recv(12).startswith(b"HTTP/1.1 413")
        for _ in range(50):
            assert console.post(MESSAGES, body=b"others go on").status == 200
        assert all(is_closed(link) for link in slow)
    assert max(turns) <= request_input._STEP_BYTES


@contextlib.contextmanager
def turns_of(console: ConsoleHere, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Bytes that each turn of the console's loop decompressed, if any, while the block runs."""
    turns = [0]
    ended = threading.Event()
    stopped = threading.Event()
    loop = console._loop
    real = zlib.decompressobj

    class Counting:
        def __init__(self, window: int) -> None:
            self._real = real(window)

        def decompress(self, data: bytes, step: int = 0) -> bytes:
            part = self._real.decompress(data, step)
            turns[-1] += len(part)
            return part

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    def next_turn() -> None:
        if turns[-1]:
            turns.append(0)
        if ended.is_set():
            stopped.set()
        else:
            loop.call_soon(next_turn)  # what is soon comes in the next turn, and not in this one

    with monkeypatch.context() as patched:
        patched.setattr(request_input.zlib, "decompressobj", Counting)
        loop.call_soon_threadsafe(next_turn)
        try:
            yield turns
        finally:
            ended.set()
            stopped.wait(60)


# -- A header that the parser refuses is named, with the character and with what to do -------------


@pytest.mark.parametrize(
    ("value", "character", "advice"),
    [
        (b"a\x01b", "U+0001", "base64"),
        (b"a\x02", "U+0002", "base64"),
        (b"a\x00b", "U+0000", "an envelope in JSON"),
        (b"it's\x1b[0m", "U+001B", "an envelope in JSON"),
        (b"a\x7f", "U+007F", "an envelope in JSON"),
    ],
)
def test_a_property_with_a_control_character_is_named(
    console: ConsoleHere, value: bytes, character: str, advice: str
) -> None:
    lines = (b"POST /v1/topics/t/messages HTTP/1.1", b"Kourou-Property-note: " + value, b"", b"")
    with console.dial() as there:
        there.sendall(b"\r\n".join(lines))
        message = there.makefile("rb").read()
    assert message.startswith(b"HTTP/1.0 400 ")
    assert b"the header Kourou-Property-note contains the control character " in message
    assert character.encode() in message
    assert advice.encode() in message


def test_another_header_has_no_envelope() -> None:
    text, hint = header_error("Invalid header value char:\n\n  b'Accept: \\x05'\n      ^")
    assert "the header Accept contains the control character U+0005" in text
    assert hint == "leave it out"


@pytest.mark.parametrize(
    "message",
    ["Invalid method encountered:", "Bad line:\n\n  b'\\x16\\x03\\x01'\n  ^", "b'a: b'", "b'"],
)
def test_all_else_stays_as_the_parser_said_it(message: str) -> None:
    assert header_error(message) == (message.partition("\n")[0], "")
