"""What requests need: every request has a row, and the rows mean what RocketMQ users expect."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace as Fields

import pytest

from kourou.access.authorizer import AccessTable, Authorizer
from kourou.access.model import Need, ResourceType, RoleGrant, User, UserRole
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
    ("name", "fields", "facts", "expected"),
    [
        ("SEND_MESSAGE", {"topic": "orders"}, Known(), ["Pub on Topic:orders"]),
        (
            "SEND_MESSAGE_V2",
            {"topic": "new"},
            Known(),
            ["Pub on Topic:new", "Create on Topic:new"],
        ),
        (
            "SEND_MESSAGE",
            {"topic": "orders"},
            Known(in_body={"topics": ["secret"]}),  # REAL_TOPIC of a half message
            ["Pub on Topic:orders", "Pub on Topic:secret"],
        ),
        ("SEND_MESSAGE", {"topic": "%RETRY%g"}, Known(("%RETRY%g",)), ["Sub on Group:g"]),
        ("SEND_MESSAGE", {"topic": "%RETRY%g"}, Known(), ["Sub on Group:g"]),  # comes with g
        ("SEND_MESSAGE", {"topic": TRACE_TOPIC}, Known((TRACE_TOPIC,)), []),
        (
            "SEND_MESSAGE",
            {"topic": TRACE_TOPIC},
            Known((TRACE_TOPIC,), credentials=False),
            [f"Pub on Topic:{TRACE_TOPIC}"],
        ),
        (
            "SEND_REPLY_MESSAGE",
            {"topic": "new"},
            Known(),
            ["Pub on Topic:new", "Pub on Topic:c_REPLY_TOPIC", "Create on Topic:new"],
        ),
        ("SEND_MESSAGE", {"topic": HALF_TOPIC}, Known((HALF_TOPIC,)), ["Pub on Topic:*"]),
        ("QUERY_MESSAGE", {"topic": SCHEDULE_TOPIC}, Known(), ["Sub on Topic:*"]),
        ("QUERY_MESSAGE", {"topic": TRACE_TOPIC}, Known(), [f"Sub on Topic:{TRACE_TOPIC}"]),
        (
            "SEND_RECORDS",
            {"targets": [Target("orders", 0), Target("orders", 1), Target("new", 0)]},
            Known(),
            ["Pub on Topic:orders", "Pub on Topic:new", "Create on Topic:new"],
        ),
        (
            "PULL_MESSAGE",
            {"consumer_group": "g", "topic": "orders"},
            Known(),
            ["Sub on Group:g", "Sub on Topic:orders"],
        ),
        (
            "PULL_MESSAGE",
            {"consumer_group": "tool", "topic": "%DLQ%g"},
            Known(),
            ["Sub on Group:tool", "Sub on Group:g or Sub on Topic:%DLQ%g"],
        ),
        ("END_TRANSACTION", {}, Known(record="secret"), ["Pub on Topic:secret"]),
        ("END_TRANSACTION", {}, Known(record=""), ["Pub on Topic:*"]),
        (
            "CONSUMER_SEND_MSG_BACK",
            {"group": "g"},
            Known(record="secret"),
            ["Sub on Group:g", "Sub on Topic:secret"],
        ),
        (
            "HEART_BEAT",
            {},
            Known(in_body={"groups": ["g", "h"], "topics": ["orders"]}),
            ["Sub on Group:g", "Sub on Group:h", "Sub on Topic:orders"],
        ),
        ("UPDATE_AND_CREATE_TOPIC", {"topic": "orders"}, Known(), ["Update on Topic:orders"]),
        ("UPDATE_AND_CREATE_TOPIC", {"topic": "new"}, Known(), ["Create on Topic:new"]),
        ("UPDATE_AND_CREATE_TOPIC", {"topic": "%RETRY%g"}, Known(), ["Create on Group:g"]),
        (
            "UPDATE_AND_CREATE_TOPIC",
            {"topic": "%DLQ%g"},
            Known(("%DLQ%g",)),
            ["Update on Group:g or Update on Topic:%DLQ%g"],
        ),
        (
            "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
            {},
            Known(in_body={"groups": ["new"]}),
            ["Create on Group:new"],
        ),
        (
            "GET_ROUTEINFO_BY_TOPIC",
            {"topic": "orders"},
            Known(),
            ["Pub or Sub or Get on Topic:orders"],
        ),
        (
            "GET_CONSUMER_RUNNING_INFO",
            {"consumer_group": "g", "jstack_enable": True},
            Known(),
            ["Update on Group:g"],
        ),
        (
            "GET_KV_CONFIG",
            {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"},
            Known(),
            ["Pub or Sub or Get on Topic:orders"],
        ),
        (
            "PUT_KV_CONFIG",
            {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"},
            Known(),
            ["Update on Cluster:"],
        ),
        (
            "PUT_KV_CONFIG",
            {"namespace": "KOUROU_KEYS", "key": "x"},
            Known(),
            ["Update on User:"],
        ),
        (
            "GET_KVLIST_BY_NAMESPACE",
            {"namespace": "KOUROU_PROMOTED"},
            Known(),
            ["Update on User:"],
        ),
        (
            "GET_KVLIST_BY_NAMESPACE",
            {"namespace": "ORDER_TOPIC_CONFIG"},
            Known(),
            ["Get on Cluster:"],
        ),
        (
            "REGISTER_MESSAGE_FILTER_CLASS",
            {"consumer_group": "g", "class_name": "f", "topic": "orders"},
            Known(),
            ["Update on Filter:g/f", "Sub on Group:g", "Sub on Topic:orders"],
        ),
        (
            "PUT_FILTER",
            {"consumer_group": "g", "name": "new"},
            Known(),
            ["Create on Filter:g/new", "Sub on Group:g"],
        ),
        (
            "TRY_FILTER",
            {"consumer_group": "g", "name": "f", "topic": "orders"},
            Known(),
            ["Get on Filter:g/f", "Sub on Topic:orders"],
        ),
        (
            "TRY_FILTER",
            {"consumer_group": "g", "name": "f", "topic": "orders"},
            Known(in_body={"source": ["match"]}),
            ["Create on Filter:g/f", "Sub on Topic:orders"],
        ),
        (
            "CHANGE_FILTER",
            {"consumer_group": "g", "name": "f", "action": "delete"},
            Known(),
            ["Delete on Filter:g/f"],
        ),
        (
            "FETCH_LOG",
            {},
            Known(),
            ["Get on Cluster:", "Sub on Topic:*", "Get on Group:*", "Get on User:*"],
        ),
        ("GET_HISTORY", {"aggregate": "topic/orders"}, Known(), ["Get on Topic:orders"]),
        ("GET_HISTORY", {"aggregate": ""}, Known(), ["Get on Cluster:"]),
        (
            "UPDATE_AND_CREATE_ACL_CONFIG",
            {"access_key": "root"},
            Known(),
            ["Create or Update on User:root"],
        ),
        ("GET_ALL_TOPIC_LIST_FROM_NAMESERVER", {}, Known(), []),
        ("GET_ALL_TOPIC_CONFIG", {}, Known(), []),
        ("QUERY_TOPIC_CONSUME_BY_WHO", {"topic": "orders"}, Known(), ["Get on Topic:orders"]),
        ("GET_BATCH_STATE", {"query": "new"}, Known(), []),
        ("GET_BATCH_STATE", {"query": "other"}, Known(), ["Get on Cluster:"]),
        ("DECIDE_BATCH", {"query": "own"}, Known(), []),
        ("DECIDE_BATCH", {"query": "other"}, Known(), ["Update on Cluster:"]),
        ("ABORT_BATCH", {"query": "own"}, Known(), []),
        ("ABORT_BATCH", {"query": "new"}, Known(), ["Update on Cluster:"]),
    ],
)
def test_requests_need(name, fields, facts, expected) -> None:
    assert needs(name, facts, fields) == expected


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        (UserRole.WRITER, "SEND_MESSAGE", "UPDATE_AND_CREATE_TOPIC"),
        (UserRole.VIEWER, "QUERY_MESSAGE", "SEND_MESSAGE"),
        (UserRole.READER, "GET_BROKER_CONFIG", "QUERY_MESSAGE"),
        (UserRole.OPERATOR, "UPDATE_BROKER_CONFIG", "UPDATE_AND_CREATE_ACL_CONFIG"),
        (UserRole.ADMINISTRATOR, "UPDATE_AND_CREATE_ACL_CONFIG", None),
        (UserRole.BACKUP, "FETCH_LOG", "SEND_MESSAGE"),
        (UserRole.WRITER, "PULL_MESSAGE", "FETCH_LOG"),
    ],
)
def test_roles_may_send_these_requests(role: UserRole, may: str, may_not: str | None) -> None:
    found = Authorizer(AccessTable().with_user(User(name="u", roles=(RoleGrant(role),))))
    fields = {"topic": "orders", "consumer_group": "g", "access_key": "x"}

    def decided(name: str) -> bool:
        rows: list[Need] = REQUIREMENTS[name].needs(Fields(**fields), Known())
        return found.decide("u", rows, "", 0).allowed

    assert decided(may)
    assert may_not is None or not decided(may_not)
