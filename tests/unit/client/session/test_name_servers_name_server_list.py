"""A list of name servers is read whole or not at all, and the last good one is kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from kourou.client.session.name_servers import LIST_WHOLE_MS, NameServerList, fetch_list
from kourou.errors import Unavailable
from kourou_rigs.clock import ManualClock
from kourou_rigs.list_server import BAD_ANSWERS, PAGES, ListServer, answer_of

LOG = logging.getLogger("kourou.test")


@pytest.mark.feature("F033")
@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_an_answer_that_is_not_whole_is_refused(name):
    async with ListServer([BAD_ANSWERS[name]]).running() as server:
        with pytest.raises(Unavailable, match=r"returned|did not return"):
            await asyncio.to_thread(fetch_list, server.url)


@pytest.mark.feature("F033")
@pytest.mark.parametrize(
    "answer",
    [
        answer_of(b"a:1;b:2\n"),
        b"HTTP/1.0 200 OK\r\n\r\na:1;b:2\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"4\r\na:1;\r\n4\r\nb:2\n\r\n0\r\n\r\n",
    ],
)
async def test_a_whole_answer_is_taken(answer):
    async with ListServer([answer]).running() as server:
        assert await asyncio.to_thread(fetch_list, server.url) == "a:1;b:2\n"
    assert server.paths == ["/list"]


class HurriedClock(ManualClock):
    """Whenever somebody looks, more time has passed than a list may take."""

    def monotonic_ms(self) -> int:
        self.advance(LIST_WHOLE_MS + 1)
        return super().monotonic_ms()


async def test_a_body_that_trickles_in_is_given_up():
    gone, closed = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\na")
        await gone.wait()  # there never is an end
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        closed.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="bytes and did not finish within"):
            await asyncio.to_thread(fetch_list, f"http://127.0.0.1:{port}/list", HurriedClock())
        gone.set()
        await closed.wait()


@pytest.mark.feature("F033")
async def test_the_last_good_list_is_kept(caplog):
    caplog.set_level(logging.INFO, LOG.name)
    good = [answer_of(b"n1:9876;n2:9876;n1:9876"), answer_of(b"n3:9876")]
    bad = [*BAD_ANSWERS.values(), *PAGES]
    async with ListServer([good[0], *bad, good[1]]).running() as server:
        listed = NameServerList(server.url, LOG)
        assert listed.addresses == ()
        assert await listed.refresh()
        assert listed.addresses == ("n1:9876", "n2:9876")
        for _ in bad:
            assert not await listed.refresh()
            assert listed.addresses == ("n1:9876", "n2:9876")
        assert await listed.refresh()
        assert listed.addresses == ("n3:9876",)
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 2, "once when it begins to fail, once when it ends"
    assert "is unreadable; keeping n1:9876;n2:9876" in said[0]
    assert "is readable again" in said[1]
