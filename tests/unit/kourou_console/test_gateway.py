"""The gateways of users: one client for each, what they share, their rights, and their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.access.model import Action
from kourou.client.admin.users import AccessAnswer, ByBroker
from kourou.errors import NoPermission, Unavailable
from kourou.model.limits import GATEWAY_USER_SENDERS_MAX, GATEWAY_USERS_MAX
from kourou.telemetry.metrics import Family
from kourou_console.gateway import RIGHT_MS, USER_IDLE_MS, Gateway, UserGateways
from kourou_console.http.responses import Busy

CLUSTER = "Cluster:*"


class Client:
    """A client of one user; `answers` are those of its brokers."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.closed = False
        self.asked = 0
        self.answers = ByBroker({"broker-a": AccessAnswer(allowed=True, by="role reader")}, {})
        self.admin = SimpleNamespace(users=self)

    async def may(self, action: str, resource: str) -> ByBroker[AccessAnswer]:
        assert (action, resource) == ("Get", CLUSTER)
        self.asked += 1
        return self.answers

    async def close(self) -> None:
        self.closed = True


class Clock:
    """Moved by hand."""

    ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.ms


class Jobs:
    """A component of each user."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.in_use = False
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def families(self, base: Any) -> Iterator[Family]:
        yield Family.gauge("kourou_gateway_leases", "", [(base, 2)])


class Samples:
    """A component of the console."""

    of_console = True

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway


class Rig:
    """All gateways, and the clients that were opened."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.own = Gateway(Client(""), self.clock)  # type: ignore[arg-type]  # fakes
        self.clients: list[Client] = []
        self.trouble: Exception | None = None
        self.users = UserGateways(self.own, self.open)  # type: ignore[arg-type]

    async def open(self, user: str) -> Client:
        if self.trouble is not None:
            raise self.trouble
        self.clients.append(Client(user))
        return self.clients[-1]

    async def use(self, user: str) -> Gateway:
        async with self.users.of(user) as gateway:
            return gateway


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.users.close()


async def test_a_user_has_one_client_which_sends_on_its_behalf(rig: Rig) -> None:
    first, again, other = [await rig.use(name) for name in ("till", "till", "billing")]
    assert first is again
    assert (first.user, other.user) == ("till", "billing")
    assert [one.user for one in rig.clients] == ["till", "billing"]
    await rig.users.close()
    assert all(one.closed for one in rig.clients)


async def test_components_are_those_of_the_user_except_what_the_console_has_read(
    rig: Rig,
) -> None:
    till, billing = await rig.use("till"), await rig.use("billing")
    assert till.part(Jobs) is not billing.part(Jobs)
    assert till.part(Jobs).gateway is till
    assert till.part(Samples) is billing.part(Samples) is rig.own.part(Samples)
    assert rig.own.part(Samples).gateway is rig.own


async def test_a_right_is_asked_for_and_remembered_for_a_moment(rig: Rig) -> None:
    async with rig.users.of("till") as gateway:
        for _ in range(2):
            await gateway.need(Action.GET, CLUSTER)
        [client] = rig.clients
        assert client.asked == 1
        rig.clock.ms += RIGHT_MS
        client.answers["broker-b"] = AccessAnswer(allowed=False, by="no policy allows it")
        for asked in (2, 3):
            with pytest.raises(NoPermission, match="user till has no right to Get on Cluster"):
                await gateway.need(Action.GET, CLUSTER)
            assert client.asked == asked


async def test_a_broker_that_refuses_to_answer_refuses(rig: Rig) -> None:
    async with rig.users.of("till") as gateway:
        [client] = rig.clients
        client.answers.missing = {"broker-b": Unavailable("it is away")}
        await gateway.need(Action.GET, CLUSTER)
        rig.clock.ms += RIGHT_MS
        client.answers.missing = {"broker-b": NoPermission("user till cannot sign in")}
        with pytest.raises(NoPermission, match="cannot sign in"):
            await gateway.need(Action.GET, CLUSTER)


async def test_an_idle_gateway_is_closed_with_its_components(rig: Rig) -> None:
    jobs = (await rig.use("till")).part(Jobs)
    await rig.use("billing")
    rig.clock.ms += USER_IDLE_MS - 1
    await rig.use("billing")
    jobs.in_use = True
    rig.clock.ms += 1
    rig.users.look()
    assert len(rig.users) == 2
    jobs.in_use = False
    async with rig.users.of("till"):
        rig.clock.ms += USER_IDLE_MS
        rig.users.look()
        assert len(rig.users) == 1  # billing has gone, till is at work
    rig.clock.ms += USER_IDLE_MS
    rig.users.look()
    await rig.users.close()
    assert jobs.closed
    assert [one.closed for one in rig.clients] == [True, True]
    assert (await rig.use("till")).part(Jobs) is not jobs


async def test_at_the_limit_the_longest_idle_one_makes_room(rig: Rig) -> None:
    names = [f"user-{number}" for number in range(GATEWAY_USERS_MAX)]
    for name in names:
        await rig.use(name)
        rig.clock.ms += 1
    await rig.use(names[0])
    await rig.use("one-more")
    assert len(rig.users) == GATEWAY_USERS_MAX
    async with rig.users.of(names[0]):
        assert len(rig.clients) == GATEWAY_USERS_MAX + 1  # names[1] went
    for name in [*names, "one-more"]:
        if name in rig.users._users:
            rig.users._users[name].under_way += 1
    with pytest.raises(Busy, match=str(GATEWAY_USERS_MAX)):
        await rig.use("too-many")


@pytest.mark.fault
async def test_the_tokens_of_one_user_keep_no_other_user_out(rig: Rig) -> None:
    """A user without any right may create 100 tokens for itself."""
    await rig.use("billing")
    tokens = [f"till:{number:012x}" for number in range(GATEWAY_USER_SENDERS_MAX + 1)]
    for token in tokens:
        rig.clock.ms += 1
        await rig.use(token)
    assert len(rig.users) == 1 + GATEWAY_USER_SENDERS_MAX
    assert "billing" in rig.users._users, "another user is idle for longer"
    for one in rig.users._users.values():
        one.under_way += one.user.startswith("till:")
    with pytest.raises(Busy, match="user till works with this gateway by 32 API tokens"):
        await rig.use(tokens[0])
    with pytest.raises(Busy, match="user till"):
        await rig.use("till")
    await rig.use("new")


async def test_a_client_that_cannot_be_opened_is_tried_again(rig: Rig) -> None:
    rig.trouble = Unavailable("no name server")
    with pytest.raises(Unavailable):
        await rig.use("till")
    rig.trouble = None
    assert (await rig.use("till")).user == "till"


async def test_metrics_are_sums(rig: Rig) -> None:
    rig.own.part(Jobs)
    (await rig.use("till")).part(Jobs)
    [family] = rig.users.families({"node_type": "console"})
    assert list(family.samples) == [({"node_type": "console"}, 4)]
