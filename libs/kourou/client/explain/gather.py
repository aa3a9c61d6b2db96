"""`client.admin.explain`: collect all facts about one message, and explain its status.

brokers -> the message -> its topic's groups -> its copies -> each group -> verdict
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from kourou.client.admin.base_api import AdminApi
from kourou.client.admin.replicas import ReplicasApi
from kourou.client.explain.asking import Asking, Voice
from kourou.client.explain.copies import (
    copies_of,
    delay_of_message,
    half_of_message,
    home_of,
    main_of,
    place_of,
    storage_of,
)
from kourou.client.explain.explanation import Explanation, told
from kourou.client.explain.facts import Facts, Form, Kind, Place
from kourou.client.explain.finding import find
from kourou.client.explain.group_facts import About, facts_of_group
from kourou.client.explain.verdict import verdict
from kourou.client.session.connections import body_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import ConfigError, Unavailable
from kourou.model.delay import DELAY_LEVELS_MS, parse_delay_levels
from kourou.model.group import GroupConfig
from kourou.model.limits import EXPLAIN_GROUPS_MAX
from kourou.model.names import TRACE_TOPIC, check_group, check_topic
from kourou.model.permission import READ
from kourou.protocol.all_bodies import (
    decode_group_configs,
    decode_group_list,
    decode_properties_text,
)
from kourou.protocol.messages.broker_admin import GetBrokerConfig
from kourou.protocol.messages.groups import GetAllSubscriptionGroupConfig
from kourou.protocol.messages.topics import QueryTopicConsumeByWho
from kourou.protocol.record.message_trace import TraceRecord, decode_trace

SYSTEM_CONSUMERS = frozenset({"TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "FILTERSRV_CONSUMER"})
"""System groups, whose consumption is not explained."""


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
        asking = Asking(self._session)
        await asking.begin(await ReplicasApi(self._session).of())
        if not asking.voices and not asking.away:
            raise Unavailable("no broker is registered")
        facts = await _facts(asking, asked, topic, group, trace_topic)
        facts = replace(facts, missing=tuple(asking.missing))
        return told(facts, verdict(facts))


async def _facts(
    asking: Asking, asked: str, topic: str | None, group: str | None, trace_topic: str
) -> Facts:
    now_ms = asking.session.clock.now_ms()
    found = await find(asking, asked, topic)
    facts = Facts(asked, now_ms, found.lookup, others=max(0, len(found.messages) - 1))
    if not found.messages:
        return await _absent(asking, facts)
    message = found.messages[0]
    first = place_of(message)
    home = home_of(first)
    named, cut, known = await _groups(asking, home, group)
    if group is None and first.group is not None and first.group not in named:
        named = [*named, first.group]
    places = await copies_of(asking, message, home, named)
    main = main_of(first, places, exact=found.lookup.form is not Form.KEY)
    facts = replace(facts, message=main, places=places, groups_cut=cut, groups_known=known)
    return await _with_broker(asking, facts, named, trace_topic)


async def _absent(asking: Asking, facts: Facts) -> Facts:
    """Add the retention time, which the explanation of an expired message needs."""
    place = facts.lookup.place
    voice = None if place is None else asking.voices.get(place[0].broker_name)
    if voice is None:
        return facts
    hours = (await _settings(asking, voice)).get("fileReservedTime", "")
    reserved = int(hours) if hours.isdecimal() else None
    return replace(facts, lookup=replace(facts.lookup, reserved_hours=reserved))


async def _groups(asking: Asking, topic: str, group: str | None) -> tuple[list[str], bool, bool]:
    """Return the groups to explain, whether there are more, and whether all brokers replied."""
    if group is not None:
        return [group], False, True
    names: set[str] = set()
    missing = len(asking.missing)
    for voice in asking.having(topic):
        if not voice.leads:
            asking.lack(f"groups of {topic} at {voice.broker}", "only leaders know the consumers")
        request = QueryTopicConsumeByWho(topic=topic)
        reply = await asking.ask(f"groups of {topic} at {voice.broker}", voice, request)
        if reply is not None:
            names.update(decode_group_list(body_of(reply)))
    listed = sorted(names - SYSTEM_CONSUMERS)
    known = len(asking.missing) == missing
    return listed[:EXPLAIN_GROUPS_MAX], len(listed) > EXPLAIN_GROUPS_MAX, known


async def _with_broker(asking: Asking, facts: Facts, groups: list[str], trace_topic: str) -> Facts:
    """Add what the message's broker reports, and the facts of the groups."""
    main = facts.message
    assert main is not None, "it was found"
    voice = asking.voices[main.queue.broker_name]
    # For a copy in a retry or dead-letter topic, that topic's queues and permissions do not matter.
    config = voice.topics.get(home_of(main)) if main.kind is Kind.SENT else None
    settings, configs, trace = await asyncio.gather(
        _settings(asking, voice),
        _group_configs(asking, voice),
        _trace(asking, main, trace_topic),
    )
    levels_ms = _levels(settings)
    perm = settings.get("brokerPermission", "")
    facts = replace(
        facts,
        storage=storage_of(main, voice),
        half=await half_of_message(asking, facts.places),
        delay=delay_of_message(facts.places, levels_ms),
        delay_levels_ms=levels_ms,
        readable=None if config is None else config.readable,
        read_queues=None if config is None else config.read_queue_nums,
        broker_readable=bool(int(perm) & READ) if perm.isdecimal() else None,
    )
    about = About(main, voice, facts.places, configs, trace, facts.as_of_ms)
    found = await asking.each(lambda name: facts_of_group(asking, about, name), groups)
    return replace(facts, groups=tuple(found))


async def _settings(asking: Asking, voice: Voice) -> dict[str, str]:
    reply = await asking.ask(f"settings of {voice.broker}", voice, GetBrokerConfig())
    return {} if reply is None else decode_properties_text(body_of(reply))


def _levels(settings: dict[str, str]) -> tuple[int, ...]:
    try:
        return parse_delay_levels(settings["messageDelayLevel"])
    except (KeyError, ConfigError):
        return DELAY_LEVELS_MS if settings else ()


async def _group_configs(asking: Asking, voice: Voice) -> dict[str, GroupConfig] | None:
    what = f"groups of {voice.broker}"
    reply = await asking.ask(what, voice, GetAllSubscriptionGroupConfig())
    if reply is None:
        return None
    return {one.name: one for one in decode_group_configs(body_of(reply))[0]}


async def _trace(asking: Asking, main: Place, trace_topic: str) -> list[TraceRecord]:
    """Return the trace records of the message, earliest first."""
    found = await asking.everywhere([trace_topic], main.message_id)
    records = [
        record
        for message in found
        for record in decode_trace(message.raw_body)
        if record.message_id == main.message_id
    ]
    return sorted(records, key=lambda record: record.timestamp_ms)
