"""Where the name servers are is asked of an HTTP server, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kourou.broker.network.registration import LIST_REFRESH_S, LIST_RETRY_S, AddressServer, list_url
from kourou_rigs.list_server import BAD_ANSWERS, PAGES, ListServer, answer_of


class Sleeps:
    """A clock for `sleep`: time passes when the test says so."""

    def __init__(self) -> None:
        self.asleep: asyncio.Queue[float] = asyncio.Queue()
        self._awake = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self._awake.clear()
        self.asleep.put_nowait(seconds)
        await self._awake.wait()

    async def next(self, *, then_wake: bool = True) -> float:
        """How long it wants to sleep now."""
        seconds = await self.asleep.get()
        if then_wake:
            self._awake.set()
        return seconds


@pytest.mark.feature("F334")
@pytest.mark.parametrize(
    ("domain", "group", "url"),
    [
        ("jmenv.tbsite.net", "nsaddr", "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"),
        ("10.0.0.9:80", "nsaddr-unit", "http://10.0.0.9:80/rocketmq/nsaddr-unit"),
        ("[::1]", "x", "http://[::1]:8080/rocketmq/x"),
        ("[::1]:81", "x", "http://[::1]:81/rocketmq/x"),
    ],
)
def test_the_address_is_rocketmqs(domain: str, group: str, url: str) -> None:
    assert list_url(domain, group) == url


@pytest.mark.feature("F334")
async def test_every_list_that_can_be_read_is_followed() -> None:
    sleeps, followed = Sleeps(), []
    lists = [answer_of(b"n1:9876;n1:19876;n2:20001\n"), answer_of(b"n2:20001")]
    bad = [*BAD_ANSWERS.values(), *PAGES]
    async with ListServer([lists[0], *bad, lists[1]]).running() as http:
        server = AddressServer(list_url(http.address, "nsaddr"), followed.append, sleep=sleeps)
        server.start()
        await server.first(20)
        for _ in bad:
            assert await sleeps.next() == LIST_REFRESH_S == 120
        assert await sleeps.next() == LIST_REFRESH_S
        await sleeps.next(then_wake=False)
        await server.stop()
    assert followed == [["n1:19876", "n2:20001"], ["n2:20001"]], "what is no list is passed over"
    assert set(http.paths) == {"/rocketmq/nsaddr"}
    assert len(http.paths) == len(bad) + 2


@pytest.mark.feature("F334")
async def test_while_there_was_no_list_it_asks_more_often(caplog) -> None:
    sleeps, followed = Sleeps(), []
    async with ListServer([BAD_ANSWERS["500"]] * 2 + [answer_of(b"n1:9876")]).running() as http:
        server = AddressServer(http.url, followed.append, sleep=sleeps)
        server.start()
        await server.first(20)
        assert "is unreadable; keeping none" in caplog.text
        assert "cannot find this broker through a name server" in caplog.text
        assert [await sleeps.next() for _ in range(2)] == [LIST_RETRY_S, LIST_RETRY_S]
        assert await sleeps.next(then_wake=False) == LIST_REFRESH_S
        await server.stop()
    assert followed == [["n1:19876"]]


async def test_who_starts_waits_only_so_long(caplog) -> None:
    answered, taken = asyncio.Event(), asyncio.Event()
    followed: list[Sequence[str]] = []
    loop = asyncio.get_running_loop()

    def fetch(_url: str) -> str:
        asyncio.run_coroutine_threadsafe(answered.wait(), loop).result()
        return "n1:9876"

    def follow(addresses: Sequence[str]) -> None:
        followed.append(addresses)
        taken.set()

    server = AddressServer("http://late/", follow, fetch=fetch)
    server.start()
    await server.first(0)
    assert "has not returned the name server list yet" in caplog.text
    assert followed == []
    answered.set()
    await taken.wait()
    assert followed == [["n1:19876"]]
    await server.stop()
    await server.stop()
