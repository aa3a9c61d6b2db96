"""The kinds by which topics are filtered, as RocketMQ's dashboard has them."""

import pytest

from kourou.model import names
from kourou_console.topic_kinds import (
    Access,
    TopicClass,
    TopicKind,
    access_of,
    kind_of,
    permission_of,
)


@pytest.mark.feature("F057")
@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", TopicClass(TopicKind.NORMAL)),
        ("%RETRY%till", TopicClass(TopicKind.RETRY, group="till")),
        ("%DLQ%till", TopicClass(TopicKind.DLQ, group="till")),
        (names.SCHEDULE_TOPIC, TopicClass(TopicKind.SYSTEM, "delay")),
        (names.HALF_TOPIC, TopicClass(TopicKind.SYSTEM, "transaction")),
        (names.TRACE_TOPIC, TopicClass(TopicKind.SYSTEM, "trace")),
        (names.CONTROL_TOPIC, TopicClass(TopicKind.SYSTEM, "control")),
        (names.AUTO_CREATE_TOPIC, TopicClass(TopicKind.SYSTEM, "template")),
        ("broker-a", TopicClass(TopicKind.SYSTEM, "broker")),
        ("C", TopicClass(TopicKind.SYSTEM, "cluster")),
        ("C_REPLY_TOPIC", TopicClass(TopicKind.SYSTEM, "reply")),
        ("rmq_sys_x", TopicClass(TopicKind.SYSTEM)),
        ("D_REPLY_TOPIC", TopicClass(TopicKind.NORMAL)),
    ],
)
def test_kinds(topic: str, expected: TopicClass) -> None:
    assert kind_of(topic, ["broker-a"], ["C"]) == expected


@pytest.mark.parametrize(
    ("perm", "access"),
    [
        (6, Access.READ_WRITE),
        (7, Access.READ_WRITE),
        (4, Access.READ),
        (2, Access.WRITE),
        (0, Access.NONE),
    ],
)
def test_permissions_are_words(perm: int, access: Access) -> None:
    assert access_of(perm) is access
    assert access_of(permission_of(access)) is access
