"""Filters as an operator handles them: who is asked what, and how answers come together."""

from __future__ import annotations

import pytest

from kourou import Filter
from kourou.errors import BadRequest, Code, FilterFailed, Rejected
from kourou.model.filter import FilterAction, FilterState
from kourou.protocol.bodies.filter_bodies import (
    FilterFigures,
    FilterTrial,
    encode_filter_statistics,
    encode_filter_trial,
    encode_filters,
)
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    GetFilters,
    GetFiltersResponse,
    GetFilterStatistics,
    RegisterFilterServer,
    TryFilter,
)
from kourou.protocol.request import Request
from kourou_rigs.wire_faults import Answer, Cut, always

SOURCES = {number: f"def match(message, context):\n    return {number} < 9\n" for number in (1, 2)}


def filters_reply(*states: FilterState) -> Answer:
    """A broker's reply, with what no broker of ours sends."""
    return Answer(header=GetFiltersResponse(filters_version=5), body=encode_filters(states, []))


@pytest.fixture
def brokers(cluster, broker):
    """Two brokers; the second has two versions of the filter late, of which the second runs."""
    other = cluster.broker("broker-b")
    for source in SOURCES.values():
        other.put_filter(Filter(source, name="late"))
    return broker, other


@pytest.fixture
async def filters(brokers, producing):
    async with producing() as mq:
        yield mq.admin.filters


@pytest.mark.parametrize(
    ("decided", "number", "wanted"),
    [
        (FilterAction.ROLLBACK, None, 1),
        (FilterAction.DISABLE, None, 2),
        (FilterAction.ROLLBACK, 2, 2),
    ],
    ids=["active", "newest", "named"],
)
async def test_the_source_of_the_first_broker_that_has_it(
    brokers, filters, decided, number, wanted
):
    _, other = brokers
    other.change_filter("late", decided)
    found = await filters.source("g", "late", number)
    assert (found.version, found.source) == (wanted, SOURCES[wanted])
    assert other.requests(GetFilters)[-1].version == wanted
    for name, version, why in (
        ("other", None, "has no filter other"),
        ("late", 7, "version 7 of filter late .* is not stored"),
    ):
        with pytest.raises(Rejected, match=why):
            await filters.source("g", name, version)


async def test_a_source_that_a_broker_leaves_out(brokers, filters):
    _, other = brokers
    other.faults[GetFilters] = always(filters_reply(FilterState("g", "late")))
    with pytest.raises(Rejected, match="has no version"):
        await filters.source("g", "late")
    with pytest.raises(Rejected, match="version 7 of filter 'late' is not stored"):
        await filters.source("g", "late", 7)


@pytest.mark.parametrize("where", [{}, {"topic": "T"}], ids=["all", "topic"])
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
async def test_decisions_go_where_the_filter_is(brokers, filters, call, action, where):
    assert list(await call(filters, where)) == ["broker-b"]
    asked = brokers[1].requests(ChangeFilter)[-1]
    assert (asked.action, asked.reason) == (action, "r")
    assert asked.version == (2 if action == "enable" else None)
    assert asked.policy == ("skip" if action == "policy" else None)
    with pytest.raises(Rejected, match="has no filter late"):
        await call(filters, {"broker": "broker-a"})


async def test_what_can_be_known_to_be_wrong_is_not_asked(brokers, filters):
    with pytest.raises(BadRequest, match="is not a filter policy"):
        await filters.set_policy("g", "late", "drop")
    with pytest.raises(
        BadRequest, match="give a topic, a broker or a cluster, but only one of them"
    ):
        await filters.enable("g", "late", topic="T", broker="broker-a")
    assert [one.requests(ChangeFilter) for one in brokers] == [[], []]


# -- filter servers -------------------------------------------------------------------------------


def register(broker, *addresses: str) -> None:
    for address in addresses:
        broker.ask(RegisterFilterServer(filter_server_addr=address))


@pytest.fixture
def servers(cluster, broker, brokers):
    """Two filter servers of broker-a; broker-b has none."""
    found = [cluster.filter_server(broker) for _ in range(2)]
    register(broker, *(one.address for one in found))
    return found


async def test_servers_are_those_that_brokers_name(broker, servers, filters):
    first, second = servers
    assert await filters.servers() == {
        "broker-a": (first.address, second.address),
        "broker-b": (),
    }
    assert await filters.servers(topic="T", broker=None)


async def test_servers_are_asked_where_the_name_server_says_that_they_can_be_dialled(
    cluster, broker, filters
):
    """A broker in a container knows addresses among containers; its clients may be elsewhere."""
    known = ("filter-server-1:20915", "filter-server-2:20916")
    register(broker, *known)
    servers = [cluster.filter_server(broker) for _ in range(2)]
    cluster.topics["broker-a"] = (1, 1)  # as brokers make it themselves
    dialled = tuple(one.address for one in servers)
    assert (await filters.servers())["broker-a"] == dialled
    for one in servers:
        one.faults[Request] = always(Answer(body=encode_filter_trial(FilterTrial(topic="T"))))
    assert list(await filters.try_out("g", "late", "T", broker="broker-a")) == [dialled[0]]
    cluster.filter_servers.clear()  # no name server has heard of them yet
    assert (await filters.servers())["broker-a"] == known
    cluster.topics.pop("broker-a")  # nor of that topic
    assert (await filters.servers())["broker-a"] == known


async def test_a_trial_is_made_by_one_server_of_each_broker(cluster, servers, filters):
    first, second = servers
    trial = Answer(body=encode_filter_trial(FilterTrial(topic="T", seen=3)))
    for one in servers:
        one.faults[TryFilter] = always(trial)
    with pytest.raises(FilterFailed, match="broker-b has no filter server"):
        await filters.try_out("g", "late", "T")
    found = await filters.try_out("g", "late", "T", source=SOURCES[1], count=3, broker="broker-a")
    assert {where: trial.seen for where, trial in found.items()} == {first.address: 3}
    asked = first.seen[-1]
    assert isinstance(asked, TryFilter)
    assert (asked.name, asked.topic, asked.count, asked.version) == ("late", "T", 3, None)
    first.faults[TryFilter] = [Answer(Code.SERVICE_NOT_AVAILABLE, remark="stopping")]
    assert list(await filters.try_out("g", "late", "T", broker="broker-a")) == [second.address]
    first.faults[TryFilter] = [Answer(Code.FILTER_FAILED, remark="line 3")]
    asked_before = len(second.seen)
    with pytest.raises(FilterFailed, match="line 3"):
        await filters.try_out("g", "late", "T", broker="broker-a")
    assert len(second.seen) == asked_before
    cluster.topics["U"] = (1, 1)
    with pytest.raises(BadRequest):
        await filters.try_out("g", "late", "U", broker="nobody")


async def test_figures_come_from_all_that_answer(servers, filters):
    first, second = servers
    figures = [FilterFigures(group="g", name="late", version=1, seen=9)]
    first.faults[GetFilterStatistics] = [Answer(body=encode_filter_statistics(figures)), Cut]
    second.faults[GetFilterStatistics] = always(Cut)
    found = await filters.statistics("g")
    assert {where: [one.seen for one in figures] for where, figures in found.items()} == {
        first.address: [9]
    }
    with pytest.raises(Exception, match="connection was lost"):
        await filters.statistics()
    assert await filters.statistics(broker="broker-b") == {}
