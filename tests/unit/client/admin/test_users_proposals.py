"""Policies proposed for refusals: the smallest ones, and nothing that a client made up."""

from __future__ import annotations

import shlex

import pytest

from kourou.access.model import Action, Effect, Pattern, Policy
from kourou.client.admin.users import proposals
from kourou.protocol.bodies.access_bodies import Refusal


def refused(
    need: str, *, user: str = "till", by: str = "no policy allows it", count: int = 1,
    source: str = "10.0.0.1",
) -> Refusal:  # fmt: skip
    return Refusal(
        user=user,
        source=source,
        request="SendMessage",
        need=need,
        by=by,
        count=count,
        last_ms=1,
        handled=True,
    )


def policy(resource: str, *actions: Action, effect: Effect = Effect.ALLOW, **more) -> Policy:
    return Policy(
        id=f"till/{resource}/{effect}",
        user="till",
        resource=Pattern.parse(resource),
        actions=actions,
        effect=effect,
        **more,
    )


def test_refusals_of_one_resource_become_one_command() -> None:
    found = proposals(
        [
            refused("Sub on Topic:orders", count=2),
            refused("Pub on Topic:orders"),
            refused("Get or Sub on Group:g"),
            refused("Get on Cluster:"),
        ],
        {"till"},
        [],
    )
    assert found == [
        "kourou user allow till Get 'Cluster:*'  # 1 request",
        "kourou user allow till Get Group:g  # 1 request",
        "kourou user allow till Pub,Sub Topic:orders  # 3 requests",
    ]


def test_a_command_keeps_the_rights_of_the_policy_that_it_replaces() -> None:
    before = policy(
        "Topic:orders", Action.SUB, networks=("10.1.0.0/16",), until_ms=4_102_444_800_000
    )
    [found] = proposals([refused("Pub on Topic:orders")], {"till"}, [before])
    assert found == (
        "kourou user allow till Pub,Sub Topic:orders --from 10.1.0.0/16 --from 10.0.0.1/32"
        " --until 4102444800000  # 1 request"
    )


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (refused("Pub on Topic:orders", user="anonymous"), "give these clients a user"),
        (refused("Pub on Topic:orders", user="gone"), "give these clients a user"),
        (refused("", by="the user is disabled"), "the user is disabled"),
        (refused("Pub on Topic:x", by="policy till/Topic:*/deny"), "denied by policy till"),
        (refused("Update on User:till"), "only administrators change users"),
        (refused("Sub on Topic:*"), "decide that yourself"),
        (refused("Sub on Topic:ord*"), "decide that yourself"),
        (refused("Sub on Topic:a\nkourou user set me --admin"), "decide that yourself"),
        (refused("Fly on Topic:orders"), "needs Fly"),
        (refused("", user="others", by="others"), "others from"),
    ],
)
def test_what_no_policy_should_solve_is_a_comment(one: Refusal, text: str) -> None:
    [found] = proposals([one], {"till"}, [])
    assert found.startswith("# 1 request: ")
    assert text in found
    assert found.isprintable()


def test_a_policy_that_denies_the_same_resource_is_not_replaced() -> None:
    deny = policy("Topic:orders", Action.SUB, effect=Effect.DENY)
    [found] = proposals([refused("Pub on Topic:orders")], {"till"}, [deny])
    assert found == "# 1 request: till is denied Sub on Topic:orders by a policy"


def test_names_are_quoted() -> None:
    [found] = proposals([refused("Pub on Topic:$(reboot); #")], {"till"}, [])
    command = found.removesuffix("  # 1 request")
    assert shlex.split(command)[-1] == "Topic:$(reboot); #"
    assert command.endswith("'Topic:$(reboot); #'")
