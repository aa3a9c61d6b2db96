"""Determines the kind of a topic from its name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from kourou.model import names
from kourou.model.topic import READ, WRITE, Permission


class TopicKind(StrEnum):
    """As the console's filters have them (RocketMQ's dashboard, too)."""

    NORMAL = "normal"
    RETRY = "retry"
    DLQ = "dlq"
    SYSTEM = "system"


class Access(StrEnum):
    """Who may use a topic."""

    READ_WRITE = "rw"
    READ = "r"
    WRITE = "w"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TopicClass:
    """A topic's kind; a system topic's purpose, or the group of a retry or dead-letter topic."""

    kind: TopicKind
    purpose: str | None = None
    group: str | None = None


REPLY_SUFFIX = "_REPLY_TOPIC"
_PURPOSES = {
    names.SCHEDULE_TOPIC: "delay",
    names.DELAY_PROGRESS_TOPIC: "delay",
    names.HALF_TOPIC: "transaction",
    names.OP_TOPIC: "transaction",
    names.CHECK_GIVEN_UP_TOPIC: "transaction",
    names.TRACE_TOPIC: "trace",
    names.CONTROL_TOPIC: "control",
    names.AUTO_CREATE_TOPIC: "template",
    names.OFFSET_MOVED_TOPIC: "notes",
    names.SELF_TEST_TOPIC: "test",
    names.BENCHMARK_TOPIC: "test",
}


def kind_of(
    topic: str, brokers: Collection[str] = (), clusters: Collection[str] = ()
) -> TopicClass:
    """The kind of a topic; brokers and clusters have topics with their own names."""
    if topic.startswith(names.RETRY_PREFIX):
        return TopicClass(TopicKind.RETRY, group=topic.removeprefix(names.RETRY_PREFIX))
    if topic.startswith(names.DLQ_PREFIX):
        return TopicClass(TopicKind.DLQ, group=topic.removeprefix(names.DLQ_PREFIX))
    if topic in _PURPOSES:
        return TopicClass(TopicKind.SYSTEM, _PURPOSES[topic])
    if topic in brokers:
        return TopicClass(TopicKind.SYSTEM, "broker")
    if topic in clusters:
        return TopicClass(TopicKind.SYSTEM, "cluster")
    if topic.endswith(REPLY_SUFFIX) and topic.removesuffix(REPLY_SUFFIX) in clusters:
        return TopicClass(TopicKind.SYSTEM, "reply")
    if names.is_system_topic(topic):
        return TopicClass(TopicKind.SYSTEM)
    return TopicClass(TopicKind.NORMAL)


def access_of(perm: int) -> Access:
    """A permission's read and write bits as a word; other bits are ignored."""
    if perm & READ:
        return Access.READ_WRITE if perm & WRITE else Access.READ
    return Access.WRITE if perm & WRITE else Access.NONE


def permission_of(access: Access) -> Permission:
    """The bits of an access."""
    return {
        Access.READ_WRITE: Permission.READ_WRITE,
        Access.READ: Permission.READ,
        Access.WRITE: Permission.WRITE,
        Access.NONE: Permission.NONE,
    }[access]
