"""Topics: lists, configurations, routes and the state of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from kourou.errors import Rejected, TopicNotFound
from kourou.model.limits import CONSOLE_LIST_ITEMS_MAX
from kourou.model.topic import MessageQueue, TopicConfig
from kourou.protocol.bodies.route_bodies import ClusterInfo
from kourou.protocol.bodies.statistics_bodies import TopicOffset
from kourou.time_limit import within
from kourou_console.gateway import Gateway
from kourou_console.lists import (
    LIST_ITEMS,
    LOOK_S,
    Limit,
    Listing,
    Missing,
    Name,
    answers,
    asked,
    brokers_of,
    cut,
    why,
)
from kourou_console.operation import Chapter
from kourou_console.topic_kinds import Access, TopicKind, access_of, kind_of

OPERATIONS = Chapter("Topics")


class TopicConfigView(msgspec.Struct, frozen=True, kw_only=True):
    """How one broker has a topic. `system_flag` has RocketMQ's bits of units."""

    broker: str
    read_queues: int
    write_queues: int
    permission: Access
    order: bool
    system_flag: int


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic over all its brokers; numbers of queues are sums.

    `purpose` is that of a system topic, `group` that of a retry or dead-letter topic; `permission`
    is null if brokers differ, and `clashes` lists other differences.
    """

    topic: str
    kind: TopicKind
    purpose: str | None
    group: str | None
    brokers: list[str]
    read_queues: int
    write_queues: int
    permission: Access | None
    order: bool
    clashes: list[str]


class TopicList(Listing[Topic], frozen=True, kw_only=True):
    """Topics by name; `kinds` counts all of each kind, shown or not."""

    kinds: dict[str, int]


class TopicDetail(Topic, frozen=True, kw_only=True):
    """A topic with its queues, rates and consumer groups."""

    configs: list[TopicConfigView]
    clusters: list[str]
    groups: list[str] | None
    messages: int | None
    last_stored_ms: int | None
    messages_in_per_s: float | None
    bytes_in_per_s: float | None
    messages_in_24h: int | None
    as_of_ms: int
    missing: list[Missing]


class TopicConfigs(Listing[TopicConfigView], frozen=True, kw_only=True):
    """A topic at each broker, and in what they differ."""

    clashes: list[str]


class TopicsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` may be repeated; `search` is a part of the name, case-insensitive."""

    kind: list[TopicKind] = []
    search: str = ""
    cluster: Name | None = None
    limit: Limit = LIST_ITEMS


class TopicPath(msgspec.Struct, frozen=True):
    """The topic."""

    topic: Name


class QueueStatus(msgspec.Struct, frozen=True):
    """One queue's bounds; `messages` is their difference, those of deleted segments left out."""

    broker: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int
    last_stored_ms: int | None


class RouteQueues(msgspec.Struct, frozen=True):
    """A topic's queues at a broker, and where its leader is."""

    broker: str
    address: str | None
    read_queues: int
    write_queues: int
    permission: Access


class RouteMember(msgspec.Struct, frozen=True):
    """A replica of a broker; 0 is the leader."""

    registered_id: int
    address: str


class RouteBroker(msgspec.Struct, frozen=True):
    """A broker of a route."""

    broker: str
    cluster: str
    members: list[RouteMember]


class RouteFilters(msgspec.Struct, frozen=True):
    """Filter servers of the broker at this address."""

    address: str
    servers: list[str]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The route of a topic, as clients receive it."""

    topic: str
    queues: list[RouteQueues]
    brokers: list[RouteBroker]
    filter_servers: list[RouteFilters]
    order: str | None
    as_of_ms: int


async def all_topics(
    gateway: Gateway, cluster: str | None = None
) -> tuple[dict[str, dict[str, TopicConfig]], list[Missing], ClusterInfo]:
    """Every topic of every broker that replies: broker -> topic -> config."""
    names = await brokers_of(gateway, cluster=cluster)

    async def configs(name: str) -> dict[str, TopicConfig]:
        return (await gateway.admin.topics.all_configs(broker=name)).get(name, {})

    (found, missing), info = await asyncio.gather(
        answers(names, configs), gateway.admin.cluster.info()
    )
    return found, missing, info


@OPERATIONS.get("/v1/topics", "topics")
async def topics(gateway: Gateway, parameters: TopicsWanted) -> TopicList:
    """Topics by kind (`kind=normal&kind=dlq`) and part of the name, over all brokers."""
    found, missing, info = await all_topics(gateway, parameters.cluster)
    by_topic: dict[str, dict[str, TopicConfig]] = {}
    for broker, configs in found.items():
        for name, config in configs.items():
            by_topic.setdefault(name, {})[broker] = config
    rows = [topic_of(name, by_topic[name], info) for name in sorted(by_topic)]
    kinds = {kind.value: sum(row.kind is kind for row in rows) for kind in TopicKind}
    part = parameters.search.lower()
    rows = [
        row
        for row in rows
        if (not parameters.kind or row.kind in parameters.kind) and part in row.topic.lower()
    ]
    items, truncated = cut(rows, parameters.limit)
    return TopicList(
        items=items,
        total=None if missing else len(rows),
        truncated=truncated,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
        kinds=kinds,
    )


def topic_of(name: str, configs: Mapping[str, TopicConfig], info: ClusterInfo) -> Topic:
    """A topic's configurations at its brokers as one item."""
    found = kind_of(name, info.brokers, info.clusters)
    accesses = {access_of(one.perm) for one in configs.values()}
    return Topic(
        topic=name,
        kind=found.kind,
        purpose=found.purpose,
        group=found.group,
        brokers=sorted(configs),
        read_queues=sum(one.read_queue_nums for one in configs.values()),
        write_queues=sum(one.write_queue_nums for one in configs.values()),
        permission=accesses.pop() if len(accesses) == 1 else None,
        order=any(one.order for one in configs.values()),
        clashes=clashes_of(configs),
    )


def clashes_of(configs: Mapping[str, TopicConfig]) -> list[str]:
    """The differences between brokers, one sentence each."""
    said = []
    for what, values in (
        ("read queues", {name: str(one.read_queue_nums) for name, one in configs.items()}),
        ("write queues", {name: str(one.write_queue_nums) for name, one in configs.items()}),
        ("permission", {name: access_of(one.perm).value for name, one in configs.items()}),
        ("order", {name: str(one.order).lower() for name, one in configs.items()}),
    ):
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{values[name]} at {name}" for name in sorted(values))
            said.append(f"{what}: {listed}")
    return said


def config_of(broker: str, one: TopicConfig) -> TopicConfigView:
    """A topic's configuration at a broker, as a response item."""
    return TopicConfigView(
        broker=broker,
        read_queues=one.read_queue_nums,
        write_queues=one.write_queue_nums,
        permission=access_of(one.perm),
        order=one.order,
        system_flag=one.topic_sys_flag,
    )


async def configs_of(
    gateway: Gateway, topic: str, cluster: str | None = None
) -> tuple[dict[str, TopicConfig], list[Missing], ClusterInfo]:
    """The topic at each broker that has it. Raises TopicNotFound if all replied and none has it."""
    found, missing, info = await all_topics(gateway, cluster)
    configs = {name: every[topic] for name, every in found.items() if topic in every}
    if not configs and not missing:
        raise TopicNotFound(f"topic {topic!r} not found")
    return configs, missing, info


@OPERATIONS.get("/v1/topics/{topic}", "topic")
async def topic(gateway: Gateway, parameters: TopicPath) -> TopicDetail:
    """Everything about one topic."""
    name = parameters.topic
    configs, missing, info = await configs_of(gateway, name)
    if not configs:
        raise TopicNotFound(f"topic {name!r} not found at the online brokers")
    admin = gateway.admin
    stats, groups, rates = await asyncio.gather(
        within(admin.topics.stats(name), LOOK_S),
        within(admin.topics.consumer_groups(name), LOOK_S),
        asked(sorted(configs), lambda broker: _rates(gateway, broker, name)),
        return_exceptions=True,
    )
    missing = [*missing, *_failed({"queues": stats, "groups": groups, "rates": rates})]
    per_s, bytes_per_s, day = _summed(rates, len(configs))
    row = topic_of(name, configs, info)
    return TopicDetail(
        **{field: getattr(row, field) for field in row.__struct_fields__},
        configs=[config_of(broker, one) for broker, one in sorted(configs.items())],
        clusters=sorted(
            one for one, members in info.clusters.items() if set(members) & set(configs)
        ),
        groups=None if isinstance(groups, BaseException) else groups,
        messages=None if isinstance(stats, BaseException) else _messages(stats),
        last_stored_ms=None if isinstance(stats, BaseException) else _last(stats),
        messages_in_per_s=per_s,
        bytes_in_per_s=bytes_per_s,
        messages_in_24h=day,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


def _failed(outcomes: Mapping[str, object]) -> Iterable[Missing]:
    for what, outcome in outcomes.items():
        if isinstance(outcome, BaseException):
            yield Missing(what, why(outcome))


async def _rates(gateway: Gateway, broker: str, topic: str) -> tuple[float, float, int]:
    """Messages and bytes per second in the last minute, messages in 24 hours; 0: never counted."""
    brokers = gateway.admin.brokers
    try:
        count, size = await asyncio.gather(
            brokers.statistics(broker, "TOPIC_PUT_NUMS", topic),
            brokers.statistics(broker, "TOPIC_PUT_SIZE", topic),
        )
    except Rejected:
        return 0.0, 0.0, 0
    day = count.stats_day.sum or count.stats_hour.sum or count.stats_minute.sum
    return count.stats_minute.tps, size.stats_minute.tps, day


def _summed(
    rates: tuple[dict[str, tuple[float, float, int]], list[Missing]] | BaseException, brokers: int
) -> tuple[float | None, float | None, int | None]:
    if isinstance(rates, BaseException) or len(rates[0]) < brokers:
        return None, None, None
    every = list(rates[0].values())
    return sum(one[0] for one in every), sum(one[1] for one in every), sum(one[2] for one in every)


def _messages(stats: Mapping[MessageQueue, TopicOffset]) -> int:
    return sum(max(0, one.max_offset - one.min_offset) for one in stats.values())


def _last(stats: Mapping[MessageQueue, TopicOffset]) -> int | None:
    return max((one.last_update_timestamp for one in stats.values()), default=0) or None


@OPERATIONS.get("/v1/topics/{topic}/config", "topic_config")
async def topic_config(gateway: Gateway, parameters: TopicPath) -> TopicConfigs:
    """The topic's configuration at each broker, and differences."""
    configs, missing, _ = await configs_of(gateway, parameters.topic)
    items = [config_of(broker, one) for broker, one in sorted(configs.items())]
    return TopicConfigs(
        items=items,
        total=None if missing else len(items),
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
        clashes=clashes_of(configs),
    )


@OPERATIONS.get("/v1/topics/{topic}/status", "topic_status", needs=())
async def status(gateway: Gateway, parameters: TopicPath) -> Listing[QueueStatus]:
    """Minimum and maximum offset of every queue, and its last write."""
    rows = await queue_rows(gateway, parameters.topic)
    return Listing(
        items=rows[:CONSOLE_LIST_ITEMS_MAX],
        total=len(rows),
        truncated=len(rows) > CONSOLE_LIST_ITEMS_MAX,
        as_of_ms=gateway.clock.now_ms(),
    )


async def queue_rows(gateway: Gateway, topic: str) -> list[QueueStatus]:
    """The rows of `status`."""
    return [
        QueueStatus(
            queue.broker_name,
            queue.queue_id,
            one.min_offset,
            one.max_offset,
            max(0, one.max_offset - one.min_offset),
            one.last_update_timestamp or None,
        )
        for queue, one in (await gateway.admin.topics.stats(topic)).items()
    ]


@OPERATIONS.get("/v1/topics/{topic}/route", "topic_route")
async def route(gateway: Gateway, parameters: TopicPath) -> Route:
    """The route of a topic, as clients receive it."""
    found = await gateway.admin.topics.route(parameters.topic)
    leaders = {one.broker_name: one.master_addr() for one in found.broker_datas}
    return Route(
        topic=parameters.topic,
        queues=[
            RouteQueues(
                one.broker_name,
                leaders.get(one.broker_name),
                one.read_queue_nums,
                one.write_queue_nums,
                access_of(one.perm),
            )
            for one in sorted(found.queue_datas, key=lambda one: one.broker_name)
        ],
        brokers=[
            RouteBroker(
                one.broker_name,
                one.cluster,
                [RouteMember(number, at) for number, at in sorted(one.broker_addrs.items())],
            )
            for one in sorted(found.broker_datas, key=lambda one: one.broker_name)
        ],
        filter_servers=[
            RouteFilters(at, list(servers))
            for at, servers in sorted(found.filter_server_table.items())
        ],
        order=found.order_topic_conf or None,
        as_of_ms=gateway.clock.now_ms(),
    )
