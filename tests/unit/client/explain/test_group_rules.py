"""What follows from the facts about one group: copies, trace, progress, and what bars it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.client.explain.causes import CauseCode
from kourou.client.explain.facts import (
    ConsumerFacts,
    CopyKind,
    Delivery,
    Form,
    GroupFacts,
    Lookup,
    MessageFacts,
    QueueAtMember,
    Reset,
)
from kourou.client.explain.group_rules import causes_of_group, crossing
from kourou.model.message import DELAY_LEVELS_MS
from kourou.model.subscription import (
    ConsumeFromWhere,
    ConsumeType,
    GroupConfig,
    MessageModel,
    Subscription,
)
from kourou.model.topic import MessageQueue

ALL = Subscription("orders")
PAID = Subscription("orders", "paid", tags=frozenset({"paid"}))
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


def codes(causes) -> list[CauseCode]:
    return [one.code for one in causes]


@pytest.fixture
def group() -> GroupFacts:
    """A group that is before the message, with one member that has its queue."""
    holder = ConsumerFacts("m1", subscription=ALL, queue=QueueAtMember(3))
    return GroupFacts(
        "g", GroupConfig("g"), True, subscription=ALL, members=(holder,), next_offset=3
    )


@pytest.fixture
def judge(message):
    """The causes of a group's facts."""

    def causes(group, *places):
        places = (message, *places)
        facts = MessageFacts(
            "ID",
            2_000_000,
            Lookup(Form.KEY),
            message,
            places,
            delay_levels_ms=DELAY_LEVELS_MS,
        )
        return causes_of_group(facts, message, group)

    return causes


@pytest.fixture
def copy_of(message):
    """A copy that was stored because the group failed."""

    def make(kind, stored_ms, *, offset=0, attempts=1, topic="%RETRY%g", **properties):
        return replace(
            message,
            kind=kind,
            group="g",
            queue=MessageQueue(topic, "broker-a", 0),
            offset=offset,
            stored_ms=stored_ms,
            attempts=attempts,
            properties=properties,
        )

    return make


# -- attempts -------------------------------------------------------------------------------------


def test_a_retry_without_a_level_is_due_at_an_unknown_time(group, judge, copy_of):
    (cause,) = judge(group, copy_of(CopyKind.RETRY_WAIT, 1_500_000))
    assert (cause.code, cause.facts["due_ms"]) == (CauseCode.IN_RETRY, None)


def test_of_a_dead_letter_that_failed_once_more_the_newest_counts(group, judge, copy_of):
    dead_letter = copy_of(CopyKind.DEAD_LETTER, 1_500_000, attempts=17, topic="%DLQ%g")
    assert codes(judge(replace(group, dealt_with=0), dead_letter)) == [CauseCode.DEAD_LETTERED]
    again = copy_of(CopyKind.RETRY, 1_600_000, attempts=0)
    failed = copy_of(CopyKind.DEAD_LETTER, 1_700_000, topic="%DLQ%g", offset=1)
    done = replace(group, retry_next=1)
    assert codes(judge(done, dead_letter, again, failed)) == [CauseCode.DEAD_LETTERED]


def test_copies_of_other_groups_are_theirs(group, judge, copy_of):
    theirs = replace(copy_of(CopyKind.RETRY, 1_500_000), group="h")
    assert codes(judge(replace(group, next_offset=8), theirs)) == [CauseCode.CONSUMED]


# -- what happened --------------------------------------------------------------------------------


def test_a_handler_that_succeeded_comes_before_progress(group, judge):
    failed = Delivery(1_000, 1, 1_100, False, "exception")
    worked = Delivery(2_000, 2, 2_100, True, "success")
    (cause,) = judge(replace(group, deliveries=(failed, worked)))
    assert cause.facts == {"proof": "trace", "at_ms": 2_100, "attempt": 2}
    assert judge(replace(group, deliveries=(failed,)))[0].code is CauseCode.WAITING_BEHIND


def reset(event, before, after) -> Reset:
    return Reset(1_500_000, "till:1", "too many", before, after, event)


def test_the_newest_reset_over_it_counts(group, judge):
    beyond = replace(group, next_offset=9)
    (cause,) = judge(replace(beyond, resets=(reset(1, 3, 9),)))
    assert cause.code is CauseCode.RESET_PAST
    assert (cause.facts["actor"], cause.facts["reason"], cause.facts["event"]) == (
        "till:1",
        "too many",
        1,
    )
    back = (reset(1, 3, 9), reset(2, 9, 0))
    assert codes(judge(replace(beyond, resets=back))) == [CauseCode.CONSUMED], "it came after that"
    behind = (reset(1, 3, 5), reset(2, 8, 9))
    assert codes(judge(replace(beyond, resets=behind))) == [CauseCode.CONSUMED]


def test_a_reset_crosses_an_offset_between_its_ends():
    found = reset(1, 3, 7)
    assert [crossing((found,), offset) for offset in (2, 3, 6, 7)] == [None, found, found, None]
    new = reset(1, None, 7)
    assert crossing((new,), 0) is new


def test_a_new_group_began_behind_it(group, judge):
    beyond = replace(group, next_offset=9, start_from=LAST)
    assert codes(judge(beyond)) == [CauseCode.CONSUMED], "nothing says when it began"
    later = replace(beyond, created_ms=1_000_001)
    assert codes(judge(later)) == [CauseCode.SKIPPED_BY_CONSUME_FROM_LAST]
    assert codes(judge(replace(beyond, created_ms=999_999))) == [CauseCode.CONSUMED]
    elsewhere = replace(beyond, created_ms=999_999, had_progress=False)
    assert codes(judge(elsewhere)) == [CauseCode.SKIPPED_BY_CONSUME_FROM_LAST]
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert codes(judge(replace(later, start_from=first))) == [CauseCode.CONSUMED]


# -- what bars it ---------------------------------------------------------------------------------


def test_a_group_of_which_nothing_is_known(judge):
    assert codes(judge(GroupFacts("g", GroupConfig("g")))) == [CauseCode.UNDECIDED]


def test_a_group_that_pulls(group, judge):
    pulls = replace(group, consume_type=ConsumeType.CONSUME_ACTIVELY, members=())
    assert codes(judge(pulls)) == [CauseCode.PULL_CONSUMER]
    every = replace(pulls, model=MessageModel.BROADCASTING)
    assert codes(judge(every)) == [CauseCode.PULL_CONSUMER]


def test_members_that_differ_come_first_where_nobody_has_the_queue(group, judge):
    other = ConsumerFacts("m2", subscription=PAID)
    found = judge(replace(group, members=(*group.members, other)))
    assert codes(found) == [CauseCode.WAITING_BEHIND, CauseCode.SUBSCRIPTIONS_CLASH]
    idle = replace(group.members[0], queue=None)
    found = judge(replace(group, members=(idle, other)))
    assert codes(found) == [CauseCode.SUBSCRIPTIONS_CLASH, CauseCode.QUEUE_UNASSIGNED]


def test_members_that_differ_stand_beside_what_one_of_them_did_not_want(group, judge):
    late = Subscription("orders", "late", tags=frozenset({"late"}))
    other = ConsumerFacts("m2", subscription=late)
    beyond = replace(group, subscription=late, next_offset=8, members=(ConsumerFacts("m1"), other))
    assert codes(judge(beyond)) == [CauseCode.FILTERED_BY_TAG, CauseCode.SUBSCRIPTIONS_CLASH]


def test_of_a_copy_that_is_all_that_is_left_only_its_group_is_explained(group, copy_of):
    dead_letter = copy_of(CopyKind.DEAD_LETTER, 1_500_000, topic="%DLQ%g")
    facts = MessageFacts("ID", 2_000_000, Lookup(Form.KEY), dead_letter, (dead_letter,))
    assert codes(causes_of_group(facts, dead_letter, group)) == [CauseCode.DEAD_LETTERED]
    other = replace(group, name="h")
    assert codes(causes_of_group(facts, dead_letter, other)) == [CauseCode.UNDECIDED]
