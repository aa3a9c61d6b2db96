"""`client.admin.explain`: collect all facts about one message, and explain its status.

brokers -> the message -> its topic's groups -> its copies -> each group -> conclusions
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kourou.client.admin.base_api import AdminApi
from kourou.client.admin.filters import FiltersApi
from kourou.client.admin.replicas import ReplicasApi
from kourou.client.explain.explanation import Explanation, explanation_of
from kourou.client.explain.facts import (
    ConsumerFacts,
    CopyKind,
    Delivery,
    FilterFacts,
    FilterResult,
    Form,
    GroupFacts,
    MessageFacts,
    QueueAtMember,
    Reset,
    Skip,
    StoredCopy,
)
from kourou.client.explain.lookup import (
    copies_of,
    delay_of_message,
    find,
    half_of_message,
    home_of,
    main_of,
    place_of,
    storage_of,
)
from kourou.client.explain.queries import Queries, Responder
from kourou.client.explain.rules import conclude
from kourou.client.introspection.running_info import ordered_waits, stalled_since
from kourou.client.session.connections import body_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import Code, ConfigError, KourouError, Unavailable
from kourou.model.filter import FilterState
from kourou.model.limits import EXPLAIN_GROUPS_MAX, EXPLAIN_MEMBERS_MAX, FILTER_TRIED_MESSAGES_MAX
from kourou.model.message import DELAY_LEVELS_MS, parse_delay_levels
from kourou.model.names import (
    FILTER_SERVER_GROUP,
    READER_GROUP,
    TRACE_TOPIC,
    TRANSACTION_GROUP,
    check_group,
    check_topic,
    dlq_topic,
    retry_topic,
)
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, GroupConfig
from kourou.model.topic import READ
from kourou.protocol.bodies.broker_bodies import decode_state_view
from kourou.protocol.bodies.config_bodies import decode_group_configs
from kourou.protocol.bodies.filter_bodies import decode_filters
from kourou.protocol.bodies.lists_body import (
    ConsumerConnection,
    decode_consumer_connection,
    decode_group_list,
)
from kourou.protocol.bodies.statistics_bodies import decode_consume_stats
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo, decode_consumer_running_info
from kourou.protocol.messages.broker_admin import (
    GetBrokerConfig,
    GetStateAt,
    QueryTopicConsumeByWho,
)
from kourou.protocol.messages.filter_server import GetFilters
from kourou.protocol.messages.groups import (
    GetAllSubscriptionGroupConfig,
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
    GetConsumeStats,
)
from kourou.protocol.record.message_trace import Consumed, ConsumeStarted, TraceRecord, decode_trace
from kourou.protocol.wire.properties_text import decode_properties_text

SYSTEM_CONSUMERS = frozenset({READER_GROUP, TRANSACTION_GROUP, FILTER_SERVER_GROUP})
"""System groups, whose consumption is not explained."""

RECORDED_WITHIN_MS = 15_000
"""The time after which progress of a running group is in the history.

Consumers commit every 5 s, and brokers record progress every 5 s.
"""

EVENTS = 100
"""The number of newest control events that are searched."""


class Explain(AdminApi):
    """Explanation of a message's status: `client.admin.explain`."""

    @on_io_thread
    async def message(
        self,
        asked: str,
        *,
        topic: str | None = None,
        group: str | None = None,
        trace_topic: str = TRACE_TOPIC,
    ) -> Explanation:
        """Explain a message's status, for one group or for all groups that consume its topic.

        `asked` is topic/broker/queue@offset, an offset message ID, a unique key or a business key.
        A key is looked up in `topic`, or in all topics. A message that is not found is explained as
        well. The explanation lists the information that is missing. Raises BadRequest if `asked` or
        a name is invalid, Unavailable if no name server replies or no broker is registered.
        """
        if topic is not None:
            check_topic(topic)
        if group is not None:
            check_group(group)
        queries = Queries(self._session)
        await queries.start(await ReplicasApi(self._session).of())
        if not queries.responders and not queries.unreachable:
            raise Unavailable("no broker is registered")
        facts = await _facts(queries, asked, topic, group, trace_topic)
        facts = replace(facts, missing=tuple(queries.missing))
        return explanation_of(facts, conclude(facts))


async def _facts(
    queries: Queries, asked: str, topic: str | None, group: str | None, trace_topic: str
) -> MessageFacts:
    now_ms = queries.session.clock.now_ms()
    found = await find(queries, asked, topic)
    facts = MessageFacts(asked, now_ms, found.lookup, others=max(0, len(found.messages) - 1))
    if not found.messages:
        return await _absent(queries, facts)
    message = found.messages[0]
    first = place_of(message)
    home = home_of(first)
    named, cut, known = await _groups(queries, home, group)
    if group is None and first.group is not None and first.group not in named:
        named = [*named, first.group]
    places = await copies_of(queries, message, home, named)
    main = main_of(first, places, exact=found.lookup.form is not Form.KEY)
    facts = replace(facts, message=main, places=places, groups_cut=cut, groups_known=known)
    return await _with_broker(queries, facts, named, trace_topic)


async def _absent(queries: Queries, facts: MessageFacts) -> MessageFacts:
    """Add the retention time, which the explanation of an expired message needs."""
    place = facts.lookup.place
    responder = None if place is None else queries.responders.get(place[0].broker_name)
    if responder is None:
        return facts
    hours = (await _settings(queries, responder)).get("fileReservedTime", "")
    reserved = int(hours) if hours.isdecimal() else None
    return replace(facts, lookup=replace(facts.lookup, reserved_hours=reserved))


async def _groups(queries: Queries, topic: str, group: str | None) -> tuple[list[str], bool, bool]:
    """Return the groups to explain, whether there are more, and whether all brokers replied."""
    if group is not None:
        return [group], False, True
    names: set[str] = set()
    missing = len(queries.missing)
    for responder in queries.having(topic):
        if not responder.leads:
            queries.add_missing(
                f"groups of {topic} at {responder.broker}", "only leaders know the consumers"
            )
        request = QueryTopicConsumeByWho(topic=topic)
        reply = await queries.ask(f"groups of {topic} at {responder.broker}", responder, request)
        if reply is not None:
            names.update(decode_group_list(body_of(reply)))
    listed = sorted(names - SYSTEM_CONSUMERS)
    known = len(queries.missing) == missing
    return listed[:EXPLAIN_GROUPS_MAX], len(listed) > EXPLAIN_GROUPS_MAX, known


async def _with_broker(
    queries: Queries, facts: MessageFacts, groups: list[str], trace_topic: str
) -> MessageFacts:
    """Add what the message's broker reports, and the facts of the groups."""
    main = facts.message
    assert main is not None, "it was found"
    responder = queries.responders[main.queue.broker_name]
    # For a copy in a retry or dead-letter topic, that topic's queues and permissions do not matter.
    config = responder.topics.get(home_of(main)) if main.kind is CopyKind.SENT else None
    settings, configs, trace = await asyncio.gather(
        _settings(queries, responder),
        _group_configs(queries, responder),
        _trace(queries, main, trace_topic),
    )
    levels_ms = _levels(settings)
    perm = settings.get("brokerPermission", "")
    facts = replace(
        facts,
        storage=storage_of(main, responder),
        half=await half_of_message(queries, facts.places),
        delay=delay_of_message(facts.places, levels_ms),
        delay_levels_ms=levels_ms,
        readable=None if config is None else config.readable,
        read_queues=None if config is None else config.read_queue_nums,
        broker_readable=bool(int(perm) & READ) if perm.isdecimal() else None,
    )
    context = MessageContext(main, responder, facts.places, configs, trace, facts.as_of_ms)
    found = await queries.each(lambda name: facts_of_group(queries, context, name), groups)
    return replace(facts, groups=tuple(found))


async def _settings(queries: Queries, responder: Responder) -> dict[str, str]:
    reply = await queries.ask(f"settings of {responder.broker}", responder, GetBrokerConfig())
    return {} if reply is None else decode_properties_text(body_of(reply))


def _levels(settings: dict[str, str]) -> tuple[int, ...]:
    try:
        return parse_delay_levels(settings["messageDelayLevel"])
    except (KeyError, ConfigError):
        return DELAY_LEVELS_MS if settings else ()


async def _group_configs(queries: Queries, responder: Responder) -> dict[str, GroupConfig] | None:
    what = f"groups of {responder.broker}"
    reply = await queries.ask(what, responder, GetAllSubscriptionGroupConfig())
    if reply is None:
        return None
    return {one.name: one for one in decode_group_configs(body_of(reply))[0]}


async def _trace(queries: Queries, main: StoredCopy, trace_topic: str) -> list[TraceRecord]:
    """Return the trace records of the message, earliest first."""
    found = await queries.everywhere([trace_topic], main.message_id)
    records = [
        record
        for message in found
        for record in decode_trace(message.raw_body)
        if record.message_id == main.message_id
    ]
    return sorted(records, key=lambda record: record.timestamp_ms)


# -- facts about one group -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageContext:
    """The message, its broker's replica that replies, and replies shared by all groups."""

    message: StoredCopy
    responder: Responder
    places: Sequence[StoredCopy]
    configs: Mapping[str, GroupConfig] | None
    trace: Sequence[TraceRecord]
    now_ms: int


async def facts_of_group(queries: Queries, context: MessageContext, name: str) -> GroupFacts:
    """Return all facts that the rules for one group use."""
    config = None if context.configs is None else context.configs.get(name)
    facts = GroupFacts(name, config, deliveries=deliveries_of(context.trace, name))
    facts = await _with_members(queries, context, facts)
    facts = await _with_progress(queries, context, facts)
    facts = await _with_copies(queries, context, facts)
    if context.responder.leads:
        facts = await _with_history(queries, context, facts)
        return await _with_filter(queries, context, facts)
    if facts.next_offset:
        queries.add_missing(
            f"history of {name}", ("no leader responds, and followers do not serve the history")
        )
    return facts


# -- consumers ------------------------------------------------------------------------------------


async def _with_members(queries: Queries, context: MessageContext, facts: GroupFacts) -> GroupFacts:
    request = GetConsumerConnectionList(consumer_group=facts.name)
    gone = {int(Code.CONSUMER_NOT_ONLINE)}
    what = f"members of {facts.name}"
    if not context.responder.leads:
        queries.add_missing(what, "no leader responds, and only leaders know the consumers")
        return facts
    reply = await queries.ask(what, context.responder, request, also=gone)
    if reply is None:
        return facts
    if reply.code in gone:
        return replace(facts, online=False)
    connection: ConsumerConnection = decode_consumer_connection(body_of(reply))
    ids = sorted({one.client_id for one in connection.connections})
    if len(ids) > EXPLAIN_MEMBERS_MAX:
        queries.add_missing(
            f"{len(ids) - EXPLAIN_MEMBERS_MAX} members of {facts.name}",
            f"at most {EXPLAIN_MEMBERS_MAX} consumers are queried",
        )

    async def ask(client_id: str) -> ConsumerFacts:
        if connection.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return ConsumerFacts(client_id, silent="pull consumers do not report their status")
        return await _member(queries, context, facts.name, client_id)

    return replace(
        facts,
        online=bool(ids),
        model=connection.message_model,
        consume_type=connection.consume_type,
        start_from=connection.consume_from_where,
        subscription=connection.subscriptions.get(context.message.queue.topic),
        members=tuple(await queries.each(ask, ids[:EXPLAIN_MEMBERS_MAX])),
    )


async def _member(
    queries: Queries, context: MessageContext, group: str, client_id: str
) -> ConsumerFacts:
    request = GetConsumerRunningInfo(consumer_group=group, client_id=client_id)
    try:
        reply = await queries.reply(context.responder.address, request)
        return member_of(client_id, decode_consumer_running_info(body_of(reply)), context.message)
    except KourouError as error:
        return ConsumerFacts(client_id, silent=str(error))


def member_of(client_id: str, info: ConsumerRunningInfo, message: StoredCopy) -> ConsumerFacts:
    """Return a consumer's facts from its running info."""
    selects = {one.topic: one for one in info.subscriptions}
    at = info.queues.get(message.queue)
    said, queue = info.properties, None
    if at is not None and not at.droped:
        full = at.cached_msg_count > 0
        queue = QueueAtMember(
            at.commit_offset,
            at.cached_msg_count,
            at.cached_msg_min_offset if full else None,
            at.cached_msg_max_offset if full else None,
            at.cached_msg_size_in_mi_b,
            at.locked,
            stalled_since(said).get(str(message.queue)),
        )
    return ConsumerFacts(
        client_id,
        subscription=selects.get(message.queue.topic),
        queue=queue,
        ordered=said.get("PROP_CONSUMEORDERLY", "") == "true",
        waits=ordered_waits(said).get(str(message.queue)),
        filter_waits=said.get("PROP_FILTER_WAITS", ""),
        count_max=_count_max(info, message.queue.topic),
        span_max=_number(said.get("consumeConcurrentlyMaxSpan")),
        size_mib_max=_number(said.get("pullThresholdSizeForQueue")),
    )


def _count_max(info: ConsumerRunningInfo, topic: str) -> int | None:
    """Return the message limit per queue; a limit per topic is divided among the topic's queues."""
    shared = _number(info.properties.get("pullThresholdForTopic"))
    if shared:
        return max(1, shared // max(1, sum(one.topic == topic for one in info.queues)))
    return _number(info.properties.get("pullThresholdForQueue"))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None


# -- offsets --------------------------------------------------------------------------------------


async def _with_progress(
    queries: Queries, context: MessageContext, facts: GroupFacts
) -> GroupFacts:
    queue, name = context.message.queue, facts.name
    request = GetConsumeStats(consumer_group=name, topic=queue.topic)
    reply = await queries.ask(f"progress of {name}", context.responder, request)
    if reply is None:
        return facts
    known = decode_consume_stats(body_of(reply)).offsets.get(queue)
    if known is None:  # the statistics leave out queues that are not readable
        offset = await queries.committed(context.responder, name, queue.topic, queue.queue_id)
        return replace(facts, next_offset=offset)
    return replace(facts, next_offset=known.consumer_offset, queue_end=known.broker_offset)


async def _with_copies(queries: Queries, context: MessageContext, facts: GroupFacts) -> GroupFacts:
    """Add the group's offset in its retry and dead-letter queues, if the message is there."""
    own = [one for one in context.places if one.group == facts.name]
    for kind, field, topic in (
        (CopyKind.RETRY, "retry_next", retry_topic(facts.name)),
        (CopyKind.DEAD_LETTER, "dealt_with", dlq_topic(facts.name)),
    ):
        found = [one for one in own if one.kind is kind]
        if not found:
            continue
        queue = found[-1].queue
        responder = queries.responders.get(queue.broker_name)
        if responder is not None:
            offset = await queries.committed(responder, facts.name, topic, queue.queue_id)
            facts = replace(facts, **{field: offset})  # type: ignore[arg-type]  # both fields are offsets
    return facts


# -- control history ------------------------------------------------------------------------------


async def _with_history(queries: Queries, context: MessageContext, facts: GroupFacts) -> GroupFacts:
    message, responder, name = context.message, context.responder, facts.name
    beyond = facts.next_offset is not None and facts.next_offset > message.offset
    if beyond:
        facts = replace(facts, resets=await _resets(queries, context, name))
    if beyond and facts.start_from is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        facts = await _with_start(queries, context, facts)
    unassigned = facts.online and all(one.queue is None for one in facts.members)
    if not beyond and (unassigned or any(one.ordered for one in facts.members)):
        events = await queries.history(responder, f"locks/{name}", ["QueueLocksChanged"], EVENTS)
        facts = replace(facts, lock_owner=_owner([one.fields for one in events], message))
    return facts


async def _resets(queries: Queries, context: MessageContext, name: str) -> tuple[Reset, ...]:
    queue = context.message.queue
    found: list[Reset] = []
    for event in await queries.history(
        context.responder, f"progress/{name}", ["OffsetsReset"], EVENTS
    ):
        fields = event.fields
        moved, before = fields.get("offsets", {}), fields.get("before", {})
        number = str(queue.queue_id)
        if fields.get("topic") == queue.topic and number in moved:
            was = before.get(number)
            found.append(
                Reset(event.at_ms, event.actor, event.reason, was, moved[number], event.offset)
            )
    return tuple(found)


async def _with_start(queries: Queries, context: MessageContext, facts: GroupFacts) -> GroupFacts:
    """Add when the group was created, and whether it had an offset when the message was stored."""
    message, responder, name = context.message, context.responder, facts.name
    for event in await queries.history(responder, f"group/{name}", ["GroupPut"], EVENTS):
        if event.fields.get("before") is None:
            facts = replace(facts, created_ms=event.at_ms)
            break
    settled_ms = message.stored_ms + RECORDED_WITHIN_MS
    if (
        facts.created_ms is None
        or facts.created_ms > message.stored_ms
        or settled_ms > context.now_ms
    ):
        return facts
    request = GetStateAt(aggregate=f"progress/{name}", at_ms=settled_ms)
    reply = await queries.ask(f"former progress of {name}", responder, request)
    if reply is None:
        return facts
    then: Any = decode_state_view(body_of(reply)) or {}
    queues = then.get(message.queue.topic, {}) if isinstance(then, dict) else {}
    return replace(facts, had_progress=str(message.queue.queue_id) in queues)


def _owner(events: Sequence[Mapping[str, Any]], message: StoredCopy) -> str | None:
    """Return the client that has locked the queue, from the newest event about the queue."""
    queue = message.queue
    for fields in events:
        queues = fields.get("owners", {}).get(queue.topic, {})
        if str(queue.queue_id) in queues:
            owner: str | None = queues[str(queue.queue_id)]
            return owner
    return None


# -- filter ---------------------------------------------------------------------------------------


async def _with_filter(queries: Queries, context: MessageContext, facts: GroupFacts) -> GroupFacts:
    selects = facts.subscription
    if selects is None or not selects.class_filter_mode:
        return facts
    name, group = selects.expression, facts.name
    request = GetFilters(consumer_group=group, name=name)
    none = {int(Code.QUERY_NOT_FOUND)}
    reply = await queries.ask(f"the filter {name}", context.responder, request, also=none)
    if reply is None:
        return facts
    if reply.code in none:
        return replace(facts, filter=FilterFacts(name, None))
    state = decode_filters(body_of(reply))[0]
    known = FilterFacts(name, state, skip=await _skip(queries, context, group, name))
    filters = FiltersApi(queries.session)
    topic = context.message.queue.topic
    servers = await queries.attempt("filter servers", filters.servers(topic=topic))
    if servers is not None:
        known = replace(known, servers=len(servers.get(context.responder.broker, ())))
    if known.servers and state.active is not None:
        known = replace(known, filter_result=await _filter_result(queries, context, filters, state))
    return replace(facts, filter=known)


async def _skip(queries: Queries, context: MessageContext, group: str, name: str) -> Skip | None:
    queue, offset = context.message.queue, context.message.offset
    types = ["FilterMessagesSkipped"]
    for event in await queries.history(context.responder, f"filter/{group}/{name}", types, EVENTS):
        fields = event.fields
        where = (fields.get("topic"), fields.get("queue_id"))
        if where == (queue.topic, queue.queue_id) and offset in fields.get("offsets", ()):
            return Skip(event.at_ms, int(fields.get("version", 0)), str(fields.get("reason", "")))
    return None


async def _filter_result(
    queries: Queries, context: MessageContext, filters: FiltersApi, state: FilterState
) -> FilterResult | None:
    """Run the active version on the newest messages; the message must be one of them."""
    queue, version = context.message.queue, state.active
    assert version is not None, "one is active"
    what = f"result of the filter {state.name}"
    trial = await queries.attempt(
        what,
        filters.try_out(
            state.group,
            state.name,
            queue.topic,
            version=version,
            count=FILTER_TRIED_MESSAGES_MAX,
            broker=context.responder.broker,
        ),
    )
    for one in () if trial is None else trial.values():
        for tried in one.messages:
            if (tried.queue_id, tried.offset) == (queue.queue_id, context.message.offset):
                return FilterResult(version, tried.passed, tried.reason)
        queries.add_missing(
            what, (f"it is not among the {one.seen} newest messages, on which filters are tried")
        )
    return None


# -- message trace --------------------------------------------------------------------------------


def deliveries_of(trace: Sequence[TraceRecord], group: str) -> tuple[Delivery, ...]:
    """Return the calls of the group's handlers in order, each with its end if that is known."""
    ends = {one.request_id: one for one in trace if isinstance(one, Consumed)}
    found: list[Delivery] = []
    for one in trace:
        if not isinstance(one, ConsumeStarted) or one.group != group:
            continue
        end = ends.get(one.request_id)
        if end is None:
            found.append(Delivery(one.timestamp_ms, one.retry_times + 1))
            continue
        ended_ms = end.timestamp_ms or one.timestamp_ms + end.cost_ms
        how = end.context_code.name.lower()
        found.append(Delivery(one.timestamp_ms, one.retry_times + 1, ended_ms, end.success, how))
    return tuple(found)
