"""Names of topics and groups: allowed characters, reserved names, derived names.

The allowed characters are RocketMQ's. A topic becomes a directory, so the name is checked at every
entry point, and again where the directory path is built (kourou.store.paths).
"""

from __future__ import annotations

import re

from kourou.errors import BadRequest
from kourou.model.limits import CLIENT_ID_LENGTH_MAX, GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX

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
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
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


def is_system_topic(name: str) -> bool:
    """True for topics that belong to Kourou or RocketMQ itself: clients cannot delete them."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX)


def is_system_group(name: str) -> bool:
    """True for groups that exist without being created."""
    return name in SYSTEM_GROUPS or name.startswith("CID_RMQ_SYS_")
