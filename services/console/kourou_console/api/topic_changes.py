"""Create, change and delete topics, with their order setting at the name servers.

The order setting is for the whole topic, whichever brokers a change names. It contains the number
of queues of each broker, and producers send to no other queues. So it is created only if every
broker reports its number of queues, and it is updated when a number changes.

State: none. A change is an event at each broker, with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from kourou.client.session.route_table import strict_queues
from kourou.errors import BadRequest, KourouError, TopicNotFound, Unavailable
from kourou.model.names import ORDER_NAMESPACE, check_topic
from kourou.model.topic import TopicConfig
from kourou_console.api.topics import TopicConfigView, TopicPath, config_of, configs_of
from kourou_console.gateway import Gateway
from kourou_console.lists import (
    Done,
    Missing,
    Name,
    Reason,
    ValueChange,
    asked,
    brokers_of,
    changes_between,
    why,
)
from kourou_console.metrics.sampler import Sampler
from kourou_console.operation import Chapter
from kourou_console.topic_kinds import Access, TopicKind, kind_of, permission_of

OPERATIONS = Chapter("Topics")

QUEUES = 8
_FIELDS = ("read_queues", "write_queues", "permission", "order", "system_flag")
Queues = Annotated[int, msgspec.Meta(ge=1, le=65_536)]


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """The setting before and after the change, queues by broker; empty: there is none."""

    topic: str
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    #: Brokers that the setting needs but that did not report their number of queues.
    unknown: Sequence[Missing] = ()

    def said(self, *, preview: bool) -> list[str]:
        """Sentences that describe the change, with all brokers' names."""
        if self.before == self.after:
            return []
        will = "would be" if preview else "is"
        if not self.after:
            names = ", ".join(sorted(self.before))
            return [f"The order setting of {self.topic} {will} removed for all brokers: {names}."]
        text = ";".join(f"{name}:{count}" for name, count in sorted(self.after.items()))
        says = [f"The order setting of {self.topic} {will} {text} at every name server."]
        says += [f"That is refused while {one.what} does not respond." for one in self.unknown]
        return says

    def check(self) -> None:
        """Raises Unavailable if the setting would omit a broker."""
        if self.unknown and self.before != self.after:
            raise Unavailable(
                f"{self.unknown[0].what} did not report its number of queues: "
                f"{self.unknown[0].why}",
                hint="producers would not send to a broker that the order setting leaves out: "
                "retry when it responds",
            )

    async def carry_out(self, gateway: Gateway) -> None:
        """Apply the change, if there is one."""
        if self.before == self.after:
            return
        if self.after:
            queues = dict(sorted(self.after.items()))
            await gateway.admin.name_servers.put_order(self.topic, queues)
        else:
            await gateway.admin.name_servers.delete(ORDER_NAMESPACE, self.topic)


async def order_plan(
    gateway: Gateway,
    topic: str,
    wanted: bool | None,
    now: Mapping[str, TopicConfig],
    queues: Mapping[str, int],
    unknown: Sequence[Missing],
) -> OrderPlan:
    """The plan for brokers that will have these numbers of write queues.

    `now` is the topic at all brokers that have it, except for the `unknown` ones. If `wanted` is
    None or equals the brokers' value, the setting stays, and only changed numbers are updated.
    """
    changed = {
        name: count
        for name, count in queues.items()
        if name not in now or now[name].write_queue_nums != count
    }
    turned = wanted is not None and any(
        name not in now or now[name].order != wanted for name in queues
    )
    if not (changed or turned):
        return OrderPlan(topic)
    text = await gateway.admin.name_servers.get(ORDER_NAMESPACE, topic)
    before = dict(Counter(queue.broker_name for queue in strict_queues(topic, text or "")))
    if not turned:
        return OrderPlan(topic, before, before | changed if before else {})
    if not wanted:
        return OrderPlan(topic, before)
    everywhere = {name: one.write_queue_nums for name, one in now.items()}
    return OrderPlan(topic, before, everywhere | dict(queues), unknown)


class TopicChange(msgspec.Struct, frozen=True):
    """The topic; `preview`: only report the effects."""

    topic: Name
    preview: bool = False


class TopicBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is not named stays as it is; a new topic has 8 queues for reading and writing.

    At every broker, at those of a cluster, or at one.
    """

    write_queues: Queues | None = None
    read_queues: Queues | None = None
    permission: Access | None = None
    order: bool | None = None
    system_flag: Annotated[int, msgspec.Meta(ge=0, le=3)] | None = None
    broker: Name | None = None
    cluster: Name | None = None
    reason: Reason = ""


class PermissionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may use the topic from now on."""

    permission: Access
    broker: Name | None = None
    cluster: Name | None = None
    reason: Reason = ""


class BrokerTopicChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changes at one broker; `before` null: it does not have the topic yet."""

    broker: str
    before: TopicConfigView | None
    after: TopicConfigView
    changes: list[ValueChange]


class TopicChanges(Done, frozen=True, kw_only=True):
    """What a change does at each broker."""

    topic: str
    created: bool
    items: list[BrokerTopicChange]


class TopicDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """The topic, at the brokers of which cluster; `preview`: only report the losses."""

    topic: Name
    preview: bool = False
    cluster: Name | None = None
    reason: Reason = ""


class LosingGroup(msgspec.Struct, frozen=True):
    """A group that consumes what is deleted."""

    group: str
    lag_messages: int | None


class TopicLoss(Done, frozen=True, kw_only=True):
    """What goes with a topic: its messages, and all groups' progress in it."""

    topic: str
    messages: int | None
    queues: int
    brokers: list[str]
    groups: list[LosingGroup]


class OrderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many queues the ordered topic has at which broker."""

    queues: Annotated[dict[str, Queues], msgspec.Meta(min_length=1)]


class Order(Done, frozen=True, kw_only=True):
    """A topic's order setting at the name servers, `broker-a:4;broker-b:4`, or null."""

    topic: str
    order: str | None


@OPERATIONS.put("/v1/topics/{topic}", "put_topic")
async def put(gateway: Gateway, parameters: TopicChange, body: TopicBody) -> TopicChanges:
    """Create or change a topic. Fields left out are unchanged; `preview=true` shows the changes."""
    name = check_topic(parameters.topic)
    before, unknown, brokers = await _before(gateway, name, body.broker, body.cluster)
    missing = [one for one in unknown if one.what in brokers]
    items = [_item(broker, name, before.get(broker), body) for broker in brokers]
    plan = await order_plan(
        gateway,
        name,
        body.order,
        before,
        {one.broker: one.after.write_queues for one in items},
        [*unknown, *await _recently_gone(gateway)],
    )
    if not parameters.preview:
        _require_all(missing)
        plan.check()
        for item in items:
            if item.before is None or any(one.name != "order" for one in item.changes):
                await gateway.admin.topics.create(
                    name,
                    queues=item.after.write_queues,
                    read_queues=item.after.read_queues,
                    perm=permission_of(item.after.permission),
                    order=item.after.order,
                    broker=item.broker,
                    sys_flag=item.after.system_flag,
                    reason=body.reason,
                )
        # Brokers take a topic's order from the name servers' setting, so that setting is changed.
        await plan.carry_out(gateway)
    says = _preview_lines(name, items, preview=parameters.preview) + plan.said(
        preview=parameters.preview
    )
    return TopicChanges(
        topic=name,
        created=not any(broker in before for broker in brokers),
        preview=parameters.preview,
        says=says or ["No changes."],
        items=items,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing + [one for one in plan.unknown if one not in missing],
    )


@OPERATIONS.put("/v1/topics/{topic}/permission", "put_topic_permission")
async def set_permission(
    gateway: Gateway, parameters: TopicChange, body: PermissionBody
) -> TopicChanges:
    """Change the permissions of a topic only."""
    name = parameters.topic
    before, unknown, brokers = await _before(gateway, name, body.broker, body.cluster)
    missing = [one for one in unknown if one.what in brokers]
    wanted = TopicBody(permission=body.permission, reason=body.reason)
    items = [_item(one, name, before[one], wanted) for one in brokers if one in before]
    if not items:
        raise TopicNotFound(f"topic {name!r} not found at these brokers")
    if not parameters.preview:
        _require_all(missing)
        await gateway.admin.topics.set_perm(
            name,
            permission_of(body.permission),
            broker=body.broker,
            cluster=body.cluster,
            reason=body.reason,
        )
    return TopicChanges(
        topic=name,
        created=False,
        preview=parameters.preview,
        says=_preview_lines(name, items, preview=parameters.preview) or ["No changes."],
        items=items,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


async def _before(
    gateway: Gateway, topic: str, broker: str | None, cluster: str | None
) -> tuple[dict[str, TopicConfig], list[Missing], list[str]]:
    """The topic at each broker, the brokers that did not reply, and the selected brokers."""
    if broker is not None and cluster is not None:
        raise BadRequest("give a broker or a cluster, not both")
    chosen = await brokers_of(gateway, broker, cluster)
    try:
        configs, missing, _ = await configs_of(gateway, topic)
    except TopicNotFound:
        configs, missing = {}, []
    return configs, missing, chosen


async def _recently_gone(gateway: Gateway) -> list[Missing]:
    """Brokers that were registered within the last hour and may return."""
    there = (await gateway.admin.cluster.info()).brokers
    seen = gateway.part(Sampler).brokers
    return [
        Missing(name, ("it is not registered at any name server"))
        for name in seen
        if name not in there
    ]


def _require_all(missing: list[Missing]) -> None:
    """Raises Unavailable if a broker's current values are unknown: they would get the defaults."""
    if missing:
        raise Unavailable(
            f"{missing[0].what} did not report its current state: {missing[0].why}",
            hint="retry, or select the brokers to change",
        )


def _item(
    broker: str, topic: str, before: TopicConfig | None, body: TopicBody
) -> BrokerTopicChange:
    old = None if before is None else config_of(broker, before)
    usual = old or TopicConfigView(
        broker=broker,
        read_queues=body.write_queues or QUEUES,
        write_queues=QUEUES,
        permission=Access.READ_WRITE,
        order=False,
        system_flag=0,
    )
    after = TopicConfigView(
        broker=broker,
        # More write queues need as many read queues: brokers reject anything else.
        read_queues=body.read_queues or max(usual.read_queues, body.write_queues or 0),
        write_queues=body.write_queues or usual.write_queues,
        permission=body.permission or usual.permission,
        order=usual.order if body.order is None else body.order,
        system_flag=usual.system_flag if body.system_flag is None else body.system_flag,
    )
    return BrokerTopicChange(
        broker=broker, before=old, after=after, changes=changes_between(old, after, _FIELDS)
    )


def _preview_lines(topic: str, items: list[BrokerTopicChange], *, preview: bool) -> list[str]:
    says = []
    for one in items:
        if one.before is None:
            verb = "would be created" if preview else "is created"
            says.append(
                f"{topic} {verb} at {one.broker} with {one.after.write_queues} queues for writing, "
                f"{one.after.read_queues} for reading."
            )
        for change in one.changes if one.before is not None else []:
            what = change.name.replace("_", " ")
            says.append(f"{one.broker}: {what} {change.before} -> {change.after}.")
        old = one.before
        if old is not None and one.after.read_queues < old.read_queues:
            says.append(
                f"{one.broker}: messages in queues from {one.after.read_queues} on are no longer "
                "read; brokers refuse this while such messages exist."
            )
        if one.after.write_queues > one.after.read_queues:
            says.append(
                f"{one.broker}: some queues would be written but not read; brokers refuse this."
            )
        if any(change.name == "order" for change in one.changes) and old is not None:
            says.append(f"{one.broker} receives the order setting from name servers within 30 s.")
    return says


@OPERATIONS.delete("/v1/topics/{topic}", "delete_topic")
async def delete(gateway: Gateway, parameters: TopicDeletion) -> TopicLoss:
    """Delete a topic with its messages. `preview=true` shows what each group would lose."""
    name = parameters.topic
    configs, missing, info = await configs_of(gateway, name, parameters.cluster)
    admin = gateway.admin
    messages: int | None = None
    groups: list[str] = []
    try:
        stats = await admin.topics.stats(name)
        there = [one for queue, one in stats.items() if queue.broker_name in configs]
        messages = sum(max(0, one.max_offset - one.min_offset) for one in there)
        groups = await admin.topics.consumer_groups(name)
    except KourouError as error:
        missing = [*missing, Missing(name, why(error))]

    async def lag(group: str) -> int:
        return await admin.offsets.lag(group, name)

    lags, unread = await asked(groups, lag)
    if not parameters.preview:
        await admin.topics.delete(name, cluster=parameters.cluster, reason=parameters.reason)
    queues = sum(max(one.read_queue_nums, one.write_queue_nums) for one in configs.values())
    will = "would be" if parameters.preview else "are"
    number = "an unknown number of" if messages is None else f"{messages:,}"
    says = [
        f"{number} messages in {queues} queues at {', '.join(sorted(configs)) or 'no broker'} "
        f"{will} deleted; this cannot be undone."
    ]
    if kind_of(name, info.brokers, info.clusters).kind is TopicKind.SYSTEM:
        says.append("It is a system topic; brokers refuse to delete it.")
    for group in groups:
        left = "an unknown number" if group not in lags else f"{lags[group]:,}"
        says.append(f"{group} loses its offsets and {left} unconsumed messages.")
    return TopicLoss(
        topic=name,
        preview=parameters.preview,
        says=says,
        messages=messages,
        queues=queues,
        brokers=sorted(configs),
        groups=[LosingGroup(group, lags.get(group)) for group in groups],
        as_of_ms=gateway.clock.now_ms(),
        missing=[*missing, *unread],
    )


@OPERATIONS.get("/v1/topics/{topic}/order", "topic_order")
async def order(gateway: Gateway, parameters: TopicPath) -> Order:
    """The topic's order setting at the name servers."""
    found = await gateway.admin.name_servers.get(ORDER_NAMESPACE, parameters.topic)
    return Order(
        topic=parameters.topic,
        order=found,
        preview=False,
        says=[],
        as_of_ms=gateway.clock.now_ms(),
    )


@OPERATIONS.put("/v1/topics/{topic}/order", "put_topic_order")
async def put_order(gateway: Gateway, parameters: TopicChange, body: OrderBody) -> Order:
    """Set the brokers and queue numbers of an ordered topic."""
    name = check_topic(parameters.topic)
    text = ";".join(f"{broker}:{count}" for broker, count in body.queues.items())
    if not parameters.preview:
        await gateway.admin.name_servers.put_order(name, body.queues)
    will = "would be" if parameters.preview else "is"
    return Order(
        topic=name,
        order=text,
        preview=parameters.preview,
        says=[f"The order setting of {name} {will} {text} at every name server."],
        as_of_ms=gateway.clock.now_ms(),
    )


@OPERATIONS.delete("/v1/topics/{topic}/order", "delete_topic_order")
async def delete_order(gateway: Gateway, parameters: TopicChange) -> Order:
    """Remove the topic's order setting."""
    name = parameters.topic
    if not parameters.preview:
        await gateway.admin.name_servers.delete(ORDER_NAMESPACE, name)
    will = "would have" if parameters.preview else "has"
    return Order(
        topic=name,
        order=None,
        preview=parameters.preview,
        says=[f"{name} {will} no order setting."],
        as_of_ms=gateway.clock.now_ms(),
    )
