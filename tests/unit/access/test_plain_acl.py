"""RocketMQ's plain_acl.yml decides the same requests here, and white addresses replace nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.authorizer import AccessTable, Authorizer
from kourou.access.model import Action, Need, ResourceType
from kourou.access.plain_acl import networks_of, read_plain_acl
from kourou.errors import BadRequest

SHIPPED = {
    "globalWhiteRemoteAddresses": ["10.10.103.*", "192.168.0.*"],
    "accounts": [
        {
            "accessKey": "RocketMQ",
            "secretKey": 12345678,
            "whiteRemoteAddress": None,
            "admin": False,
            "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "SUB",
            "topicPerms": ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"],
            "groupPerms": ["groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"],
        },
        {
            "accessKey": "rocketmq2",
            "secretKey": 12345678,
            "whiteRemoteAddress": "192.168.1.*",
            "admin": True,
        },
    ],
}


def decisions(document, user: str, **how):
    imported = read_plain_acl(document, **how)
    table = AccessTable()
    for one in imported.users:
        table = table.with_user(one)
    for one in imported.policies:
        table = table.with_policy(one)
    found = Authorizer(table)

    def may(kind: ResourceType, name: str, action: Action, source: str = "10.1.1.1") -> bool:
        return found.decide(user, (Need(kind, name, (action,)),), source, 0).allowed

    return may


def account(**fields):
    return {"accounts": [{"accessKey": "orders1", "secretKey": "secret1", **fields}]}


def test_the_file_that_rocketmq_ships() -> None:
    may = decisions(SHIPPED, "RocketMQ")
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    expected = {
        (topic, "topicA"): "",
        (topic, "topicB"): "PUB SUB",
        (topic, "topicC"): "SUB",
        (topic, "other"): "",
        (group, "groupA"): "",
        (group, "groupB"): "SUB",
        (group, "other"): "SUB",
    }
    for (kind, name), actions in expected.items():
        for action in (Action.PUB, Action.SUB):
            assert may(kind, name, action) == (action.name in actions.split()), (name, action)
    assert decisions(SHIPPED, "rocketmq2")(ResourceType.USER, "x", Action.CREATE)
    imported = read_plain_acl(SHIPPED)
    assert imported.shipped == ["RocketMQ", "rocketmq2"]
    assert imported.secrets == {"RocketMQ": "12345678", "rocketmq2": "12345678"}
    assert "12345678" not in repr(imported)
    assert len([note for note in imported.notes if "not imported" in note]) == 2


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "accounts is not a list"),
        ({"globalWhiteRemoteAddresses": []}, "accounts is not a list"),
        ({"accounts": None}, "accounts is not a list"),
        ({"accounts": ""}, "accounts is not a list"),
        ({"accounts": b""}, "accounts is not a list"),
        ({"acounts": []}, "the file has unknown keys: acounts"),
        ({"accounts": [], "acls2": []}, "the file has unknown keys: acls2"),
    ],
)
def test_a_file_that_does_not_say_that_there_are_no_accounts_is_refused(document, why) -> None:
    with pytest.raises(BadRequest, match=why):
        read_plain_acl(document)


def test_the_version_that_rocketmq_writes_into_the_file_is_known() -> None:
    assert not read_plain_acl({"accounts": [], "dataVersion": [{"counter": 1}]}).users


def test_an_entry_narrows_the_default() -> None:
    may = decisions(
        account(defaultTopicPerm="PUB|SUB", topicPerms=["a=SUB", "b=DENY", "c=nonsense"]), "orders1"
    )
    assert may(ResourceType.TOPIC, "other", Action.PUB)
    assert may(ResourceType.TOPIC, "a", Action.SUB)
    for name, action in (("a", "PUB"), ("b", "PUB"), ("b", "SUB"), ("c", "SUB")):
        assert not may(ResourceType.TOPIC, name, Action[action]), (name, action)


def test_an_administrator_with_entries_is_held_to_them() -> None:
    may = decisions(account(admin="true", topicPerms=["t=PUB"]), "orders1")
    assert may(ResourceType.TOPIC, "t", Action.PUB)
    assert may(ResourceType.TOPIC, "t", Action.DELETE)
    assert not may(ResourceType.TOPIC, "other", Action.PUB)
    assert not may(ResourceType.USER, "x", Action.CREATE)


def test_a_retry_topic_stands_for_its_group() -> None:
    fields = {"topicPerms": ["%RETRY%g=DENY", "orders=SUB"], "defaultGroupPerm": "SUB"}
    may = decisions(account(**fields), "orders1")
    assert may(ResourceType.TOPIC, "orders", Action.SUB)
    assert may(ResourceType.GROUP, "h", Action.SUB)
    assert not may(ResourceType.GROUP, "g", Action.SUB)


def test_a_white_address_restricts_and_never_replaces_a_signature() -> None:
    document = account(whiteRemoteAddress="10.0.0.{1,2}", defaultTopicPerm="PUB")
    may = decisions(document, "orders1", accept_whitelist=True)
    assert may(ResourceType.TOPIC, "t", Action.PUB, "10.0.0.2")
    assert not may(ResourceType.TOPIC, "t", Action.PUB, "10.0.0.3")
    assert decisions(document, "orders1")(ResourceType.TOPIC, "t", Action.PUB, "10.0.0.3")


def test_the_first_of_two_equal_accounts_counts() -> None:
    twice = account(defaultTopicPerm="PUB")
    twice["accounts"].append({"accessKey": "orders1", "secretKey": "another", "admin": True})
    imported = read_plain_acl(twice)
    assert imported.secrets == {"orders1": "secret1"}
    assert imported.notes == ["account orders1 occurs twice; the first one counts"]


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (["accounts"], "not a mapping"),
        ({"accounts": "x"}, "not a list"),
        ({"accounts": ["x"]}, "not a mapping"),
        (account(secretKey="short"), "7 characters"),
        (account(secretKey=None), "7 characters"),
        (account(topicPerm=["a=PUB"]), "unknown keys: topicPerm"),
        (account(topicPerms="a=PUB"), "not a list"),
        (account(topicPerms=["PUB"]), "NAME=PERMISSION"),
        (account(whiteRemoteAddress="10.0.0.300"), "not an address"),
    ],
)
def test_what_cannot_be_meant_is_refused(document, what: str) -> None:
    with pytest.raises(BadRequest, match=what):
        read_plain_acl(document, accept_whitelist=True)


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("10.0.0.1", ("10.0.0.1/32",)),
        ("10.0.0.1, 10.0.0.9", ("10.0.0.1/32", "10.0.0.9/32")),
        ("10.0.0.{1, 2}", ("10.0.0.1/32", "10.0.0.2/32")),
        ("10.0.*.*", ("10.0.0.0/16",)),
        ("10.0.0.4-7", ("10.0.0.4/30",)),
        ("10.0.4-7.*", ("10.0.4.0/22",)),
        ("::1", ("::1/128",)),
        ("*", ("0.0.0.0/0", "::/0")),
    ],
)
def test_notations_of_addresses(text: str, networks: tuple[str, ...]) -> None:
    assert networks_of(text) == networks


@pytest.mark.parametrize(
    "text", ["", "10.0.0", "10.0.*.5", "010.0.0.1", "0x7f.0.0.1", "10.0.0.9-1"]
)
def test_notations_that_could_match_too_much_are_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="not an address"):
        networks_of(text)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.binary(max_size=3)
    | st.sampled_from(["PUB|SUB", "DENY", "t=PUB", "t=", "=PUB", "*=SUB", "10.0.0.*", "10.0.0.9-1",
                       "10.0.0.{1,2}", "256.1.1.1", "1.*.1.1", "true", "long-enough", "a b\n"])
)  # fmt: skip
ACCOUNT = st.dictionaries(
    st.sampled_from(
        ["accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "unknown",
         "defaultGroupPerm", "topicPerms", "groupPerms"]
    ) | st.integers(),
    SCALARS | st.lists(SCALARS, max_size=3),
)  # fmt: skip
DOCUMENT = st.fixed_dictionaries(
    {},
    optional={
        "accounts": st.lists(ACCOUNT | SCALARS, max_size=3) | SCALARS,
        "globalWhiteRemoteAddresses": st.lists(SCALARS, max_size=3) | SCALARS,
    },
)


@pytest.mark.fuzz
@given(DOCUMENT | SCALARS, st.booleans())
def test_any_document_is_imported_or_refused(document: object, accept: bool) -> None:
    try:
        imported = read_plain_acl(document, accept_whitelist=accept)
    except BadRequest:
        return
    assert set(imported.secrets) == {one.name for one in imported.users}
    assert {one.user for one in imported.policies} <= set(imported.secrets)
