"""Tests of a cluster: the duration of sends, and exports of its tables.

State: none. A probe's messages are stored like any others.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.errors import BadRequest, KourouError
from kourou.model.limits import (
    CONSOLE_PROBE_BYTES_MAX,
    CONSOLE_PROBE_SIZE_BYTES_MAX,
    CONSOLE_PROBES_MAX,
)
from kourou.model.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from kourou.model.topic import MessageQueue
from kourou_console.api.groups import GroupConfigView, all_groups
from kourou_console.api.groups import config_of as group_config_of
from kourou_console.api.topics import TopicConfigView, all_topics, config_of
from kourou_console.gateway import Gateway
from kourou_console.lists import Listing, Missing, Name, answers, brokers_of
from kourou_console.operation import Chapter, NoParameters

OPERATIONS = Chapter("Probes")


class ProbeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """To a topic's queues in turn, or to the topic that is named as the broker, or as each broker
    of a cluster (of all without one). `count` messages each, one after the other.
    """

    topic: Name | None = None
    broker: Name | None = None
    cluster: Name | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=CONSOLE_PROBES_MAX)] = 10
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=CONSOLE_PROBE_SIZE_BYTES_MAX)] = 128


class ProbeSend(msgspec.Struct, frozen=True, kw_only=True):
    """One send; `error` is the reason of a failure, `status` the send status."""

    broker: str
    queue: int
    took_ms: int
    status: str | None
    error: str | None


class BrokerTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The sends to one broker; `mean_ms` of those that were stored."""

    broker: str
    mean_ms: float | None
    sent: int
    failed: int


class Probe(Listing[ProbeSend], frozen=True, kw_only=True):
    """Every send, and the mean of those that were stored."""

    mean_ms: float | None
    sent: int
    failed: int
    brokers: list[BrokerTimes]


class ExportWanted(msgspec.Struct, frozen=True, kw_only=True):
    """One broker, a cluster's, or all; `special`: include retry and dead-letter topics."""

    broker: Name | None = None
    cluster: Name | None = None
    special: bool = False


class ExportedGroup(msgspec.Struct, frozen=True):
    """A group and how the broker has it."""

    group: str
    config: GroupConfigView


class ExportedTopic(msgspec.Struct, frozen=True):
    """A topic and how the broker has it."""

    topic: str
    config: TopicConfigView


class ExportedMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Topics and groups by broker, without those that every broker has."""

    topics: dict[str, list[ExportedTopic]]
    groups: dict[str, list[ExportedGroup]]
    as_of_ms: int
    missing: list[Missing]


class ExportedTables(msgspec.Struct, frozen=True, kw_only=True):
    """Names and texts by broker, and by name server where those have some."""

    brokers: dict[str, dict[str, str]]
    name_servers: dict[str, dict[str, str]]
    totals: dict[str, int]
    as_of_ms: int
    missing: list[Missing]


@OPERATIONS.post("/v1/probes", "probe")
async def probe(gateway: Gateway, _parameters: NoParameters, body: ProbeBody) -> Probe:
    """Measure the latency of sends to a topic or to the brokers' own topics."""
    if sum(one is not None for one in (body.topic, body.broker, body.cluster)) > 1:
        raise BadRequest("give a topic, a broker or a cluster, but only one of them")
    queues = await _queues(gateway, body)
    times = body.count * (1 if body.topic is not None else len(queues))
    if times > CONSOLE_PROBES_MAX or times * body.size_bytes > CONSOLE_PROBE_BYTES_MAX:
        raise BadRequest(
            f"the request has {times:,} sends; at most {CONSOLE_PROBES_MAX:,}, and 64 "
            "MiB in total, are allowed"
        )
    rows = [await _sent(gateway, queues[turn % len(queues)], body) for turn in range(times)]
    brokers = sorted({row.broker for row in rows})
    stored = [row.took_ms for row in rows if row.error is None]
    return Probe(
        items=rows,
        total=len(rows),
        as_of_ms=gateway.clock.now_ms(),
        mean_ms=_mean(stored),
        sent=len(stored),
        failed=len(rows) - len(stored),
        brokers=[_times(name, [row for row in rows if row.broker == name]) for name in brokers],
    )


async def _queues(gateway: Gateway, body: ProbeBody) -> list[MessageQueue]:
    if body.topic is not None:
        route = await gateway.admin.topics.route(body.topic)
        found = sorted(
            MessageQueue(body.topic, one.broker_name, number)
            for one in route.queue_datas
            for number in range(one.write_queue_nums)
        )
        if not found:
            raise BadRequest(f"topic {body.topic} has no write queues")
        return found
    names = await brokers_of(gateway, body.broker, body.cluster)
    return [MessageQueue(name, name, 0) for name in names]  # the topic of brokerTopicEnable


async def _sent(gateway: Gateway, queue: MessageQueue, body: ProbeBody) -> ProbeSend:
    clock = gateway.clock
    began_ms = clock.monotonic_ms()
    status = error = None
    try:
        result = await gateway.client.send(queue.topic, b"a" * body.size_bytes, queue=queue)
        status = result.status.value
    except KourouError as failure:
        error = str(failure)
    return ProbeSend(
        broker=queue.broker_name,
        queue=queue.queue_id,
        took_ms=clock.monotonic_ms() - began_ms,
        status=status,
        error=error,
    )


def _times(name: str, rows: list[ProbeSend]) -> BrokerTimes:
    stored = [row.took_ms for row in rows if row.error is None]
    return BrokerTimes(
        broker=name, mean_ms=_mean(stored), sent=len(stored), failed=len(rows) - len(stored)
    )


def _mean(times: list[int]) -> float | None:
    return round(sum(times) / len(times), 2) if times else None


@OPERATIONS.get("/v1/export/metadata", "export_metadata")
async def export_metadata(gateway: Gateway, parameters: ExportWanted) -> ExportedMetadata:
    """Topics and groups of brokers, as one document."""
    chosen = await brokers_of(gateway, parameters.broker, parameters.cluster)
    topics, away, _ = await all_topics(gateway)
    groups, unasked = await all_groups(gateway)
    hidden = () if parameters.special else (RETRY_PREFIX, DLQ_PREFIX)  # startswith accepts a tuple
    return ExportedMetadata(
        topics={
            broker: [
                ExportedTopic(name, config_of(broker, one))
                for name, one in sorted(configs.items())
                if not is_system_topic(name) and not name.startswith(hidden)
            ]
            for broker, configs in topics.items()
            if broker in chosen
        },
        groups={
            broker: [
                ExportedGroup(name, group_config_of(broker, one))
                for name, one in sorted(configs.items())
                if not is_system_group(name)
            ]
            for broker, configs in groups.items()
            if broker in chosen
        },
        as_of_ms=gateway.clock.now_ms(),
        missing=[one for one in (*away, *unasked) if one.what in chosen],
    )


@OPERATIONS.get("/v1/export/configs", "export_configs")
async def export_configs(gateway: Gateway, parameters: ExportWanted) -> ExportedTables:
    """Settings of brokers and name servers, as one document."""
    names = await brokers_of(gateway, parameters.broker, parameters.cluster)
    found, missing = await answers(names, gateway.admin.brokers.config)
    servers = await gateway.admin.name_servers.each()
    return ExportedTables(
        brokers=found,
        name_servers={at: one for at, one in servers.items() if not isinstance(one, KourouError)},
        totals={"name_servers": len(servers), "brokers": len(names)},
        as_of_ms=gateway.clock.now_ms(),
        missing=[
            *missing,
            *(Missing(at, str(one)) for at, one in servers.items() if isinstance(one, KourouError)),
        ],
    )


@OPERATIONS.get("/v1/export/metrics", "export_metrics")
async def export_metrics(gateway: Gateway, parameters: ExportWanted) -> ExportedTables:
    """Metrics of brokers, as one document."""
    names = await brokers_of(gateway, parameters.broker, parameters.cluster)
    found, missing = await answers(names, gateway.admin.brokers.runtime)
    totals = {
        name: sum(int(one[name]) for one in found.values() if one.get(name, "").isdigit())
        for name in ("msgPutTotalTodayNow", "msgGetTotalTodayNow")
    }
    return ExportedTables(
        brokers=found,
        name_servers={},
        totals=totals,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )
