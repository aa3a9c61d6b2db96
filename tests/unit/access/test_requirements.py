"""What requests need: every request has a row, and the rows mean what RocketMQ users expect."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace as Fields
from typing import Any

import pytest

from kourou.access.model import ResourceType
from kourou.access.requirements import REQUIREMENTS, CallerKind
from kourou.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC
from kourou.protocol.messages.sends import Target
from kourou.protocol.table import REQUESTS


@dataclass
class Known:
    """Facts of a process that has these topics, groups and filters."""

    names: tuple[str, ...] = ("orders", "g", "g/f")
    record: str = "orders"
    in_body: dict[str, list[str]] = field(default_factory=dict)
    credentials: bool = True

    def has_credentials(self) -> bool:
        return self.credentials

    def reply_topic(self) -> str:
        return "c_REPLY_TOPIC"

    def exists(self, kind: ResourceType, name: str) -> bool:
        return name in self.names

    def began(self, query: str) -> bool | None:
        return {"own": True, "other": False}.get(query)

    def record_topic(self) -> str:
        return self.record

    def groups(self) -> list[str]:
        return self.in_body.get("groups", [])

    def topics(self) -> list[str]:
        return self.in_body.get("topics", [])

    def has_body(self) -> bool:
        return bool(self.in_body)


def needs(request: str, facts: Known, fields: dict) -> list[str]:
    return [str(one) for one in REQUIREMENTS[request].needs(Fields(**fields), facts)]


def asked(
    request: str, facts: Known | None = None, /, **fields: Any
) -> tuple[str, Known, dict[str, Any]]:
    """A request with these fields; of a process with the usual topics and groups, if not said."""
    return request, facts or Known(), fields


def test_every_request_has_a_row_and_no_row_is_left_over() -> None:
    assert {spec.name for spec in REQUESTS.values()} == set(REQUIREMENTS)


def test_requests_that_share_a_header_need_the_same() -> None:
    for spec in REQUESTS.values():
        first = REQUESTS[spec.header.code].name
        assert REQUIREMENTS[spec.name].text == REQUIREMENTS[first].text, spec.name


def test_what_a_user_does_to_itself_names_nobody_else() -> None:
    """There is no field in which another user could be meant."""
    own = {name for name, row in REQUIREMENTS.items() if row.caller is CallerKind.SELF}
    assert own == {"SET_OWN_PASSWORD", "CREATE_OWN_TOKEN", "REVOKE_OWN_TOKEN", "LIST_OWN_TOKENS"}
    for spec in REQUESTS.values():
        if spec.name in own:
            assert not {"username", "user", "subject"} & set(spec.header.__struct_fields__)
            assert needs(spec.name, Known(), {})[0].endswith(" on User:")


def test_only_servers_send_what_a_client_answers() -> None:
    clients = {
        spec.name
        for spec in REQUESTS.values()
        if {one.value for one in spec.answered_by} == {"client"}
    }
    servers = {name for name, row in REQUIREMENTS.items() if row.caller is CallerKind.SERVER}
    assert servers == clients


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        (asked("SEND_MESSAGE", topic="orders"), ["Pub on Topic:orders"]),
        (asked("SEND_MESSAGE_V2", topic="new"), ["Pub on Topic:new", "Create on Topic:new"]),
        (  # REAL_TOPIC of a half message
            asked("SEND_MESSAGE", Known(in_body={"topics": ["secret"]}), topic="orders"),
            ["Pub on Topic:orders", "Pub on Topic:secret"],
        ),
        (asked("SEND_MESSAGE", Known(("%RETRY%g",)), topic="%RETRY%g"), ["Sub on Group:g"]),
        (asked("SEND_MESSAGE", topic="%RETRY%g"), ["Sub on Group:g"]),  # comes with g
        (asked("SEND_MESSAGE", Known((TRACE_TOPIC,)), topic=TRACE_TOPIC), []),
        (
            asked("SEND_MESSAGE", Known((TRACE_TOPIC,), credentials=False), topic=TRACE_TOPIC),
            [f"Pub on Topic:{TRACE_TOPIC}"],
        ),
        (
            asked("SEND_REPLY_MESSAGE", topic="new"),
            ["Pub on Topic:new", "Pub on Topic:c_REPLY_TOPIC", "Create on Topic:new"],
        ),
        (asked("SEND_MESSAGE", Known((HALF_TOPIC,)), topic=HALF_TOPIC), ["Pub on Topic:*"]),
        (asked("QUERY_MESSAGE", topic=SCHEDULE_TOPIC), ["Sub on Topic:*"]),
        (asked("QUERY_MESSAGE", topic=TRACE_TOPIC), [f"Sub on Topic:{TRACE_TOPIC}"]),
        (
            asked(
                "SEND_RECORDS", targets=[Target("orders", 0), Target("orders", 1), Target("new", 0)]
            ),
            ["Pub on Topic:orders", "Pub on Topic:new", "Create on Topic:new"],
        ),
        (
            asked("PULL_MESSAGE", consumer_group="g", topic="orders"),
            ["Sub on Group:g", "Sub on Topic:orders"],
        ),
        (
            asked("PULL_MESSAGE", consumer_group="tool", topic="%DLQ%g"),
            ["Sub on Group:tool", "Sub on Group:g or Sub on Topic:%DLQ%g"],
        ),
        (asked("END_TRANSACTION", Known(record="secret")), ["Pub on Topic:secret"]),
        (asked("END_TRANSACTION", Known(record="")), ["Pub on Topic:*"]),
        (
            asked("CONSUMER_SEND_MSG_BACK", Known(record="secret"), group="g"),
            ["Sub on Group:g", "Sub on Topic:secret"],
        ),
        (
            asked("HEART_BEAT", Known(in_body={"groups": ["g", "h"], "topics": ["orders"]})),
            ["Sub on Group:g", "Sub on Group:h", "Sub on Topic:orders"],
        ),
        (asked("UPDATE_AND_CREATE_TOPIC", topic="orders"), ["Update on Topic:orders"]),
        (asked("UPDATE_AND_CREATE_TOPIC", topic="new"), ["Create on Topic:new"]),
        (asked("UPDATE_AND_CREATE_TOPIC", topic="%RETRY%g"), ["Create on Group:g"]),
        (
            asked("UPDATE_AND_CREATE_TOPIC", Known(("%DLQ%g",)), topic="%DLQ%g"),
            ["Update on Group:g or Update on Topic:%DLQ%g"],
        ),
        (
            asked("UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", Known(in_body={"groups": ["new"]})),
            ["Create on Group:new"],
        ),
        (asked("GET_ROUTEINFO_BY_TOPIC", topic="orders"), ["Pub or Sub or Get on Topic:orders"]),
        (
            asked("GET_CONSUMER_RUNNING_INFO", consumer_group="g", jstack_enable=True),
            ["Update on Group:g"],
        ),
        (
            asked("GET_KV_CONFIG", namespace="ORDER_TOPIC_CONFIG", key="orders"),
            ["Pub or Sub or Get on Topic:orders"],
        ),
        (
            asked("PUT_KV_CONFIG", namespace="ORDER_TOPIC_CONFIG", key="orders"),
            ["Update on Cluster:"],
        ),
        (asked("PUT_KV_CONFIG", namespace="KOUROU_KEYS", key="x"), ["Update on User:"]),
        (asked("GET_KVLIST_BY_NAMESPACE", namespace="KOUROU_PROMOTED"), ["Update on User:"]),
        (asked("GET_KVLIST_BY_NAMESPACE", namespace="ORDER_TOPIC_CONFIG"), ["Get on Cluster:"]),
        (
            asked(
                "REGISTER_MESSAGE_FILTER_CLASS", consumer_group="g", class_name="f", topic="orders"
            ),
            ["Update on Filter:g/f", "Sub on Group:g", "Sub on Topic:orders"],
        ),
        (
            asked("PUT_FILTER", consumer_group="g", name="new"),
            ["Create on Filter:g/new", "Sub on Group:g"],
        ),
        (
            asked("TRY_FILTER", consumer_group="g", name="f", topic="orders"),
            ["Get on Filter:g/f", "Sub on Topic:orders"],
        ),
        (
            asked(
                "TRY_FILTER",
                Known(in_body={"source": ["match"]}),
                consumer_group="g",
                name="f",
                topic="orders",
            ),
            ["Create on Filter:g/f", "Sub on Topic:orders"],
        ),
        (
            asked("CHANGE_FILTER", consumer_group="g", name="f", action="delete"),
            ["Delete on Filter:g/f"],
        ),
        (
            asked("FETCH_LOG"),
            ["Get on Cluster:", "Sub on Topic:*", "Get on Group:*", "Get on User:*"],
        ),
        (asked("GET_HISTORY", aggregate="topic/orders"), ["Get on Topic:orders"]),
        (asked("GET_HISTORY", aggregate=""), ["Get on Cluster:"]),
        (
            asked("UPDATE_AND_CREATE_ACL_CONFIG", access_key="root"),
            ["Create or Update on User:root"],
        ),
        (asked("GET_ALL_TOPIC_LIST_FROM_NAMESERVER"), []),
        (asked("GET_ALL_TOPIC_CONFIG"), []),
        (asked("QUERY_TOPIC_CONSUME_BY_WHO", topic="orders"), ["Get on Topic:orders"]),
        (asked("GET_BATCH_STATE", query="new"), []),
        (asked("GET_BATCH_STATE", query="other"), ["Get on Cluster:"]),
        (asked("DECIDE_BATCH", query="own"), []),
        (asked("DECIDE_BATCH", query="other"), ["Update on Cluster:"]),
        (asked("ABORT_BATCH", query="own"), []),
        (asked("ABORT_BATCH", query="new"), ["Update on Cluster:"]),
    ],
)
def test_requests_need(asks: tuple[str, Known, dict[str, Any]], expected: list[str]) -> None:
    assert needs(*asks) == expected
