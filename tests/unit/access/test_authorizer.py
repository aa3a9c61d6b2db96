"""Decisions: default deny, deny wins, roles, networks, ends, and what is remembered."""

import pytest

from kourou.access.api_token import ApiToken
from kourou.access.authorizer import NEVER_MS, AccessTable, Authorizer
from kourou.access.model import (
    ANONYMOUS,
    SOME,
    Action,
    AnyOf,
    Effect,
    Need,
    Pattern,
    Policy,
    ResourceType,
    RoleGrant,
    User,
    UserRole,
    check_policy,
)
from kourou.errors import BadRequest

PUB, SUB = Action.PUB, Action.SUB
NOW = 1_700_000_000_000


def topic(name: str, *actions: Action) -> Need:
    return Need(ResourceType.TOPIC, name, actions)


def policy(resource: str, *actions: Action, user: str = "alice", **fields) -> Policy:
    pattern = Pattern.parse(resource)
    number = fields.pop("id", f"{resource} {fields.get('effect', 'allow')}")
    return Policy(id=number, user=user, resource=pattern, actions=tuple(actions), **fields)


def authorizer(*policies: Policy, roles: tuple[RoleGrant, ...] = ()) -> Authorizer:
    table = AccessTable().with_user(User(name="alice", roles=roles))
    for one in policies:
        table = table.with_policy(one)
    return Authorizer(table)


def allowed(found: Authorizer, *needs: Need, user: str = "alice", source: str = "10.0.0.1") -> bool:
    return found.decide(user, needs, source, NOW).allowed


def test_what_no_policy_allows_is_refused_and_a_deny_wins_in_any_order() -> None:
    wide, narrow = policy("Topic:*", PUB), policy("Topic:orders", PUB, effect=Effect.DENY)
    assert not allowed(authorizer(), topic("orders", PUB))
    assert allowed(authorizer(wide), topic("orders", PUB))
    for order in ((wide, narrow), (narrow, wide)):
        assert not allowed(authorizer(*order), topic("orders", PUB))
        assert allowed(authorizer(*order), topic("orders-eu", PUB))


def test_all_needs_must_be_met_and_one_action_of_each_suffices() -> None:
    found = authorizer(policy("Topic:orders-*", SUB), policy("Group:g", SUB))
    group = Need(ResourceType.GROUP, "g", (SUB,))
    assert allowed(found, topic("orders-eu", SUB), group)
    assert not allowed(found, topic("orders-eu", SUB), topic("bills", SUB), group)
    assert allowed(found, topic("orders-eu", PUB, SUB))
    refused = found.decide("alice", (topic("bills", SUB),), "", NOW)
    assert (refused.by, refused.need) == ("no policy allows it", topic("bills", SUB))


def test_a_denied_action_does_not_refuse_another_that_suffices() -> None:
    found = authorizer(
        policy("Topic:t", PUB, SUB, id="1"), policy("Topic:t", PUB, effect=Effect.DENY, id="2")
    )
    assert allowed(found, topic("t", PUB, SUB))
    assert found.decide("alice", (topic("t", PUB),), "", NOW).by == "policy 2"


@pytest.mark.parametrize("user", ["bob", ANONYMOUS])
def test_users_without_an_account_have_no_rights(user: str) -> None:
    assert not allowed(authorizer(policy("*", *Action)), topic("orders", PUB), user=user)


def test_anonymous_has_what_policies_give_it() -> None:
    found = authorizer(policy("Topic:public", SUB, user=ANONYMOUS))
    assert allowed(found, topic("public", SUB), user=ANONYMOUS)
    assert not allowed(found, topic("public", PUB), user=ANONYMOUS)


def test_a_disabled_user_has_no_rights_not_even_as_an_administrator() -> None:
    table = AccessTable().with_user(User(name="root", roles=(RoleGrant(UserRole.ADMINISTRATOR),)))
    table = table.with_user(
        User(name="old", roles=(RoleGrant(UserRole.ADMINISTRATOR),), enabled=False)
    )
    found = Authorizer(table)
    assert allowed(found, topic("t", PUB), user="root")
    assert found.decide("old", (topic("t", PUB),), "", NOW).by == "the user is disabled"


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        (UserRole.READER, topic("t", Action.GET), topic("t", SUB)),
        (UserRole.VIEWER, topic("t", SUB), Need(ResourceType.GROUP, "g", (SUB,))),
        (UserRole.WRITER, topic("t", PUB), topic("t", Action.CREATE)),
        (UserRole.OPERATOR, topic("t", Action.DELETE), topic("t", SUB)),
        (
            UserRole.FILTER_AUTHOR,
            Need(ResourceType.FILTER, "g/f", (Action.CREATE,)),
            Need(ResourceType.FILTER, "g/f", (Action.GET,)),
        ),
        (UserRole.BACKUP, topic("t", SUB), Need(ResourceType.CLUSTER, "", (Action.UPDATE,))),
    ],
)
def test_roles_have_these_rights(role: UserRole, may: Need, may_not: Need) -> None:
    found = authorizer(roles=(RoleGrant(role),))
    assert allowed(found, may)
    assert not allowed(found, may_not)
    reads = {Action.GET} if role is UserRole.BACKUP else set()  # they are in the log
    for action in Action:
        assert allowed(found, Need(ResourceType.USER, "alice", (action,))) is (action in reads)


def test_a_role_on_a_prefix_covers_those_names_and_never_the_cluster() -> None:
    found = authorizer(roles=(RoleGrant(UserRole.OPERATOR, prefix="orders-"),))
    assert allowed(found, topic("orders-eu", Action.UPDATE))
    assert not allowed(found, topic("bills", Action.UPDATE))
    assert not allowed(found, Need(ResourceType.CLUSTER, "orders-1", (Action.UPDATE,)))


def test_networks_restrict_a_policy_and_mapped_addresses_are_the_same_source() -> None:
    found = authorizer(policy("Topic:t", PUB, networks=("10.0.0.0/24", "fd00::/8")))
    for source in ("10.0.0.7", "::ffff:10.0.0.7", "fd00::1"):
        assert allowed(found, topic("t", PUB), source=source), source
    for source in ("10.0.1.7", "010.0.0.7", "", "nonsense"):
        assert not allowed(found, topic("t", PUB), source=source), source


def test_a_right_ends_although_it_was_remembered() -> None:
    found = authorizer(policy("Topic:t", PUB, until_ms=NOW + 10))
    assert found.decide("alice", (topic("t", PUB),), "", NOW)
    assert found.decide("alice", (topic("t", PUB),), "", NOW + 9)
    assert not found.decide("alice", (topic("t", PUB),), "", NOW + 10)


def test_what_would_allow_a_refused_need_is_named() -> None:
    found = authorizer(
        policy("Topic:t", PUB, networks=("10.0.0.0/8",), id="7"),
        roles=(RoleGrant(UserRole.READER),),
    )
    assert found.would_allow("alice", topic("t", PUB)) == [
        "policy 7, but only from 10.0.0.0/8",
        "role reader allows Get, List only",
    ]


@pytest.mark.parametrize("text", ["Topic", "Topic:", "Queue:x", "Topic:a*b", "", "topic:x"])
def test_patterns_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="not a resource"):
        Pattern.parse(text)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"actions": ()}, "at least one action"),
        ({"networks": ("10.0.0.1/8",)}, "not a network"),
        ({"networks": ("010.0.0.0/8",)}, "not a network"),
        ({"networks": ("::ffff:10.0.0.0/104",)}, "IPv4 network in IPv6"),
        ({"networks": ("10.0.0.0/8",) * 65}, "at most 64"),
        ({"resource": Pattern.parse("Cluster:DefaultCluster")}, "the cluster has no name"),
        ({"resource": Pattern.parse("Cluster:Default*")}, "the cluster has no name"),
        ({"resource": Pattern.parse("Filter:late")}, "a filter is GROUP/NAME"),
        ({"resource": Pattern.parse("Topic:%RETRY%g")}, "belongs to its group"),
    ],
)
def test_policies_that_could_not_match_are_refused(fields, what: str) -> None:
    usual = {"actions": (PUB,), "resource": Pattern.parse("Topic:t")} | fields
    with pytest.raises(BadRequest, match=what):
        check_policy(Policy(id="1", user="alice", **usual))


@pytest.mark.parametrize(
    "text",
    [
        *("*", "Topic:*", "Topic:orders", "Group:orders-*"),
        *("Cluster:*", "Filter:*", "Filter:g*", "Filter:g/late"),
    ],
)
def test_policies_that_can_match_are_accepted_and_written_as_they_were_read(text: str) -> None:
    assert str(check_policy(policy(text, PUB)).resource) == text


def test_whoever_is_denied_one_topic_does_not_get_all() -> None:
    wide = policy("Topic:*", SUB)
    everything = topic("*", SUB)
    assert allowed(authorizer(wide), everything)
    assert not allowed(authorizer(policy("Topic:orders-*", SUB)), everything)
    denied = policy("Topic:secret", SUB, effect=Effect.DENY)
    assert not allowed(authorizer(wide, denied), everything)
    assert allowed(authorizer(wide, policy("Group:g", SUB, effect=Effect.DENY)), everything)


def test_from_an_unknown_source_networks_deny_and_do_not_allow() -> None:
    near = policy("Topic:orders", PUB, networks=("10.0.0.0/8",))
    far = policy("Topic:news", PUB, networks=("10.0.0.0/8",), effect=Effect.DENY)
    found = authorizer(near, policy("Topic:n*", PUB), far)
    for source, orders, news in (
        ("10.0.0.1", True, False),
        ("11.0.0.1", False, True),
        (None, False, False),
    ):
        assert found.decide("alice", [topic("orders", PUB)], source, NOW).allowed is orders
        assert found.decide("alice", [topic("news", PUB)], source, NOW).allowed is news


def test_what_is_denied_under_one_name_is_not_allowed_under_another() -> None:
    """A dead-letter topic is its group's, and has a name of its own."""
    group = Need(ResourceType.GROUP, "g", (SUB, Action.GET))
    either = AnyOf((group, topic("%DLQ%g", SUB, Action.GET)))
    of_group, of_topic = policy("Group:g", SUB), policy("Topic:%DLQ%g", SUB)

    def decided(*policies: Policy) -> tuple[bool, str]:
        found = authorizer(*policies).decide("alice", (either,), "", NOW)
        return found.allowed, found.by

    assert decided(of_group) == (True, "policy Group:g allow")
    assert decided(of_topic) == (True, "policy Topic:%DLQ%g allow")
    for allow, name in ((of_group, "Topic:%DLQ%g"), (of_topic, "Group:g")):
        deny = policy(name, SUB, effect=Effect.DENY)
        assert decided(allow, deny) == (False, f"policy {name} deny")
        other = policy(name, Action.GET, effect=Effect.DENY)
        assert decided(allow, other)[0], "Sub is not denied, and suffices"


def test_a_right_to_any_resource_is_one_that_not_all_are_denied() -> None:
    anywhere = topic(SOME, PUB)
    assert str(anywhere) == "Pub on any Topic"
    assert not allowed(authorizer(policy("Topic:t", SUB), policy("Group:t", PUB)), anywhere)
    one = policy("Topic:t", PUB)
    assert allowed(authorizer(one, policy("Topic:u", PUB, effect=Effect.DENY)), anywhere)
    assert not allowed(authorizer(one, policy("Topic:*", PUB, effect=Effect.DENY)), anywhere)


# -- tokens ---------------------------------------------------------------------------------------


def with_token(
    scope: RoleGrant, *roles: RoleGrant, enabled: bool = True, expires_ms: int = NOW + 1_000
) -> Authorizer:
    """Alice with a token that is called alice:1."""
    token = ApiToken(
        id="1", user="alice", digest="", scope=scope, created_ms=NOW, expires_ms=expires_ms
    )
    alice = User(name="alice", roles=roles, enabled=enabled)
    table = AccessTable(users={"alice": alice}, tokens={token.name: token})
    return Authorizer(table)


TOKEN = "alice:1"
WRITER = RoleGrant(UserRole.WRITER)
READER = RoleGrant(UserRole.READER)
ADMINISTRATOR = RoleGrant(UserRole.ADMINISTRATOR)
PUB_ORDERS, GET_ORDERS = topic("orders", PUB), topic("orders", Action.GET)


@pytest.mark.parametrize(
    ("scope", "role", "need", "expected"),
    [
        (WRITER, WRITER, PUB_ORDERS, True),
        (READER, WRITER, PUB_ORDERS, False),
        (READER, WRITER, GET_ORDERS, True),
        (WRITER, READER, PUB_ORDERS, False),
        (ADMINISTRATOR, READER, PUB_ORDERS, False),
        (READER, ADMINISTRATOR, PUB_ORDERS, False),
        (READER, ADMINISTRATOR, GET_ORDERS, True),
        (RoleGrant(UserRole.WRITER, "orders"), WRITER, PUB_ORDERS, True),
        (RoleGrant(UserRole.WRITER, "bills"), WRITER, PUB_ORDERS, False),
        (WRITER, RoleGrant(UserRole.WRITER, "bills"), PUB_ORDERS, False),
    ],
)
def test_a_token_may_do_what_both_its_user_and_its_scope_may_do(
    scope: RoleGrant, role: RoleGrant, need: Need, expected: bool
) -> None:
    found = with_token(scope, role)
    assert allowed(found, need, user=TOKEN) is expected
    assert allowed(found, need, user=TOKEN) is expected  # as remembered


def test_a_refusal_says_whether_the_user_or_the_scope_lacks_a_right() -> None:
    by_scope = with_token(RoleGrant(UserRole.READER, "orders"), WRITER)
    decision = by_scope.decide(TOKEN, [PUB_ORDERS], "", NOW)
    assert (decision.allowed, decision.by) == (False, "no policy allows it")
    assert by_scope.would_allow(TOKEN, PUB_ORDERS) == [
        "the token's scope reader on orders* allows Get, List only"
    ]
    granted = by_scope.decide(TOKEN, [GET_ORDERS], "", NOW)
    assert granted.by == "the token's scope reader on orders*"


def test_a_token_ends_with_its_time_and_with_its_user() -> None:
    found = with_token(WRITER, WRITER)
    generation = found.generation(NOW)
    assert found.until_ms == NEVER_MS
    assert allowed(found, PUB_ORDERS, user=TOKEN)
    assert found.until_ms == NOW + 1_000
    assert found.generation(NOW + 999) is generation
    assert found.generation(NOW + 1_000) is not generation
    assert found.until_ms == NEVER_MS
    decision = found.decide(TOKEN, [PUB_ORDERS], "", NOW + 1_000)
    assert (decision.allowed, decision.by) == (False, "the token has expired")
    assert not found.decide(TOKEN, [], "", NOW + 1_000)
    disabled = with_token(WRITER, WRITER, enabled=False).decide(TOKEN, [PUB_ORDERS], "", NOW)
    assert disabled.by == "the user is disabled"
    unknown = found.decide("alice:2", [PUB_ORDERS], "", NOW)
    assert unknown.by == "the user does not exist"


def test_what_is_denied_to_the_user_is_denied_to_the_token() -> None:
    table = with_token(WRITER, WRITER).table
    denied = Authorizer(table.with_policy(policy("Topic:orders", PUB, effect=Effect.DENY)))
    assert not allowed(denied, PUB_ORDERS, user=TOKEN)
    assert allowed(denied, topic("bills", PUB), user=TOKEN)
