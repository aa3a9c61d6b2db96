"""One name server is asked while it answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from kourou.client.session import name_servers
from kourou.client.session.name_servers import (
    LIST_WHOLE_MS,
    NameServerList,
    fetch_list,
)
from kourou.errors import Code, TopicNotFound, Unavailable, UnknownOutcome
from kourou.protocol.messages.namesrv import DeleteTopicInNamesrv, GetRouteInfoByTopic
from kourou_rigs.clock import ManualClock
from kourou_rigs.list_server import BAD_ANSWERS, PAGES, ListServer, answer_of

THREE = ("n1:19876", "n2:19876", "n3:19876")
ASK = GetRouteInfoByTopic(topic="TBW102")


@pytest.mark.feature("F026", "F027")
async def test_one_is_chosen_at_random_and_kept(cluster, choose):
    choice = choose(THREE)
    for _ in range(3):
        await choice.ask(ASK)
    assert len({address for address, _ in cluster.asked}) == 1
    firsts = {choose(THREE, seed=seed).addresses[0] for seed in range(20)}
    assert firsts == set(THREE)


@pytest.mark.feature("F026", "F027")
async def test_the_next_is_asked_when_one_does_not_answer(cluster, choose):
    """It is kept, even when the first one answers again."""
    choice = choose(THREE)
    first, second, _ = choice.addresses
    cluster.down.add(first)
    await choice.ask(ASK)
    assert choice.addresses[0] == second
    assert choice.addresses[-1] == first
    cluster.down.clear()
    await choice.ask(ASK)
    assert [address for address, _ in cluster.asked] == [second, second]


async def test_when_none_answers_the_last_failure_is_raised(cluster, choose):
    cluster.down.update(THREE)
    with pytest.raises(UnknownOutcome):
        await choose(THREE).ask(ASK)


async def test_where_nobody_listens_is_said_as_the_user_wrote_it(choose, monkeypatch):
    async def refused(wire, request, **_):
        raise Unavailable("cannot connect to tcp://n1:19876", hint="connection refused")

    monkeypatch.setattr(name_servers, "asked", refused)
    with pytest.raises(Unavailable) as caught:
        await choose(("n1:9876", "n2:9876")).ask(ASK)
    assert str(caught.value).startswith(
        "no name server responds at n1:9876;n2:9876 (cannot connect to"
    )


async def test_a_refusal_is_an_answer(cluster, choose):
    choice = choose(THREE)
    with pytest.raises(TopicNotFound):
        await choice.ask(GetRouteInfoByTopic(topic="nobody"))
    assert len(cluster.asked) == 1
    reply = await choice.ask(GetRouteInfoByTopic(topic="nobody"), also={int(Code.TOPIC_NOT_EXIST)})
    assert reply.code == Code.TOPIC_NOT_EXIST


@pytest.mark.feature("F022")
async def test_changes_are_sent_to_every_name_server(cluster, choose):
    choice = choose(THREE)
    await choice.send_to_all(DeleteTopicInNamesrv(topic="TBW102"))
    assert {address for address, _ in cluster.asked} == set(THREE)
    cluster.down.add(choice.addresses[0])
    with pytest.raises(UnknownOutcome):
        await choice.send_to_all(DeleteTopicInNamesrv(topic="x"))
    assert len(cluster.asked) == 3 + 2


@pytest.mark.feature("F033")
async def test_a_list_from_an_http_server(cluster, choose):
    texts = ["n1:9876;n2:9876\n", "no address at all;;:", "n3:9876"]
    asked, third = [], asyncio.Event()
    loop = asyncio.get_running_loop()

    def fetch(url):
        asked.append(url)
        if len(asked) == 4:
            loop.call_soon_threadsafe(third.set)
        return texts[min(len(asked) - 1, 2)]

    choice = choose((), "http://list/", fetch, interval_ms=1)
    await choice.start()
    assert set(choice.addresses) == {"n1:9876", "n2:9876"}
    await third.wait()
    assert choice.addresses == ("n3:9876",), "a bad list is passed over, the next one taken"
    assert set(asked) == {"http://list/"}


async def test_without_a_list_nothing_is_known(choose):
    def fetch(_url):
        raise OSError("no route to host")

    choice = choose((), "http://list/", fetch)
    await choice.start()
    with pytest.raises(Exception, match="no name server address is known"):
        await choice.ask(ASK)


async def test_the_outcome_of_each_is_returned(cluster, choose):
    choice = choose(THREE)
    cluster.down.add("n2:19876")
    found = await choice.outcomes(ASK)
    assert list(found) == sorted(THREE)
    assert isinstance(found["n2:19876"], UnknownOutcome)
    assert [one.code for name, one in found.items() if name != "n2:19876"] == [Code.SUCCESS] * 2


# -- lists of name servers -------------------------------------------------------------------------


LOG = logging.getLogger("kourou.test")


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
