"""The kinds by which topics are filtered, as RocketMQ's dashboard has them."""

import pytest

from kourou.model import names
from kourou_console.topic_kinds import Access, Kind, TopicKind, access_of, kind_of, permission_of


@pytest.mark.feature("F057")
@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", Kind(TopicKind.NORMAL)),
        ("%RETRY%till", Kind(TopicKind.RETRY, group="till")),
        ("%DLQ%till", Kind(TopicKind.DLQ, group="till")),
        (names.SCHEDULE_TOPIC, Kind(TopicKind.SYSTEM, "delay")),
        (names.HALF_TOPIC, Kind(TopicKind.SYSTEM, "transaction")),
        (names.TRACE_TOPIC, Kind(TopicKind.SYSTEM, "trace")),
        (names.CONTROL_TOPIC, Kind(TopicKind.SYSTEM, "control")),
        (names.AUTO_CREATE_TOPIC, Kind(TopicKind.SYSTEM, "template")),
        ("broker-a", Kind(TopicKind.SYSTEM, "broker")),
        ("C", Kind(TopicKind.SYSTEM, "cluster")),
        ("C_REPLY_TOPIC", Kind(TopicKind.SYSTEM, "reply")),
        ("rmq_sys_x", Kind(TopicKind.SYSTEM)),
        ("D_REPLY_TOPIC", Kind(TopicKind.NORMAL)),
    ],
)
def test_kinds(topic: str, expected: Kind) -> None:
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
