"""A listener open to the network says so again and again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kourou.service import admin_http as clear_text
from kourou.service.admin_http import AdminHttp, AdminPages, ClearTextWarning
from kourou.transport.tls import ClientAuth, ServerTls, TlsFiles
from kourou_rigs.certificates import Authority


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
