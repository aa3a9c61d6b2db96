"""Brokers are told of groups: at once, and again."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from kourou import Client
from kourou.client.session import heartbeats
from kourou.client.session.heartbeats import ClientMembership, Heartbeats
from kourou.client.session.route_table import RouteTable
from kourou.errors import Code
from kourou.filtering.tags import parse_tags
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel
from kourou.protocol.messages.groups import HeartBeat
from kourou_rigs.wire_faults import Answer, always

GROUP = ClientMembership(
    "g",
    ConsumeType.CONSUME_PASSIVELY,
    MessageModel.CLUSTERING,
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    (parse_tags("T", "a || b", version=7),),
)


@pytest.fixture
async def hearts(broker, choose):
    made = []

    def make(memberships=(GROUP,), interval_ms=60_000):
        choice = choose()
        routes = RouteTable(choice, interval_ms=60_000, chance=random.Random(1))
        hearts = Heartbeats(
            "me@1",
            choice._connections,
            routes,
            lambda: memberships,
            interval_ms=interval_ms,
            timeout_ms=100,
        )
        hearts.routes, hearts.connections = routes, choice._connections
        made.append(hearts)
        return hearts

    yield make
    for hearts in made:
        hearts.close()
        hearts.routes.close()


def beats(broker):
    return len(broker.requests(HeartBeat))


@pytest.mark.feature("F026", "F005")
async def test_every_broker_of_every_route_gets_a_heartbeat(cluster, broker, hearts):
    other = cluster.broker("broker-b")
    heart = hearts()
    await heart.routes.find("T")
    heart.add_producer_group("p")
    await heart.beat()
    for one in (broker, other):
        assert one.producers == {"p"}
        assert "me@1" in one.members["g"]


async def test_connections_to_filter_servers_are_kept_but_hear_no_heartbeat(
    cluster, broker, hearts
):
    server = cluster.filter_server(broker)
    heart = hearts(interval_ms=1)
    await heart.routes.find("T")
    wires = [heart.connections.to(one) for one in (broker.address, server.address, "gone:1")]
    gone, close = asyncio.Event(), wires[2].close
    wires[2].close = lambda: (close(), gone.set())
    heart.start()
    await asyncio.wait_for(gone.wait(), 60)
    assert [wire.closed for wire in wires] == [False, False, True]
    await heart.beat()
    assert server.seen == []


async def test_a_client_without_groups_says_nothing(cluster, broker, hearts):
    heart = hearts(memberships=())
    await heart.routes.find("T")
    await heart.beat()
    assert beats(broker) == 0


async def test_a_new_broker_gets_a_heartbeat_at_once(cluster, broker, hearts):
    heart = hearts()
    heart.start()
    await heart.routes.find("T")
    other = cluster.broker("broker-b")
    notified = asyncio.Event()
    other.faults[HeartBeat] = [lambda _: notified.set()]
    await heart.routes.refresh("T")
    await notified.wait()


async def test_reach_sends_only_to_brokers_without_a_heartbeat(cluster, broker, hearts):
    heart = hearts()
    await heart.routes.find("T")
    for _ in range(3):
        await heart.reach([broker.address])
    assert beats(broker) == 1


@pytest.mark.fault
async def test_an_unreachable_broker_gets_the_next_heartbeat(cluster, broker, hearts, caplog):
    heart = hearts()
    await heart.routes.find("T")
    cluster.down.add(broker.address)
    await heart.reach([broker.address])
    assert "heartbeat to broker" in caplog.text
    cluster.down.clear()
    await heart.reach([broker.address])
    assert "me@1" in broker.members["g"]


@pytest.mark.fault
async def test_a_broker_that_is_down_is_waited_for_once(cluster, broker, hearts, caplog):
    """Otherwise each pull from another broker of the topic would take the whole timeout."""
    heart = hearts()
    await heart.routes.find("T")
    cluster.down.add(broker.address)
    for _ in range(3):
        await heart.reach([broker.address])
    assert caplog.text.count("heartbeat to broker") == 1
    cluster.down.clear()
    await heart.beat()
    assert "me@1" in broker.members["g"]


@pytest.mark.fault
async def test_a_reconnected_broker_gets_a_heartbeat_at_once(cluster, broker, hearts):
    """A producer that is idle asks nothing, and must be known: the broker may ask it."""
    heart = hearts()
    await heart.routes.find("T")
    await heart.beat()
    heart.start()
    [wire] = cluster.wires_to(broker)
    wire.on_connected()
    assert beats(broker) == 1, "it was its first connection"
    loop, notified = asyncio.get_running_loop(), asyncio.Event()
    broker.faults[HeartBeat] = [lambda _: loop.call_soon(notified.set) and None]
    wire.on_connected()
    await notified.wait()
    assert beats(broker) == 2


async def test_leaving(cluster, broker, hearts):
    heart = hearts()
    await heart.routes.find("T")
    heart.add_producer_group("p")
    heart.add_producer_group("p")
    await heart.beat()
    await heart.leave(producer_group="p")
    assert broker.left == [], "a second producer is still in the group"
    await heart.leave(producer_group="p")
    await heart.leave(consumer_group="g")
    assert broker.left == [("me@1", "p"), ("me@1", "g")]


@pytest.mark.fault
async def test_leaving_a_broker_that_is_gone_is_no_error(cluster, broker, hearts):
    heart = hearts()
    await heart.routes.find("T")
    await heart.beat()
    cluster.down.add(broker.address)
    [wire] = cluster.wires_to(broker)
    notified = len(wire.kinds)
    await heart.leave(consumer_group="g")
    assert len(wire.kinds) == notified, "whoever is not there is not waited for"


@pytest.mark.feature("F027")
async def test_a_new_leader_gets_a_heartbeat_although_it_got_one_as_a_follower(
    cluster, broker, hearts
):
    follower = cluster.follower(broker)
    one = hearts()
    await one.routes.find("T")
    one.start()
    await one.beat()
    assert beats(follower) == 1
    heard = asyncio.Event()
    follower.faults[HeartBeat] = [lambda _: heard.set()]
    cluster.nobody_leads(broker)
    cluster.lead(follower)
    await one.routes.refresh("T")
    await heard.wait()


async def test_what_brokers_say_of_other_subscriptions_is_logged_once(
    cluster, broker, hearts, caplog
):
    other = cluster.broker("broker-b")
    heart = hearts()
    await heart.routes.find("T")

    def answers(*remarks):
        for one, remark in zip((broker, other), remarks, strict=True):
            one.faults[HeartBeat] = always(Answer(Code.SUCCESS, remark=remark))

    def logged():
        return [one.message for one in caplog.records if "differ" in one.message]

    answers("g: a and b differ", "g: a and b differ")
    await heart.beat()
    await heart.beat()
    assert logged() == ["subscriptions-differ: subscriptions differ: g: a and b differ"]
    answers("g: a and b differ\nh: a and c differ", "")
    await heart.beat()
    assert logged()[1:] == ["subscriptions-differ: subscriptions differ: h: a and c differ"]
    answers("", "")
    await heart.beat()
    answers("g: a and b differ", "")
    await heart.beat()
    assert len(logged()) == 3, "it has come back"


async def test_closing_ends_it_although_something_changed_in_the_same_turn(hearts):
    one = hearts()
    one.start()
    await asyncio.sleep(0)  # it waits now
    one.soon()
    one.close()
    async with asyncio.timeout(20):
        await asyncio.wait([one._task])
    assert one._task.cancelled()


# -- while the event loop is blocked ---------------------------------------------------------------


@pytest.fixture
def heard(broker, monkeypatch) -> threading.Event:
    """Set by each heartbeat that does not come from the test's own thread."""
    monkeypatch.setattr(heartbeats, "LOOP_CHECK_MS", 20)
    heard, here = threading.Event(), threading.get_ident()

    def watch(_request):
        if threading.get_ident() != here:
            heard.set()

    broker.faults[HeartBeat] = always(watch)
    return heard


@pytest.mark.fault
async def test_while_the_loop_is_blocked_a_thread_tells_brokers(
    broker, cluster, heard, tools, caplog
):
    async with Client(tools.NAMESRV, dial=cluster.dial, group="g") as mq:
        blocked = asyncio.Event()

        async def handler(message):
            broker.disconnect()  # as when it finds the connection silent
            assert heard.wait(30)
            blocked.set()

        async with mq.listen("T", handler):
            await mq.send("T", b"x")
            await blocked.wait()
            [thread_wire] = broker.members["g"].values()
            assert list(broker.members["g"]) == [mq.client_id]
            assert "the event loop is blocked" in caplog.text
            await tools.until(broker, lambda: thread_wire.closed)
            # The client's own connection told before that one was closed.
            assert broker.members["g"][mq.client_id] is not thread_wire


@pytest.mark.fault
async def test_a_client_that_closes_behind_a_blocked_loop_leaves_no_connection(
    cluster, broker, heard, tools
):
    async with (
        Client(tools.NAMESRV, dial=cluster.dial, group="g") as mq,
        mq.listen("T", tools.Inbox(1).handle),
    ):
        assert heard.wait(30)
    assert all(wire.closed for wire in cluster.wires)
