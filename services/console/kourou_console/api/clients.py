"""Connected consumers and producers: their status, and whether subscriptions agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from kourou.errors import KourouError, Rejected
from kourou.model.subscription import Subscription
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo
from kourou_console.api.groups import GroupPath
from kourou_console.gateway import Gateway
from kourou_console.lists import LIST_ITEMS, Limit, Listing, Missing, Name, answers, brokers_of
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Groups")

ClientName = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]


class SubscriptionView(msgspec.Struct, frozen=True):
    """One topic as it is wanted; `kind` is TAG, SQL92, or FILTER: one in Python."""

    topic: str
    expression: str
    kind: str


class ConnectedClient(msgspec.Struct, frozen=True):
    """A connected client."""

    client: str
    address: str
    language: str
    version: int


class MemberList(Listing[ConnectedClient], frozen=True, kw_only=True):
    """A group's consumers and settings at brokers: null where no consumer is connected."""

    model: str | None
    type: str | None
    from_where: str | None
    subscriptions: list[SubscriptionView]


class MemberPath(msgspec.Struct, frozen=True):
    """One consumer; `stacks` includes the stack traces of its threads."""

    group: Name
    client: ClientName
    stacks: bool = False


class HeldQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that the consumer has; `dropped`: it is releasing it."""

    topic: str
    broker: str
    queue: int
    committed: int
    cached: int
    cached_mib: int
    locked: bool
    dropped: bool
    last_pulled_ms: int | None
    last_consumed_ms: int | None


class TopicRates(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's rates for a topic; `failed_messages` in the last hour."""

    topic: str
    pulled_per_s: float
    consumed_per_s: float
    failed_per_s: float
    pull_ms: float
    consume_ms: float
    failed_messages: int


class RunningConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """Running information of a consumer, as reported by it."""

    client: str
    properties: dict[str, str]
    subscriptions: list[SubscriptionView]
    queues: list[HeldQueue]
    rates: list[TopicRates]
    stack: str | None
    as_of_ms: int


class MemberSubscriptions(msgspec.Struct, frozen=True):
    """The subscriptions of a consumer; null with the reason if it did not reply."""

    client: str
    subscriptions: list[SubscriptionView] | None
    why: str | None


class ClashSide(msgspec.Struct, frozen=True):
    """Consumers with the same subscription to a topic; `expression` null: none."""

    expression: str | None
    kind: str | None
    clients: list[str]


class Clash(msgspec.Struct, frozen=True):
    """A topic to which consumers of one group subscribe differently."""

    topic: str
    sides: list[ClashSide]
    meaning: str
    what_to_do: str


class SubscriptionList(Listing[MemberSubscriptions], frozen=True, kw_only=True):
    """The subscriptions of each consumer, and their differences."""

    clashes: list[Clash]


class ConnectedProducer(msgspec.Struct, frozen=True, kw_only=True):
    """A connected producer."""

    group: str
    client: str
    address: str
    language: str
    version: int
    heard_ms: int | None


class ProducersWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The producers of one broker, or of all."""

    broker: Name | None = None
    limit: Limit = LIST_ITEMS


class DirectBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stored message, by either kind of id; without `client`: the consumer heard last."""

    topic: Name
    message_id: Name
    client: Annotated[str, msgspec.Meta(max_length=1_024)] = ""


class DirectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the consumer's handler (`CR_SUCCESS`, `CR_LATER` and others)."""

    result: str | None
    ordered: bool
    remark: str | None
    took_ms: int
    as_of_ms: int


@OPERATIONS.get("/v1/groups/{group}/members", "group_members", needs=())
async def members(gateway: Gateway, parameters: GroupPath) -> MemberList:
    """The connected consumers of a group, and its consumption model."""
    try:
        found = await gateway.admin.groups.connections(parameters.group)
    except Rejected:
        return MemberList(
            items=[],
            total=0,
            as_of_ms=gateway.clock.now_ms(),
            model=None,
            type=None,
            from_where=None,
            subscriptions=[],
        )
    items = [
        ConnectedClient(one.client_id, one.client_addr, one.language, one.version)
        for one in found.connections
    ]
    return MemberList(
        items=items,
        total=len(items),
        as_of_ms=gateway.clock.now_ms(),
        model=found.message_model.value,
        type=found.consume_type.value,
        from_where=found.consume_from_where.value,
        subscriptions=_shown(found.subscriptions.values()),
    )


def _shown(wanted: Iterable[Subscription]) -> list[SubscriptionView]:
    found = [SubscriptionView(one.topic, one.expression, one.kind) for one in wanted]
    return sorted(found, key=lambda one: one.topic)


@OPERATIONS.get("/v1/groups/{group}/members/{client}/running", "member_running", needs=())
async def running(gateway: Gateway, parameters: MemberPath) -> RunningConsumer:
    """The status reported by one consumer: settings, queues, rates; with `stacks=true` its
    threads.
    """
    info = await gateway.admin.members.running_info(
        parameters.group, parameters.client, stacks=parameters.stacks
    )
    return RunningConsumer(
        client=parameters.client,
        properties=dict(sorted(info.properties.items())),
        subscriptions=_shown(info.subscriptions),
        queues=_queues(info),
        rates=[
            TopicRates(
                topic=topic,
                pulled_per_s=one.pull_tps,
                consumed_per_s=one.consume_ok_tps,
                failed_per_s=one.consume_failed_tps,
                pull_ms=one.pull_rt,
                consume_ms=one.consume_rt,
                failed_messages=one.consume_failed_msgs,
            )
            for topic, one in sorted(info.rates.items())
        ],
        stack=info.jstack,
        as_of_ms=gateway.clock.now_ms(),
    )


def _queues(info: ConsumerRunningInfo) -> list[HeldQueue]:
    return [
        HeldQueue(
            topic=queue.topic,
            broker=queue.broker_name,
            queue=queue.queue_id,
            committed=one.commit_offset,
            cached=one.cached_msg_count,
            cached_mib=one.cached_msg_size_in_mi_b,
            locked=one.locked,
            dropped=one.droped,
            last_pulled_ms=one.last_pull_timestamp or None,
            last_consumed_ms=one.last_consume_timestamp or None,
        )
        for queue, one in sorted(info.queues.items())
    ]


@OPERATIONS.get("/v1/groups/{group}/subscriptions", "group_subscriptions", needs=())
async def subscriptions(gateway: Gateway, parameters: GroupPath) -> SubscriptionList:
    """The subscriptions of each consumer, and inconsistent subscriptions by topic."""
    try:
        found = await gateway.admin.members.subscriptions(parameters.group)
    except Rejected:  # no consumer is connected
        found = {}
    items, by_client, missing = [], {}, []
    for client, one in found.items():
        if isinstance(one, KourouError):
            items.append(MemberSubscriptions(client, None, str(one)))
            missing.append(Missing(client, str(one)))
            continue
        items.append(MemberSubscriptions(client, _shown(one), None))
        by_client[client] = _shown(one)
    return SubscriptionList(
        items=items,
        total=len(items),
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
        clashes=clashes_of(by_client),
    )


def clashes_of(by_client: Mapping[str, list[SubscriptionView]]) -> list[Clash]:
    """Topics to which not all consumers subscribe in the same way; the larger side first."""
    topics = sorted({one.topic for wanted in by_client.values() for one in wanted})
    found = []
    for topic in topics:
        sides: dict[tuple[str | None, str | None], list[str]] = {}
        for client, wanted in sorted(by_client.items()):
            mine = next((one for one in wanted if one.topic == topic), None)
            key = (None, None) if mine is None else (mine.expression, mine.kind)
            sides.setdefault(key, []).append(client)
        if len(sides) < 2:
            continue
        shown = [ClashSide(text, kind, clients) for (text, kind), clients in sides.items()]
        shown.sort(key=lambda side: (-len(side.clients), side.expression or ""))
        some_nothing = any(side.expression is None for side in shown)
        meaning = (
            f"Some consumers do not subscribe to {topic}: the queues assigned to them are not "
            "consumed."
            if some_nothing
            else f"Consumers have different filters for {topic}: brokers keep one filter per "
            "group, the newest, so other consumers miss messages that their own filter accepts."
        )
        found.append(
            Clash(
                topic,
                shown,
                meaning,
                "Give all consumers of the group the same subscriptions, or use separate groups.",
            )
        )
    return found


@OPERATIONS.post("/v1/groups/{group}/direct", "consume_directly", needs=())
async def consume_directly(
    gateway: Gateway, parameters: GroupPath, body: DirectBody
) -> DirectAnswer:
    """Deliver one stored message to a consumer of the group now; offsets do not change."""
    message = await gateway.admin.messages.by_id(body.topic, body.message_id)
    found = await gateway.admin.members.consume(parameters.group, message, body.client)
    return DirectAnswer(
        result=found.consume_result,
        ordered=found.order,
        remark=found.remark,
        took_ms=found.spent_time_mills,
        as_of_ms=gateway.clock.now_ms(),
    )


@OPERATIONS.get("/v1/producers", "producers")
async def producers(gateway: Gateway, parameters: ProducersWanted) -> Listing[ConnectedProducer]:
    """All connected producers with group and last heartbeat."""
    names = await brokers_of(gateway, parameters.broker)
    found, missing = await answers(
        names, lambda name: gateway.admin.members.all_producers(broker=name)
    )
    rows: dict[tuple[str, str], ConnectedProducer] = {}
    for groups in found.values():
        for group, every in groups.items():
            for one in every:
                row = ConnectedProducer(
                    group=group,
                    client=one.client_id,
                    address=one.remote_ip,
                    language=one.language,
                    version=one.version,
                    heard_ms=one.last_update_timestamp or None,
                )
                former = rows.get((group, one.client_id))
                if former is None or (former.heard_ms or 0) < (row.heard_ms or 0):
                    rows[(group, one.client_id)] = row
    every_row = [rows[key] for key in sorted(rows)]
    return Listing(
        items=every_row[: parameters.limit],
        total=None if missing else len(every_row),
        truncated=len(every_row) > parameters.limit,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


@OPERATIONS.get("/v1/producers/{group}", "producers_of_group")
async def producers_of(gateway: Gateway, parameters: GroupPath) -> Listing[ConnectedProducer]:
    """The connected producers of one group."""
    try:
        found = await gateway.admin.groups.producers(parameters.group)
    except Rejected:
        found = []
    items = [
        ConnectedProducer(
            group=parameters.group,
            client=one.client_id,
            address=one.client_addr,
            language=one.language,
            version=one.version,
            heard_ms=None,
        )
        for one in found
    ]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms())
