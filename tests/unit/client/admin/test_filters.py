"""Filters as an operator handles them: who is asked what, and how answers come together."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest, Code, FilterFailed, Rejected
from kourou.model.filter import FilterState, FilterVersion
from kourou.protocol.bodies.filter_bodies import (
    FilterFigures,
    FilterTrial,
    encode_filter_statistics,
    encode_filter_trial,
    encode_filters,
)
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    FilterResponse,
    GetFilters,
    GetFiltersResponse,
    GetFilterStatistics,
    PutFilter,
    TryFilter,
)
from kourou_rigs.wire_broker import Answer, Cut

TEXT = "def match(message, context):\n    return True\n"
UNKNOWN = Answer(Code.QUERY_NOT_FOUND, remark="there is no such filter")


class Desk:
    """A broker's part: answers about filters; `asked` has the requests about them."""

    def __init__(self, broker, *, filters=(), servers=()) -> None:
        self.filters = list(filters)
        self.servers = list(servers)
        self.knows = True
        self.asked: list = []
        broker.intercept = self.answer

    def answer(self, request):
        if not isinstance(request, GetFilters | ChangeFilter | PutFilter):
            return None
        self.asked.append(request)
        if isinstance(request, GetFilters):
            return self.tell(request)
        if not self.knows:
            return UNKNOWN
        return Answer(header=FilterResponse(version=2, active=1, filters_version=5))

    def tell(self, request):
        found = [
            one
            for one in self.filters
            if request.consumer_group in ("", one.group) and request.name in ("", one.name)
        ]
        if request.name and not found:
            return UNKNOWN
        return Answer(
            header=GetFiltersResponse(filters_version=5),
            body=encode_filters(found, self.servers),
        )


def version(number: int, source: str | None = None) -> FilterVersion:
    return FilterVersion(number, "ab", "ann", "", 1_000, 5, source)


@pytest.fixture
def parts(cluster, broker):
    other = cluster.broker("broker-b")
    return Desk(broker), Desk(other)


@pytest.fixture
async def filters(parts, producing):
    async with producing() as mq:
        yield mq.admin.filters


@pytest.mark.parametrize(
    ("active", "number"), [(1, None), (None, None), (1, 2)], ids=["active", "newest", "named"]
)
async def test_the_source_of_the_first_broker_that_has_it(parts, filters, active, number):
    wanted = number or active or 2
    versions = (version(1, "one"), version(2, "two"))
    parts[1].filters = [FilterState("g", "late", versions, active)]
    found = await filters.source("g", "late", number)
    assert (found.version, found.source) == (wanted, {1: "one", 2: "two"}[wanted])
    assert parts[1].asked[-1].version == wanted
    with pytest.raises(Rejected, match="no such filter"):
        await filters.source("g", "other")
    parts[1].filters = [FilterState("g", "late")]
    with pytest.raises(Rejected, match="has no version"):
        await filters.source("g", "late")
    with pytest.raises(Rejected, match="version 7 of filter 'late' is not stored"):
        await filters.source("g", "late", 7)


@pytest.mark.parametrize(
    ("call", "action"),
    [
        (lambda filters, where: filters.enable("g", "late", 2, reason="r", **where), "enable"),
        (lambda filters, where: filters.disable("g", "late", reason="r", **where), "disable"),
        (lambda filters, where: filters.rollback("g", "late", reason="r", **where), "rollback"),
        (
            lambda filters, where: filters.set_policy("g", "late", "skip", reason="r", **where),
            "policy",
        ),
        (lambda filters, where: filters.delete("g", "late", reason="r", **where), "delete"),
    ],
)
async def test_decisions_go_where_the_filter_is(parts, filters, call, action):
    parts[0].knows = False
    assert list(await call(filters, {})) == ["broker-b"]
    asked = parts[1].asked[-1]
    assert (asked.action, asked.reason) == (action, "r")
    assert asked.version == (2 if action == "enable" else None)
    assert asked.policy == ("skip" if action == "policy" else None)
    with pytest.raises(Rejected, match="no such filter"):
        await call(filters, {"broker": "broker-a"})
    assert list(await call(filters, {"topic": "T"})) == ["broker-b"]


async def test_what_can_be_known_to_be_wrong_is_not_asked(parts, filters):
    with pytest.raises(BadRequest, match="is not a filter policy"):
        await filters.set_policy("g", "late", "drop")
    with pytest.raises(
        BadRequest, match="give a topic, a broker or a cluster, but only one of them"
    ):
        await filters.enable("g", "late", topic="T", broker="broker-a")
    assert parts[0].asked == parts[1].asked == []


# -- filter servers -------------------------------------------------------------------------------


@pytest.fixture
def servers(cluster, broker, parts):
    """Two filter servers of broker-a; broker-b has none."""
    found = [cluster.filter_server(broker) for _ in range(2)]
    parts[0].servers = [one.address for one in found]
    return found


async def test_servers_are_those_that_brokers_name(parts, servers, filters):
    first, second = servers
    assert await filters.servers() == {
        "broker-a": (first.address, second.address),
        "broker-b": (),
    }
    assert await filters.servers(topic="T", broker=None)


async def test_servers_are_asked_where_the_name_server_says_that_they_can_be_dialled(
    cluster, parts, servers, filters
):
    """A broker in a container knows addresses among containers; its clients may be elsewhere."""
    parts[0].servers = ["filter-server:20915", "filter-server-2:20916"]
    cluster.topics["broker-a"] = (1, 1)  # as brokers make it themselves
    dialled = tuple(one.address for one in servers)
    assert (await filters.servers())["broker-a"] == dialled
    for one in servers:
        one.intercept = lambda _: Answer(body=encode_filter_trial(FilterTrial(topic="T")))
    assert list(await filters.try_out("g", "late", "T", broker="broker-a")) == [dialled[0]]
    cluster.filter_servers.clear()  # no name server has heard of them yet
    assert (await filters.servers())["broker-a"] == tuple(parts[0].servers)
    cluster.topics.pop("broker-a")  # nor of that topic
    assert (await filters.servers())["broker-a"] == tuple(parts[0].servers)


async def test_a_trial_is_made_by_one_server_of_each_broker(cluster, servers, filters):
    first, second = servers
    for one in servers:
        one.intercept = lambda _: Answer(body=encode_filter_trial(FilterTrial(topic="T", seen=3)))
    with pytest.raises(FilterFailed, match="broker-b has no filter server"):
        await filters.try_out("g", "late", "T")
    found = await filters.try_out("g", "late", "T", source=TEXT, count=3, broker="broker-a")
    assert {where: trial.seen for where, trial in found.items()} == {first.address: 3}
    asked = first.seen[-1]
    assert isinstance(asked, TryFilter)
    assert (asked.name, asked.topic, asked.count, asked.version) == ("late", "T", 3, None)
    first.intercept = lambda _: Answer(Code.SERVICE_NOT_AVAILABLE, remark="stopping")
    assert list(await filters.try_out("g", "late", "T", broker="broker-a")) == [second.address]
    first.intercept = lambda _: Answer(Code.FILTER_FAILED, remark="line 3")
    asked_before = len(second.seen)
    with pytest.raises(FilterFailed, match="line 3"):
        await filters.try_out("g", "late", "T", broker="broker-a")
    assert len(second.seen) == asked_before
    cluster.topics["U"] = (1, 1)
    with pytest.raises(BadRequest):
        await filters.try_out("g", "late", "U", broker="nobody")


async def test_figures_come_from_all_that_answer(servers, filters):
    first, second = servers

    def tell(request):
        assert isinstance(request, GetFilterStatistics)
        figures = [FilterFigures(group="g", name="late", version=1, seen=9)]
        return Answer(body=encode_filter_statistics(figures))

    def cut(_request):
        raise Cut

    first.intercept, second.intercept = tell, cut
    found = await filters.statistics("g")
    assert {where: [one.seen for one in figures] for where, figures in found.items()} == {
        first.address: [9]
    }
    first.intercept = cut
    with pytest.raises(Exception, match="connection was lost"):
        await filters.statistics()
    assert await filters.statistics(broker="broker-b") == {}
