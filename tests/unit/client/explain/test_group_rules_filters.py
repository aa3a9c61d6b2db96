"""What a subscription says of a message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.client.explain.causes import CauseCode
from kourou.client.explain.facts import (
    ConsumerFacts,
    FilterFacts,
    FilterResult,
    GroupFacts,
    QueueAtMember,
    Skip,
)
from kourou.client.explain.group_rules import exclusions_of, held_by_filter, let_through
from kourou.filtering.tags import parse_tags
from kourou.model.filter import FilterPolicy, FilterState, FilterVersion
from kourou.model.subscription import SQL92, Subscription

RUNS = FilterState("g", "even", (FilterVersion(2, "", "", "", 0, 0, enabled_ms=900_000),), active=2)
BY_CODE = Subscription("orders", "even", class_filter_mode=True)


def said(causes) -> list[CauseCode]:
    return [one.code for one in causes]


def wanting(subscription, **more) -> GroupFacts:
    return GroupFacts("g", subscription=subscription, **more)


def filtering(state=RUNS, **more) -> GroupFacts:
    return wanting(BY_CODE, filter=FilterFacts("even", state, 1, **more))


@pytest.mark.parametrize(
    ("expression", "denied"),
    [("*", False), ("paid", False), ("late || paid", False), ("late", True), ("late||open", True)],
)
def test_tags_are_compared_exactly(message, expression, denied):
    found = said(exclusions_of(message, wanting(parse_tags("orders", expression))))
    assert found == ([CauseCode.FILTERED_BY_TAG] if denied else [])


def test_a_message_without_a_tag_is_only_for_who_wants_all(message):
    bare = replace(message, properties={})
    (cause,) = exclusions_of(bare, wanting(parse_tags("orders", "paid")))
    assert cause.facts == {"tag": None, "expression": "paid"}
    assert "no tag" in cause.sentence


@pytest.mark.parametrize(
    ("expression", "denied"),
    [("price > 5", False), ("price > 7", True), ("TAGS = 'paid'", False), ("nobody = 1", True)],
)
def test_properties_are_evaluated_as_brokers_do(message, expression, denied):
    found = said(exclusions_of(message, wanting(Subscription("orders", expression, SQL92))))
    assert found == ([CauseCode.FILTERED_BY_SQL] if denied else [])


def test_what_cannot_be_read_says_nothing(message):
    assert said(exclusions_of(message, wanting(Subscription("orders", "price >", SQL92)))) == []


def test_the_member_that_has_the_queue_decides(message):
    late = ConsumerFacts("m1", subscription=parse_tags("orders", "late"), queue=QueueAtMember(1))
    group = wanting(parse_tags("orders", "paid"), members=(late,))
    assert said(exclusions_of(message, group)) == [CauseCode.FILTERED_BY_TAG]
    idle = replace(late, queue=None)
    assert said(exclusions_of(message, replace(group, members=(idle,)))) == []


def test_a_filter_said_no(message):
    (cause,) = exclusions_of(message, filtering(filter_result=FilterResult(2, False)))
    assert cause.facts == {"filter": "even", "version": 2, "since_ms": 900_000}
    assert said(exclusions_of(message, filtering(filter_result=FilterResult(2, True)))) == []
    assert (
        said(exclusions_of(message, filtering(filter_result=FilterResult(2, None, "it raised"))))
        == []
    )
    assert said(exclusions_of(message, filtering())) == [], "nobody could ask it"


def test_a_quarantined_filter_that_lets_all_through_says_no_to_nobody(message):
    through = replace(RUNS, quarantined={2: "it raised"}, policy=FilterPolicy.PASS)
    group = filtering(through, filter_result=FilterResult(2, False))
    assert said(exclusions_of(message, group)) == []
    assert said(let_through(group)) == [CauseCode.PASSED_UNFILTERED]
    assert said(held_by_filter(message, group)) == []
    assert said(let_through(filtering())) == []


def test_a_recorded_skip_comes_before_what_it_says_now(message):
    skip = Skip(1_100_000, 1, "it raised")
    (cause,) = exclusions_of(message, filtering(skip=skip, filter_result=FilterResult(2, False)))
    assert cause.code is CauseCode.FILTER_SKIPPED
    assert cause.facts["version"] == 1


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (None, CauseCode.FILTER_MISSING),
        (replace(RUNS, active=None), CauseCode.FILTER_DISABLED),
        (replace(RUNS, quarantined={2: "it raised"}), CauseCode.FILTER_QUARANTINED),
        (replace(RUNS, quarantined={1: "an older one"}), None),
        (RUNS, None),
    ],
)
def test_a_group_waits_for_its_filter(message, state, code):
    assert said(held_by_filter(message, filtering(state))) == ([] if code is None else [code])


def test_a_filter_that_runs_and_cannot_judge(message):
    alone = wanting(BY_CODE, filter=FilterFacts("even", RUNS, 0))
    (cause,) = held_by_filter(message, alone)
    assert (cause.code, cause.facts["servers"]) == (CauseCode.FILTER_HOLDS, 0)
    member = ConsumerFacts("m1", filter_waits="KeyError: 'n'")
    (cause,) = held_by_filter(message, replace(filtering(), members=(member,)))
    assert cause.facts["reason"] == "KeyError: 'n'"


def test_whoever_names_no_filter_waits_for_none(message):
    plain = replace(filtering(None), subscription=Subscription("orders"))
    assert said(held_by_filter(message, plain)) == []
