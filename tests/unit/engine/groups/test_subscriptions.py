"""What a group wants, joined over its members."""

from __future__ import annotations

import random

import pytest

from kourou.engine.groups.subscriptions import GroupSubscriptions, signature
from kourou.model.subscription import SQL92, MessageModel, Subscription

CLUSTERING = MessageModel.CLUSTERING


def sub(topic: str, tags: str = "*", version: int = 1) -> Subscription:
    names = frozenset() if tags == "*" else frozenset(tags.split("|"))
    return Subscription(topic, tags, tags=names, version=version)


def put(group: GroupSubscriptions, member: tuple[str, int], *subs: Subscription) -> bool:
    return group.put(member, signature(CLUSTERING, subs), subs)


def test_the_joined_table_has_what_any_member_wants_with_the_newest_version():
    group = GroupSubscriptions()
    assert put(group, ("a", 1), sub("T", version=5), sub("U", version=5))
    assert put(group, ("b", 2), sub("T", "x", version=9))
    assert group.joined == {"T": sub("T", "x", 9), "U": sub("U", version=5)}
    # A new version alone is no new set of topics.
    assert not put(group, ("b", 2), sub("T", "y", version=10))
    assert group.joined["T"] == sub("T", "y", 10)
    group.remove(("b", 2))
    assert group.joined["T"] == sub("T", version=5)
    assert put(group, ("a", 1), sub("T", version=6))
    assert group.joined == {"T": sub("T", version=6)}
    group.remove(("a", 1))
    assert group.joined == {}


def test_the_joined_table_equals_one_made_afresh_after_any_history():
    chance = random.Random(7)
    group, said = GroupSubscriptions(), {}
    for _ in range(3_000):
        member = (f"c{chance.randrange(4)}", chance.randrange(3))
        if chance.random() < 0.2:
            group.remove(member)
            said.pop(member, None)
        else:
            wanted = [
                sub(topic, version=chance.randrange(20))
                for topic in chance.sample("TUVW", chance.randrange(4))
            ]
            put(group, member, *wanted)
            said[member] = {each.topic: each for each in wanted}
        best: dict[str, int] = {}
        for table in said.values():
            for each in table.values():
                best[each.topic] = max(best.get(each.topic, -1), each.version)
        assert {topic: each.version for topic, each in group.joined.items()} == best


def test_each_connection_keeps_its_own_word():
    group = GroupSubscriptions()
    put(group, ("a", 1), sub("T", "x"))
    put(group, ("b", 2), sub("T", "y", 9))
    assert group.over(1)["T"] == sub("T", "x")
    assert group.over(2)["T"] == sub("T", "y", 9)
    assert group.over(3) == {}
    group.remove(("a", 1))
    assert group.over(1) == {}


def named(text: str, version: int = 1) -> Subscription:
    """A subscription to T that names a filter."""
    return Subscription("T", text, version=version, class_filter_mode=True)


@pytest.mark.feature("F241")
@pytest.mark.parametrize(
    ("one", "other", "agrees"),
    [
        (sub("T", "x|y"), (sub("T", "x|y", 9),), True),
        (sub("T", "x|y"), (sub("T", "y|x"), sub("%RETRY%g")), True),
        (sub("T", "x|y"), (sub("T", "x"),), False),
        (sub("T", "x|y"), (sub("T", "x|y"), sub("U")), False),
        (sub("T", "x|y"), (), False),
        (sub("T", "x|y"), (Subscription("T", "x|y", SQL92),), False),
        (sub("T", "x|y"), (named("x|y"),), False),
        (named("late"), (named("late", 9),), True),
        (named("late"), (named("other"),), False),
        (named("late"), (sub("T"),), False),
        (named("late"), (sub("T", "late"),), False),
    ],
)
def test_members_must_agree_on_topics_tags_and_filters_whatever_their_order(
    one: Subscription, other: tuple[Subscription, ...], agrees: bool
):
    group = GroupSubscriptions()
    put(group, ("a", 1), one)
    differs = group.differing(("b", 2), signature(CLUSTERING, other))
    assert differs == (None if agrees else ("a", 1))


def test_a_client_does_not_disagree_with_its_own_past():
    group = GroupSubscriptions()
    put(group, ("a", 1), sub("T", "x"))
    assert group.differing(("a", 2), signature(CLUSTERING, [sub("T", "y")])) is None
    put(group, ("a", 1), sub("T", "y"))
    group.remove(("a", 1))
    assert group.differing(("b", 2), signature(CLUSTERING, [])) is None


def test_the_message_model_is_part_of_it():
    group = GroupSubscriptions()
    put(group, ("a", 1), sub("T"))
    assert group.differing(("b", 2), signature(MessageModel.BROADCASTING, [sub("T")])) == ("a", 1)
