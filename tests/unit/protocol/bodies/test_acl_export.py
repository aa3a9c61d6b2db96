"""RocketMQ's ACL 2.0 decides the same requests here, or its file is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.authorizer import AccessTable, Authorizer
from kourou.access.model import Action, Need, ResourceType
from kourou.access.plain_acl import ImportedAcl
from kourou.errors import BadRequest
from kourou.protocol.bodies.acl_export import read_acl, tables_of

TILL = {"username": "till", "password": "secret-of-till", "userType": "Normal"}
PRINTED = """\
RocketMQLog:WARN No appenders could be found for logger.
#UserName         #Password               #UserType               #UserStatus
root              secret-of-root          Super                   enable
till              secret-of-till          Normal                  disable
get user from 127.0.0.1:10911 success.

#Subject          #PolicyType             #Resource               #Actions                #SourceIp               #Decision
User:till         Custom                  Topic:orders*           [Pub, Sub]              [10.0.0.0/8, 1.2.3.4]   Allow
User:till         Custom                  Group:g                 [Sub]                   null                    Allow
User:nobody
list acls from 127.0.0.1:10911 success.
"""  # noqa: E501 - as mqadmin prints it


def entry(resource: str, actions: str, decision: str = "Allow", **fields: Any) -> dict[str, Any]:
    return {
        "resource": resource,
        "actions": actions.split(","),
        "decision": decision,
        **fields,
    }


def acl(*entries: dict[str, Any], default: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    groups = [
        {"policyType": "Custom", "entries": list(entries)},
        {"policyType": "Default", "entries": list(default)},
    ]
    return {"users": [TILL], "acls": [{"subject": "User:till", "policies": groups}]}


def may(found: ImportedAcl, action: Action, topic: str, source: str = "10.1.1.1") -> bool:
    table = AccessTable()
    for user in found.users:
        table = table.with_user(user)
    for policy in found.policies:
        table = table.with_policy(policy)
    need = Need(ResourceType.TOPIC, topic, (action,))
    return Authorizer(table).decide("till", (need,), source, 0).allowed


def test_users_have_their_type_status_and_secret() -> None:
    users = [
        {"username": "root", "password": 12345678, "userType": "Super", "userStatus": "enable"},
        {**TILL, "userStatus": "disable"},
        {"username": "none", "userType": "NORMAL"},
    ]
    found = read_acl({"users": users})
    assert [(one.name, one.administers, one.enabled) for one in found.users] == [
        ("root", True, True),
        ("till", False, False),
        ("none", False, True),
    ]
    assert found.secrets == {"root": "12345678", "till": "secret-of-till"}
    assert found.notes == [
        "user none has no password in the file: `kourou user set none --new-secret`"
    ]
    assert "secret-of-till" not in repr(found)


def test_a_published_secret_is_noted() -> None:
    user = {"username": "rocketmq", "password": "12345678", "userType": "Super"}
    assert read_acl({"users": [user]}).shipped == ["rocketmq"]


def test_entries_become_policies() -> None:
    found = read_acl(
        acl(
            entry("Topic:orders*", "Pub,Sub", sourceIps=["10.0.0.0/8"]),
            entry("topic:news", "Any", decision="ALLOW"),
        )
    )
    assert may(found, Action.PUB, "orders-1")
    assert not may(found, Action.PUB, "orders-1", "11.0.0.1")
    assert may(found, Action.DELETE, "news")
    assert not may(found, Action.SUB, "bills")
    assert {one.reason for one in found.policies} == {"RocketMQ ACL 2.0"}


OUTER, INNER = entry("Topic:*", "Pub", "Deny"), entry("Topic:orders", "Pub")


@pytest.mark.parametrize("entries", [(OUTER, INNER), (INNER, OUTER)], ids=["outer", "inner"])
def test_a_denial_with_an_exception_is_left_out_where_nothing_else_is_allowed(
    entries: tuple[dict[str, Any], ...],
) -> None:
    found = read_acl(acl(*entries))
    assert may(found, Action.PUB, "orders")
    assert not may(found, Action.PUB, "bills")
    assert found.notes == [
        "the denial of Pub of till on Topic:* is not imported: Topic:orders is allowed, and"
        " nothing else is"
    ]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "entries",
    [
        (entry("*", "Pub"), OUTER, INNER),
        (entry("Topic:a*", "All"), entry("Topic:ab*", "Pub", "Deny"), entry("Topic:abc", "Pub")),
    ],
)
def test_a_denial_with_an_exception_within_a_permission_is_refused_and_named(
    entries: tuple[dict[str, Any], ...], *, turned: bool
) -> None:
    order = entries[::-1] if turned else entries
    with pytest.raises(BadRequest, match=r"has an exception, .*here a denial has no exceptions"):
        read_acl(acl(*order))


def test_a_denial_inside_a_permission_wins_as_in_rocketmq() -> None:
    found = read_acl(acl(entry("Topic:*", "Pub,Sub"), entry("Topic:secret*", "Sub", "Deny")))
    assert may(found, Action.PUB, "secret-1")
    assert not may(found, Action.SUB, "secret-1")
    assert may(found, Action.SUB, "orders")
    assert not found.notes


def test_a_denial_is_kept_for_the_actions_without_an_exception() -> None:
    found = read_acl(
        acl(entry("Topic:*", "Sub"), entry("Topic:a*", "Pub,Sub", "Deny"), entry("Topic:ab", "Pub"))
    )
    assert may(found, Action.PUB, "ab")
    assert not may(found, Action.SUB, "ab")
    assert not may(found, Action.PUB, "ac")


def test_entries_of_type_custom_count_before_those_of_type_default() -> None:
    denied = entry("Topic:orders", "Pub", "Deny")
    found = read_acl(acl(entry("Topic:*", "Pub"), default=(denied,)))
    assert may(found, Action.PUB, "orders")
    allowed = entry("Topic:orders", "Pub")
    found = read_acl(acl(entry("Topic:*", "Pub", "Deny"), default=(allowed,)))
    assert not may(found, Action.PUB, "orders")


def test_the_same_resource_allowed_and_denied_is_reported_and_denied() -> None:
    found = read_acl(acl(entry("Topic:orders", "Pub"), entry("Topic:orders", "Pub,Sub", "Deny")))
    assert not may(found, Action.PUB, "orders")
    assert found.notes == [
        "Pub of till on Topic:orders is allowed and denied: here the denial counts"
    ]


def test_a_denial_next_to_the_same_permission_and_a_narrower_one_is_refused() -> None:
    """Without the denial, the permission of the same resource would count for all of it."""
    entries = [
        entry("Topic:a*", "Pub"),
        entry("Topic:a*", "Pub", "Deny"),
        entry("Topic:ab", "Pub"),
    ]
    for order in (entries, entries[::-1]):
        with pytest.raises(BadRequest, match="has an exception, Topic:ab, and one itself from"):
            read_acl(acl(*order))


def test_two_entries_for_a_resource_are_one_policy() -> None:
    found = read_acl(acl(entry("Topic:a", "Pub"), entry("Topic:a", "Sub"), entry("Topic:a", "Pub")))
    [policy] = found.policies
    assert policy.actions == (Action.PUB, Action.SUB)
    with pytest.raises(BadRequest, match="two entries for Topic:a with different sourceIps"):
        read_acl(acl(entry("Topic:a", "Pub"), entry("Topic:a", "Sub", sourceIps=["10.0.0.1"])))


def test_what_means_something_else_here_is_noted() -> None:
    found = read_acl(
        acl(
            entry("Cluster:DefaultCluster", "Get"),
            entry("Cluster:Other", "All"),
            entry("Namespace:n", "All"),
            entry("Topic:%RETRY%g", "Sub"),
            entry("Topic:orders", "Get"),
        ),
        cluster="DefaultCluster",
    )
    assert [str(one.resource) for one in found.policies] == ["Cluster:*", "Topic:orders"]
    assert found.notes == [
        "Cluster:DefaultCluster of till is imported as Cluster:*, the cluster of the brokers",
        "Cluster:Other of till is not imported: the cluster is DefaultCluster",
        "Namespace:n of till is not imported: there are no namespaces",
        "Topic:%RETRY%g of till is not imported: a retry topic belongs to its group",
        "Get of till on Topic:orders is imported without content of messages, which needs Sub",
    ]


def test_an_entry_about_another_cluster_gives_nothing() -> None:
    """RocketMQ compares the name with its own cluster's: Cluster:* would give more."""
    for resource, imported in {
        "Cluster:Other": 0,
        "Cluster:default": 0,
        "Cluster:Oth*": 0,
        "Cluster:Default": 1,
        "Cluster:Def*": 1,
        "Cluster:*": 1,
    }.items():
        found = read_acl(acl(entry(resource, "All")), cluster="Default")
        assert len(found.policies) == imported, resource


def test_an_entry_about_a_cluster_is_refused_if_the_name_of_this_one_is_not_known() -> None:
    with pytest.raises(BadRequest, match=r"Cluster:Other of till: .*not known") as error:
        read_acl(acl(entry("Cluster:Other", "All")))
    assert "--cluster" in str(error.value)
    assert read_acl(acl(entry("Cluster:*", "All"))).policies


def test_acls_of_administrators_and_of_users_that_are_not_there_are_noted() -> None:
    document = acl(entry("Topic:a", "Pub"))
    found = read_acl({**document, "users": [{**TILL, "userType": "Super"}]})
    assert not found.policies
    assert found.notes == [
        "the ACL of till is not imported: the user is an administrator, who may do all"
    ]
    found = read_acl({**document, "users": []})
    assert found.notes == ["the ACL of till is not imported: the user is not in the file"]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"users": [{**TILL, "roles": []}]}, "user 'till' has unknown keys: roles"),
        ({"users": [{**TILL, "userType": "God"}]}, "userType is 'god'"),
        ({"users": [{**TILL, "password": "short"}]}, "password of user 'till' is refused"),
        ({"users": [{**TILL, "username": "a/b"}]}, "is not a user name"),
        ({"users": "till"}, "users is not a list"),
        ({"users": ["till"]}, "a user is not a mapping"),
        ({"users": [], "accounts": []}, "the file has unknown keys: accounts"),
        ({"users": [], "acls": [{"subject": "till"}]}, "is not a subject"),
        ({"acls": []}, "users is not a list"),
        ({"users": None}, "users is not a list"),
        ({"users": ""}, "users is not a list"),
        (acl(entry("Topic:a*b*", "Pub")), r"Topic:a\*b\* of till: .* is not a resource"),
        (acl(entry("Queue:a", "Pub")), "is not a resource"),
        (acl(entry("Topic:a", "Publish")), "Topic:a of till: 'Publish' is not an action"),
        (acl(entry("Topic:a", "Pub", "Perhaps")), "decision is 'perhaps'"),
        (acl(entry("Topic:a", "Pub", sourceIps=["10.0.0.300"])), "is not an address"),
        (acl(entry("Topic:a", "Pub", sourceIps="10.0.0.1")), "sourceIps is not a list"),
        (acl(entry("Topic:a", "Pub", effect="x")), "Topic:a of till has unknown keys: effect"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(document: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRequest, match=why) as error:
        read_acl(document)
    assert "short" not in str(error.value)


def test_a_user_in_two_brokers_lists_counts_once() -> None:
    assert len(read_acl({"users": [TILL, TILL]}).users) == 1
    found = read_acl({"users": [TILL, {**TILL, "password": "another-secret"}]})
    assert found.secrets == {"till": "secret-of-till"}
    assert found.notes == ["user till occurs twice; the first one counts"]


def test_an_accounts_file_is_still_one() -> None:
    account = {"accessKey": "orders1", "secretKey": "secret1", "admin": True}
    assert [one.name for one in read_acl({"accounts": [account]}).users] == ["orders1"]
    with pytest.raises(BadRequest, match="is not a mapping"):
        read_acl(["accounts"])


def test_what_mqadmin_prints_is_read() -> None:
    document = tables_of(PRINTED)
    found = read_acl(document)
    assert [(one.name, one.administers, one.enabled) for one in found.users] == [
        ("root", True, True),
        ("till", False, False),
    ]
    assert found.secrets == {"root": "secret-of-root", "till": "secret-of-till"}
    assert {str(one.resource): (one.actions, one.networks) for one in found.policies} == {
        "Topic:orders*": ((Action.PUB, Action.SUB), ("10.0.0.0/8", "1.2.3.4/32")),
        "Group:g": ((Action.SUB,), ()),
    }
    assert not found.notes


def test_users_without_a_status_are_enabled() -> None:
    document = tables_of("#UserName  #Password  #UserType\ntill  secret-of-till  Normal\n")
    assert [one.enabled for one in read_acl(document).users] == [True]


def test_a_line_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadRequest, match="line 2 has 2 columns, not 3"):
        tables_of("#UserName  #Password  #UserType\ntill  secret-of-till\n")


@pytest.mark.parametrize(
    "text",
    [
        "accounts: []\n",
        "{}",
        "#Subject to review\naccounts: []\n",
        "#Subject\naccounts: []\n",
        "#UserName  of till\naccounts: []\n",
    ],
)
def test_other_text_is_no_table(text: str) -> None:
    assert tables_of(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("accounts: []\n#UserName  #Password\n", "has no user of mqadmin listUser"),
        ("#Subject  #Resource\nUser:till  Topic:a\n", "has no user of mqadmin listUser"),
        ("#UserName  #Password\ntill  a-secret\n#Subject  #Place\n", "line 3 .* unknown columns"),
    ],
)
def test_tables_that_would_stand_for_no_users_are_refused(text: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        tables_of(text)


# -- any file -------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=9)
RESOURCES = st.sampled_from(["*", "Topic:*", "Topic:a*", "Topic:a", "Group:*", "Cluster:c"])
ENTRIES = st.fixed_dictionaries(
    {
        "resource": RESOURCES | SCALARS,
        "actions": st.lists(st.sampled_from(["Pub", "Sub", "All", "Get"]) | SCALARS, max_size=2),
    },
    optional={
        "decision": st.sampled_from(["Allow", "Deny"]) | SCALARS,
        "sourceIps": st.lists(st.sampled_from(["10.0.0.0/8", "10.0.0.*"]), max_size=1) | SCALARS,
    },
)
ACLS = st.fixed_dictionaries(
    {"subject": st.just("User:till") | SCALARS},
    optional={"policies": st.lists(st.fixed_dictionaries({"entries": st.lists(ENTRIES)}))},
)
USERS = st.fixed_dictionaries(
    {"username": st.just("till") | SCALARS}, optional={"password": SCALARS, "userType": SCALARS}
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "users": st.lists(USERS | SCALARS, max_size=2) | SCALARS,
        "acls": st.lists(ACLS | SCALARS, max_size=2) | SCALARS,
    },
)


@pytest.mark.fuzz
@given(DOCUMENTS | SCALARS)
def test_any_document_is_imported_or_refused(document: object) -> None:
    try:
        imported = read_acl(document)
    except BadRequest:
        return
    assert set(imported.secrets) <= {one.name for one in imported.users}
    assert {one.user for one in imported.policies} <= {one.name for one in imported.users}
    assert len({one.id for one in imported.policies}) == len(imported.policies)


@pytest.mark.fuzz
@given(st.lists(st.sampled_from(["#UserName  #Password", "#Subject", "a  b", "a", "\n", "null"])))
def test_any_text_is_a_table_or_refused(lines: list[str]) -> None:
    try:
        document = tables_of("\n".join(lines))
    except BadRequest:
        return
    assert document is None or "users" in document


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.randoms())
def test_the_order_of_entries_decides_nothing(entries: list[dict[str, Any]], random: Any) -> None:
    def result(given: list[dict[str, Any]]) -> object:
        try:
            return {(one.id, one.actions) for one in read_acl(acl(*given)).policies}
        except BadRequest:
            return "refused"

    turned = list(entries)
    random.shuffle(turned)
    assert result(entries) == result(turned)
