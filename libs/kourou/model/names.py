"""Names of topics and groups: allowed characters, reserved names, derived names.

The allowed characters are RocketMQ's. A topic becomes a directory, so the name is checked at every
entry point, and again where the directory path is built (kourou.store.paths).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from kourou.errors import BadRequest
from kourou.model.limits import (
    AGGREGATE_LENGTH_MAX,
    CLIENT_ID_LENGTH_MAX,
    GROUP_LENGTH_MAX,
    HISTORY_TYPES_MAX,
    TOPIC_LENGTH_MAX,
)

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"

CONTROL_TOPIC = "rmq_sys_kourou_control"
DELAY_PROGRESS_TOPIC = "rmq_sys_kourou_delays"
AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"

READER_GROUP = "TOOLS_CONSUMER"
"""The group of tools that read messages; every broker has it."""
TAIL_GROUP = "kourou-tail"
"""The group as which `kourou tail` reads by default."""
FILTER_SERVER_GROUP = "FILTERSRV_CONSUMER"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose committed offsets are the progress in the transaction queues."""

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""A name server's namespace of strictly ordered topics: topic -> `broker:queues;broker:queues`."""

NOT_FOR_CLIENTS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        CHECK_GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CONTROL_TOPIC,
        DELAY_PROGRESS_TOPIC,
    }
)
"""Topics that a client may not send to."""

SYSTEM_TOPICS = NOT_FOR_CLIENTS | {AUTO_CREATE_TOPIC, TRACE_TOPIC, BENCHMARK_TOPIC}

SYSTEM_GROUPS = frozenset(
    {
        READER_GROUP,
        FILTER_SERVER_GROUP,
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        TRANSACTION_GROUP,
    }
)

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def _check(kind: str, name: str, length_max: int) -> str:
    if not isinstance(name, str):
        raise BadRequest(f"the {kind} is {name!r}; it must be text")
    if not name:
        raise BadRequest(f"the {kind} is empty", hint=f"give the {kind} a name")
    if len(name) > length_max:
        raise BadRequest(
            f"the {kind} is {len(name)} characters long; at most {length_max} are allowed"
        )
    if _NAME.fullmatch(name) is None:
        raise BadRequest(
            f"the {kind} {name!r} has a character outside a-z A-Z 0-9 _ - % |",
            hint="rename it",
        )
    return name


def check_topic(name: str) -> str:
    """Return `name` if it is a valid topic. Raises BadRequest that says why not."""
    return _check("topic", name, TOPIC_LENGTH_MAX)


def check_group(name: str) -> str:
    """Return `name` if it is a valid producer or consumer group. Raises BadRequest."""
    return _check("group", name, GROUP_LENGTH_MAX)


def check_client_id(name: str) -> str:
    """Return `name` if it is a valid client ID. Raises BadRequest."""
    if not name or len(name) > CLIENT_ID_LENGTH_MAX or not name.isprintable():
        raise BadRequest(f"the client id must be 1 to {CLIENT_ID_LENGTH_MAX} printable characters")
    return name


def retry_topic(group: str) -> str:
    """The topic in which a group's failed messages wait for their next attempt."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """A group's dead-letter queue: messages whose attempts are used up."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """The topic in which the brokers of a cluster store replies to requests."""
    return f"{cluster}_REPLY_TOPIC"


def is_system_topic(name: str) -> bool:
    """True for topics that belong to Kourou or RocketMQ itself: clients cannot delete them."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX)


def is_system_group(name: str) -> bool:
    """True for groups that exist without being created."""
    return name in SYSTEM_GROUPS or name.startswith("CID_RMQ_SYS_")


# -- names of aggregates, which have a history: kind/name, like topic/orders ----------------------


KINDS_WITH_STATE = ("topic", "group", "setting", "progress", "filter", "user", "quota")
"""Kinds that have a state; others, to which a newer version may add, have only a history."""


def check_aggregate(text: str) -> str:
    """Return `kind/name`, or an empty text for all aggregates. Raises BadRequest."""
    if not text:
        return text
    kind, slash, name = text.partition("/")
    if kind and slash and name and len(text) <= AGGREGATE_LENGTH_MAX and text.isprintable():
        return text
    raise BadRequest(
        f"{text[:AGGREGATE_LENGTH_MAX]!r} does not name anything with a history",
        hint="kind/name, like topic/orders, group/till, setting/traceOn or filter/till/late",
    )


def check_stateful(aggregate: str) -> str:
    """Return an aggregate that has a state, or an empty text for all. Raises BadRequest."""
    check_aggregate(aggregate)
    kind = aggregate.partition("/")[0]
    if kind and kind not in KINDS_WITH_STATE:
        raise BadRequest(
            f"{aggregate} has no state that can be read",
            hint=f"use one of {', '.join(f'{each}/…' for each in KINDS_WITH_STATE)}",
        )
    return aggregate


def check_event_types(names: Collection[str]) -> frozenset[str]:
    """Return event types, known to this version or not. Raises BadRequest."""
    if len(names) > HISTORY_TYPES_MAX:
        raise BadRequest(
            f"{len(names)} event types are given; at most {HISTORY_TYPES_MAX} are allowed"
        )
    for name in names:
        if not name.isidentifier() or len(name) > AGGREGATE_LENGTH_MAX:
            raise BadRequest(
                f"{name[:AGGREGATE_LENGTH_MAX]!r} is not an event type", hint="for example TopicPut"
            )
    return frozenset(names)
