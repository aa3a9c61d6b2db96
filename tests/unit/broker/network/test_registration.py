"""Telling every name server which topics are here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kourou.access.model import User
from kourou.authorization.access_table import AccessAggregate, decode_access
from kourou.authorization.access_table import evolve as evolve_access
from kourou.broker.network import registration
from kourou.broker.network.registration import (
    LIST_REFRESH_S,
    LIST_RETRY_S,
    AddressServer,
    Registration,
    RegistrationIdentity,
    list_url,
    registered_topics,
)
from kourou.engine.control import ControlState
from kourou.errors import Code, Unavailable
from kourou.events.control_events import Recorded, SettingChanged, TopicPut, UserPut
from kourou.model.topic import DataVersion, Permission, TopicConfig
from kourou.protocol.bodies.registration_body import decode_registration
from kourou.protocol.messages.namesrv import (
    PutUsers,
    RegisterBroker,
    RegisterBrokerResponse,
    UnregisterBroker,
)
from kourou.transport.zmq_client import WireReply
from kourou_rigs.list_server import BAD_ANSWERS, PAGES, ListServer, answer_of

ME = RegistrationIdentity("c", "b", 0, "127.0.0.1:20911", "", {"zmq:internal": "127.0.0.1:20911"})
TOPICS = [TopicConfig("orders", 4, 4)]


class NameServer:
    """What a connection to one name server does, without a network."""

    servers: dict[str, NameServer] = {}

    def __init__(self, address: str, **_options: object) -> None:
        self.heard: list[object] = []
        self.bodies: list[bytes] = []
        self.timeouts: list[int] = []
        self.up = True
        self.code = Code.SUCCESS
        self.header: RegisterBrokerResponse | None = None
        self.closed = False
        self.on_connected: Callable[[], None] | None = None
        self.changed = asyncio.Event()
        NameServer.servers[address] = self

    async def request(self, request, *, body=(), timeout_ms=0):
        self.heard.append(request)
        self.bodies += body
        self.timeouts.append(timeout_ms)
        self.changed.set()
        if not self.up:
            raise Unavailable("nobody answers")
        return WireReply(self.code, "", self.header, [])

    def close(self) -> None:
        self.closed = True

    async def count(self, wanted: int) -> None:
        async with asyncio.timeout(60):
            while len(self.heard) < wanted:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def make(monkeypatch):
    """Makes a registration and starts it; it is stopped at the end."""
    NameServer.servers = {}
    monkeypatch.setattr(registration, "ZmqConnection", NameServer)
    monkeypatch.setattr(registration, "RETRY_S", 0.001)
    started: list[Registration] = []

    def made(*addresses: str, **changes: Any) -> Registration:
        given = {
            "period_ms": 1 << 30,
            "timeout_ms": 123,
            "completed": lambda _number: None,
            "filter_listeners": tuple,
            "epoch": lambda: None,
            "promotion": lambda: None,
            "fenced": lambda _epoch: None,
            "answered": lambda _answer: None,
            "hurry": lambda: False,
            **changes,
        }
        one = Registration(addresses, ME, lambda: (TOPICS, DataVersion(1, 2)), **given)
        one.start()
        started.append(one)
        return one

    yield made
    for one in started:
        await one.stop()


@pytest.mark.feature("F022", "F024", "F025")
async def test_every_name_server_receives_the_whole_registration(make) -> None:
    one = make("a", "b")
    for server in NameServer.servers.values():
        await server.count(1)
        (request,) = server.heard
        assert isinstance(request, RegisterBroker)
        assert (request.broker_name, request.listeners) == ("b", ME.listeners)
        registered = decode_registration(server.bodies[0])
        assert [topic.name for topic in registered.topics] == ["orders"]
        assert registered.version == DataVersion(1, 2)
        assert server.timeouts == [123]
    await one.first(1)
    assert one.registered == {"a": True, "b": True}
    await one.stop()
    await one.stop()
    for server in NameServer.servers.values():
        assert [type(each) for each in server.heard] == [RegisterBroker, UnregisterBroker]
        assert server.closed


@pytest.mark.feature("F025")
async def test_it_registers_again_in_time_and_at_once_when_topics_change(make) -> None:
    one = make("a", period_ms=1)
    await NameServer.servers["a"].count(3)
    await one.stop()
    slow = make("a")
    server = NameServer.servers["a"]
    await server.count(1)
    await slow.first(1)
    slow.register_now(0)
    slow.register_now(0)
    await server.count(2)
    await slow.stop()
    assert len(server.heard) == 3, "both announcements travelled together; then it left"


async def test_it_registers_again_over_each_new_connection(make) -> None:
    """The name server drops what it received over a connection when that ends."""
    one = make("a")
    server = NameServer.servers["a"]
    assert server.on_connected is not None
    server.on_connected()  # before it has registered: that is on its way
    await server.count(1)
    await one.first(1)
    server.on_connected()
    await server.count(2)
    await one.stop()
    assert [type(request) for request in server.heard[:2]] == [RegisterBroker] * 2
    assert len(server.heard) == 3, "then it left"


async def test_a_name_server_that_does_not_answer_delays_no_other(make, caplog) -> None:
    one = make("a", "b")
    dead = NameServer.servers["a"]
    dead.up = False
    await one.first(1)
    assert one.registered == {"a": False, "b": True}
    await dead.count(3)
    dead.up = True
    async with asyncio.timeout(60):
        while not one.registered["a"]:
            await dead.count(len(dead.heard) + 1)
            await asyncio.sleep(0)


async def test_without_any_name_server_the_broker_serves_all_the_same(make, caplog) -> None:
    one = make("a")
    NameServer.servers["a"].up = False
    await one.first(0)
    assert "retrying a" in caplog.text
    await one.stop()
    assert not any(isinstance(each, UnregisterBroker) for each in NameServer.servers["a"].heard)


async def test_a_refusal_is_no_registration_and_no_fence(make) -> None:
    heard: list[int] = []
    one = make("a", fenced=heard.append)
    server = NameServer.servers["a"]
    server.code = Code.SYSTEM_ERROR
    await server.count(2)
    assert (one.registered, heard) == ({"a": False}, [])


async def test_who_is_outdone_hears_of_it_before_anybody_hears_that_it_is_ready(make) -> None:
    order: list[str] = []
    loop = asyncio.get_running_loop()
    one = make("a", fenced=lambda epoch: loop.call_soon(order.append, f"fenced {epoch}"))
    server = NameServer.servers["a"]
    server.code, server.header = Code.SYSTEM_ERROR, RegisterBrokerResponse(epoch=7)
    await one.first(60)
    order.append("ready")
    await one.stop()
    assert order == ["fenced 7", "ready"]


@pytest.mark.feature("F334")
async def test_another_list_is_followed(make) -> None:
    one = make("a", "b")
    await one.first(1)
    first = dict(NameServer.servers)
    for server in first.values():
        await server.count(1)
    one.follow(["b", "c"])
    assert set(one.registered) == {"b", "c"}
    await NameServer.servers["c"].count(1)
    await first["a"].count(2)
    assert [type(each) for each in first["a"].heard] == [RegisterBroker, UnregisterBroker]
    assert NameServer.servers["b"] is first["b"], "who stays is not dialled again"
    one.register_now(0)
    await NameServer.servers["b"].count(2)
    await NameServer.servers["c"].count(2)
    assert len(first["a"].heard) == 2, "who was left is told nothing more"
    one.follow(["a", "b"])
    await NameServer.servers["a"].count(1)
    assert NameServer.servers["a"] is not first["a"]
    await one.stop()
    assert first["a"].closed
    for server in NameServer.servers.values():
        assert server.closed
        assert isinstance(server.heard[-1], UnregisterBroker)


async def test_a_list_may_come_later_and_its_name_servers_may_be_dead(make, caplog) -> None:
    one = make()
    await one.first(1)
    one.follow(["a"])
    NameServer.servers["a"].up = False
    await NameServer.servers["a"].count(2)
    one.follow(["b"])
    await NameServer.servers["b"].count(1)
    await one.first(1)
    assert one.registered == {"b": True}
    one.forget()
    await one.stop()
    for server in NameServer.servers.values():
        assert server.closed
        assert not any(isinstance(each, UnregisterBroker) for each in server.heard)


@pytest.mark.feature("F052", "F034")
async def test_a_registration_is_complete_when_all_reachable_name_servers_have_it(make) -> None:
    known: asyncio.Queue[int] = asyncio.Queue()
    both = make("a:1", "b:1", completed=known.put_nowait)
    servers = NameServer.servers
    await asyncio.gather(servers["a:1"].count(1), servers["b:1"].count(1))
    servers["b:1"].up = False
    both.register_now(3)
    assert await known.get() == 3, "the one that does not answer is waited for no more"
    assert len(servers["a:1"].heard) == 2
    assert known.empty()
    both.register_now(0)
    both.register_now(4)
    assert await known.get() == 4


async def test_without_name_servers_a_registration_is_complete_at_once(make) -> None:
    known: list[int] = []
    none = make(completed=known.append)
    none.register_now(1)
    assert known == [1]
    dead = make("a:1", completed=known.append)
    dead.register_now(2)
    assert known == [1, 2]


async def test_topics_created_during_a_registration_go_with_the_next_one(make) -> None:
    known: asyncio.Queue[int] = asyncio.Queue()
    one = make("a:1", completed=known.put_nowait)
    server = NameServer.servers["a:1"]
    await server.count(1)
    going, hold = asyncio.Event(), asyncio.Event()
    answer = server.request

    async def slow(request, **options):
        going.set()
        await hold.wait()
        return await answer(request, **options)

    server.request = slow
    one.register_now(1)
    await going.wait()
    one.register_now(2)
    assert known.empty()
    hold.set()
    assert [await known.get(), await known.get()] == [1, 2]


def test_no_topic_allows_more_than_the_broker() -> None:
    from kourou.engine.control import evolve

    control = ControlState()
    inherit = int(Permission.READ_WRITE | Permission.INHERIT)
    for number, topic in enumerate((TOPICS[0], TopicConfig("TBW102", 8, 8, inherit))):
        evolve(control, Recorded(number, -1, 5, "t", "", "", TopicPut(topic)))
    topics, version = registered_topics(control, 6)
    assert topics == list(control.topics)
    only_read, same = registered_topics(control, 4)
    assert [topic.perm for topic in only_read] == [4, 5]
    assert only_read[0] == replace(TOPICS[0], perm=4)
    assert same == version
    changed = SettingChanged("brokerPermission", 4, None)
    evolve(control, Recorded(2, -1, 9, "t", "", "", changed))
    _, later = registered_topics(control, 4)
    assert later != version, "a name server looks again only at another version"


@pytest.mark.feature("F239")
async def test_filter_servers_are_registered_as_they_are_at_the_time(make) -> None:
    table: list[dict[str, str]] = []
    made = make("a:1", filter_listeners=lambda: table)
    server = NameServer.servers["a:1"]
    await server.count(1)
    assert server.heard[0].filter_listeners is None
    assert decode_registration(server.bodies[0]).filter_servers == ()
    both = {"zmq:internal": "f:1", "tcp:internal": "f:3", "tcp:host": "h:3"}
    table += [{"zmq:internal": "f:2"}, both]
    made.register_now(1)
    await server.count(2)
    assert server.heard[1].filter_listeners == table
    dialled = decode_registration(server.bodies[1]).filter_servers
    assert dialled == ("f:3",), "RocketMQ hears of those that its clients can dial"


# -- users -----------------------------------------------------------------------------------------


def users_of(*names: str) -> AccessAggregate:
    found = AccessAggregate()
    for name in names:
        evolve_access(found, UserPut(User(name=name)), 5)
    return found


async def test_a_name_server_that_has_other_users_gets_ours(make) -> None:
    users = users_of("till")
    known: asyncio.Queue[int] = asyncio.Queue()
    one = make("a", users=lambda: users, completed=known.put_nowait)
    server = NameServer.servers["a"]
    server.header = RegisterBrokerResponse(users="")
    await one.first(60)
    assert server.heard[1] == PutUsers(cluster_name="c", broker_name="b")
    assert decode_access(server.bodies[1]) == users, "before it counts as registered"
    server.header = RegisterBrokerResponse(users=users.mark)
    one.register_now(2)
    assert await known.get() == 2
    server.header = None  # RocketMQ's
    one.register_now(3)
    assert await known.get() == 3
    assert [type(each) for each in server.heard[2:]] == [RegisterBroker, RegisterBroker]
    evolve_access(users, UserPut(User(name="ann")), 6)
    server.header = RegisterBrokerResponse(users="5-1")
    one.register_now(4)
    assert await known.get() == 4
    assert decode_access(server.bodies[-1]) == users


@pytest.mark.parametrize(
    ("there", "here", "sent"), [("", ("till",), 1), ("", (), 0), ("5-1", ("till", "ann"), 0)]
)
async def test_a_follower_sends_users_where_there_are_none(
    make, there: str, here: tuple[str, ...], sent: int
) -> None:
    one = make("a", users=lambda: users_of(*here))
    one.become(replace(ME, broker_id=1))
    server = NameServer.servers["a"]
    server.header = RegisterBrokerResponse(users=there)
    await one.first(60)
    assert sum(isinstance(each, PutUsers) for each in server.heard) == sent


@pytest.mark.fault
@pytest.mark.parametrize("fails", ["refused", "silent"])
async def test_a_broker_whose_users_do_not_arrive_is_registered(make, caplog, fails: str) -> None:
    one = make("a", users=lambda: users_of("till"))
    server = NameServer.servers["a"]
    answer = server.request

    async def request(request, **options):
        if not isinstance(request, PutUsers):
            return await answer(request, **options)
        if fails == "silent":
            raise Unavailable("nobody answers")
        return WireReply(Code.SYSTEM_ERROR, "too many", None, [])

    server.request = request
    server.header = RegisterBrokerResponse(users="")
    await one.first(60)
    assert one.registered == {"a": True}
    assert ("refused the users: too many" if fails == "refused" else "former users") in caplog.text


@pytest.mark.fault
@pytest.mark.parametrize("fails", ["silent", "busy"])
async def test_users_that_did_not_arrive_are_sent_again_soon_and_not_reported_before(
    make, caplog, fails: str, monkeypatch
) -> None:
    """What was revoked would count there until the next registration, 30 s later."""
    pauses: list[float] = []
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda delay: pauses.append(delay) or timeout(delay))
    users, known = users_of("till"), asyncio.Queue[int]()
    one = make("a", users=lambda: users, completed=known.put_nowait)
    server = NameServer.servers["a"]
    answer, attempts, at_last = server.request, asyncio.Queue[None](), asyncio.Event()

    async def request(request, **options):
        if not isinstance(request, PutUsers) or at_last.is_set():
            return await answer(request, **options)
        attempts.put_nowait(None)
        if fails == "silent":
            raise Unavailable("nobody answers")
        return WireReply(Code.SYSTEM_BUSY, "too much to do", None, [])

    server.header = RegisterBrokerResponse(users=users.mark)
    await one.first(60)
    server.request, server.header = request, RegisterBrokerResponse(users="5-0")
    one.register_now(1)
    for _ in range(3):
        await attempts.get()
    assert one.registered == {"a": True}
    assert known.empty(), "the reply to the change waits"
    assert caplog.text.count("has former users") == 1
    assert [one for one in pauses if one < 1][:2] == [0.001, 0.002], "a slow one is asked less"
    at_last.set()
    assert await known.get() == 1
    assert decode_access(server.bodies[-1]) == users


# -- epochs ----------------------------------------------------------------------------------------


@pytest.mark.feature("F137")
async def test_every_registration_has_the_epoch_of_that_moment(make) -> None:
    epochs = iter([0, 64])
    one = make("a", epoch=lambda: next(epochs), promotion=lambda: 5)
    server = NameServer.servers["a"]
    await server.count(1)
    one.register_now(1)
    await server.count(2)
    assert [(request.epoch, request.promotion) for request in server.heard] == [(0, 5), (64, 5)]


@pytest.mark.feature("F137")
async def test_a_leader_with_an_old_epoch_is_fenced_and_counts_as_unregistered(make) -> None:
    heard: asyncio.Queue[int] = asyncio.Queue()
    one = make("a", fenced=heard.put_nowait)
    server = NameServer.servers["a"]
    server.code, server.header = Code.SERVICE_NOT_AVAILABLE, RegisterBrokerResponse(epoch=2**32)
    async with asyncio.timeout(60):
        await one.first(1 << 30)  # it waits for no other answer
        assert await heard.get() == 2**32
        assert one.registered == {"a": False}
        assert len(server.heard) == 1, "it is not tried again every second"
        one.register_now(1)
        assert await heard.get() == 2**32


@pytest.mark.feature("F137")
async def test_a_follower_learns_the_epoch_that_its_promotion_must_exceed(make) -> None:
    heard: asyncio.Queue[int] = asyncio.Queue()
    one = make("a", fenced=heard.put_nowait)
    server = NameServer.servers["a"]
    server.header = RegisterBrokerResponse(epoch=2**32)
    async with asyncio.timeout(60):
        assert await heard.get() == 2**32
    assert one.registered == {"a": True}


@pytest.mark.feature("F133")
async def test_a_follower_asks_until_it_knows_its_leader(make) -> None:
    heard: list[str | None] = []

    def answered(answer: RegisterBrokerResponse) -> None:
        heard.append(answer.ha_server_addr)
        if len(heard) == 3:
            server.header = RegisterBrokerResponse(ha_server_addr="127.0.0.1:20912")

    one = make("a", answered=answered, hurry=lambda: heard[-1:] != ["127.0.0.1:20912"])
    server = NameServer.servers["a"]
    server.header = RegisterBrokerResponse()
    await server.count(4)
    await one.stop()
    assert heard == [None, None, None, "127.0.0.1:20912"]
    assert len(server.heard) == 5, "then it rests, and leaves at the end"


# -- where the name servers are is asked of an HTTP server, again and again ------------------------


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
