"""Collection of the facts about one group and one message, from brokers and consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kourou.client.admin.filters import FiltersApi
from kourou.client.explain.asking import Asking, Voice
from kourou.client.explain.facts import (
    Delivery,
    FilterFacts,
    GroupFacts,
    Judged,
    Kind,
    Member,
    Place,
    QueueAtMember,
    Reset,
    Skip,
)
from kourou.client.introspection.running_info import ordered_waits, standing_since
from kourou.client.session.connections import body_of
from kourou.errors import Code, KourouError
from kourou.model.filter import FilterState
from kourou.model.group import GroupConfig
from kourou.model.limits import EXPLAIN_MEMBERS_MAX, FILTER_TRIED_MESSAGES_MAX
from kourou.model.names import dlq_topic, retry_topic
from kourou.model.subscription import ConsumeFromWhere, ConsumeType
from kourou.protocol.all_bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    decode_consume_stats,
    decode_consumer_connection,
    decode_consumer_running_info,
)
from kourou.protocol.bodies.filter_bodies import decode_filters
from kourou.protocol.bodies.history_body import decode_state_view
from kourou.protocol.messages.filter_server import GetFilters
from kourou.protocol.messages.groups import GetConsumeStats
from kourou.protocol.messages.history import GetStateAt
from kourou.protocol.messages.membership import (
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
)
from kourou.protocol.record.message_trace import Consumed, Consuming, TraceRecord

RECORDED_WITHIN_MS = 15_000
"""The time after which progress of a running group is in the history.

Consumers commit every 5 s, and brokers record progress every 5 s.
"""

EVENTS = 100
"""The number of newest control events that are searched."""


@dataclass(frozen=True, slots=True)
class About:
    """The message, its broker's replica that replies, and replies shared by all groups."""

    message: Place
    voice: Voice
    places: Sequence[Place]
    configs: Mapping[str, GroupConfig] | None
    trace: Sequence[TraceRecord]
    now_ms: int


async def facts_of_group(asking: Asking, about: About, name: str) -> GroupFacts:
    """Return all facts that the rules for one group use."""
    config = None if about.configs is None else about.configs.get(name)
    facts = GroupFacts(name, config, deliveries=deliveries_of(about.trace, name))
    facts = await _with_members(asking, about, facts)
    facts = await _with_progress(asking, about, facts)
    facts = await _with_copies(asking, about, facts)
    if about.voice.leads:
        facts = await _with_history(asking, about, facts)
        return await _with_filter(asking, about, facts)
    if facts.next_offset:
        asking.lack(
            f"history of {name}", ("no leader responds, and followers do not serve the history")
        )
    return facts


# -- consumers ------------------------------------------------------------------------------------


async def _with_members(asking: Asking, about: About, facts: GroupFacts) -> GroupFacts:
    request = GetConsumerConnectionList(consumer_group=facts.name)
    gone = {int(Code.CONSUMER_NOT_ONLINE)}
    what = f"members of {facts.name}"
    if not about.voice.leads:
        asking.lack(what, "no leader responds, and only leaders know the consumers")
        return facts
    reply = await asking.ask(what, about.voice, request, also=gone)
    if reply is None:
        return facts
    if reply.code in gone:
        return replace(facts, online=False)
    told: ConsumerConnection = decode_consumer_connection(body_of(reply))
    ids = sorted({one.client_id for one in told.connections})
    if len(ids) > EXPLAIN_MEMBERS_MAX:
        asking.lack(
            f"{len(ids) - EXPLAIN_MEMBERS_MAX} members of {facts.name}",
            f"at most {EXPLAIN_MEMBERS_MAX} consumers are queried",
        )

    async def ask(client_id: str) -> Member:
        if told.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return Member(client_id, silent="pull consumers do not report their status")
        return await _member(asking, about, facts.name, client_id)

    return replace(
        facts,
        online=bool(ids),
        model=told.message_model,
        consume_type=told.consume_type,
        begins=told.consume_from_where,
        subscription=told.subscriptions.get(about.message.queue.topic),
        members=tuple(await asking.each(ask, ids[:EXPLAIN_MEMBERS_MAX])),
    )


async def _member(asking: Asking, about: About, group: str, client_id: str) -> Member:
    request = GetConsumerRunningInfo(consumer_group=group, client_id=client_id)
    try:
        reply = await asking.reply(about.voice.address, request)
        return member_of(client_id, decode_consumer_running_info(body_of(reply)), about.message)
    except KourouError as error:
        return Member(client_id, silent=str(error))


def member_of(client_id: str, info: ConsumerRunningInfo, message: Place) -> Member:
    """Return a consumer's facts from its running info."""
    wanted = {one.topic: one for one in info.subscriptions}
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
            standing_since(said).get(str(message.queue)),
        )
    return Member(
        client_id,
        subscription=wanted.get(message.queue.topic),
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


async def _with_progress(asking: Asking, about: About, facts: GroupFacts) -> GroupFacts:
    queue, name = about.message.queue, facts.name
    request = GetConsumeStats(consumer_group=name, topic=queue.topic)
    reply = await asking.ask(f"progress of {name}", about.voice, request)
    if reply is None:
        return facts
    known = decode_consume_stats(body_of(reply)).offsets.get(queue)
    if known is None:  # the statistics leave out queues that are not readable
        offset = await asking.committed(about.voice, name, queue.topic, queue.queue_id)
        return replace(facts, next_offset=offset)
    return replace(facts, next_offset=known.consumer_offset, queue_end=known.broker_offset)


async def _with_copies(asking: Asking, about: About, facts: GroupFacts) -> GroupFacts:
    """Add the group's offset in its retry and dead-letter queues, if the message is there."""
    own = [one for one in about.places if one.group == facts.name]
    for kind, field, topic in (
        (Kind.RETRY, "retry_next", retry_topic(facts.name)),
        (Kind.DEAD_LETTER, "dealt_with", dlq_topic(facts.name)),
    ):
        found = [one for one in own if one.kind is kind]
        if not found:
            continue
        queue = found[-1].queue
        voice = asking.voices.get(queue.broker_name)
        if voice is not None:
            offset = await asking.committed(voice, facts.name, topic, queue.queue_id)
            facts = replace(facts, **{field: offset})  # type: ignore[arg-type]  # both fields are offsets
    return facts


# -- control history ------------------------------------------------------------------------------


async def _with_history(asking: Asking, about: About, facts: GroupFacts) -> GroupFacts:
    message, voice, name = about.message, about.voice, facts.name
    beyond = facts.next_offset is not None and facts.next_offset > message.offset
    if beyond:
        facts = replace(facts, resets=await _resets(asking, about, name))
    if beyond and facts.begins is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        facts = await _with_beginning(asking, about, facts)
    unheld = facts.online and all(one.queue is None for one in facts.members)
    if not beyond and (unheld or any(one.ordered for one in facts.members)):
        events = await asking.history(voice, f"locks/{name}", ["QueueLocksChanged"], EVENTS)
        facts = replace(facts, lock_owner=_owner([one.fields for one in events], message))
    return facts


async def _resets(asking: Asking, about: About, name: str) -> tuple[Reset, ...]:
    queue = about.message.queue
    found: list[Reset] = []
    for event in await asking.history(about.voice, f"progress/{name}", ["OffsetsReset"], EVENTS):
        fields = event.fields
        moved, before = fields.get("offsets", {}), fields.get("before", {})
        number = str(queue.queue_id)
        if fields.get("topic") == queue.topic and number in moved:
            was = before.get(number)
            found.append(
                Reset(event.at_ms, event.actor, event.reason, was, moved[number], event.offset)
            )
    return tuple(found)


async def _with_beginning(asking: Asking, about: About, facts: GroupFacts) -> GroupFacts:
    """Add when the group was created, and whether it had an offset when the message was stored."""
    message, voice, name = about.message, about.voice, facts.name
    for event in await asking.history(voice, f"group/{name}", ["GroupPut"], EVENTS):
        if event.fields.get("before") is None:
            facts = replace(facts, created_ms=event.at_ms)
            break
    settled_ms = message.stored_ms + RECORDED_WITHIN_MS
    if (
        facts.created_ms is None
        or facts.created_ms > message.stored_ms
        or settled_ms > about.now_ms
    ):
        return facts
    request = GetStateAt(aggregate=f"progress/{name}", at_ms=settled_ms)
    reply = await asking.ask(f"former progress of {name}", voice, request)
    if reply is None:
        return facts
    then: Any = decode_state_view(body_of(reply)) or {}
    queues = then.get(message.queue.topic, {}) if isinstance(then, dict) else {}
    return replace(facts, had_progress=str(message.queue.queue_id) in queues)


def _owner(events: Sequence[Mapping[str, Any]], message: Place) -> str | None:
    """Return the client that has locked the queue, from the newest event about the queue."""
    queue = message.queue
    for fields in events:
        queues = fields.get("owners", {}).get(queue.topic, {})
        if str(queue.queue_id) in queues:
            owner: str | None = queues[str(queue.queue_id)]
            return owner
    return None


# -- filter ---------------------------------------------------------------------------------------


async def _with_filter(asking: Asking, about: About, facts: GroupFacts) -> GroupFacts:
    wanted = facts.subscription
    if wanted is None or not wanted.class_filter_mode:
        return facts
    name, group = wanted.expression, facts.name
    request = GetFilters(consumer_group=group, name=name)
    none = {int(Code.QUERY_NOT_FOUND)}
    reply = await asking.ask(f"the filter {name}", about.voice, request, also=none)
    if reply is None:
        return facts
    if reply.code in none:
        return replace(facts, filter=FilterFacts(name, None))
    state = decode_filters(body_of(reply))[0]
    known = FilterFacts(name, state, skip=await _skip(asking, about, group, name))
    filters = FiltersApi(asking.session)
    topic = about.message.queue.topic
    servers = await asking.attempt("filter servers", filters.servers(topic=topic))
    if servers is not None:
        known = replace(known, servers=len(servers.get(about.voice.broker, ())))
    if known.servers and state.active is not None:
        known = replace(known, judged=await _judged(asking, about, filters, state))
    return replace(facts, filter=known)


async def _skip(asking: Asking, about: About, group: str, name: str) -> Skip | None:
    queue, offset = about.message.queue, about.message.offset
    types = ["FilterMessagesSkipped"]
    for event in await asking.history(about.voice, f"filter/{group}/{name}", types, EVENTS):
        fields = event.fields
        where = (fields.get("topic"), fields.get("queue_id"))
        if where == (queue.topic, queue.queue_id) and offset in fields.get("offsets", ()):
            return Skip(event.at_ms, int(fields.get("version", 0)), str(fields.get("reason", "")))
    return None


async def _judged(
    asking: Asking, about: About, filters: FiltersApi, state: FilterState
) -> Judged | None:
    """Run the active version on the newest messages; the message must be one of them."""
    queue, version = about.message.queue, state.active
    assert version is not None, "one is active"
    what = f"result of the filter {state.name}"
    trial = await asking.attempt(
        what,
        filters.try_out(
            state.group,
            state.name,
            queue.topic,
            version=version,
            count=FILTER_TRIED_MESSAGES_MAX,
            broker=about.voice.broker,
        ),
    )
    for one in () if trial is None else trial.values():
        for tried in one.messages:
            if (tried.queue_id, tried.offset) == (queue.queue_id, about.message.offset):
                return Judged(version, tried.passed, tried.reason)
        asking.lack(
            what, (f"it is not among the {one.seen} newest messages, on which filters are tried")
        )
    return None


# -- message trace --------------------------------------------------------------------------------


def deliveries_of(trace: Sequence[TraceRecord], group: str) -> tuple[Delivery, ...]:
    """Return the calls of the group's handlers in order, each with its end if that is known."""
    ends = {one.request_id: one for one in trace if isinstance(one, Consumed)}
    found: list[Delivery] = []
    for one in trace:
        if not isinstance(one, Consuming) or one.group != group:
            continue
        end = ends.get(one.request_id)
        if end is None:
            found.append(Delivery(one.timestamp_ms, one.retry_times + 1))
            continue
        ended_ms = end.timestamp_ms or one.timestamp_ms + end.cost_ms
        how = end.context_code.name.lower()
        found.append(Delivery(one.timestamp_ms, one.retry_times + 1, ended_ms, end.success, how))
    return tuple(found)
