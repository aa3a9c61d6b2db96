"""One name server is asked while it answers."""

from __future__ import annotations

import asyncio
import random

import pytest

from kourou.client.session import name_servers
from kourou.client.session.connections import Connections
from kourou.client.session.discovery import NameServers
from kourou.client.session.name_servers import NameServerChoice
from kourou.errors import Code, TopicNotFound, Unavailable, UnknownOutcome
from kourou.protocol.messages.namesrv import DeleteTopicInNamesrv, GetRouteInfoByTopic

THREE = ("n1:19876", "n2:19876", "n3:19876")
ASK = GetRouteInfoByTopic(topic="TBW102")


@pytest.fixture
async def choose(cluster):
    made = []

    def make(addresses=THREE, url="", fetch=None, interval_ms=60_000):
        connections = Connections(cluster.dial, lambda *_: None)
        choice = NameServerChoice(
            NameServers(tuple(addresses), "test", url),
            connections,
            timeout_ms=100,
            list_interval_ms=interval_ms,
            chance=random.Random(1),
            fetch=fetch,
        )
        made.append((choice, connections))
        return choice

    yield make
    for choice, connections in made:
        choice.close()
        connections.close()


@pytest.mark.feature("F026", "F027")
async def test_one_is_chosen_at_random_and_kept(cluster, choose):
    choice = choose()
    for _ in range(3):
        await choice.ask(ASK)
    assert len({address for address, _ in cluster.asked}) == 1
    firsts = set()
    for seed in range(20):
        other = NameServerChoice(
            NameServers(THREE, "test"),
            Connections(cluster.dial, lambda *_: None),
            timeout_ms=1,
            list_interval_ms=1,
            chance=random.Random(seed),
        )
        firsts.add(other.addresses[0])
    assert firsts == set(THREE)


@pytest.mark.feature("F026", "F027")
async def test_the_next_is_asked_when_one_does_not_answer(cluster, choose):
    """It is kept, even when the first one answers again."""
    choice = choose()
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
        await choose().ask(ASK)


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
    choice = choose()
    with pytest.raises(TopicNotFound):
        await choice.ask(GetRouteInfoByTopic(topic="nobody"))
    assert len(cluster.asked) == 1
    reply = await choice.ask(GetRouteInfoByTopic(topic="nobody"), also={int(Code.TOPIC_NOT_EXIST)})
    assert reply.code == Code.TOPIC_NOT_EXIST


@pytest.mark.feature("F022")
async def test_changes_are_sent_to_every_name_server(cluster, choose):
    choice = choose()
    await choice.tell_all(DeleteTopicInNamesrv(topic="TBW102"))
    assert {address for address, _ in cluster.asked} == set(THREE)
    cluster.down.add(choice.addresses[0])
    with pytest.raises(UnknownOutcome):
        await choice.tell_all(DeleteTopicInNamesrv(topic="x"))
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
    choice = choose()
    cluster.down.add("n2:19876")
    found = await choice.outcomes(ASK)
    assert list(found) == sorted(THREE)
    assert isinstance(found["n2:19876"], UnknownOutcome)
    assert [one.code for name, one in found.items() if name != "n2:19876"] == [Code.SUCCESS] * 2
