"""The pages, and what they answer to whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from kourou.errors import BadRequest, ConfigError, Unavailable
from kourou.service.admin_http import AdminHttp, AdminPages


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
